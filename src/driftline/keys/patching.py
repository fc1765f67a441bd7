"""Makes rows of patches, in tasks: the rows of the table that they change are read, and merged with them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import json

from driftline.core.planning.own_columns import is_type_key, rest_column, steps
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.types import Path, Struct
from driftline.core.settings.row_key import ORDER_KIND, ORDERS_KIND
from driftline.keys.merge import (
    VALUE,
    FieldOrder,
    PatchedField,
    Patches,
    Presence,
    StoredRow,
    kept_orders,
    latest_order,
    merged,
)
from driftline.keys.patched import Merges, merged_fields, merged_rest
from driftline.keys.presence import PRESENCE, presence_of, presence_of_table, read_presence
from driftline.keys.slices import LiveParts, RowSlice, Slices, rows_at, with_row_ids
from driftline.keys.stored import StoredRows, no_rows
from driftline.tasks.run import RowMaker
from driftline.write import BatchFolder, Reported, SetAside

_MANY = 10_000  # rows that are merged at once

_Form: TypeAlias = "tuple[Any, ...]"  # equal for rows of one merge


@dataclass(frozen=True, slots=True)
class RowMerger:
    """Merges patches into rows of ``struct``; it is sent to tasks.

    ``own``: the places of the columns that are set here, by kind; ``mark``: the prefix of docs; ``excluded``:
    fields that the table does not take.
    """

    struct: Struct
    own: Mapping[str, int]
    mark: str
    excluded: Sequence[Path] = ()

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """The merged rows. ``sources``: the places of each row's sources among the ``values``, that of the
        table's row first, -1 for a source without any.
        """
        stored = self._stored(values, [places[0] for places in sources])
        roots: list[PatchedField] = []
        orders: list[list[FieldOrder]] = []
        numbers: dict[_Form, int] = {}
        merges, field_orders, latest = [], [], []
        for (patches, texts), row in zip(changes, stored, strict=True):
            form = (tuple(texts), patches.floor is None, *(() if row is None else row.form(patches)))
            number = numbers.setdefault(form, len(roots))
            before = None if row is None else row.row
            if number == len(roots):
                presences = [None if text is None else self._presence(text) for text in texts]
                complete = None if before is None or row is None else before._replace(presence=row.presence())
                roots.append(merged(complete, patches._replace(presences=presences)))
                orders.append(list(roots[-1].orders()))
            merges.append(number)
            if ORDER_KIND in self.own:
                field_orders.append(list(kept_orders(orders[number], before, patches).items()))
                latest.append(latest_order(before, patches))
        row_merges = Merges.of(merges, sources)
        columns = merged_fields(self.struct.fields, values.columns, roots, row_merges, self.mark)
        rest_field = rest_column(self.struct)
        if rest_field is not None:
            place = self.struct.fields.index(rest_field)
            columns[place] = merged_rest(values.column(place), roots, row_merges)
        for kind, texts_of in ((ORDER_KIND, latest), (ORDERS_KIND, field_orders)):
            if kind in self.own:
                columns[self.own[kind]] = pa.array(texts_of, values.column(self.own[kind]).type)
        return pa.RecordBatch.from_arrays(columns, schema=values.schema)

    def _presence(self, text: str) -> Presence:
        presence = read_presence(text)
        for path in self.excluded:
            _drop(presence, path)
        return presence

    def _stored(self, values: pa.RecordBatch, places: Sequence[int]) -> list[_OfTable | None]:
        """The table's rows at some places, None for -1."""
        in_table = pa.array([place for place in places if place >= 0], pa.int64())
        taken = pa.Table.from_batches([values.take(in_table)])
        fields = [f for f in self.struct.fields if not is_metadata(f.doc)]
        present = presence_of_table(fields, taken, self.mark).to_pylist()
        order, orders = self._own(taken, ORDER_KIND), self._own(taken, ORDERS_KIND)
        rest_field = rest_column(self.struct)
        waiting = [None] * len(taken) if rest_field is None else taken.column(rest_field.name).to_pylist()
        rows = (
            _OfTable(StoredRow({}, order_ or "", dict(orders_ or ())), text, rest_ or ())
            for text, order_, orders_, rest_ in zip(present, order, orders, waiting, strict=True)
        )
        return [next(rows) if place >= 0 else None for place in places]

    def _own(self, rows: pa.Table, kind: str) -> list[Any]:
        place = self.own.get(kind)
        return [None] * len(rows) if place is None else rows.column(place).to_pylist()


@dataclass(frozen=True, slots=True)
class _OfTable:
    """A row of the table: its orders, its ``present`` fields, and what it has in the rest."""

    row: StoredRow
    present: str
    rest: Sequence[tuple[str, str]]

    def form(self, patches: Patches) -> _Form:
        """The part that decides how patches change it."""
        rank = patches.rank_of(self.row)
        orders = tuple((path, rank(order)) for path, order in self.row.orders.items())
        return self.present, tuple(self.rest), rank(None), orders

    def presence(self) -> Presence:
        """The fields that have a value."""
        presence: Presence = json.decode(self.present)
        for path, text in self.rest:
            if not is_type_key(path):
                _add(presence, path, text)
        return presence


