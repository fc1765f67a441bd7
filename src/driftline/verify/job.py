"""The check over all records: both sides meet by key in Spark tasks, what
finds no row is looked for in quarantine.

Rows and records stay in the tasks; counts and the few that are reported come to the driver.
"""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import add, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.core.schema.naming import MARK
from driftline.core.schema.schema_json import from_json, to_json
from driftline.core.schema.types import Schema
from driftline.runtime.spark_conf import CASE, configured
from driftline.verify.cells import CsvDialect, cells
from driftline.verify.difference import Difference, shown
from driftline.verify.emptied import Listless, lost_lists
from driftline.verify.files import LONGEST, Part, Place, Read, grouped, parts, read
from driftline.verify.frames import rows, typed
from driftline.verify.in_memory import PICKLED
from driftline.verify.in_memory import read as read_pickled
from driftline.verify.json_texts import Malformed, parse
from driftline.verify.left import (
    Extra,
    Left,
    apart,
    fewest,
    listed,
    nearest,
    not_quarantined,
    order,
    packed,
    quarantined_again,
    unpacked,
)
from driftline.verify.matching_key import Meeting, Slot, exactly, key, loosely
from driftline.verify.pairing import pair
from driftline.verify.source_values import Reading
from driftline.verify.table_shape import Record
from driftline.verify.typed_files import floats_in, read_columns, readable
from driftline.verify.verdict import LISTED, Verdict

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_FLOATS = 2  # what `floats_in` says where no schema tells
_DEEP = 4_000  # Python's own limit is less than `files` lets through, times the functions of `match`
_COMPARED = 100  # rows of a group that a record is compared with, to say what is missing


@dataclass(frozen=True, slots=True)
class Stored:
    """A table to be checked: its rows, by its name in Spark or as a frame, and its quarantine's.

    ``properties``: the table's. ``ignore``: excluded key paths, dotted; ``units``: epoch units of such paths.
    Neither has steps for elements of lists. ``defaults``: what a record without a value may have got, by
    column id.
    """

    rows: str | DataFrame
    schema: Schema
    quarantine: str | DataFrame | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[int, Iterable[Any]] = field(default_factory=dict)


def verify(
    spark: SparkSession, table: Stored, sources: Sequence[str], fmt: str, *, exactly: bool = False
) -> Verdict:
    """Checks that the table or its quarantine has each record of the files ``sources`` as often as they.

    ``exactly``: and that neither has more than that. ``fmt``: json, csv, parquet, avro or orc. Errors of
    reading (a file that is away or broken) are raised as they come.
    """
    properties = table.properties
    # A task has a working directory of its own.
    sources = [source if "://" in source else str(Path(source).absolute()) for source in sources]
    how = Reading(
        properties.get("driftline.epoch-unit"),
        properties.get("driftline.dates") == "instant",
        table.units,
        any(key.startswith("driftline.resolved.") for key in properties),
        properties.get("driftline.decimal") == ",",
    )
    with configured(spark, {"spark.sql.session.timeZone": "UTC", CASE: "true"}):
        longest = int(properties.get("driftline.max-record-bytes") or LONGEST)
        dialect = CsvDialect(*(properties.get(f"driftline.{name}", "") for name in CsvDialect._fields))
        reads, floats = _reads(spark, sources, fmt, longest, dialect)
        schema, mark = json.dumps(to_json(table.schema)), properties.get("driftline.mark", MARK)
        terms = _Terms(schema, mark, floats, how, fmt, tuple(table.ignore), table.defaults, exactly)
        stored = rows(spark.table(table.rows) if isinstance(table.rows, str) else table.rows)
        return _job(terms).run(reads, stored, _quarantined(spark, table.quarantine))


@dataclass(frozen=True, slots=True)
class _Terms:
    """What both sides are compared by. ``schema``: as JSON text."""

    schema: str
    mark: str
    floats: int
    how: Reading
    fmt: str
    ignore: tuple[str, ...]
    defaults: Mapping[int, Iterable[Any]]
    exactly: bool


def _job(terms: _Terms) -> _Job:
    struct = from_json(json.loads(terms.schema)).struct
    record = Record.of(struct, terms.mark, terms.defaults)
    meeting = Meeting(record, Slot.of(struct, record, terms.floats), terms.how)
    left_out = [path.split(".") for path in terms.ignore]
    return _Job(meeting, terms.fmt, left_out, terms.exactly, terms)


