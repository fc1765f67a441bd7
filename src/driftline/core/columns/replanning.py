"""The columns that a table would have, had all of its records come in one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from driftline.core.changes import AddColumn
from driftline.core.columns.siblings import families
from driftline.core.planning.conversions import fits
from driftline.core.planning.plan import Plan
from driftline.core.planning.policies.preserve import DATELIKE
from driftline.core.schema.naming import data_key, is_metadata
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import (
    STRING,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    all_optional,
    peel,
)
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.table import TableSettings

NARROWER = "the type would be narrower"


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """A column of a field: its ``path`` in the schema, and its type."""

    path: Path
    type: Type


@dataclass(frozen=True, slots=True)
class ReplannedField:
    """A field that would have then_base columns.

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
    """

    plan: Plan
    fields: tuple[ReplannedField, ...]
    stay: tuple[ReplannedField, ...]


def settings_of_rows(settings: TableSettings) -> TableSettings:
    """The settings by which rows that were accepted are planned again."""
    return replace(
        settings,
        fields=settings.fields.all_at_once(),
        on_conflict="quarantine",
        max_record_bytes=sys.maxsize,
        records=(),
        extended_json=False,
        row_key=None,
        metadata=(),
        expect=(),
    )


def roles(field_settings: FieldSettings, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the fields of the key and of the order, each with its role."""
    for key, child in field_settings.fields.items():
        if child.role:
            yield (*path, key), child.role
        yield from roles(child, (*path, key))


def replanned(
    now: Schema,
    mark: str,
    fixed: Mapping[Path, str],
    is_declared: Callable[[Type], bool],
    plan_of: Callable[[Schema], Plan],
    *,
    narrow: bool = False,
) -> Replanned:
    """Plan all records of a table at once.

    Args:
        now: the table's schema.
        mark: begins docs of evolved columns.
        fixed: the fields that keep their columns, by keys of the data, and why.
        is_declared: true for the type of a column that no plan would make.
        plan_of: plans all records for a table with these columns.
        narrow: types may become narrower, and maps structs.
    """
    stay: dict[Path, ReplannedField] = {}
    while True:
        pinned = fixed.keys() | stay.keys()
        struct = all_optional(_kept_fields(now.struct, pinned, is_declared, mark, ()))
        planned = plan_of(replace(now, struct=struct, identifiers=frozenset()))
        differing = tuple(differences(now.struct, planned.schema.struct, mark))
        differing = tuple(field for field in differing if field.path not in pinned)
        narrower = {f.path: replace(f, why=NARROWER) for f in differing if not narrow and _is_narrower(f)}
        if not narrower:
            reasons = dict(_reasons(planned))
            explained = tuple(replace(field, why=_why(field, reasons)) for field in differing)
            return Replanned(planned, explained, tuple(stay.values()))
        # What stays may decide names and types of the others, so all is planned again.
        stay |= narrower


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
    """Yield the fields that have then_base columns; those that no record has are left out.

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
    """The reason of then_base columns, in words."""
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
