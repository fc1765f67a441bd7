"""Records that no row holds, and their differences from the nearest row."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from driftline.verify.difference import RowDifference, shown
from driftline.verify.files import Read, SourcePlace
from driftline.verify.match import differences
from driftline.verify.matching_key import Meeting, key
from driftline.verify.verdict import LISTED, Mismatch

if TYPE_CHECKING:
    from pyspark import RDD

_NEAREST = 3  # rows of each task that are looked at for one record

packed = partial(pickle.dumps, protocol=5)


def unpacked(payload: bytes) -> Any:
    """Unpickle a payload that another task has pickled."""
    return pickle.loads(payload)  # noqa: S301  our own, from another task


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """``n`` equal records that no row holds, the first at ``place``; ``record`` None for other texts.

    ``differences``: from the nearest row, if one is known.
    """

    place: SourcePlace
    n: int
    record: bytes | None
    why: str = ""
    differences: tuple[RowDifference, ...] = ()

    def __add__(self, other: MissingRecords) -> MissingRecords:
        return replace(min(self, other, key=order), n=self.n + other.n)


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """``n`` equal rows, or records in quarantine, that no record is
    left for, beside ``held`` for which one is.
    """

    n: int
    text: str
    where: str
    held: int

    def listed(self) -> Mismatch:
        """The rows as an item of the report."""
        times = f"{self.n + self.held} times in {self.where}, {self.held} times in the source"
        return Mismatch("", "", self.text, times if self.held else f"in {self.where}, not in the source")


def order(x: MissingRecords) -> Any:
    """A sort key: the order in the source."""
    return x.place.file, x.place.start, x.place.line


def not_quarantined(x: tuple[bytes, tuple[MissingRecords, int | None]]) -> list[MissingRecords]:
    """The left-over records, without as many as are in quarantine."""
    unmatched, quarantined = x[1]
    n = unmatched.n - (quarantined or 0)
    return [replace(unmatched, n=n)] if n > 0 else []


def quarantined_again(x: tuple[bytes, tuple[int, MissingRecords | None]]) -> list[ExtraRows]:
    """The records that are in quarantine more often than they are left over."""
    text, (in_quarantine, unmatched) = x
    matched = min(in_quarantine, unmatched.n) if unmatched else 0
    return (
        [ExtraRows(in_quarantine - matched, shown(text.decode(errors="replace")), "quarantine", matched)]
        if in_quarantine > matched
        else []
    )


def apart(meeting: Meeting, row: Mapping[str, Any], record: Mapping[str, Any]) -> list[RowDifference]:
    """The differences where the row does not hold the record."""
    return differences(meeting.record, row, record, meeting.settings)


def fewest(differences: Iterable[list[RowDifference]]) -> tuple[RowDifference, ...]:
    """The shortest of the lists."""
    ranked = sorted(differences, key=len)
    return tuple(ranked[0]) if ranked else ()


def nearest(
    meeting: Meeting, sample: Sequence[MissingRecords], reads: RDD[Read], stored: RDD[dict[str, Any]]
) -> Iterator[MissingRecords]:
    """Add to each record of the sample its differences from the nearest row.

    That is the one with most of the record's values, at least half of them, that no other record of the
    source matches. ``reads``: the source's records; ``stored``: the table's rows.
    """
    records = {
        i: unpacked(x.record) for i, x in enumerate(sample) if x.record and not x.why and not x.differences
    }
    scalars = {i: meeting.of_record(record) for i, record in records.items()}
    near = stored.mapPartitions(lambda rows: _near(meeting, scalars, rows)).collect() if scalars else []
    # A row that has met a record is that record's, most likely.
    met = _met(meeting, reads, {k for _, k, _ in near})
    for i, x in enumerate(sample):
        rows = [unpacked(row) for j, k, row in near if j == i and k not in met]
        yield replace(x, differences=fewest(apart(meeting, row, records[i]) for row in rows)) if rows else x


def _met(meeting: Meeting, reads: RDD[Read], keys: set[int]) -> set[int]:
    if not keys:
        return set()
    met = reads.map(lambda r: key(meeting.of_record(r.record or {}))).filter(lambda k: k in keys)
    return set(met.distinct().collect())


def _near(
    meeting: Meeting, scalars_of: Mapping[int, set[str]], stored: Iterable[dict[str, Any]]
) -> Iterator[tuple[int, int, bytes]]:
    """For each of ``scalars_of``, by its key, the rows that share most with it: (key, row's key, row)."""
    owners: dict[str, list[int]] = {}
    for i, scalars in scalars_of.items():
        for text in scalars:
            owners.setdefault(text, []).append(i)
    tops: dict[int, list[tuple[int, int, bytes]]] = {i: [] for i in scalars_of}
    for row in stored:
        scalars = meeting.of_row(row)
        for i, n in Counter(i for text in scalars for i in owners.get(text, ())).items():
            top = tops[i]
            if 2 * n >= len(scalars_of[i]) and (len(top) < _NEAREST or n > top[-1][0]):
                tops[i] = sorted([*top, (n, key(scalars), packed(row))], reverse=True)[:_NEAREST]
    for i, top in tops.items():
        for _, k, row_ in top:
            yield i, k, row_


def listed(sample: Iterable[MissingRecords]) -> list[Mismatch]:
    """The reported items, at most `LISTED`: each path once before any a second time."""
    out: list[tuple[int, Mismatch]] = []
    counts: Counter[str] = Counter()
    for x in sample:
        place = str(x.place)
        mismatches = [Mismatch(d.path, place, shown(d.value), d.why) for d in x.differences]
        if not mismatches:
            text = shown(unpacked(x.record)) if x.record else ""
            mismatches = [Mismatch("", place, text, x.why or "the record is not in the table")]
        for mismatch in mismatches:
            out.append((counts[mismatch.path], mismatch))
            counts[mismatch.path] += 1
    return [mismatch for _, mismatch in sorted(out, key=itemgetter(0))][:LISTED]
