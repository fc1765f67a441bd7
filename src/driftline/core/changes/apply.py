"""`apply`: the schema after changes. It trusts them; what a person asks for goes through `evolved`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

from driftline.core.changes.defaults import default_json
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
        for appends, run in groupby(changes, _appends):
            if appends:
                self._append(change for change in run if isinstance(change, AddColumn) and not change.within)
            else:
                for change in run:
                    self.make(change)

    def make(self, change: ColumnChange) -> None:
        """Make the change. Raises DataError, KeyError where the schema does not allow it."""
        match change:
            case AddColumn(within=True):
                return
            case AddColumn(parent, column, to=to):
                column = self._fresh(column)
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
        """Append columns to their structs. A batch may bring thousands of columns in as many structs, so the
        schema is gone through once.
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
            return Struct(tuple(changed.get(id(f), f) for f in type_.fields))
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
