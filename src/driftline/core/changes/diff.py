"""`diff`: the changes from one schema to another, by field id. `history` prints them, formats apply them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from driftline.core.changes.defaults import literal_of
from driftline.core.changes.values import (
    AddColumn,
    ColumnChange,
    DropColumn,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RequireColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    WidenColumn,
)
from driftline.core.schema.types import Field, Map, Path, Primitive, Schema, Struct, Type, children


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
            middle = replace(after, struct=_without(after.struct, new), identifiers=frozenset())
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
        if not (isinstance(before, Map) and old.name == "key"):
            yield from _field(old, new, path)


def _added(column: Field, parent: Path) -> Iterator[ColumnChange]:
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


def _without(struct: Struct, ids: set[int]) -> Struct:
    return Struct(tuple(_trimmed(f, ids) for f in struct.fields if f.id not in ids))


def _trimmed(column: Field, ids: Iterable[int]) -> Field:
    gone = set(ids)

    def of(type_: Type) -> Type:
        if isinstance(type_, Struct):
            return _without(type_, gone)
        if isinstance(type_, Map):
            return replace(type_, value=of(type_.value))
        return type_ if isinstance(type_, Primitive) else replace(type_, element=of(type_.element))

    return replace(column, type=of(column.type))
