"""Settles a batch of changes: the latest change of each key wins, unless the table has a later one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyroaring import BitMap64


@dataclass(frozen=True, slots=True)
class Latest:
    """The change of each key that counts in a batch, by key code: its row, its order, and if it deletes.

    The latest one, or the first where rows keep their first record.

    Attributes:
        orders: None if changes arrive in order.
        ranked: all changes in order, grouped by key.
        arrivals: all changes as they arrive, if deleted rows keep their values.
    """

    rows: NDArray[np.int64]
    orders: pa.Array | None
    deletes: NDArray[np.bool_]
    ranked: NDArray[np.int64]
    arrivals: Arrivals | None = None

    @property
    def superseded(self) -> int:
        """The number of changes that another change of their key overtook."""
        return len(self.ranked) - len(self.rows)

    @classmethod
    def of(
        cls,
        codes: pa.Array,
        orders: pa.Array | None,
        deletes: NDArray[np.bool_],
        *,
        soft: bool = False,
        first: bool = False,
    ) -> Latest:
        """Find the change of each key that counts.

        Args:
            codes: of each row of the batch, in the order of arrival; none is null.
            orders: of each row, as `keys.identity` has them. Of equal ones the later arrival counts.
            deletes: whether each row deletes its key.
            soft: whether a row that is deleted keeps its values.
            first: whether the first change counts, not the latest; of equal orders the earlier arrival.
        """
        code = codes.to_numpy()
        arrival = np.arange(len(code))
        if orders is None:
            # Stable: without orders, changes of a key count as they arrive.
            ranked = np.argsort(code, kind="stable")
        else:
            by = {"code": codes, "order": orders, "arrival": arrival}
            ranked = pc.sort_indices(pa.table(by), sort_keys=[(k, "ascending") for k in by]).to_numpy()
        begins = code[ranked][1:] != code[ranked][:-1]
        counts = np.append(True, begins) if first else np.append(begins, True)
        rows = ranked[counts[: len(code)]].astype(np.int64)
        taken = None if orders is None else orders.take(pa.array(rows))
        arrivals = Arrivals(code.astype(np.int64), orders, deletes) if soft else None
        return cls(rows, taken, deletes[rows], ranked.astype(np.int64), arrivals)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The changes of a batch as they arrive: for each its key's code, its order, and if it deletes.

    ``orders`` None: each change is later than those before it.
    """

    codes: NDArray[np.int64]
    orders: pa.Array | None
    deletes: NDArray[np.bool_]

    def values(self, table: TableRows, committed: Iterable[Found]) -> NDArray[np.int64]:
        """Find the rows that give deleted rows their values, as if each change were a batch of its own.

        Args:
            table: the table's rows.
            committed: these rows, and the deletes that the table remembers.

        Returns:
            By the key's code, the row of the last write that counts. Without one it is -1 where the table has
            a row, which keeps its values; else the row of the first delete, which would make the table's row.
        """
        counts = self._in_order(committed)
        rows = np.full(len(table.of_key), -1, np.int64)
        if self.orders is not None:
            # Backwards, so that the first delete of a key is assigned last, and stays.
            deletes = np.flatnonzero(self.deletes & counts & (table.of_key[self.codes] < 0))[::-1]
            rows[self.codes[deletes]] = deletes
        # After the deletes: the last write that counts overrides them.
        writes = np.flatnonzero(~self.deletes & counts)
        rows[self.codes[writes]] = writes
        return rows

    def _in_order(self, committed: Iterable[Found]) -> NDArray[np.bool_]:
        """Flag the changes that are not late when they arrive after ``committed`` ones."""
        if self.orders is None:
            return np.ones(len(self.codes), np.bool_)
        # A row without an order makes no change late, so only the others stand before the changes.
        before = [hits.only(flags_of(hits.orders.is_valid())) for hits in committed]
        codes = np.concatenate([*(hits.codes for hits in before), self.codes])
        orders = pa.chunked_array([*(hits.orders for hits in before), self.orders], pa.string())
        rank = pc.rank(orders, tiebreaker="dense").to_numpy().astype(np.int64)
        arrived = np.argsort(codes, kind="stable")
        # Key and rank in one number: a running maximum then never crosses from one key to the next, and a
        # change below it arrived late.
        height = (codes * (rank.max(initial=0) + 1) + rank)[arrived]
        flags = np.zeros(len(codes), np.bool_)
        flags[arrived] = height == np.maximum.accumulate(height)
        return flags[len(codes) - len(self.codes) :]


