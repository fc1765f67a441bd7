"""Settles a batch of changes: for each key the latest one counts, unless the table has a later one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest change of each key in a batch, by the key's code: its row, its order, and if it deletes.

    ``orders`` None: changes arrive in their order. ``superseded``: changes that a later one overtook.
    """

    rows: NDArray[np.int64]
    orders: pa.Array | None
    deletes: NDArray[np.bool_]
    superseded: int

    @classmethod
    def of(cls, codes: pa.Array, orders: pa.Array | None, deletes: NDArray[np.bool_]) -> Latest:
        """Find the latest change of each key.

        Args:
            codes: of each row of the batch, in the order of arrival; none is null.
            orders: of each row, as `keys.order` has them. Of equal ones the later arrival counts.
            deletes: whether each row deletes its key.
        """
        code = codes.to_numpy()
        arrival = np.arange(len(code))
        if orders is None:
            ranked = np.argsort(code, kind="stable")
        else:
            by = {"code": codes, "order": orders, "arrival": arrival}
            ranked = pc.sort_indices(pa.table(by), sort_keys=[(k, "ascending") for k in by]).to_numpy()
        last = np.append(code[ranked][1:] != code[ranked][:-1], True)[: len(code)]
        rows = ranked[last].astype(np.int64)
        taken = None if orders is None else orders.take(pa.array(rows))
        return cls(rows, taken, deletes[rows], len(code) - len(rows))


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the table, or deletes that it remembers, that have keys of a batch: by place in the ``file``,
    with the key's code and the order of its latest change, null where it has none.
    """

    file: str
    positions: NDArray[np.int64]
    codes: NDArray[np.int64]
    orders: pa.Array

    def only(self, rows: NDArray[np.bool_]) -> Found:
        """The rows that are flagged in ``rows``."""
        return Found(self.file, self.positions[rows], self.codes[rows], self.orders.filter(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Changes of a batch, by what became of them. ``ignored``: deletes of keys that had no row."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    superseded: int = 0
    late: int = 0
    ignored: int = 0

    @property
    def written(self) -> int:
        """The number of rows that are written."""
        return self.inserted + self.updated

    @property
    def total(self) -> int:
        """The number of changes."""
        return self.inserted + self.updated + self.deleted + self.superseded + self.late + self.ignored


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch, settled. ``live``: its rows that are written, ascending; ``gone``: its rows that delete, whose
    order is to be remembered; ``dead``: positions of the table's rows that go, by file.
    """

    live: NDArray[np.int64]
    gone: NDArray[np.int64]
    counts: KeyCounts
    dead: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def settle(latest: Latest, found_rows: Iterable[Found], remembered: Iterable[Found] = ()) -> Settled:
    """Compare the latest changes of a batch with the table's rows, and the deletes that it remembers."""
    found_rows = list(found_rows)
    late, in_table = _late(latest, [*found_rows, *remembered]), np.zeros(len(latest.rows), np.bool_)
    dead: dict[str, list[NDArray[np.int64]]] = {}
    for hits in found_rows:
        in_table[hits.codes] = True
        taken = hits.positions[~late[hits.codes]]
        if len(taken):
            dead.setdefault(hits.file, []).append(taken)
    removes, writes = latest.deletes & ~late, ~latest.deletes & ~late
    counts = KeyCounts(
        int((writes & ~in_table).sum()),
        int((writes & in_table).sum()),
        int((removes & in_table).sum()),
        latest.superseded,
        int(late.sum()),
        int((removes & ~in_table).sum()),
    )
    gone = latest.rows[removes] if latest.orders is not None else latest.rows[:0]
    positions = {file: np.unique(np.concatenate(parts)) for file, parts in dead.items()}
    return Settled(np.sort(latest.rows[writes]), np.sort(gone), counts, positions)


def _late(latest: Latest, found_rows: Iterable[Found]) -> NDArray[np.bool_]:
    """Flags the keys for which the table knows a later change, by code."""
    late = np.zeros(len(latest.rows), np.bool_)
    if latest.orders is None:
        return late
    for hits in found_rows:
        newer = pc.greater(hits.orders, latest.orders.take(pa.array(hits.codes))).fill_null(False)
        late[hits.codes[newer.to_numpy(zero_copy_only=False)]] = True
    return late
