"""Settles a batch of patches: all changes of a key count, but those before its last delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.keys.settle import (
    Found,
    KeyCounts,
    Latest,
    LiveRows,
    Settled,
    TableRows,
    dead_rows,
    flags_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MergedChanges:
    """The changes that make each row: ``numbers`` of the batch's rows in their order, of row ``i`` from
    ``ends[i]`` to ``ends[i + 1]``. ``floors``: the order of a delete that the table remembers of the key.
    """

    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]
    floors: pa.Array

    def columns(self, orders: pa.Array | None, deletes: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """The columns in which tasks read them. ``orders``, ``deletes``: of all changes."""
        ends, numbers = pa.array(self.ends, pa.int32()), pa.array(self.numbers)
        texts = pa.nulls(len(self.ends) - 1, pa.list_(pa.string()))
        if orders is not None:
            texts = pa.ListArray.from_arrays(ends, orders.take(numbers))
        flags = pa.ListArray.from_arrays(ends, pa.array(deletes[self.numbers]))
        changes = pa.ListArray.from_arrays(ends, numbers)
        return {"changes": changes, "orders": texts, "deletes": flags, "floor": self.floors}


def settle_patches(
    latest: Latest,
    deletes: NDArray[np.bool_],
    found_rows: Iterable[Found],
    remembered: Sequence[Found] = (),
) -> tuple[Settled, MergedChanges]:
    """Compare the changes of a batch with the table's rows, and the deletes that it remembers.

    Only a delete makes a change late. One that is older than the row is merged into it.

    Args:
        latest: the latest change of each key.
        deletes: whether each change deletes its row.
        found_rows: the rows of the table.
        remembered: the deletes that it remembers.
    """
    table = TableRows.of(list(found_rows), len(latest.rows))
    in_table = table.of_key >= 0
    floors = _floors(latest, remembered)
    late = older = np.zeros(len(latest.rows), np.bool_)
    if latest.orders is not None:
        late = flags_of(pc.greater(floors, latest.orders))
        older = flags_of(pc.greater(table.orders(), latest.orders))
    removes = latest.deletes & ~late & ~older
    writes = ~late & ~removes
    begins, ends = _spans(latest, deletes)
    # An older delete of a key whose row is newer empties what is older than it.
    ignored = removes & ~in_table
    counts = KeyCounts(
        int((writes & ~in_table).sum()),
        int((writes & in_table).sum()),
        int((removes & in_table).sum()),
        latest.superseded,
        int(late.sum()),
        int(ignored.sum()),
    )
    codes = np.flatnonzero(writes)
    codes = codes[np.argsort(latest.rows[codes])]
    live = LiveRows(latest.rows[codes], codes, np.zeros(len(codes), np.bool_), table.of_key[codes])
    first = latest.ranked[begins]
    gone = first[deletes[first] & ~late] if latest.orders is not None else first[:0]
    dead = dead_rows(table.found, writes | removes)
    settled = Settled(live, np.sort(gone), counts, dead, table)
    lengths = (ends - begins)[codes]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    numbers = latest.ranked[np.repeat(begins[codes], lengths) + within]
    return settled, MergedChanges(numbers, offsets, floors.take(pa.array(codes)))


def _spans(latest: Latest, deletes: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The begin and the end, among the ranked changes, of those of each key that count."""
    place = np.empty(len(latest.ranked), np.int64)
    place[latest.ranked] = np.arange(len(latest.ranked))
    ends = place[latest.rows] + 1
    begins = np.append(0, ends[:-1])[: len(ends)]
    last_deletes = np.flatnonzero(deletes[latest.ranked])
    begins[np.searchsorted(ends, last_deletes, side="right")] = last_deletes
    return begins, ends


def _floors(latest: Latest, remembered: Iterable[Found]) -> pa.Array:
    """The order of the last delete of each key that the table remembers."""
    floors: list[str | None] = [None] * len(latest.rows)
    for hits in remembered:
        for code, order in zip(hits.codes.tolist(), hits.orders.to_pylist(), strict=True):
            if order is not None and order > (floors[code] or ""):
                floors[code] = order
    return pa.array(floors, pa.string())
