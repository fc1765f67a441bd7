"""The check over all records: both sides meet by key in Spark tasks, what finds no row is looked for in quarantine.

Rows and records stay in the tasks; counts and the few that are reported come to the driver.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from driftline.core.naming import MARK
from driftline.core.types import Schema
from driftline.verify.files import Malformed, Place, Read, cells, parse, parts, read
from driftline.verify.frames import rows, typed
from driftline.verify.match import Difference, Record, differences, shown
from driftline.verify.meeting import Meeting, Slot, exactly, key, loosely
from driftline.verify.pairing import pair
from driftline.verify.values import Reading

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

LISTED = 20
_DEEP = 10_000  # nested as deep as a source may be, Python's own limit is less


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A value, or a whole record (``path`` empty), that is not in the table: where it stands, and why it is said."""

    path: str
    place: str
    sample: str
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of the source's records, and the first of what is missing, at most `LISTED`.

    ``records`` = ``found`` in the table + ``quarantined`` + ``missing``. A record that occurs n times must be
    there n times.
    """

    records: int
    found: int
    quarantined: int
    missing: int
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.missing

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self), "mismatches": [asdict(m) for m in self.mismatches]}


@dataclass(frozen=True, slots=True)
class _Left:
    """``n`` equal records that no row holds. ``differences``: from the nearest row, if one is known."""

    place: Place
    n: int
    record: bytes | None
    why: str = ""
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: _Left) -> _Left:
        first = min(self, other, key=_order)
        return replace(first, n=self.n + other.n)


def verify(
    spark: SparkSession,
    table: str | DataFrame,
    schema: Schema,
    sources: Sequence[str],
    fmt: str,
    *,
    quarantine: str | DataFrame | None = None,
    properties: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
) -> Verdict:
    """Checks that each record of the files ``sources`` is in ``table`` or in ``quarantine`` as often as there.

    ``fmt``: json, csv, parquet, avro or orc. ``properties``: the table's. ``ignore``: excluded key paths, dotted.
    Errors of reading (a file that is away or broken) are raised as they come.
    """
    properties = properties or {}
    how = Reading(properties.get("driftline.epoch-unit"), properties.get("driftline.dates") == "instant")
    record = Record.of(schema.struct, properties.get("driftline.mark", MARK))
    with _in_utc(spark):
        reads, floats = _reads(spark, sources, fmt)
        meeting = Meeting(record, Slot.of(schema.struct, record, floats), how, frozenset(ignore))
        job = _Job(meeting, fmt)
        stored = rows(spark.table(table) if isinstance(table, str) else table)
        return job.run(reads, stored, _quarantined(spark, quarantine))


def _reads(spark: SparkSession, sources: Sequence[str], fmt: str) -> tuple[RDD[Read], int]:
    if fmt not in ("json", "csv"):
        return typed(spark, sources, fmt)
    pieces = parts(sources, fmt)
    return spark.sparkContext.parallelize(pieces, max(1, len(pieces))).flatMap(_read), 0


def _read(part: Any) -> Iterator[Read]:
    _allow_depth()
    return read(part)


def _quarantined(spark: SparkSession, quarantine: str | DataFrame | None) -> RDD[bytes] | None:
    """The raw bytes of each quarantined record."""
    from pyspark.sql import functions as F

    if quarantine is None:
        return None
    df = spark.table(quarantine) if isinstance(quarantine, str) else quarantine
    raw = df.select(F.coalesce("raw_bytes", F.col("raw").cast("binary")).alias("raw"))
    return raw.rdd.map(lambda row: bytes(row[0] or b""))


@contextmanager
def _in_utc(spark: SparkSession) -> Iterator[None]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        yield
    finally:
        if zone is not None:
            spark.conf.set("spark.sql.session.timeZone", zone)


def _allow_depth() -> None:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))


_RECORD, _ROW = 0, 1
_Keyed = tuple[tuple[int, int], Any]


@dataclass(frozen=True, slots=True)
class _Job:
    """What the tasks need."""

    meeting: Meeting
    fmt: str

    def run(self, reads: RDD[Read], stored: RDD[dict[str, Any]], quarantined: RDD[bytes] | None) -> Verdict:
        from pyspark import StorageLevel

        tasks = max(reads.getNumPartitions(), stored.getNumPartitions())
        both = reads.mapPartitions(self.keyed_records).union(stored.mapPartitions(self.keyed_rows))
        sorted_ = both.repartitionAndSortWithinPartitions(tasks, itemgetter(0), keyfunc=_identity)
        compared = sorted_.mapPartitions(self.compared).persist(StorageLevel.DISK_ONLY)
        try:
            totals = Counter(dict(compared.filter(_is_total).map(_second).reduceByKey(add, 1).collect()))
            records, unheld = totals["records"], totals["unheld"]
            if not unheld:
                return Verdict(records, records, 0, 0)
            left = compared.filter(lambda x: not _is_total(x)).reduceByKey(add, tasks)
            lost = self.not_in(quarantined, left, tasks)
            missing, sample = lost.map(lambda x: x.n).sum(), lost.takeOrdered(LISTED, _order)
            mismatches = tuple(_listed(self.nearest(sample, reads, stored)))
            return Verdict(records, records - unheld, unheld - missing, missing, mismatches)
        finally:
            compared.unpersist()

    def keyed_records(self, reads: Iterable[Read]) -> Iterator[_Keyed]:
        _allow_depth()
        for r in reads:
            if r.record is None:
                yield (key([repr(r.raw)]), _RECORD), (r.place, r.raw, r.reason)
            else:
                yield (key(self.meeting.of_record(r.record)), _RECORD), (r.place, _packed(r.record), None)

    def keyed_rows(self, stored: Iterable[dict[str, Any]]) -> Iterator[_Keyed]:
        _allow_depth()
        for row in stored:
            yield (key(self.meeting.of_row(row)), _ROW), _packed(row)

    def compared(self, keyed: Iterable[_Keyed]) -> Iterator[tuple[Any, Any]]:
        """For each group the records that found no row, by fingerprint; at the end the totals."""
        _allow_depth()
        records = unheld = 0
        for _, group in groupby(keyed, key=lambda x: x[0][0]):
            places: dict[bytes, list[Place]] = {}
            stored: Counter[bytes] = Counter()
            for (_, side), value in group:
                if side == _ROW:
                    stored[value] += 1
                    continue
                place, payload, reason = value
                records += 1
                if reason is None:
                    places.setdefault(payload, []).append(place)
                else:
                    unheld += 1
                    yield self.fingerprint(payload), _Left(place, 1, None, f"{reason}, and not in quarantine")
            if places:
                for found in self.left(places, stored):
                    unheld += found[1].n
                    yield found
        yield _TOTAL, ("records", records)
        yield _TOTAL, ("unheld", unheld)

    def left(self, places: dict[bytes, list[Place]], stored: Counter[bytes]) -> Iterator[tuple[bytes, _Left]]:
        payloads = list(places)
        records, rows_ = list(map(_unpacked, payloads)), list(map(_unpacked, stored))

        def apart(row: int, record: int) -> list[Difference]:
            return self.apart(rows_[row], records[record])

        missing, free = pair(
            [len(places[p]) for p in payloads],
            list(stored.values()),
            lambda row, record: not apart(row, record),
        )
        for i, n in enumerate(missing):
            if n:
                times = len(places[payloads[i]])
                why = f"{times} times in the source, {times - n} times in the table" if times > n else ""
                near = [row for row, unused in enumerate(free) if unused][:100]
                nearest = () if why else _fewest(apart(row, i) for row in near)
                place = sorted(places[payloads[i]])[-n]
                yield self.fingerprint_of(records[i]), _Left(place, n, payloads[i], why, nearest)

    def apart(self, row: dict[str, Any], record: dict[str, Any]) -> list[Difference]:
        return differences(self.meeting.record, row, record, self.meeting.how, self.meeting.ignore)

    # Quarantine -------------------------------------------------------------------------------------------

    def fingerprint(self, raw: bytes) -> bytes:
        """Of a quarantined text, or of a source's that is no record."""
        try:
            return self.fingerprint_of(parse(raw))
        except Malformed:
            return self.fingerprint_of(cells(raw)) if self.fmt == "csv" else raw.strip()

    def fingerprint_of(self, record: Any) -> bytes:
        """The same for a record and its copy in quarantine; JSON stands there as it came, the others may not."""
        text = exactly(record) if self.fmt == "json" else "\n".join(loosely(record))
        return text.encode(errors="surrogateescape")

    def not_in(
        self, quarantined: RDD[bytes] | None, left: RDD[tuple[bytes, _Left]], tasks: int
    ) -> RDD[_Left]:
        if quarantined is None:
            return left.values()
        kept = quarantined.mapPartitions(self.keyed_raw).reduceByKey(add, tasks)
        return left.leftOuterJoin(kept, tasks).flatMap(_without)

    def keyed_raw(self, quarantined: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        _allow_depth()
        return ((self.fingerprint(raw), 1) for raw in quarantined)

    # What is near to what is missing ----------------------------------------------------------------------

    def nearest(self, sample: list[_Left], reads: RDD[Read], stored: RDD[dict[str, Any]]) -> Iterator[_Left]:
        """The sample, each with its differences from the row that shares most values, if it shares half of them."""
        unknown = [x for x in sample if x.record and not x.why and not x.differences]
        records = [_unpacked(x.record or b"") for x in unknown]
        wanted = [self.meeting.of_record(record) for record in records]
        near = (
            stored.mapPartitions(lambda rows_: _near(self.meeting, wanted, rows_)).collect() if wanted else []
        )
        keys = {k for _, _, k, _ in near}
        # A row that has met a record is that record's, most likely.
        met = set(reads.filter(lambda r: r.record is not None).map(lambda r: key(self.meeting.of_record(r.record or {})))
                  .filter(lambda k: k in keys).distinct().collect()) if keys else set()  # fmt: skip
        for x in sample:
            if x in unknown:
                i = unknown.index(x)
                rows_ = [_unpacked(row) for j, _, k, row in near if j == i and k not in met]
                x = replace(x, differences=_fewest(self.apart(row, records[i]) for row in rows_))
            yield x


def _fewest(apart: Iterable[list[Difference]]) -> tuple[Difference, ...]:
    return tuple(next(iter(sorted(apart, key=len)), ()))


_TOTAL = ""
_packed = partial(pickle.dumps, protocol=5)


def _unpacked(payload: bytes) -> Any:
    return pickle.loads(payload)  # noqa: S301  our own, from another task


def _is_total(x: tuple[Any, Any]) -> bool:
    return bool(x[0] == _TOTAL)


_second = itemgetter(1)


def _identity(k: Any) -> Any:
    return k


def _order(x: _Left) -> Any:
    return x.place.file, x.place.start, x.place.line


def _without(x: tuple[bytes, tuple[_Left, int | None]]) -> list[_Left]:
    left, kept = x[1]
    n = left.n - (kept or 0)
    return [replace(left, n=n)] if n > 0 else []


def _near(
    meeting: Meeting, wanted: Sequence[set[str]], stored: Iterable[dict[str, Any]], best: int = 3
) -> Iterator[tuple[int, int, int, bytes]]:
    """Of these rows the ``best`` for each of ``wanted``: (which, scalars shared, key, row)."""
    owners: dict[str, list[int]] = {}
    for i, scalars in enumerate(wanted):
        for text in scalars:
            owners.setdefault(text, []).append(i)
    tops: list[list[tuple[int, int, bytes]]] = [[] for _ in wanted]
    for row in stored:
        scalars = meeting.of_row(row)
        shared = Counter(i for text in scalars for i in owners.get(text, ()))
        for i, n in shared.items():
            if 2 * n >= len(wanted[i]) and (len(tops[i]) < best or n > tops[i][-1][0]):
                tops[i] = sorted([*tops[i], (n, key(scalars), _packed(row))], reverse=True)[:best]
    for i, top in enumerate(tops):
        for n, k, payload in top:
            yield i, n, k, payload


def _listed(sample: Iterable[_Left]) -> list[Mismatch]:
    """What is reported: each path once before any a second time."""
    out: list[tuple[int, Mismatch]] = []
    seen: Counter[str] = Counter()
    for x in sample:
        place = str(x.place)
        if x.differences:
            for d in x.differences:
                out.append((seen[d.path], Mismatch(d.path, place, shown(d.value), d.why)))
                seen[d.path] += 1
        else:
            text = shown(_unpacked(x.record)) if x.record else ""
            why = x.why or "the record is not in the table"
            out.append((seen[""], Mismatch("", place, text, why)))
            seen[""] += 1
    return [m for _, m in sorted(out, key=itemgetter(0))][:LISTED]