def _reads(
    spark: SparkSession, sources: Sequence[str], fmt: str, longest: int, dialect: CsvDialect
) -> tuple[RDD[Read], int]:
    context = spark.sparkContext
    if fmt == PICKLED:
        return context.parallelize(sources, max(1, len(sources))).flatMap(read_pickled), _FLOATS
    if all(readable(source, fmt) for source in sources):
        floats = max((floats_in(source, fmt) for source in sources), default=0)
        return context.parallelize(sources, max(1, len(sources))).flatMap(
            partial(read_columns, fmt=fmt)
        ), floats
    if fmt not in TEXTS:
        return typed(spark, sources, fmt)
    tasks = grouped(parts(sources, fmt, longest, dialect), context.defaultParallelism)
    return context.parallelize(tasks, max(1, len(tasks))).flatMap(_read), 0


def _read(task: Sequence[Part]) -> Iterator[Read]:
    _allow_depth()
    return chain.from_iterable(map(read, task))


def _forget(value: Any, path: Sequence[str]) -> None:
    """Takes out of a record what is at the path."""
    if isinstance(value, list):
        for item in value:
            _forget(item, path)
    elif isinstance(value, dict) and len(path) == 1:
        value.pop(path[0], None)
    elif isinstance(value, dict):
        _forget(value.get(path[0]), path[1:])


def _quarantined(spark: SparkSession, quarantine: str | DataFrame | None) -> RDD[bytes] | None:
    """The raw bytes of each quarantined record."""
    from pyspark.sql import functions as F

    if quarantine is None:
        return None
    df = spark.table(quarantine) if isinstance(quarantine, str) else quarantine
    raw = df.select(F.coalesce("raw_bytes", F.col("raw").cast("binary")).alias("raw"))
    return raw.rdd.map(lambda row: bytes(row[0] or b""))


def _allow_depth() -> None:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))


TEXTS = ("json", "csv")
_RECORD, _ROW = 0, 1
_TOTALS, _LEFT, _LISTLESS, _EXTRA = range(4)  # kinds of what comparing finds
_Keyed = tuple[tuple[int, int], Any]