def flags_of(values: pa.Array) -> NDArray[np.bool_]:
    """Return flags as a numpy array; null is false."""
    flags: NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the table, or remembered deletes, that have keys of a batch.

    Attributes:
        file: the file that they are in.
        positions: their positions in the file.
        codes: the codes of their keys.
        orders: the order of each row's latest change, null if there is none.
        deleted: flags rows marked as deleted.
        row_ids: the ids of rows, if any.
    """

    file: str
    positions: NDArray[np.int64]
    codes: NDArray[np.int64]
    orders: pa.Array
    deleted: pa.Array | None = None
    row_ids: pa.Array | None = None

    def without(self, positions: BitMap64) -> Found:
        """Return the rows at other positions."""
        if not positions:
            return self
        return self.only(~np.isin(self.positions, np.array(positions.to_array(), np.int64)))

    def only(self, rows: NDArray[np.bool_]) -> Found:
        """Return the rows that are flagged in ``rows``."""
        orders, deleted, row_ids = (
            None if column is None else column.filter(pa.array(rows))
            for column in (self.orders, self.deleted, self.row_ids)
        )
        return Found(self.file, self.positions[rows], self.codes[rows], orders, deleted, row_ids)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The changes of a batch by outcome.

    Attributes:
        ignored: deletes that changed nothing.
        duplicate: records of keys whose first record stays.
        truncated: rows that a truncate removed, which are no changes of the batch.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    superseded: int = 0
    late: int = 0
    ignored: int = 0
    truncated: int = 0
    duplicate: int = 0

    @property
    def written(self) -> int:
        """The number of rows written."""
        return self.inserted + self.updated

    @property
    def outcomes(self) -> dict[str, int]:
        """The counts by name; of truncated and duplicate ones only if there are any."""
        rare = ("truncated", "duplicate")
        return {name: count for name, count in asdict(self).items() if count or name not in rare}

    @property
    def total(self) -> int:
        """The number of changes."""
        return sum(count for name, count in asdict(self).items() if name != "truncated")


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows that a batch writes, ascending by their place in it. Each array has a value for each row.

    Attributes:
        codes: the codes of their keys.
        deleted: flags rows that are marked as deleted.
        kept: the number of the table's row whose values stay; -1 to use the batch's row.
    """

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    deleted: NDArray[np.bool_]
    kept: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table that were found, numbered from 0.

    Attributes:
        of_key: the number of each key's row; -1 for none.
    """

    found: Sequence[Found]
    of_key: NDArray[np.int64]

    @classmethod
    def of(cls, found: Sequence[Found], keys: int) -> TableRows:
        """Number the rows."""
        of_key, count = np.full(keys, -1, np.int64), 0
        for hits in found:
            of_key[hits.codes] = np.arange(count, count := count + len(hits.codes))
        return cls(found, of_key)

    def places(self, numbers: NDArray[np.int64]) -> dict[str, pa.Array]:
        """Return the file and position of rows; null for the number -1."""
        names = np.repeat(np.arange(len(self.found)), [len(hits.codes) for hits in self.found])
        mask = numbers < 0
        if mask.all():
            return {
                "file": pa.nulls(len(numbers), pa.string()),
                "position": pa.nulls(len(numbers), pa.int64()),
            }
        files = pa.array([hits.file for hits in self.found]).take(pa.array(names[numbers], mask=mask))
        positions = np.concatenate([hits.positions for hits in self.found])
        return {"file": files, "position": pa.array(positions[numbers], pa.int64(), mask=mask)}

    def orders(self) -> pa.Array:
        """Return the order of each key's row."""
        orders = pa.chunked_array([hits.orders for hits in self.found], pa.string())
        return orders.take(pa.array(self.of_key, mask=self.of_key < 0)).combine_chunks()

    def row_ids(self, codes: NDArray[np.int64]) -> pa.Array | None:
        """Return the row ids of keys, null without a row; None if rows have no ids."""
        ids = [hits.row_ids for hits in self.found if hits.row_ids is not None]
        if len(ids) < len(self.found) or not ids:
            return None
        numbers = self.of_key[codes]
        return pa.chunked_array(ids).take(pa.array(numbers, mask=numbers < 0)).combine_chunks()

    def deleted(self) -> NDArray[np.bool_]:
        """Flag the keys whose row is marked as deleted."""
        flags = np.zeros(len(self.of_key), np.bool_)
        for hits in self.found:
            if hits.deleted is not None:
                flags[hits.codes] = flags_of(hits.deleted)
        return flags


