"""The columns that a table would have, had all of its records come in one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from driftline.core.changes import AddColumn
from driftline.core.columns.siblings import families
from driftline.core.planning.conversions import fits
from driftline.core.planning.plan import FieldRoute, Plan, RecordRoute
from driftline.core.planning.policies import policy_of
from driftline.core.planning.policies.preserve import DATELIKE
from driftline.core.planning.shape import FieldShape
from driftline.core.schema.naming import caseless, data_key, is_metadata, unmarked
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import (
    STRING,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    all_optional,
    children,
    peel,
)
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.table import TableSettings

NARROWER = "the type would be narrower"
INEXACT = "a value would not read back as it is"


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """A column of a field: its ``path`` in the schema, and its type."""

    path: Path
    type: Type


@dataclass(frozen=True, slots=True)
class ReplannedField:
    """A field that would have other columns.

    Attributes:
        path: by keys of the data.
        now: the columns that it has; none if all of its values wait.
        then: those that it would have.
        why: the reason.
    """

    path: Path
    now: tuple[ColumnAt, ...]
    then: tuple[ColumnAt, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Replanned:
    """The outcome of planning all records at once.

    Attributes:
        fields: those that would have other columns.
        stay: those that would, but keep theirs.
        excluded: those that go on waiting in the rest, as they have no columns.
    """

    plan: Plan
    fields: tuple[ReplannedField, ...]
    stay: tuple[ReplannedField, ...]
    excluded: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplanRequest:
    """A table to be planned at once.

    Attributes:
        now: its schema.
        mark: begins docs of evolved columns.
        fixed: the fields that keep their columns, by keys of the data, and why.
        is_declared: true for the type of a column that no plan would make.
        paths: the fields that may get other columns, with all below them; all fields if there are none.
        narrow: types may become narrower, and maps structs.
    """

    now: Schema
    mark: str
    fixed: Mapping[Path, str]
    is_declared: Callable[[Type], bool]
    paths: Sequence[Path] = ()
    narrow: bool = False

    def asks_for(self, path: Path) -> bool:
        """True if a field, or one below it, may get other columns."""
        return not self.paths or any(
            path[: len(prefix)] == prefix or prefix[: len(path)] == path for prefix in self.paths
        )


PlanOf: TypeAlias = Callable[[Schema, frozenset[Path]], Plan]
Inexact: TypeAlias = Callable[[Plan, Sequence[ReplannedField]], Iterable[Path]]


def fills(route: RecordRoute) -> object:
    """The types that fill each column, without samples and places, by which no row is made."""
    return {field.key: _fills_of_field(field) for field in route.fields}


def _fills_of_field(field: FieldRoute) -> object:
    bare = replace(field, shape=FieldShape(SourceLocation()), columns=())
    columns = [
        (
            replace(column, record=None, value=None, takes=()),
            frozenset(column.takes),
            None if column.record is None else fills(column.record),
            None if column.value is None else _fills_of_field(column.value),
        )
        for column in field.columns
    ]
    return bare, frozenset(field.shape.facets), columns


def settings_of_rows(settings: TableSettings, excluded: Iterable[Path] = ()) -> TableSettings:
    """The settings by which rows that were accepted are planned again, without the fields at some paths."""
    fields = settings.fields.all_at_once()
    for path in excluded:
        fields = fields.excluding(path)
    return replace(
        settings,
        fields=fields,
        on_conflict="quarantine",
        max_record_bytes=sys.maxsize,
        records=(),
        extended_json=False,
        row_key=None,
        metadata=(),
        expect=(),
    )


def fixed_fields(struct: Struct, settings: TableSettings, uses: Mapping[int, str]) -> dict[Path, str]:
    """Find the fields that keep their columns, by keys of the data, and why.

    Args:
        struct: the table's columns.
        settings: of the table.
        uses: what columns are needed for, by id.
    """
    fixed: dict[Path, str] = {}
    for path, column in _columns_by_field(struct, settings.mark):
        policy = settings.fields.at(path).policy
        if column.id in uses:
            fixed[path] = uses[column.id]
        elif not policy_of(policy).makes_columns:
            fixed[path] = f"its policy is {policy}"
        elif _is_stated(column, settings.mark):
            fixed[path] = "it has a default or a comment, or no row is without a value"
    return fixed | {path: f"it is part of the {role}" for path, role in _roles(settings.fields)}


def _roles(field_settings: FieldSettings, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the fields of the key and of the order, each with its role."""
    for key, child in field_settings.fields.items():
        if child.role:
            yield (*path, key), child.role
        yield from _roles(child, (*path, key))