@dataclass(frozen=True, slots=True)
class _Job:
    """What the tasks need."""

    meeting: Meeting
    fmt: str
    left_out: Sequence[Sequence[str]]
    exactly: bool
    terms: _Terms

    def __reduce__(self) -> Any:
        # As text: a deep schema is too deep for pickle.
        return _job, (self.terms,)

    def run(self, reads: RDD[Read], stored: RDD[dict[str, Any]], quarantined: RDD[bytes] | None) -> Verdict:
        from pyspark import StorageLevel

        tasks = max(reads.getNumPartitions(), stored.getNumPartitions())
        both = reads.mapPartitions(self.keyed_records).union(stored.mapPartitions(self.keyed_rows))
        sorted_ = both.repartitionAndSortWithinPartitions(tasks, itemgetter(0), keyfunc=_identity)
        compared = sorted_.mapPartitions(self.compared).persist(StorageLevel.DISK_ONLY)
        try:
            by_kind: list[RDD[Any]] = [compared.filter(partial(_is, kind)).values() for kind in range(4)]
            records, unheld, extra, listless = map(sum, zip(*by_kind[_TOTALS].collect(), strict=True))
            left = by_kind[_LEFT].reduceByKey(add, tasks)
            held = None
            if quarantined is not None:
                held = quarantined.mapPartitions(self.keyed_raw).reduceByKey(add, tasks)
            missing, sample = 0, []
            if unheld:
                lost = (
                    left.values()
                    if held is None
                    else left.leftOuterJoin(held, tasks).flatMap(not_quarantined)
                )
                missing, sample = lost.map(lambda x: x.n).sum(), lost.takeOrdered(LISTED, order)
            waiting = unheld - missing
            if listless:
                emptied = lost_lists(by_kind[_LISTLESS], reads, self.without, typed=self.fmt not in TEXTS)
                missing += emptied.map(lambda x: x.n).sum()
                sample = sorted([*sample, *emptied.takeOrdered(LISTED, order)], key=order)[:LISTED]
            mismatches = listed(nearest(self.meeting, sample, reads, stored))
            verdict = Verdict(records, records - waiting - missing, waiting, missing, tuple(mismatches))
            if not self.exactly:
                return verdict
            beyond = by_kind[_EXTRA]
            if held is not None:
                again = held.leftOuterJoin(left, tasks).flatMap(quarantined_again)
                extra += again.map(lambda x: x.n).sum()
                beyond = beyond.union(again)
            mismatches += [x.listed() for x in beyond.take(LISTED)] if extra else []
            return replace(verdict, mismatches=tuple(mismatches[:LISTED]), extra=extra)
        finally:
            compared.unpersist()

    def keyed_records(self, reads: Iterable[Read]) -> Iterator[_Keyed]:
        _allow_depth()
        for r in reads:
            if r.record is None:
                yield (key([repr(r.raw)]), _RECORD), (r.place, r.raw, r.reason)
            else:
                record = self.without(r.record)
                yield (key(self.meeting.of_record(record)), _RECORD), (r.place, packed(record), None)

    def without(self, record: Any) -> Any:
        """The record without what is excluded."""
        for path in self.left_out:
            _forget(record, path)
        return record

    def keyed_rows(self, stored: Iterable[dict[str, Any]]) -> Iterator[_Keyed]:
        _allow_depth()
        for row in stored:
            yield (key(self.meeting.of_row(row)), _ROW), packed(row)

    def compared(self, keyed: Iterable[_Keyed]) -> Iterator[tuple[int, Any]]:
        """By kind, for each group the records that found no row, and
        the rows left over; at the end the totals.
        """
        _allow_depth()
        records, n = 0, Counter[int]()
        for _, group in groupby(keyed, key=lambda x: x[0][0]):
            places: dict[bytes, list[Place]] = {}
            stored: Counter[bytes] = Counter()
            for (_, side), value in group:
                if side == _ROW:  # behind all records of the group
                    if not (places or self.exactly):
                        break
                    stored[value] += 1
                    continue
                place, payload, reason = value
                records += 1
                if reason is None:
                    places.setdefault(payload, []).append(place)
                else:
                    n[_LEFT] += 1
                    none = Left(place, 1, None, f"{reason}, and not in quarantine")
                    yield _LEFT, (self.fingerprint(payload), none)
            for kind, count, x in self.left(places, stored):
                n[kind] += count
                yield kind, x
        yield _TOTALS, (records, n[_LEFT], n[_EXTRA], n[_LISTLESS])

    def left(
        self, places: dict[bytes, list[Place]], stored: Counter[bytes]
    ) -> Iterator[tuple[int, int, Any]]:
        """Of the records and rows that met under one key, the records without a row, and the other way
        round: the kind, how many, and what is left.
        """
        payloads = list(places)
        records, rows_ = list(map(unpacked, payloads)), list(map(unpacked, stored))

        unproven: dict[tuple[int, int], list[Difference]] = {}

        def holds(row: int, record: int) -> int:
            differences = apart(self.meeting, rows_[row], records[record])
            if not all(d.unproven for d in differences):
                return 0
            if differences:
                unproven[record, row] = differences
            return 1 if differences else 2

        missing, free, given = pair([len(places[p]) for p in payloads], list(stored.values()), holds)
        for i, row in unproven.keys() & given.keys():
            at = tuple(places[payloads[i]])
            held = len(at) - given[i, row]
            yield _LISTLESS, 1, Listless(at, held, payloads[i], tuple(unproven[i, row]))
        near = [row for row, unused in zip(rows_, free, strict=True) if unused][:_COMPARED]
        for payload, record, n in zip(payloads, records, missing, strict=True):
            times = len(places[payload])
            if n:
                place = sorted(places[payload])[-n]
                why = f"{times} times in the source, {times - n} times in the table" if times > n else ""
                differences = () if why else fewest(apart(self.meeting, row, record) for row in near)
                yield _LEFT, n, (self.fingerprint_of(record), Left(place, n, payload, why, differences))
        if self.exactly:
            for (payload, n), unused in zip(stored.items(), free, strict=True):
                if unused:
                    yield _EXTRA, unused, Extra(unused, shown(unpacked(payload)), "the table", n - unused)

    # Quarantine -------------------------------------------------------------------------------------------

    def fingerprint(self, raw: bytes) -> bytes:
        """Of a quarantined text, or of a source's that is no record."""
        try:
            return self.fingerprint_of(self.without(parse(raw)))
        except Malformed:
            return (
                self.fingerprint_of(cells(raw)) if self.fmt == "csv" else raw.removeprefix(BOM_UTF8).strip()
            )

    def fingerprint_of(self, record: Any) -> bytes:
        """The same for a record and its copy in quarantine; JSON
        stands there as it came, the others may not.
        """
        text = exactly(record) if self.fmt == "json" else "\n".join(loosely(record))
        return text.encode(errors="surrogateescape")

    def keyed_raw(self, quarantined: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        _allow_depth()
        return ((self.fingerprint(raw), 1) for raw in quarantined)


def _is(kind: int, x: tuple[int, Any]) -> bool:
    return x[0] == kind


def _identity(k: Any) -> Any:
    return k