@dataclass(frozen=True, slots=True)
class Settled:
    """A settled batch.

    Attributes:
        live: the rows that are written.
        gone: the rows that delete, whose orders are remembered.
        dead: positions of the table's rows to delete, by file.
        table: the table's rows.
    """

    live: LiveRows
    gone: NDArray[np.int64]
    counts: KeyCounts
    dead: dict[str, NDArray[np.int64]]
    table: TableRows


def settle(latest: Latest, found_rows: Iterable[Found], remembered: Iterable[Found] = ()) -> Settled:
    """Compare the latest changes of a batch with the table's rows and its remembered deletes."""
    table = TableRows.of(list(found_rows), len(latest.rows))
    committed = [*table.found, *remembered]
    late, in_table = _late(latest, committed), table.of_key >= 0
    removes, writes = latest.deletes & ~late, ~latest.deletes & ~late
    values = np.full(len(late), -1, np.int64)
    if latest.arrivals is None:
        ignored = removes & ~in_table
        live = writes
    else:
        values = latest.arrivals.values(table, committed)
        ignored = removes & (values < 0) & _unchanged(latest, table)
        # A soft delete keeps what was written before it in the same batch, so it does not matter where
        # batches are cut.
        live = writes | (removes & ~ignored)
    counts = KeyCounts(
        int((writes & ~in_table).sum()),
        int((writes & in_table).sum()),
        int((removes & ~ignored).sum()),
        latest.superseded,
        int(late.sum()),
        int(ignored.sum()),
    )
    # A soft delete stays as a row with its order, which makes late changes late; without orders nothing is.
    remembers = latest.orders is not None and latest.arrivals is None
    gone = latest.rows[removes] if remembers else latest.rows[:0]
    dead = dead_rows(table.found, ~late & ~ignored)
    return Settled(_live(latest, live, values, table), np.sort(gone), counts, dead, table)


def settle_first(first: Latest, found_rows: Iterable[Found]) -> Settled:
    """Compare the first record of each key with the table's rows, which stay unless its order is lower."""
    table = TableRows.of(list(found_rows), len(first.rows))
    in_table, older = table.of_key >= 0, np.zeros(len(first.rows), np.bool_)
    if first.orders is not None and table.found:
        # A row without an order stays: it came before the table had one.
        older = flags_of(pc.less(first.orders, table.orders()))
    writes = older | ~in_table
    counts = KeyCounts(
        inserted=int((~in_table).sum()),
        updated=int(older.sum()),
        duplicate=first.superseded + int((~writes).sum()),
    )
    live = _live(first, writes, np.full(len(writes), -1, np.int64), table)
    return Settled(live, first.rows[:0], counts, dead_rows(table.found, older), table)


def _live(latest: Latest, live: NDArray[np.bool_], values: NDArray[np.int64], table: TableRows) -> LiveRows:
    """Build the rows of ``live`` keys.

    A delete takes the row with its key's ``values``. If there is none it takes its own row, of which only the
    order counts: the table's row keeps its values.
    """
    # A soft delete of an unknown key makes a row too. Without it, a late write would bring the row back.
    rows = np.where(latest.deletes & (values >= 0), values, latest.rows)
    codes = np.flatnonzero(live)
    # By their place in the batch: slices are read forward, a part of the rows at a time.
    codes = codes[np.argsort(rows[codes])]
    deleted = latest.deletes[codes]
    from_table = np.where(deleted & (values[codes] < 0), table.of_key[codes], -1)
    return LiveRows(rows[codes], codes, deleted, from_table)


