"""Partition specs and sort orders as Iceberg's own updates."""

from __future__ import annotations

from typing import Any

from driftline.core.schema.definition import Definition
from driftline.core.schema.partitioning import TIMES, PartitionField, SortField, SortKey, Transform
from driftline.core.schema.types import dotted


def update_layout(jvm: Any, transaction: Any, now: Definition, after: Definition) -> Definition:
    """Makes the layout of ``after`` inside a Java transaction whose table is as ``now`` says, as far as the
    columns are there; returns what the table is then. The rest waits until they are.
    """
    ids = {f.id for _, f in now.schema.walk()}
    spec = _update_spec(jvm, transaction, now, after, ids)
    sort = now.sort
    if now.sort != after.sort:
        possible = all(ids.issuperset(f.columns) for f in after.sort)
        sort = after.sort if possible else ()
        _replace_sort_order(jvm, transaction, now, sort)
    return Definition(now.schema, spec, sort, now.properties, now.format_version, now.last_column)


def _update_spec(
    jvm: Any, transaction: Any, now: Definition, after: Definition, ids: set[int]
) -> tuple[PartitionField, ...]:
    asked = {(f.source, f.transform): f for f in after.partition}
    have = {(f.source, f.transform): f for f in now.partition}
    gone = [f for key, f in have.items() if key not in asked]
    new = [f for key, f in asked.items() if key not in have and f.source in ids]
    renamed = [(have[key], f) for key, f in asked.items() if key in have and have[key].name != f.name]
    first, *more = _one_time_each(new)
    if gone or first or renamed:
        update = transaction.updateSpec()
        for f in gone:
            update.removeField(f.name)
        for old, f in renamed:
            update.renameField(old.name, f.name)
        _add(jvm, update, now, first)
        update.commit()
    for fields in more:
        update = transaction.updateSpec()
        _add(jvm, update, now, fields)
        update.commit()
    staying = tuple(asked[key] for key in have if key in asked)
    return (*staying, *new)


def _one_time_each(fields: list[PartitionField]) -> list[list[PartitionField]]:
    """The fields in groups for one update each: Iceberg's library takes day and hour of one column in two."""
    groups: list[list[PartitionField]] = [[]]
    for f in fields:
        times = [f.source] if f.transform.name in TIMES else []
        free = (g for g in groups if not any(o.source in times and o.transform.name in TIMES for o in g))
        group = next(free, None)
        if group is None:
            groups.append([f])
        else:
            group.append(f)
    return groups


def _add(jvm: Any, update: Any, now: Definition, fields: list[PartitionField]) -> None:
    for f in fields:
        update.addField(f.name, _term(jvm, f.transform, _name(now, f.source)))


def _replace_sort_order(jvm: Any, transaction: Any, now: Definition, order: tuple[SortKey, ...]) -> None:
    update = transaction.replaceSortOrder()
    nulls = jvm.org.apache.iceberg.NullOrder
    for f in order:
        assert isinstance(f, SortField)  # `evolved` takes no expression
        place = nulls.NULLS_FIRST if f.nulls_first else nulls.NULLS_LAST
        term = _term(jvm, f.transform, _name(now, f.source))
        update.desc(term, place) if f.descending else update.asc(term, place)
    update.commit()


def _name(now: Definition, source: int) -> str:
    path = now.path_of(source)
    assert path is not None
    return dotted(path)


def _term(jvm: Any, transform: Transform, column: str) -> Any:
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    match transform.name:
        case "identity":
            return expressions.ref(column)
        case "bucket" | "truncate":
            return getattr(expressions, transform.name)(column, transform.n)
        case "void":
            return expressions.transform(column, jvm.org.apache.iceberg.transforms.Transforms.alwaysNull())
        case name:
            return getattr(expressions, name)(column)
