"""First comparison, by whole columns: fingerprints find the JSON records that are in the table.

Records and rows without a counterpart, usually few, are left to be compared value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from driftline.verify.comparison import Comparison, Terms, begin_task
from driftline.verify.data_files import FileRows
from driftline.verify.expected import PRESENCE, WIDTH, ColumnShape, ExpectedRows, copies_in, fingerprints
from driftline.verify.files import FilePart, Read, read, texts
from driftline.verify.frames import FrameRows, SparkTasks
from driftline.verify.local import LocalRows, LocalTasks

if TYPE_CHECKING:
    from pyspark import RDD

RECORD, ROW, OTHER = range(3)  # kinds of pieces: other records have no fingerprint
_AT = 8  # bytes of a place
_LINES = 2**40  # of a part of a file

Piece = tuple[int, bytes, bytes]  # the kind, fingerprints and places of its records


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The records without a row: their ``places``, of ``records`` in all.

    Of rows that no record equals: ``alone`` their fingerprints, ``others`` the number of those without kept
    fingerprints. ``surplus``: the number of rows that equal a matched row.
    """

    records: int
    places: bytes = b""
    alone: bytes = b""
    surplus: int = 0
    others: int = 0

    @property
    def missing(self) -> int:
        """The number of records without a row."""
        return len(self.places) // _AT

    @property
    def has_rows(self) -> bool:
        """True if there are rows that no record equals."""
        return bool(self.alone or self.others)

    def __add__(self, other: Unmatched) -> Unmatched:
        return Unmatched(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def standing(part: int, lines: Iterable[int]) -> bytes:
    """The lines of a part as numbers that no line of another part has."""
    return (np.fromiter(lines, np.int64) + part * _LINES).tobytes()


def by_part(places: bytes) -> dict[int, set[int]]:
    """The lines of each part."""
    parts, lines = np.divmod(np.frombuffer(places, np.int64), _LINES)
    return {int(part): set(lines[parts == part].tolist()) for part in np.unique(parts)}


def unmatched(pieces: Iterable[Piece]) -> Unmatched:
    """Records without a row, and rows without a record, among the pieces."""
    by_kind: list[list[Piece]] = [[], [], []]
    for piece in pieces:
        by_kind[piece[0]].append(piece)
    records, rows = (_keys(by_kind[kind]) for kind in (RECORD, ROW))
    places = np.frombuffer(b"".join(places for _, _, places in by_kind[RECORD]), np.int64)
    others = b"".join(places for _, _, places in by_kind[OTHER])
    total = len(records) + len(others) // _AT
    keys = np.concatenate((records, rows))
    if not len(keys):
        return Unmatched(total, others)
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: of equal ones the records come first
    in_order = keys[order]
    begins = np.concatenate(([True], (in_order[1:] != in_order[:-1]).any(axis=1)))
    group = np.cumsum(begins) - 1
    is_record = order < len(records)
    of_records = np.bincount(group, is_record).astype(np.int64)
    of_rows = np.bincount(group, ~is_record).astype(np.int64)
    # Of equal records and rows, as many records as there are rows have one: those with the lowest ranks.
    rank = np.arange(len(order)) - np.flatnonzero(begins)[group]
    lone = order[is_record & (rank >= of_rows[group])]
    alone = (of_records == 0) & (of_rows > 0)
    surplus = np.maximum(of_rows - of_records, 0)[~alone].sum()
    alone_rows = in_order[~is_record & alone[group]]
    return Unmatched(total, places[np.sort(lone)].tobytes() + others, alone_rows.tobytes(), int(surplus))


def _keys(pieces: Iterable[Piece]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(keys for _, keys, _ in pieces), np.uint64).reshape(-1, WIDTH // 8)


def scattered(kind: int, keys: bytes, packed_places: bytes, buckets: int) -> list[tuple[int, Piece]]:
    """Cut a piece by its fingerprints (``keys``) into ``buckets``, so that equal ones meet in one.

    Args:
        kind: of the records.
        packed_places: their places, if known.
    """
    if buckets == 1 or kind == OTHER:
        return [(0, (kind, keys, packed_places))]
    pairs = np.frombuffer(keys, np.uint64).reshape(-1, WIDTH // 8)
    places = np.frombuffer(packed_places, np.int64)
    bucket = pairs[:, 0] % np.uint64(buckets)
    out = []
    for i in range(buckets):
        chosen = bucket == i
        where = places[chosen].tobytes() if packed_places else b""
        out.append((i, (kind, pairs[chosen].tobytes(), where)))
    return out


_BATCH = 4 * 2**20  # bytes of lines that are decoded at once
_BUCKET = 64 * 2**20  # bytes of the source whose fingerprints meet in one task
_FEW = 2**20  # bytes of a source that is read at once, without a job
_MOST = 2**20  # records, or rows, that are compared again

Task = Sequence[tuple[int, FilePart]]


@dataclass(frozen=True)
class Fingerprinter:
    """A maker of fingerprints of parts and of rows, in tasks.

    Attributes:
        names: the table's columns as they come.
    """

    terms: Terms
    names: tuple[str, ...]
    buckets: int

    def __reduce__(self) -> Any:
        # Without what is made of them: that may be too deep for pickle.
        return Fingerprinter, (self.terms, self.names, self.buckets)

    @cached_property
    def _comparison(self) -> Comparison:
        begin_task()
        return Comparison.by(self.terms)

    @cached_property
    def shapes(self) -> list[ColumnShape | None]:
        """The shapes of the record's columns, then of the table's others; None if one may have no Arrow."""
        record = self._comparison.meeting.record
        others = [None for name in self.names if name not in record.columns]
        return [*ColumnShape.of_all(record), *others]

    @cached_property
    def compared(self) -> list[ColumnShape]:
        """All compared columns: those without an Arrow form by their presence alone."""
        return [ColumnShape(PRESENCE) if shape is None else shape for shape in self.shapes]

    @cached_property
    def present(self) -> frozenset[int]:
        """Positions in the table's rows of the columns that are compared by their presence alone."""
        pairs = zip(self.places, self.compared, strict=True)
        return frozenset(place for place, shape in pairs if shape.type == PRESENCE)

    @cached_property
    def places(self) -> list[int]:
        """Positions of the columns in the table's rows."""
        record = self._comparison.meeting.record
        others = [name for name in self.names if name not in record.columns]
        return [self.names.index(name) for name in [*record.columns, *others]]

    def of_parts(self, task: Task) -> Iterator[tuple[int, Piece]]:
        """The pieces of the parts' records, by bucket."""
        expected = ExpectedRows(self._comparison.meeting.record, self.compared, self._comparison.left_out)
        for number, part in task:
            keys: list[bytes] = []
            places: list[bytes] = []
            others: list[bytes] = []
            for lines, raws in _batches(part):
                rows = expected.of_lines(raws)
                keys.append(rows.fingerprints)
                places.append(standing(number, lines[rows.places]))
                others.append(standing(number, lines[rows.others]))
            yield from scattered(RECORD, b"".join(keys), b"".join(places), self.buckets)
            yield from scattered(OTHER, b"", b"".join(others), self.buckets)

    def of_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pieces of rows, by bucket, as rows."""
        begin_task()
        for batch in batches:
            for bucket, (_, keys, _) in scattered(ROW, self._keys(batch), b"", self.buckets):
                yield _piece(bucket, keys)

    def equal_rows(self, fingerprints: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows' fingerprints that are among these, and how many others there are."""
        begin_task()
        for batch in batches:
            keys = np.frombuffer(self._keys(batch), _KEY)
            equal = keys[np.isin(keys, np.frombuffer(fingerprints, _KEY))]
            yield _piece(0, equal.tobytes(), len(keys) - len(equal))

    def chosen(
        self, keys: bytes, others: bool, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The rows that have one of these fingerprints, or the ``others``."""
        begin_task()
        for batch in batches:
            mask = np.isin(np.frombuffer(self._keys(batch), _KEY), np.frombuffer(keys, _KEY), invert=others)
            yield batch.filter(pa.array(mask))

    def _keys(self, batch: pa.RecordBatch) -> bytes:
        columns = [batch.column(place) for place in self.places]
        return fingerprints(
            self.compared, columns, batch.num_rows, copies_in(self._comparison.meeting.record)
        )


_KEY = np.dtype(f"V{WIDTH}")
_PIECE = pa.schema([("bucket", pa.int32()), ("keys", pa.binary()), ("others", pa.int64())])


def _piece(bucket: int, keys: bytes, others: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "keys": keys, "others": others}], _PIECE)


def _batches(part: FilePart) -> Iterator[tuple[np.ndarray[Any, Any], list[bytes]]]:
    """The numbers of the part's lines, and the lines, many at a time."""
    lines: list[int] = []
    raws: list[bytes] = []
    size = 0
    for _, found in texts(part):
        lines += found.lines
        # A text that is cut off is no record: an empty one cannot be decoded either, and is left to `match`.
        raws += [raw if len(raw) <= part.longest else b"" for raw in found.raws]
        size += sum(map(len, found.raws))
        if size >= _BATCH:
            yield np.array(lines, np.int64), raws
            lines, raws, size = [], [], 0
    if lines:
        yield np.array(lines, np.int64), raws


class ColumnMatching:
    """The parts of a source of JSON next to a table's rows."""

    def __init__(
        self,
        terms: Terms,
        parts: Sequence[Sequence[FilePart]],
        engine: SparkTasks | LocalTasks,
        stored: FrameRows | FileRows | LocalRows,
    ) -> None:
        self._parts = [part for task in parts for part in task]
        numbers = iter(range(len(self._parts)))
        self._tasks = [[(next(numbers), part) for part in task] for task in parts]
        self._size = sum(part.size for part in self._parts)
        self._columns = Fingerprinter(terms, tuple(stored.columns), -(-self._size // _BUCKET) or 1)
        self._engine, self._stored = engine, stored
        self._own: bytes | None = None  # the fingerprints of all records

    def unmatched(self) -> Unmatched | None:
        """Records without a row, and rows without a record; None if there are too many."""
        if isinstance(self._stored, LocalRows) or self._size <= _FEW:
            return self._unmatched_here()
        records = self._engine.parallelize(self._tasks)
        rows = self._stored.pieces_in_tasks(self._columns.of_rows, self._columns.present).map(_piece_of_rows)
        # Only fingerprints and places pass between tasks; records that are left are read again.
        met = records.flatMap(self._columns.of_parts).union(rows).partitionBy(self._columns.buckets)
        results = [x for x in met.values().mapPartitions(_met).collect() if x is not None]
        return reduce(add, results) if len(results) == self._columns.buckets else None

    def _unmatched_here(self) -> Unmatched:
        """The unmatched ones of few records: a job for them takes longer than they do."""
        pieces = [piece for task in self._tasks for _, piece in self._columns.of_parts(task)]
        self._own = b"".join(keys for _, keys, _ in pieces)
        equal_rows = partial(self._columns.equal_rows, self._own)
        keys, others = _sums(self._stored.pieces(equal_rows, self._columns.present))
        return replace(unmatched([*pieces, (ROW, keys, b"")]), others=others)

    def records(self, unmatched: Unmatched) -> RDD[Read]:
        """The records that are left, read again."""
        tasks = [(self._parts[number], lines) for number, lines in by_part(unmatched.places).items()]
        return self._engine.parallelize(tasks).flatMap(_read_again)

    def rows(self, unmatched: Unmatched) -> RDD[dict[str, Any]] | None:
        """Read again the rows that no record equals; None if Arrow cannot distinguish them."""
        if not unmatched.has_rows:
            return self._engine.parallelize([])
        if None in self._columns.shapes:
            return None
        chosen = (unmatched.alone, False) if self._own is None else (self._own, True)
        return self._stored.records(partial(self._columns.chosen, *chosen))


def _sums(pieces: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """All fingerprints of these pieces, and all other rows."""
    batches = [*pieces]
    keys = (key for piece in batches for key in piece.column("keys").to_pylist())
    return b"".join(keys), sum(n for piece in batches for n in piece.column("others").to_pylist())


def _piece_of_rows(row: Any) -> tuple[int, Piece]:
    return row[0], (ROW, bytes(row[1]), b"")


def _met(pieces: Iterable[Piece]) -> Iterator[Unmatched | None]:
    begin_task()
    result = unmatched(pieces)
    yield result if max(result.missing, len(result.alone) // WIDTH) <= _MOST else None


def _read_again(task: tuple[FilePart, set[int]]) -> Iterator[Read]:
    begin_task()
    return read(*task)