def dead_rows(found: Iterable[Found], replaced: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
    """Return the positions, by file, of the rows whose key is ``replaced``."""
    dead: dict[str, list[NDArray[np.int64]]] = {}
    for hits in found:
        taken = hits.positions[replaced[hits.codes]]
        if len(taken):
            dead.setdefault(hits.file, []).append(taken)
    return {file: np.unique(np.concatenate(parts)) for file, parts in dead.items()}


def _unchanged(latest: Latest, table: TableRows) -> NDArray[np.bool_]:
    """Flag the keys whose delete changes nothing."""
    if latest.orders is None:
        return (table.of_key < 0) | table.deleted()
    return table.deleted() & flags_of(pc.equal(table.orders(), latest.orders))


def _late(latest: Latest, found_rows: Iterable[Found]) -> NDArray[np.bool_]:
    """Flag the keys, by code, for which the table knows a later change."""
    late = np.zeros(len(latest.rows), np.bool_)
    if latest.orders is None:
        return late
    for hits in found_rows:
        newer = pc.greater(hits.orders, latest.orders.take(pa.array(hits.codes)))
        late[hits.codes[flags_of(newer)]] = True
    return late


@dataclass(frozen=True, slots=True)
class MergedChanges:
    """The changes that make each row.

    Attributes:
        numbers: rows of the batch, in their order.
        ends: the changes of row ``i`` are at ``ends[i]`` to ``ends[i + 1]`` in ``numbers``.
        floors: the order of a remembered delete of the key.
        newest: flags the keys whose latest change is not older than the table's row.
    """

    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]
    floors: pa.Array
    newest: NDArray[np.bool_]

    def columns(self, orders: pa.Array | None, deletes: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """Return the columns that tasks read. ``orders``, ``deletes``: of all changes."""
        ends, numbers = pa.array(self.ends, pa.int32()), pa.array(self.numbers)
        texts = pa.nulls(len(self.ends) - 1, pa.list_(pa.string()))
        if orders is not None:
            texts = pa.ListArray.from_arrays(ends, orders.take(numbers))
        flags = pa.ListArray.from_arrays(ends, pa.array(deletes[self.numbers]))
        changes = pa.ListArray.from_arrays(ends, numbers)
        return {
            "changes": changes,
            "orders": texts,
            "deletes": flags,
            "floor": self.floors,
            "newest": pa.array(self.newest),
        }


def settle_patches(
    latest: Latest,
    deletes: NDArray[np.bool_],
    found_rows: Iterable[Found],
    remembered: Sequence[Found] = (),
) -> tuple[Settled, MergedChanges]:
    """Compare the changes of a batch with the table's rows and its remembered deletes.

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
        # A patch older than its row is not late: it may fill fields that no newer change has set.
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
    # Patches remember overtaken deletes too: otherwise the row would depend on which change came first.
    gone = first[deletes[first] & ~late] if latest.orders is not None else first[:0]
    dead = dead_rows(table.found, writes | removes)
    settled = Settled(live, np.sort(gone), counts, dead, table)
    lengths = (ends - begins)[codes]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    numbers = latest.ranked[np.repeat(begins[codes], lengths) + within]
    return settled, MergedChanges(numbers, offsets, floors.take(pa.array(codes)), ~older[codes])


def _spans(latest: Latest, deletes: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the begin and end, among the ranked changes, of the changes that count for each key."""
    place = np.empty(len(latest.ranked), np.int64)
    place[latest.ranked] = np.arange(len(latest.ranked))
    ends = place[latest.rows] + 1
    begins = np.append(0, ends[:-1])[: len(ends)]
    last_deletes = np.flatnonzero(deletes[latest.ranked])
    # Changes before a key's last delete count no more. Deletes ascend, so the last assignment stays.
    begins[np.searchsorted(ends, last_deletes, side="right")] = last_deletes
    return begins, ends


def _floors(latest: Latest, remembered: Iterable[Found]) -> pa.Array:
    """Return the order of the last remembered delete of each key."""
    floors: list[str | None] = [None] * len(latest.rows)
    for hits in remembered:
        # A key may be remembered several times until files are gathered; the latest delete counts.
        for code, order in zip(hits.codes.tolist(), hits.orders.to_pylist(), strict=True):
            if order is not None and order > (floors[code] or ""):
                floors[code] = order
    return pa.array(floors, pa.string())