def _add(presence: Any, path: str, text: str) -> None:
    """Add a field of the rest; a list that has values there is one value."""
    *parents, last = steps(path)
    for step in parents:
        if not isinstance(presence, dict) or isinstance(step, int):
            return
        presence = presence.setdefault(str(step), {})
    if not isinstance(presence, dict) or isinstance(last, int):
        return
    member = presence_of(json.decode(text)) if text.startswith("{") else VALUE
    has = presence.get(last)
    presence[last] = {**has, **member} if isinstance(has, dict) and isinstance(member, dict) else member


def _drop(presence: Any, path: Path) -> None:
    for step in path[:-1]:
        presence = presence.get(step) if isinstance(presence, dict) else None
    if isinstance(presence, dict):
        presence.pop(path[-1], None)


class MergesRows(Protocol):
    """The way in which changes and a row of the table become one row. ``struct``: the columns."""

    @property
    def struct(self) -> Struct: ...

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """The merged rows."""
        ...


@dataclass(frozen=True, slots=True)
class PatchedRowsOf:
    """Makes rows of a table out of all changes of their keys. ``stored``: reads the table's rows."""

    merger: MergesRows
    stored: StoredRows | None

    def maker(self, slices: Slices, parts: LiveParts) -> RowMaker[int]:
        """The maker of the rows of keys whose last changes are in these parts."""
        named = [name for _, name in parts]
        return _PatchedRows(slices.folder, named, slices.parts, self.merger, self.stored)


RowChanges: TypeAlias = "tuple[Patches, Sequence[str | None]]"  # with what each of them has


@dataclass(frozen=True, slots=True)
class _PatchedRows:
    """Makes the rows of keys whose last changes are in some slices.

    ``parts``: the file of each that names its keys; ``slices``: all of the batch; ``stored``: reads the rows
    of the table.
    """

    folder: BatchFolder
    parts: Sequence[str]
    slices: Sequence[RowSlice]
    merger: MergesRows
    stored: StoredRows | None

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Yield the rows of one slice."""
        del set_aside
        with self.folder.open(self.parts[number]) as file:
            named = pa.ipc.open_file(file).read_all()
        for begin in range(0, len(named), _MANY):
            yield self._made(named.slice(begin, _MANY))
        return Reported(None)

    def _made(self, named: pa.Table) -> pa.RecordBatch:
        numbers = named["changes"].combine_chunks()
        flat = numbers.flatten().to_numpy()
        order = np.argsort(flat)
        of_batch = self._of_batch(flat[order])
        places = np.empty(len(flat), np.int64)
        places[order] = np.arange(len(flat))
        is_known = named["file"].is_valid().to_numpy()
        of_table_rows = self._of_table(named.filter(pa.array(is_known)))
        of_table = np.where(is_known, len(flat) + np.cumsum(is_known) - 1, -1).tolist()
        present = of_batch[PRESENCE].take(pa.array(places)).to_pylist()
        values = (
            pa.concat_tables([of_batch.select(of_table_rows.column_names), of_table_rows])
            .combine_chunks()
            .to_batches()
        )
        deletes = named["deletes"].combine_chunks().flatten().to_pylist()
        orders = named["orders"].to_pylist()
        floors = named["floor"].to_pylist()
        sources, changes = [], []
        ends = np.cumsum([0, *(len(row_sources) for row_sources in numbers)]).tolist()
        for number, (low, high) in enumerate(pairwise(ends)):
            texts = [None if deletes[i] else present[i] for i in range(low, high)]
            row_sources = [-1 if deletes[i] else int(places[i]) for i in range(low, high)]
            sources.append([of_table[number], *row_sources])
            changes.append((Patches((), orders[number] or (), floors[number]), texts))
        rows = self.merger.rows(values[0], sources, changes)
        return with_row_ids(rows, named)

    def _of_table(self, named: pa.Table) -> pa.Table:
        """The rows of the table that are changed."""
        if self.stored is None or not len(named):
            return no_rows(self.merger.struct)
        files = named["file"].combine_chunks()
        return self.stored.read(files, named["position"].to_numpy())

    def _of_batch(self, numbers: Any) -> pa.Table:
        """Rows of the batch by their ``numbers``, which ascend."""
        parts: list[pa.Table] = []
        begin = 0
        for part in self.slices:
            low, high = np.searchsorted(numbers, [begin, begin + part.rows])
            if low < high:
                chosen = rows_at(self.folder, part, numbers[low:high] - begin)
                parts += [pa.Table.from_batches([rows]) for rows in chosen]
            begin += part.rows
        return pa.concat_tables(parts)
