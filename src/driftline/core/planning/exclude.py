"""Excluded paths: fields that a person wants left out of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from driftline.core.planning.contract import Contract
from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.types import Path


def excluded_paths(contract: Contract, path: Path = ()) -> Iterator[Path]:
    """The excluded paths, as they were written."""
    for key, child in contract.fields.items():
        if child.excluded:
            yield (*path, key)
        else:
            yield from excluded_paths(child, (*path, key))


def without_excluded(shape: RecordShape, contract: Contract) -> RecordShape:
    """The shape without its excluded fields."""
    if contract.empty:
        return shape
    fields = {}
    for key, field in shape.fields.items():
        child = contract.of(key)
        if not child.excluded:
            fields[key] = _field(field, child)
    return RecordShape(fields)


def _field(field: FieldShape, contract: Contract) -> FieldShape:
    if contract.empty:
        return field
    out = replace(field, facets={})
    for facet, profile in field.facets.items():
        child = contract.inside(facet.dim)
        record = None if profile.record is None else without_excluded(profile.record, child)
        value = None if profile.value is None else _field(profile.value, child.of("value"))
        out.facets[facet] = replace(profile, record=record, value=value)
    return out
