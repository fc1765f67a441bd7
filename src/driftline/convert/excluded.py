"""Removes excluded fields from records, for VARIANT columns, which take values whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from driftline.core.planning.contract import Contract
from driftline.core.planning.exclude import excluded_paths
from driftline.core.schema.types import VARIANT, List, Schema, Struct, Type


def cuts_variants(struct: Struct, contract: Contract) -> bool:
    """True if a table of ``struct`` has VARIANT columns and something of the records is excluded."""
    excludes = next(excluded_paths(contract), None) is not None
    return excludes and any(f.type == VARIANT for _, f in Schema(struct).walk())


def cut_record(record: Mapping[str, object], contract: Contract) -> dict[str, object]:
    """Remove the excluded fields from a parsed record, at any depth.

    >>> from driftline.core.planning.contract import OfPaths, contract
    >>> cut_record({"v": [{"a": 1, "b": 2}], "b": 3}, contract(paths=OfPaths(exclude=[("v", "b")])))
    {'v': [{'a': 1}], 'b': 3}
    """
    return {
        key: cut_value(value, contract.of(key))
        for key, value in record.items()
        if not contract.of(key).excluded
    }


def cut_value(value: object, contract: Contract) -> object:
    """Remove the excluded fields from one value of a record."""
    if type(value) is dict:
        return cut_record(value, contract)
    return [cut_value(item, contract.inside(1)) for item in value] if type(value) is list else value


def cut_columns(
    arrays: Sequence[pa.Array], struct: Struct, contract: Contract
) -> tuple[list[pa.Array], Struct]:
    """Remove the excluded fields from columns of records, and from their types, at any depth."""
    pairs = [
        (replace(f, type=type_), cut_array)
        for f, array in zip(struct.fields, arrays, strict=True)
        if not contract.of(f.name).excluded
        for cut_array, type_ in [_cut_array(array, f.type, contract.of(f.name))]
    ]
    return [array for _, array in pairs], Struct(tuple(f for f, _ in pairs))


def _cut_array(array: pa.Array, type_: Type, contract: Contract) -> tuple[pa.Array, Type]:
    if isinstance(type_, List):
        items, element = _cut_array(array.values, type_.element, contract.inside(1))
        if element == type_.element:
            return array, type_
        mask = array.is_null() if array.null_count else None
        offsets = pa.array(array.offsets.to_numpy())  # a copy, as Arrow takes no slice beside a mask
        return pa.ListArray.from_arrays(offsets, items, mask=mask), replace(type_, element=element)
    if not isinstance(type_, Struct):
        return array, type_
    fields, struct = cut_columns([array.field(i) for i in range(len(type_.fields))], type_, contract)
    if struct == type_:
        return array, type_
    named = [pa.field(f.name, a.type) for f, a in zip(struct.fields, fields, strict=True)]
    if not named:
        nulls = array.is_null().to_pylist()
        return pa.array([None if null else {} for null in nulls], pa.struct([])), struct
    return pa.StructArray.from_arrays(fields, fields=named, mask=array.is_null()), struct
