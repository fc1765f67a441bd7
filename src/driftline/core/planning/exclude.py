"""Excluded paths: fields that a person wants left out of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from driftline.core.planning.contract import Contract
from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.types import Path


def excluded_paths(contract: Contract, at: Path = ()) -> Iterator[Path]:
    """The excluded paths, as they were written."""
    for key, inner in contract.fields.items():
        if inner.excluded:
            yield (*at, key)
        else:
            yield from excluded_paths(inner, (*at, key))


def without_excluded(shape: RecordShape, contract: Contract) -> RecordShape:
    """The shape without its excluded fields."""
    if contract.empty:
        return shape
    fields = {}
    for key, field in shape.fields.items():
        inner = contract.of(key)
        if not inner.excluded:
            fields[key] = _field(field, inner)
    return RecordShape(fields)


def _field(field: FieldShape, contract: Contract) -> FieldShape:
    if contract.empty:
        return field
    out = replace(field, facets={})
    for facet, seen in field.facets.items():
        below = contract.inside(facet.dim)
        record = None if seen.record is None else without_excluded(seen.record, below)
        value = None if seen.value is None else _field(seen.value, below.of("value"))
        out.facets[facet] = replace(seen, record=record, value=value)
    return out
