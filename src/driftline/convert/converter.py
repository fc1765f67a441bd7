"""Converts records to rows of a table by a plan's routes, in Arrow (seed rule 8, section 5 of the rules).

A value goes to every column whose type it fits, at the column's dimension or a larger one. What a record
brings must end up in some column, or the batch fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from driftline.convert.arrays import ArrowRecords
from driftline.convert.drifted_values import DriftedValues, put
from driftline.convert.fill import columns_of
from driftline.convert.objects import JsonRecords
from driftline.convert.rest import Collector
from driftline.convert.types import DEEPEST, arrow_schema
from driftline.convert.values import Records
from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import RecordRoute, Settings
from driftline.core.schema.types import VARIANT, List, Path, Schema, Struct, Type
from driftline.core.settings.fields import Contract, excluded_paths
from driftline.core.support import gc_paused, pickled


def cuts_variants(struct: Struct, contract: Contract) -> bool:
    """True if a table of ``struct`` has VARIANT columns and something of the records is excluded."""
    excludes = next(excluded_paths(contract), None) is not None
    return excludes and any(f.type == VARIANT for _, f in Schema(struct).walk())


def cut_record(record: Mapping[str, object], contract: Contract) -> dict[str, object]:
    """Remove the excluded fields from a parsed record, at any depth.

    >>> from driftline.core.settings.fields import OfPaths, contract
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


@dataclass(frozen=True)
class Converter:
    """Fills the columns of ``struct`` from records, by the ``route`` of a plan.

    >>> from driftline.core.planning.planner import plan
    >>> from driftline.core.schema.types import Schema
    """

    struct: Struct
    route: RecordRoute
    settings: Settings

    def __reduce__(self) -> Any:
        return _restored, (pickled((self.struct, self.route, self.settings), DEEPEST),)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows: the table's columns with their field ids."""
        return arrow_schema(self.struct)

    def of_json(self, records: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
        """Convert parsed JSON objects to rows, one each. ``records``: as `driftline.core.values.parse`
        returns them.

        Raises Lost for a value that no column takes.
        """
        contract = self.settings.contract
        if cuts_variants(self.struct, contract):
            records = [cut_record(record, contract) for record in records]
        return self._rows(JsonRecords(records, self.settings.dates))

    def of_arrow(
        self,
        batch: pa.RecordBatch,
        struct: Struct,
        *,
        json: bool,
        drifted: Mapping[Path, DriftedValues] | None = None,
    ) -> pa.RecordBatch:
        """Convert Arrow columns to rows.

        ``struct``: the types of the columns, in their order, by key; `Declared` gives both. ``json``: they
        were parsed from JSON, whose numbers are of one kind, and strings too. ``drifted``: values of the
        records that are null in the columns, by path, which leads through no list. Raises Lost for a value
        that no column takes.
        """
        arrays, drifted, contract = batch.columns, drifted or {}, self.settings.contract
        if cuts_variants(self.struct, contract):
            arrays, struct = cut_columns(arrays, struct, contract)
            drifted = {
                path: DriftedValues(rows, [cut_value(value, contract.at(path)) for value in values])
                for path, (rows, values) in drifted.items()
            }
        records = ArrowRecords(arrays, struct, batch.num_rows, json, self.settings.dates)
        return self._rows(records, drifted)

    @gc_paused()
    def _rows(self, records: Records, drifted: Mapping[Path, DriftedValues] | None = None) -> pa.RecordBatch:
        column = rest_column(self.struct) if self.route.has_rest else None
        collector = None if column is None else Collector.of(records.count, self.settings.contract)
        arrays = columns_of(self.struct, self.route, records, (), collector)
        if drifted:
            dates = self.settings.dates
            drifted_records = {
                path: (rows, JsonRecords([{path[-1]: value} for value in values], dates))
                for path, (rows, values) in drifted.items()
            }
            arrays = put(arrays, self.struct, self.route, drifted_records, (), collector)
        if collector is not None:
            arrays[self.struct.fields.index(column)] = collector.entries.array()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _restored(fields: bytes) -> Converter:
    return Converter(*pickle.loads(fields))  # noqa: S301  our own bytes
