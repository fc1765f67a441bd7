"""Converts records to rows of a table by a plan's routes, in Arrow (seed rule 8, section 5 of the rules).

A value goes to every column whose type it fits, at the column's dimension or a larger one. What a record
brings must end up in some column, or the batch fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from driftline.convert.apart import Apart, put
from driftline.convert.arrays import ArrowRecords
from driftline.convert.deep_pickle import pickled
from driftline.convert.excluded import cut_columns, cut_record, cut_value, cuts_variants
from driftline.convert.fill import columns_of
from driftline.convert.objects import JsonRecords
from driftline.convert.rest import Collector
from driftline.convert.types import DEEPEST, arrow_schema
from driftline.convert.values import Records
from driftline.core.planning.gc_pause import no_search
from driftline.core.planning.rest import rest_column
from driftline.core.planning.routes import RecordRoute, Settings
from driftline.core.schema.types import Path, Struct


@dataclass(frozen=True)
class Converter:
    """Fills the columns of ``struct`` from records, by the ``route`` of a plan.

    >>> from driftline.core.planning.plan import plan
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
        """Convert parsed JSON objects to rows, one each. ``records``: as `driftline.core.values.parse.parse`
        returns them.

        Raises Lost for a value that no column takes.
        """
        contract = self.settings.contract
        if cuts_variants(self.struct, contract):
            records = [cut_record(record, contract) for record in records]
        return self._rows(JsonRecords(records, self.settings.dates))

    def of_arrow(
        self, batch: pa.RecordBatch, struct: Struct, *, json: bool, apart: Mapping[Path, Apart] | None = None
    ) -> pa.RecordBatch:
        """Convert Arrow columns to rows.

        ``struct``: the types of the columns, in their order, by key; `Declared` gives both. ``json``: they
        were parsed from JSON, whose numbers are of one kind, and strings too. ``apart``: values of the
        records that are null in the columns, by path, which leads through no list. Raises Lost for a value
        that no column takes.
        """
        arrays, apart, contract = batch.columns, apart or {}, self.settings.contract
        if cuts_variants(self.struct, contract):
            arrays, struct = cut_columns(arrays, struct, contract)
            apart = {
                path: Apart(rows, [cut_value(value, contract.at(path)) for value in values])
                for path, (rows, values) in apart.items()
            }
        records = ArrowRecords(arrays, struct, batch.num_rows, json, self.settings.dates)
        return self._rows(records, apart)

    @no_search()
    def _rows(self, records: Records, apart: Mapping[Path, Apart] | None = None) -> pa.RecordBatch:
        column = rest_column(self.struct) if self.route.has_rest else None
        rest = None if column is None else Collector.of(records.count, self.settings.contract)
        arrays = columns_of(self.struct, self.route, records, (), rest)
        if apart:
            dates = self.settings.dates
            apart_records = {
                path: (rows, JsonRecords([{path[-1]: value} for value in values], dates))
                for path, (rows, values) in apart.items()
            }
            arrays = put(arrays, self.struct, self.route, apart_records, (), rest)
        if rest is not None:
            arrays[self.struct.fields.index(column)] = rest.entries.array()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _restored(fields: bytes) -> Converter:
    return Converter(*pickle.loads(fields))  # noqa: S301  our own bytes