def _columns_by_field(type_: Type, mark: str, path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Yield all columns, each with its field's path by keys of the data."""
    for f in children(type_):
        key = data_key(f, mark) if isinstance(type_, Struct) else f.name
        field_path = path if isinstance(type_, List) else (*path, key)
        if isinstance(type_, Struct):
            yield field_path, f
        yield from _columns_by_field(f.type, mark, field_path)


def _is_stated(column: Field, mark: str) -> bool:
    """True if a person has said more of a column than its type."""
    if is_metadata(column.doc):
        return False
    defaults = column.write_default is not None or column.initial_default is not None
    return column.required or defaults or unmarked(column.doc, mark) is not None


def replanned(request: ReplanRequest, plan_of: PlanOf, inexact: Inexact = lambda *_: ()) -> Replanned:
    """Plan all records of a table at once.

    Args:
        request: the table, and what is asked for.
        plan_of: plans all records for a table with these columns, without the fields at some paths.
        inexact: finds the fields whose values the columns of a plan would not hold as those of now do.
    """
    now, mark = request.now, request.mark
    stay: dict[Path, ReplannedField] = {}
    unasked: dict[Path, ReplannedField] = {}
    while True:
        pinned = request.fixed.keys() | stay.keys() | unasked.keys()
        struct = all_optional(_kept_fields(now.struct, pinned, request.is_declared, mark, ()))
        waiting = frozenset(f.path for f in (*stay.values(), *unasked.values()) if not f.now)
        planned = plan_of(replace(now, struct=struct, identifiers=frozenset()), waiting)
        differing = [f for f in differences(now.struct, planned.schema.struct, mark) if f.path not in pinned]
        # What stays may decide names and types of the others, so all is planned again.
        if others := _unasked(request, differing):
            unasked |= others
        elif staying := _staying(request, planned, differing, inexact):
            stay |= staying
        else:
            reasons = dict(_reasons(planned))
            explained = tuple(replace(f, why=_why(f, reasons)) for f in differing)
            return Replanned(planned, explained, tuple(stay.values()), waiting)


def _unasked(request: ReplanRequest, differing: Sequence[ReplannedField]) -> dict[Path, ReplannedField]:
    """The fields that are not asked for; else, those whose names new columns would get."""
    others = {f.path: f for f in differing if not request.asks_for(f.path)}
    return others or {f.path: f for f in _namesakes(request.now, differing, request.mark)}


def _staying(
    request: ReplanRequest, planned: Plan, differing: Sequence[ReplannedField], inexact: Inexact
) -> dict[Path, ReplannedField]:
    """The fields whose types would become narrower; else, those whose values would not be held."""
    narrower = {f.path: replace(f, why=NARROWER) for f in differing if not request.narrow and _is_narrower(f)}
    if narrower or not differing:
        return narrower
    lossy = set(inexact(planned, differing))
    return {f.path: replace(f, why=INEXACT) for f in differing if f.path in lossy}


def _kept_fields(
    struct: Struct, pinned: Iterable[Path], is_declared: Callable[[Type], bool], mark: str, path: Path
) -> Struct:
    """The columns that no plan may change: pinned ones, declared ones, and driftline's own."""
    fields = []
    for f in struct.fields:
        field_path = (*path, data_key(f, mark))
        if is_metadata(f.doc) or field_path in pinned:
            fields.append(f)
        elif (type_ := _kept_type(f.type, pinned, is_declared, mark, field_path)) is not None:
            fields.append(replace(f, type=type_))
    return Struct(tuple(fields))


def _kept_type(
    type_: Type, pinned: Iterable[Path], is_declared: Callable[[Type], bool], mark: str, path: Path
) -> Type | None:
    """The part of a column's type that stays; None if nothing of it does."""
    match type_:
        case Struct():
            struct = _kept_fields(type_, pinned, is_declared, mark, path)
            return struct if struct.fields else None
        case List(element):
            remaining = _kept_type(element, pinned, is_declared, mark, path)
            return None if remaining is None else replace(type_, element=remaining)
        case Map(value=value) if not is_declared(type_):
            remaining = _kept_type(value, pinned, is_declared, mark, (*path, "value"))
            return None if remaining is None else replace(type_, value=remaining)
        case _:
            return type_ if is_declared(type_) else None


def differences(
    now: Struct, then: Struct, mark: str, parents: tuple[Path, Path] = ((), ()), keys: Path = ()
) -> Iterator[ReplannedField]:
    """Yield the fields that have other columns; those that no record has are left out.

    Args:
        parents: the paths of both structs.
        keys: their path by keys of the data.
    """
    before, after = _columns_by_key(now, mark), _columns_by_key(then, mark)
    for key in [*(key for key in before if key in after), *(key for key in after if key not in before)]:
        columns, planned = before.get(key, ()), after[key]
        if _outlines(columns) != _outlines(planned):
            columns_now, columns_then = (
                tuple(ColumnAt((*parent, c.name), c.type) for c in of_field)
                # New columns stand in the order of the records, and rows have none.
                for parent, of_field in zip(parents, (columns, sorted(planned, key=_name)), strict=True)
            )
            yield ReplannedField((*keys, key), columns_now, columns_then)
            continue
        types = {c.name: c.type for c in planned}
        for column in columns:
            paths = (*parents[0], column.name), (*parents[1], column.name)
            yield from _inside(column.type, types[column.name], mark, paths, (*keys, key))


def _name(column: Field) -> str:
    return column.name


def _columns_by_key(struct: Struct, mark: str) -> dict[str, tuple[Field, ...]]:
    """The columns of each field of the data."""
    groups = families([struct], mark)
    return {g.key: g.columns for g in groups if not any(is_metadata(c.doc) for c in g.columns)}


def _outlines(columns: Iterable[Field]) -> set[tuple[str, str]]:
    """The columns by what tells them apart from the outside."""
    return {(column.name, outline(column.type)) for column in columns}


def _namesakes(now: Schema, differing: Sequence[ReplannedField], mark: str) -> Iterator[ReplannedField]:
    """Yield the fields without a value whose columns have names that new columns would get."""
    replaced = {column.path for field in differing for column in field.now}
    for field in differing:
        parent_path = field.then[0].path[:-1]
        parent = now.find(parent_path)
        struct = now.struct if parent is None else parent.type
        assert isinstance(struct, Struct)
        new_names = {caseless(planned.path[-1]) for planned in field.then}
        for column in struct.fields:
            column_now = ColumnAt((*parent_path, column.name), column.type)
            if caseless(column.name) in new_names and column_now.path not in replaced:
                yield ReplannedField((*field.path[:-1], data_key(column, mark)), (column_now,), ())


def _inside(
    now: Type, then: Type, mark: str, parents: tuple[Path, Path], keys: Path
) -> Iterator[ReplannedField]:
    """Yield the fields that differ inside of two columns that are alike outside."""
    match now, then:
        case Struct(), Struct():
            yield from differences(now, then, mark, parents, keys)
        case List(), List():
            yield from _inside(now.element, then.element, mark, _below(parents, "element"), keys)
        case Map(), Map():
            yield from _inside(now.value, then.value, mark, _below(parents, "value"), (*keys, "value"))


def _below(parents: tuple[Path, Path], step: str) -> tuple[Path, Path]:
    return (*parents[0], step), (*parents[1], step)


def _is_narrower(field: ReplannedField) -> bool:
    """True if types would only become narrower, or a map would become a struct."""
    now, then = ({outline(c.type): c.type for c in columns} for columns in (field.now, field.then))
    if any(isinstance(peel(t)[1], Map) for t in now.values()):
        return not any(isinstance(peel(t)[1], Map) for t in then.values())
    gone = [type_ for name, type_ in now.items() if name not in then]
    new = [type_ for name, type_ in then.items() if name not in now]
    return bool(new) and all(any(_is_wider(wide, type_) for wide in gone) for type_ in new)


def _is_wider(wide: Type, type_: Type) -> bool:
    """True if a column has plain values in as many lists, and takes those of the type."""
    (wide_dim, wide_base), (dim, base) = peel(wide), peel(type_)
    plain = isinstance(wide_base, Primitive) and isinstance(base, Primitive) and fits(base, wide_base)
    return plain and wide_dim == dim


def _reasons(planned: Plan) -> Iterator[tuple[Path, str]]:
    """Yield the reason of each new column, by its path."""
    for change in planned.changes:
        if isinstance(change, AddColumn):
            sample = f": {change.reason.sample}" if change.reason.sample else ""
            yield (*change.parent, change.column.name), f"{change.reason.why}{sample}"


def _why(field: ReplannedField, reasons: Mapping[Path, str]) -> str:
    """The reason for the other columns, in words."""
    if not field.now:
        return "its values wait in the rest or in quarantine"
    now, then = ([outline(c.type) for c in columns] for columns in (field.now, field.then))
    parts = [_gone(c.type, field.then) for c in field.now if outline(c.type) not in then]
    parts += [
        f"{outline(c.type)}: {reasons[c.path]}"
        for c in field.then
        if outline(c.type) not in now and c.path in reasons
    ]
    return "; ".join(parts) or "the same types, under the names that one batch gives them"


def _gone(type_: Type, then: Sequence[ColumnAt]) -> str:
    """The reason why there would be no column of a type."""
    dim, base = peel(type_)
    others = [(c.type, *peel(c.type)) for c in then]
    if base in DATELIKE and any(then_base == STRING for _, _, then_base in others):
        return "not all of its texts are dates, so all are texts"
    for wider, wider_dim, then_base in others:
        if (
            isinstance(base, Primitive)
            and isinstance(then_base, Primitive)
            and fits(base, then_base)
            and dim <= wider_dim
        ):
            return f"{outline(wider)} takes each {outline(type_)}"
    return f"no value is {outline(type_)}"
