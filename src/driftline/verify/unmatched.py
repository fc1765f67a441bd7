"""Finds fingerprints of records without a row, and of rows without a record: numbers in arrays, by task.

Each record and each row is matched at most once, so equal ones must occur equally often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from driftline.verify.fingerprints import WIDTH

RECORD, ROW, OTHER = range(3)  # kinds of pieces: other records have no fingerprint
_AT = 8  # bytes of a place
_LINES = 2**40  # of a part of a file

Piece = tuple[int, bytes, bytes]  # its kind, fingerprints, and where the records stand


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The records without a row: ``at`` their places, of ``records`` in all.

    Of rows that no record equals: ``alone`` their fingerprints, ``others`` the number of those without kept
    fingerprints. ``surplus``: the number of rows that equal a matched row.
    """

    records: int
    at: bytes = b""
    alone: bytes = b""
    surplus: int = 0
    others: int = 0

    @property
    def missing(self) -> int:
        """The number of records without a row."""
        return len(self.at) // _AT

    @property
    def has_rows(self) -> bool:
        """True if there are rows that no record equals."""
        return bool(self.alone or self.others)

    def __add__(self, other: Unmatched) -> Unmatched:
        return Unmatched(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def standing(part: int, lines: Iterable[int]) -> bytes:
    """The lines of a part as numbers that no line of another part has."""
    return (np.fromiter(lines, np.int64) + part * _LINES).tobytes()


def by_part(at: bytes) -> dict[int, set[int]]:
    """The lines of each part."""
    parts, lines = np.divmod(np.frombuffer(at, np.int64), _LINES)
    return {int(part): set(lines[parts == part].tolist()) for part in np.unique(parts)}


def unmatched(pieces: Iterable[Piece]) -> Unmatched:
    """Records without a row, and rows without a record, among the pieces."""
    by_kind: list[list[Piece]] = [[], [], []]
    for piece in pieces:
        by_kind[piece[0]].append(piece)
    records, rows = (_keys(by_kind[kind]) for kind in (RECORD, ROW))
    at = np.frombuffer(b"".join(at for _, _, at in by_kind[RECORD]), np.int64)
    others = b"".join(at for _, _, at in by_kind[OTHER])
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
    rank = np.arange(len(order)) - np.flatnonzero(begins)[group]
    lone = order[is_record & (rank >= of_rows[group])]
    alone = (of_records == 0) & (of_rows > 0)
    surplus = np.maximum(of_rows - of_records, 0)[~alone].sum()
    left = in_order[~is_record & alone[group]]
    return Unmatched(total, at[np.sort(lone)].tobytes() + others, left.tobytes(), int(surplus))


def _keys(pieces: Iterable[Piece]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(keys for _, keys, _ in pieces), np.uint64).reshape(-1, WIDTH // 8)


def scattered(kind: int, keys: bytes, at: bytes, buckets: int) -> list[tuple[int, Piece]]:
    """Cut a piece by fingerprints, so that equal ones meet in one bucket."""
    if buckets == 1 or kind == OTHER:
        return [(0, (kind, keys, at))]
    pairs = np.frombuffer(keys, np.uint64).reshape(-1, WIDTH // 8)
    places = np.frombuffer(at, np.int64)
    bucket = pairs[:, 0] % np.uint64(buckets)
    out = []
    for i in range(buckets):
        chosen = bucket == i
        where = places[chosen].tobytes() if at else b""
        out.append((i, (kind, pairs[chosen].tobytes(), where)))
    return out
