"""Applies changes to a schema, and finds the changes between two schemas.

`apply` trusts its changes; those that a person asks for go through `evolved`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby

from driftline.core.changes.defaults import default_json, literal_of
from driftline.core.changes.values import (
    AddColumn,
    ColumnChange,
    DropColumn,
    DropIdentifiers,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RequireColumn,
    RewriteColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    WidenColumn,
)
from driftline.core.schema.naming import MARK, data_key, is_metadata, mark, marked_key, unmarked
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    dotted,
    with_child,
)

Edit = Callable[[Field], Field | None]


def apply(schema: Schema, changes: Iterable[ColumnChange]) -> Schema:
    """The schema after ``changes``, with fresh ids for new columns, as a table would assign them.

    Raises KeyError for a path that does not exist, TypeError if the parent is not a struct.

    >>> from driftline.core.schema.types import LONG
    >>> str(apply(Schema(), [AddColumn((), Field("a", LONG))]).struct)
    'struct<a: long>'
    """
    draft = SchemaDraft(schema, schema.highest_id())
    draft.make_all(changes)
    return draft.schema


def fresh(column: Field, last: int) -> Field:
    """The column with ids after ``last``, its own first, as a table gives them."""
    return _Ids(last).fresh(column)


@dataclass(slots=True)
class SchemaDraft:
    """A schema under change. ``last`` is the highest id given so far.

    ``renamed``: ids of columns that got their name here. While two columns have one name, as in a swap, the
    name means the other.
    """

    schema: Schema
    last: int
    mark: str = MARK
    renamed: set[int] = field(default_factory=set)

    def make_all(self, changes: Iterable[ColumnChange]) -> None:
        """Make the changes in order; columns that are appended one after the other in one pass.

        Raises DataError, KeyError, TypeError where the schema does not allow a change.
        """
        # A batch of a new table appends thousands of columns; one by one, each would copy its struct again.
        for appends, run in groupby(changes, _appends):
            if appends:
                self._append(change for change in run if isinstance(change, AddColumn) and not change.within)
            else:
                for change in run:
                    self.make(change)

    def make(self, change: ColumnChange) -> None:
        """Make the change. Raises DataError, KeyError where the schema does not allow it."""
        match change:
            # The type of the new struct around it has this column already.
            case AddColumn(within=True):
                return
            case AddColumn(parent, column, to=to):
                column = self._fresh(column)
                # A later change that uses the name means the column that had it before (see `child`).
                self.renamed.add(column.id)
                self.edit(parent, lambda f: replace(f, type=_add(f.type, column, to)))
            case DropColumn(path):
                self.edit(path, lambda _: None)
            case RenameColumn(path, name):
                self.renamed.add(self.edit(path, lambda f: renamed(f, name, self.mark)).id)
            case MoveColumn(path, to):
                self.edit(path[:-1], lambda f: replace(f, type=self._moved(f.type, path[-1], to)))
            case SetIdentifiers(paths):
                self._identify(self._ids(paths))
            case DropIdentifiers(paths):
                self._identify(self.schema.identifiers - self._ids(paths))
            case _:
                self._alter(change)

    def _alter(self, change: ColumnChange) -> None:
        """Make a change to one column itself."""
        match change:
            case WidenColumn(path, type_):
                self.edit(path, lambda f: replace(f, type=type_))
            case RelaxColumn(path):
                self.edit(path, lambda f: replace(f, required=False))
            case RequireColumn(path):
                self.edit(path, lambda f: replace(f, required=True))
            case RewriteColumn(path, type_):
                # A fresh id: files with the old one hold values of the old type, which no reader may take for
                # the new.
                self.edit(path, lambda f: self._fresh(replace(f, type=type_, required=False)))
            case SetDefault(path, value):
                self.edit(path, lambda f: replace(f, write_default=default_json(f.type, value)))
            case SetDoc(path, doc):
                self.edit(path, lambda f: replace(f, doc=documented(f.doc, doc, self.mark)))

    def _ids(self, paths: Iterable[Path]) -> frozenset[int]:
        return frozenset(self.find(path).id for path in paths)

    def _identify(self, columns: frozenset[int]) -> None:
        self.schema = replace(self.schema, identifiers=columns)

    def find(self, path: Path) -> Field:
        """The field at a path; the empty path is the record itself. Raises KeyError."""
        column = Field("", self.schema.struct)
        for step in path:
            column = self.child(column.type, step, path)
        return column

    def child(self, type_: Type, name: str, path: Path = ()) -> Field:
        """The child of this name; of two, the one that had it before."""
        named = [f for f in children(type_) if f.name == name]
        if not named:
            raise KeyError(dotted(path or (name,)))
        return next((f for f in named if f.id not in self.renamed), named[0])

    def edit(self, path: Path, edit: Edit) -> Field:
        """Edits the field at a path; None takes it out. Returns the field as it was."""
        struct = self._edited(self.schema.struct, path, path, edit)
        before = self.find(path)
        assert isinstance(struct, Struct)
        self.schema = replace(self.schema, struct=struct)
        return before

    def _edited(self, type_: Type, path: Path, full_path: Path, edit: Edit) -> Type:
        if not path:
            edited = edit(Field("", type_))
            assert edited is not None
            return edited.type
        child = self.child(type_, path[0], full_path)
        edited = (
            edit(child)
            if len(path) == 1
            else replace(child, type=self._edited(child.type, path[1:], full_path, edit))
        )
        match type_:
            case Struct(fields):
                # By identity: two fields may have one name, and even be equal.
                index = next(i for i, f in enumerate(fields) if f is child)
                return Struct((*fields[:index], *([edited] if edited else ()), *fields[index + 1 :]))
            case List() if edited:
                return replace(
                    type_, element=edited.type, element_id=edited.id, element_required=edited.required
                )
            case Map() if edited and child.name == "value":
                return replace(type_, value=edited.type, value_id=edited.id, value_required=edited.required)
            case _:
                raise KeyError(dotted(full_path))

    def _append(self, changes: Iterable[AddColumn]) -> None:
        """Append columns to their structs, in one pass over the schema.

        A batch may bring thousands of columns in as many structs.
        """
        appended = _Appended()
        for change in changes:
            column = self._fresh(change.column)
            self.renamed.add(column.id)
            inside = appended
            for step in change.parent:
                inside = inside.inside[step]
            inside.columns.append(column)
        if not (appended.columns or appended.inside):
            return
        struct = self._with(self.schema.struct, appended, ())
        assert isinstance(struct, Struct)
        self.schema = replace(self.schema, struct=struct)

    def _with(self, type_: Type, appended: _Appended, path: Path) -> Type:
        for column in appended.columns[:1]:
            _check_struct(type_, column)
        if isinstance(type_, Struct):
            type_ = Struct((*type_.fields, *appended.columns))
        inside = {} if not appended.inside else self._by_name(type_)
        changed: dict[int, Field] = {}
        for step, below in appended.inside.items():
            if step not in inside:
                raise KeyError(dotted((*path, step)))
            child = inside[step]
            changed[id(child)] = replace(child, type=self._with(child.type, below, (*path, step)))
        if isinstance(type_, Struct):
            return Struct(tuple(changed.get(id(f), f) for f in type_.fields)) if changed else type_
        for child in changed.values():
            type_ = with_child(type_, child.name, child)
        return type_

    def _by_name(self, type_: Type) -> dict[str, Field]:
        """The children by name; of two of one name, the one that had it before."""
        by_name: dict[str, Field] = {}
        for child in children(type_):
            if child.id not in self.renamed or child.name not in by_name:
                by_name[child.name] = child
        return by_name

    def _moved(self, type_: Type, name: str, to: Position) -> Struct:
        assert isinstance(type_, Struct)
        column = self.child(type_, name)
        after = None if to.after is None else self.child(type_, to.after).id
        return _placed(tuple(f for f in type_.fields if f is not column), column, after)

    def _fresh(self, column: Field) -> Field:
        ids = _Ids(self.last)
        column = ids.fresh(column)
        self.last = ids.last
        return column


def renamed(column: Field, name: str, prefix: str = MARK) -> Field:
    """Rename a column. It is marked with the key that fills it, unless the name is that key."""
    if is_metadata(column.doc):  # known by its doc, whatever its name
        return replace(column, name=name)
    # The key of the data stays: a renamed column goes on being filled by its old field.
    key, text = data_key(column, prefix), unmarked(column.doc, prefix)
    lines = [mark(key, prefix)] * (name != key) + ([text] if text else [])
    return replace(column, name=name, doc="\n".join(lines) or None)


def documented(before: str | None, doc: str | None, prefix: str = MARK) -> str | None:
    """A doc with another comment: the mark stays its first line.

    >>> documented("upsolver_evolved_from:size\\nbytes", "in bytes")
    'upsolver_evolved_from:size\\nin bytes'
    """
    first = (before or "").partition("\n")[0]
    if is_metadata(before):
        marked, keeps = True, is_metadata(doc)
    else:
        marked, keeps = marked_key(before, prefix) is not None, marked_key(doc, prefix) is not None
    if not marked or keeps:
        return doc or None
    return f"{first}\n{doc}" if doc else first


@dataclass(slots=True)
class _Appended:
    """New columns of a struct, and of those inside it."""

    columns: list[Field] = field(default_factory=list)
    inside: defaultdict[str, _Appended] = field(default_factory=lambda: defaultdict(_Appended))


def _appends(change: ColumnChange) -> bool:
    return isinstance(change, AddColumn) and change.to is None


def _check_struct(type_: Type, column: Field) -> None:
    if not isinstance(type_, Struct):
        raise TypeError(f"no struct to add {column.name} to, but {type_}")


def _add(type_: Type, column: Field, to: Position | None) -> Struct:
    _check_struct(type_, column)
    assert isinstance(type_, Struct)
    if to is None:
        return Struct((*type_.fields, column))
    after = None if to.after is None else next((f.id for f in type_.fields if f.name == to.after), -1)
    return _placed(type_.fields, column, after)


def _placed(fields: tuple[Field, ...], column: Field, after: int | None) -> Struct:
    """The fields with ``column`` after the one with the id ``after``; None: first."""
    if after is None:
        return Struct((column, *fields))
    index = [f.id for f in fields].index(after) + 1
    return Struct((*fields[:index], column, *fields[index:]))


class _Ids:
    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        """The next free id."""
        self.last += 1
        return self.last

    def fresh(self, column: Field) -> Field:
        """The column with new ids, its own before those inside it."""
        return replace(column, id=self.next(), type=self._type(column.type))

    def _type(self, type_: Type) -> Type:
        match type_:
            case Struct(fields):
                # Iceberg gives all fields of a struct their ids before those inside them, and files already
                # name these.
                numbered = [replace(f, id=self.next()) for f in fields]
                return Struct(tuple(replace(f, type=self._type(f.type)) for f in numbered))
            case List(element):
                return replace(type_, element_id=self.next(), element=self._type(element))
            case Map(key, value):
                key_id, value_id = self.next(), self.next()
                return replace(
                    type_, key_id=key_id, value_id=value_id, key=self._type(key), value=self._type(value)
                )
            case Primitive():
                return type_


def diff(before: Schema, after: Schema) -> tuple[ColumnChange, ...]:
    """The fewest changes that lead from ``before`` to ``after``.

    They apply together, as one update of Iceberg's: paths name columns as in ``before``, new ones by their
    own name, and identifiers as in ``after``. A rename changes nothing else: a mark is a change of the doc.

    >>> from driftline.core.schema.types import LONG
    >>> one, two = Field("a", LONG, 1), Field("b", LONG, 2)
    >>> diff(Schema(Struct((one, two))), Schema(Struct((replace(two, name="c"),))))
    (DropColumn(path=('a',), if_exists=False), RenameColumn(path=('b',), name='c'))
    """
    changes = list(_struct(before.struct, after.struct, ()))
    if before.identifiers != after.identifiers:
        paths = tuple(path for path, f in after.walk() if f.id in after.identifiers)
        changes.append(SetIdentifiers(paths))
    return tuple(changes)


def stages(before: Schema, after: Schema) -> list[tuple[Schema, Schema]]:
    """The steps to apply a diff in: two if a new column takes a name that another only now gives up."""
    paths = {f.id: path for path, f in before.walk()} | {0: ()}
    ids = {path: f.id for path, f in after.walk()} | {(): 0}
    taken = {paths[i] for i in ids.values() if i in paths}
    new = {i for i in ids.values() if i not in paths}
    for path, i in ids.items():
        parent = paths.get(ids[path[:-1]])
        if i in new and parent is not None and (*parent, path[-1]) in taken:
            # Iceberg resolves names in one update as they were before it, so the name has to be free first.
            middle = replace(after, struct=without_columns(after.struct, new), identifiers=frozenset())
            return [(before, middle), (middle, after)]
    return [(before, after)]


def _struct(before: Struct, after: Struct, parent: Path) -> Iterator[ColumnChange]:
    old = {f.id: f for f in before.fields}
    new = {f.id: f for f in after.fields}
    staying = [f for f in before.fields if f.id in new]
    added = [f for f in after.fields if f.id not in old]
    yield from (DropColumn((*parent, f.name)) for f in before.fields if f.id not in new)
    for f in staying:
        yield from _field(f, new[f.id], parent)
    for f in added:
        yield from _added(f, parent)
    names = {f.id: f.name for f in [*staying, *added]}
    # Moves before renames: they name columns as in ``before``.
    yield from _moves([*names], [f.id for f in after.fields], names, parent)
    yield from _renames(staying, new, parent)


def _renames(fields: Iterable[Field], after: Mapping[int, Field], parent: Path) -> Iterator[RenameColumn]:
    for f in fields:
        if f.name != after[f.id].name:
            yield RenameColumn((*parent, f.name), after[f.id].name)


def _field(before: Field, after: Field, parent: Path) -> Iterator[ColumnChange]:
    path = (*parent, before.name)
    if isinstance(after.type, Primitive) and before.type != after.type:
        yield WidenColumn(path, after.type)
    if before.required != after.required:
        yield RequireColumn(path) if after.required else RelaxColumn(path, after.type)
    if before.write_default != after.write_default:
        yield SetDefault(path, literal_of(after.type, after.write_default))
    if before.doc != after.doc:
        yield SetDoc(path, after.doc, before.doc)
    yield from _type(before.type, after.type, path)


def _type(before: Type, after: Type, path: Path) -> Iterator[ColumnChange]:
    if isinstance(before, Struct) and isinstance(after, Struct):
        yield from _struct(before, after, path)
        return
    for old, new in zip(children(before), children(after), strict=False):
        # The formats never change the key of a map.
        if not (isinstance(before, Map) and old.name == "key"):
            yield from _field(old, new, path)


def _added(column: Field, parent: Path) -> Iterator[ColumnChange]:
    # A new column has one default in Iceberg; another one for later rows is a change of its own.
    initial = replace(column, write_default=column.initial_default)
    yield AddColumn(parent, initial)
    if column.write_default != column.initial_default:
        yield SetDefault((*parent, column.name), literal_of(column.type, column.write_default))


def _moves(have: list[int], want: list[int], names: dict[int, str], parent: Path) -> Iterator[MoveColumn]:
    """The fewest moves: the longest run already in order stays."""
    place = {id_: i for i, id_ in enumerate(have)}
    staying = longest_rising([place[id_] for id_ in want])
    for i, id_ in enumerate(want):
        if place[id_] not in staying:
            yield MoveColumn((*parent, names[id_]), Position(names[want[i - 1]] if i else None))


def longest_rising(numbers: list[int]) -> set[int]:
    """The longest rising subsequence.

    >>> sorted(longest_rising([2, 0, 1, 3]))
    [0, 1, 3]
    """
    tails: list[int] = []
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for n in numbers:
        i = bisect_left(tails, n)
        before[n] = ends[i - 1] if i else None
        tails[i : i + 1] = [n]
        ends[i : i + 1] = [n]
    out: set[int] = set()
    last = ends[-1] if ends else None
    while last is not None:
        out.add(last)
        last = before[last]
    return out


def without_columns(struct: Struct, ids: AbstractSet[int]) -> Struct:
    """The struct without the columns of these ids, at any depth."""
    return Struct(tuple(_trimmed(f, ids) for f in struct.fields if f.id not in ids))


def _trimmed(column: Field, ids: Iterable[int]) -> Field:
    gone = set(ids)

    def of(type_: Type) -> Type:
        if isinstance(type_, Struct):
            return without_columns(type_, gone)
        if isinstance(type_, Map):
            return replace(type_, value=of(type_.value))
        return type_ if isinstance(type_, Primitive) else replace(type_, element=of(type_.element))

    return replace(column, type=of(column.type))


def refits(written: Schema, now: Schema) -> bool:
    """True if files of the schema ``written`` read, under ``now``, as if they were written for it.

    A column with the same path in both has one id; one that the files lack reads as it would in a new row.
    Removed or renamed columns and wider types are the plan's to judge: they are right if no value goes there.
    """
    if written.identifiers != now.identifiers:
        return False
    before = dict(written.walk())
    by_id = {f.id: f for f in before.values()}
    new: set[Path] = set()
    for path, column in now.walk():
        at_path, old = before.get(path), by_id.get(column.id)
        # Someone else made a column of this name meanwhile: the files have another id, so it would read as
        # null.
        if at_path is not None and at_path.id != column.id:
            return False
        if old is None:
            new.add(path)
            # A field of a new struct is null with it, whatever its own default says.
            if path[:-1] not in new and not _reads_as_new(column):
                return False
        elif not _still(old, column):
            return False
    return True


def _reads_as_new(column: Field) -> bool:
    default = column.initial_default
    return default == column.write_default and not (column.required and default is None)


def _still(old: Field, column: Field) -> bool:
    if column.required and not old.required:
        return False
    return type(old.type) is type(column.type) and old.write_default == column.write_default


def extends(written: Schema, now: Schema) -> bool:
    """True if ``now`` has every column of ``written``, and else only columns that old rows read as null.

    A column is the same with its name, its id and its type.
    """
    before = dict(written.walk())
    after = dict(now.walk())
    return all(
        (same := after.get(path)) is not None and same.id == f.id and type(same.type) is type(f.type)
        and (not isinstance(f.type, Primitive) or same.type == f.type)
        for path, f in before.items()
    ) and all(f.initial_default is None for path, f in after.items() if path not in before)  # fmt: skip
