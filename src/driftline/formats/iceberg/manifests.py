"""Column statistics from the manifests of an Iceberg table, read by Spark or without Java."""

from __future__ import annotations

import pickle
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from driftline.core.changes import NullCount
from driftline.core.columns.statistics import (
    RECORDS,
    TREND,
    CommittedBatch,
    Count,
    Counts,
    KnownSnapshot,
    Numbers,
    SeenNote,
    TableStatistics,
    shown,
)
from driftline.core.columns.timeline import periods
from driftline.core.history import entries as log
from driftline.core.history.entries import BATCH, EXPIRED, EXPIRED_COMPACTIONS, MOVED, SEEN
from driftline.core.history.retention import DELETES_BRANCH, is_compaction
from driftline.core.schema.definition import WITH_VECTORS
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Field, Primitive, Schema
from driftline.formats.iceberg.versions import current_snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


CUT = 16  # characters, at which Iceberg cuts the bounds of texts
_KINDS = {
    "int": "whole", "long": "whole", "date": "whole", "time": "whole", "timestamp": "whole", "timestamp_ntz": "whole",
    "float": "fraction", "double": "fraction", "decimal": "decimal", "boolean": "bytes", "string": "bytes", "uuid": "bytes",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind(type_: Primitive) -> str | None:
    """Return the rule for comparing the bounds of a column; None if they are not compared."""
    return _KINDS.get(type_.name)


def sorting(kind: str | None, raw: bytes) -> Any:
    """Return a sort key for raw bounds; those of kinds ``whole`` and ``fraction`` must have one width.

    >>> from struct import pack
    >>> sorted((-1.5, 2.0, -0.0, 0.5, -3.0), key=lambda x: sorting("fraction", pack("<d", x)))
    [-3.0, -1.5, -0.0, 0.5, 2.0]
    """
    match kind:
        case "whole":
            return int.from_bytes(raw, "little", signed=True)
        case "decimal":
            return int.from_bytes(raw, "big", signed=True)
        case "fraction":
            bits = int.from_bytes(raw, "little", signed=True)
            return bits if bits >= 0 else -(bits + (1 << (8 * len(raw) - 1))) - 1
    return raw


def numbers(raw_lows: Iterable[bytes], raw_highs: Iterable[bytes], type_: Primitive) -> Numbers:
    """Return the bounds of a column, from the lowest and the highest of each width."""
    if kind(type_) is None:
        return Numbers()
    lows = [value for low in raw_lows if (value := _value(low, type_)) is not None]
    highs = [value for high in raw_highs if (value := _value(high, type_)) is not None]
    if not lows or not highs:
        return Numbers()
    low, high = shown(min(lows), type_), shown(max(highs), type_)
    low_cut = high_cut = False
    if type_.name == "string":
        low_cut, high_cut = len(str(low)) >= CUT, len(str(high)) >= CUT
        # The last character of an upper bound that was cut is one higher than it was.
        high = str(high)[:-1] if high_cut else high
    return Numbers(low=low, high=high, low_cut=low_cut, high_cut=high_cut)


def _value(raw: bytes, type_: Primitive) -> Any:
    """Return a bound's value; None where Python has none.

    >>> from driftline.core.schema.types import DATE, DOUBLE, LONG
    >>> _value(b"\\xfe\\xff\\xff\\xff", LONG), _value(b"\\x00\\x00\\xc0\\x3f", DOUBLE)
    (-2, 1.5)
    >>> _value(b"\\x01\\x00\\x00\\x00", DATE)
    '1970-01-02'
    """
    match type_.name:
        case "boolean":
            return raw != b"\0"
        case "float" | "double":
            return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        case "decimal":
            return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}e-{type_.args[1]}")
        case "string":
            return raw.decode(errors="replace")
        case "uuid":
            return str(UUID(bytes=bytes(raw)))
    number = int.from_bytes(raw, "little", signed=True)
    try:
        match type_.name:
            case "date":
                return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
            case "timestamp" | "timestamp_ntz" | "time":
                moment = (_EPOCH + timedelta(microseconds=number)).replace(tzinfo=None)
                text = (moment.time() if type_.name == "time" else moment).isoformat()
                return text.rstrip("0") if "." in text else text
    except OverflowError:  # beyond the year 9999
        return None
    return number


_ROWS = 256
# Bytes, with their lists, of more than which Spark makes shorter work
_MANIFESTS = 8 * 2**20
DELETED = 2
_FIELDS = ("record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


class ManifestEntry(NamedTuple):
    """A file of a table, with its metrics by column id.

    ``snapshot``: the commit that added it; ``sequence``: its sequence number; ``partition``: its values, in
    the order of the fields of its partition ``spec``.
    """

    snapshot: int
    sequence: int
    records: int
    values: Mapping[int, int]
    nulls: Mapping[int, int]
    lows: Mapping[int, bytes]
    highs: Mapping[int, bytes]
    is_data: bool = True
    size: int = 0
    spec: int = 0
    partition: tuple[Any, ...] = ()

    def metrics(
        self, watched: frozenset[int] | None = None
    ) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """Yield the values and bounds of each column, by its id; as column 0, the records of the file.

        Args:
            watched: the columns; None: all.
        """
        values = (
            self.values
            if watched is None
            else {id_: self.values[id_] for id_ in watched if id_ in self.values}
        )
        for id_, count in ({RECORDS: self.records} | dict(values)).items():
            yield id_, count - self.nulls.get(id_, 0), self.lows.get(id_), self.highs.get(id_)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Commits that are no longer known.

    ``schemas``: those of their files by sequence number, from the changes that the table remembers, the
    latest first. ``appended``: all of them only added records.
    """

    schemas: Sequence[tuple[int, int | None]]
    appended: bool

    def schema(self, sequence: int) -> int | None:
        """Return the schema of a file with this sequence number; None if unknown."""
        return next((schema for since, schema in self.schemas if sequence >= since), None)


Bound = tuple[Any, bytes]  # with its sort key in front


class SumKey(NamedTuple):
    """The files whose metrics of a column are summed: by schema, slot, and width of bounds.

    A column that was widened has bounds of both widths, which do not compare.
    """

    column: int
    schema: int | None
    slot: int | None
    width: int


@dataclass(slots=True)
class MetricSum:
    """The sum of metrics of one column over files.

    ``first`` and ``last``: the commits with values, by their indexes; ``last_born``: the last that only
    added records. ``missing``: a file with values has no bounds. ``earliest``: the first of these commits,
    with the bounds of one of its files.
    """

    values: int = 0
    files: int = 0
    foreign: int = 0
    rewritten: int = 0
    missing: bool = False
    low: Bound | None = None
    high: Bound | None = None
    earliest: tuple[int, bytes | None, bytes | None] | None = None
    last: int | None = None
    last_born: int | None = None

    @property
    def first(self) -> int | None:
        """The first commit with values, by its index."""
        return None if self.earliest is None else self.earliest[0]

    def add(self, values: int, low: bytes | None, high: bytes | None, kind: str | None) -> None:
        """Add the values of one file, and its bounds if it has any; they are compared by ``kind``."""
        self.values += values
        self.files += 1
        self.missing |= values > 0 and (low is None or high is None)
        if low is not None:
            self.low = _least(self.low, (sorting(kind, low), low))
        if high is not None:
            self.high = _most(self.high, (sorting(kind, high), high))

    def met(self, place: int, low: bytes | None, high: bytes | None, *, born: bool, noted: bool) -> None:
        """Note a file with values of a known commit.

        ``born``: the commit only added records; ``noted``: which batches brought the values is known.
        """
        if self.earliest is None or place < self.earliest[0]:
            self.earliest = place, low, high
        if noted:
            return
        if self.last is None or place > self.last:
            self.last = place
        if born and (self.last_born is None or place > self.last_born):
            self.last_born = place

    def merge(self, later: MetricSum) -> None:
        """Add the sum over other files."""
        self.values += later.values
        self.files += later.files
        self.foreign += later.foreign
        self.rewritten += later.rewritten
        self.missing |= later.missing
        self.low = _least(self.low, later.low)
        self.high = _most(self.high, later.high)
        if later.earliest is not None and (self.first is None or later.earliest[0] < self.first):
            self.earliest = later.earliest
        self.last = _latest(self.last, later.last)
        self.last_born = _latest(self.last_born, later.last_born)


def _least(bound_so_far: Bound | None, bound: Bound | None) -> Bound | None:
    return bound_so_far if bound is None else bound if bound_so_far is None else min(bound_so_far, bound)


def _most(bound_so_far: Bound | None, bound: Bound | None) -> Bound | None:
    return bound_so_far if bound is None else bound if bound_so_far is None else max(bound_so_far, bound)


def _latest(place_so_far: int | None, place: int | None) -> int | None:
    return place_so_far if place is None else place if place_so_far is None else max(place_so_far, place)


Sums = dict[SumKey, MetricSum]


@dataclass(frozen=True, slots=True)
class Summation:
    """Settings for summing the metrics of a table's data files.

    Args:
        snapshots: the known commits, oldest first.
        plain: the columns that may have bounds, by id.
        forgotten: the commits that are no longer known.
        watched: the columns to sum up; None: all.
    """

    snapshots: Sequence[KnownSnapshot]
    plain: Mapping[int, Primitive]
    forgotten: Forgotten
    watched: frozenset[int] | None = None

    def sums(self, entries: Iterable[ManifestEntry]) -> Sums:
        """Sum the metrics of the data files among the entries."""
        kinds = {id_: kind(type_) for id_, type_ in self.plain.items()}
        places = {s.id: (place, s) for place, s in enumerate(self.snapshots)}
        sums: Sums = {}
        for entry in entries:
            if not entry.is_data:
                continue
            place, snapshot = places.get(entry.snapshot, (None, None))
            schema = None if snapshot is None else snapshot.schema
            if schema is None:
                schema = self.forgotten.schema(entry.sequence)
            slot = None if snapshot is None else snapshot.slot
            born, noted = (False, False) if snapshot is None else (snapshot.born, snapshot.noted)
            appended = self.forgotten.appended if snapshot is None else snapshot.born
            for id_, values, low, high in entry.metrics(self.watched):
                kind_ = kinds.get(id_)
                width = len(low) if low is not None and kind_ in ("whole", "fraction") else 0
                key = (id_, schema, slot, width)  # equal to a `SumKey`, and made faster
                if (total := sums.get(key)) is None:  # type: ignore[call-overload]
                    total = sums[SumKey(*key)] = MetricSum()
                total.add(values, low, high, kind_)
                total.foreign += 0 if born or noted else values
                total.rewritten += 0 if appended else values
                if values > 0 and place is not None:
                    total.met(place, low, high, born=born, noted=noted)
        return sums


def merged(parts: Iterable[Sums]) -> Sums:
    """Merge the sums over several parts of the entries."""
    sums: Sums = {}
    for part in parts:
        for key, total in part.items():
            sums.setdefault(key, MetricSum()).merge(total)
    return sums


# One piece of Python sums here and in the command itself: with 10,000 files of 60 columns it takes a quarter
# of the CPU of the same sums in SQL.
def sums_by_spark(entries: DataFrame, summations: Sequence[Summation]) -> list[Sums]:
    """Sum the metrics of a table's data files in tasks, for each of the summations in one pass.

    ``entries``: the metadata table of that name.
    """
    files = entries.where("status <> 2 and data_file.content = 0").selectExpr(
        "snapshot_id", "file_sequence_number", *(f"data_file.{name}" for name in _FIELDS)
    )
    parts = files.mapInArrow(partial(_sums_of_task, summations), "sums binary").collect()  # one row a task
    of_tasks = [pickle.loads(row.sums) for row in parts]  # noqa: S301  our own bytes
    return [merged(sums[i] for sums in of_tasks) for i in range(len(summations))]


def sums_of(entries: Iterable[ManifestEntry], summations: Sequence[Summation]) -> list[Sums]:
    """Sum the metrics of the data files among the entries, for each of the summations in one pass."""
    if len(summations) == 1:
        return [summations[0].sums(entries)]
    sums: list[Sums] = [{} for _ in summations]
    remaining = iter(entries)
    while chunk := list(islice(remaining, _ROWS)):
        sums = [
            merged((before, summation.sums(chunk)))
            for before, summation in zip(sums, summations, strict=True)
        ]
    return sums


def _sums_of_task(
    summations: Sequence[Summation], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    sums = sums_of((entry for batch in batches for entry in _entries(batch)), summations)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(sums)], pa.binary())], ["sums"])


def _entries(batch: pa.RecordBatch) -> Iterator[ManifestEntry]:
    # The maps of many columns are large as Python's objects
    for start in range(0, batch.num_rows, _ROWS):
        columns = (column.to_pylist() for column in batch.slice(start, _ROWS).columns)
        for snapshot, sequence, records, *maps in zip(*columns, strict=True):
            values, nulls, lows, highs = (dict(pairs or ()) for pairs in maps)
            yield ManifestEntry(snapshot, sequence or 0, records, values, nulls, lows, highs)


def entries_of(metadata: Mapping[str, Any], snapshot: int) -> Iterator[ManifestEntry]:
    """Yield the files of a snapshot, delete files too.

    Raises ValueError if there are too many manifests, and whatever a bad one raises.
    """
    listed = next(s["manifest-list"] for s in metadata["snapshots"] if s["snapshot-id"] == snapshot)
    for manifest in _manifests([listed]):
        for entry in avro_records(manifest["manifest_path"]):
            if entry["status"] != DELETED:
                # What was not known when the manifest was written is the same for all of it.
                added_in, sequence = entry["snapshot_id"], entry.get("file_sequence_number")
                yield _manifest_entry(
                    manifest["added_snapshot_id"] if added_in is None else added_in,
                    manifest.get("sequence_number", 0) if sequence is None else sequence,
                    manifest.get("partition_spec_id", 0),
                    entry["data_file"],
                )


def known_entries(metadata: Mapping[str, Any]) -> list[ManifestEntry] | None:
    """List the files of the current snapshot; None if they are too many, or Spark alone reads them."""
    current = current_snapshot(metadata)
    try:
        return [] if current is None else list(entries_of(metadata, current))
    except Exception:  # whatever is wrong with a file, Spark reports it
        return None


def paths_of(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of all snapshots, delete files too, those of several once or more; raises as
    `entries_of`.
    """
    for manifest in _manifests([s["manifest-list"] for s in metadata.get("snapshots", ())]):
        for entry in avro_records(manifest["manifest_path"]):
            if entry["status"] != DELETED:
                yield entry["data_file"]["file_path"]


def _manifests(lists: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    """Return the manifests of manifest lists, each once. Raises ValueError if there are too many."""
    size = sum(local_path(location).stat().st_size for location in lists)
    by_path = {
        m["manifest_path"]: m for location in lists if size <= _MANIFESTS for m in avro_records(location)
    }
    if size + sum(m["manifest_length"] for m in by_path.values()) > _MANIFESTS:
        raise ValueError("too large")
    return by_path.values()


def manifests_of(manifest_list: str, snapshot: int) -> list[str]:
    """Return the manifests that a snapshot has of its own, by its manifest list on this machine."""
    return [
        str(manifest["manifest_path"])
        for manifest in avro_records(manifest_list)
        if manifest["added_snapshot_id"] == snapshot
    ]


def _manifest_entry(snapshot: int, sequence: int, spec: int, file: Mapping[str, Any]) -> ManifestEntry:
    # Avro has no maps with numbers as keys.
    values, nulls, lows, highs = (
        {pair["key"]: pair["value"] for pair in file.get(name) or ()}
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    )
    is_data = file.get("content", 0) == 0
    place = file["file_size_in_bytes"], spec, tuple((file.get("partition") or {}).values())
    return ManifestEntry(
        snapshot, sequence, file["record_count"], values, nulls, lows, highs, is_data, *place
    )


def avro_records(location: str) -> list[Any]:
    """Return the records of an Avro file on this machine. Raises ValueError for one elsewhere."""
    from fastavro import reader

    with local_path(location).open("rb") as file:
        return list(reader(file))


def local_path(location: str) -> Path:
    """Return a location as a file of this machine. ValueError: it is elsewhere."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise ValueError(location)
    # Hadoop writes paths as they are, without escapes.
    return Path(location.removeprefix("file:")) if parts.scheme else Path(location)


class FileNulls(NamedTuple):
    """The nulls of a column in files of one commit. ``unknown``: records of files that do not count them."""

    snapshot: int | None
    sequence: int | None
    nulls: int
    unknown: int


def null_count(
    metadata: Mapping[str, Any], column: Field, files_of: Callable[[int], Iterable[FileNulls]]
) -> NullCount:
    """Return the number of nulls in a column of a table, over main and every other branch.

    ``metadata``: in JSON form; ``files_of``: the data files of a snapshot by its id. Remembered deletes are
    no rows. All branches are read with the table's schema.
    """
    refs = metadata.get("refs", {}).items()
    heads = {ref["snapshot-id"] for name, ref in refs if ref["type"] == "branch" and name != DELETES_BRANCH}
    written_with = _Schemas(metadata)
    count = NullCount()
    for head in sorted(heads):
        for files in files_of(head):
            count += NullCount(files.nulls)
            if written_with.lacks(column.id, files):
                count += NullCount(files.unknown if column.initial_default is None else 0)
            else:
                count += NullCount(unknown=files.unknown)
    return count


def by_spark(spark: SparkSession, table: str, column: int, snapshot: int) -> list[FileNulls]:
    """Return the nulls in the data files of a snapshot of a ``table`` by its name in Spark's SQL."""
    rows = spark.sql(
        f"""select snapshot_id, file_sequence_number,
        coalesce(sum(data_file.null_value_counts[{column}]), 0) as nulls,
        sum(if(data_file.null_value_counts[{column}] is null, data_file.record_count, 0)) as unknown
        from {table}.entries version as of {snapshot}
        where status <> 2 and data_file.content = 0 group by all"""
    )
    return [FileNulls(*row) for row in rows.collect()]


def by_entries(entries: Iterable[ManifestEntry], column: int) -> Iterator[FileNulls]:
    """Yield the nulls in the data files among the entries of manifests."""
    for entry in entries:
        if entry.is_data:
            nulls = entry.nulls.get(column)
            yield FileNulls(entry.snapshot, entry.sequence, nulls or 0, entry.records if nulls is None else 0)


class _Schemas:
    """The columns that files were written with, by their commits or by the changes that a table remembers."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._ids = {s["schema-id"]: _ids(s) for s in metadata["schemas"]}
        self._by_snapshot = {s["snapshot-id"]: s.get("schema-id") for s in metadata.get("snapshots", ())}
        changes = log.last_changes(metadata.get("properties", {}))
        self._since = log.written_with(changes, metadata["current-schema-id"])[::-1]

    def lacks(self, column: int, files: FileNulls) -> bool:
        """True if files of a commit certainly lack the column."""
        schema = self._by_snapshot.get(files.snapshot)
        if schema is None:
            sequence = files.sequence or 0
            schema = next((schema for since, schema in self._since if sequence >= since), None)
        return schema in self._ids and column not in self._ids[schema]


def _ids(schema: Any) -> Iterable[int]:
    return frozenset(f.id for _, f in from_json(schema).walk())


def table_statistics(
    metadata: Mapping[str, Any],
    schema: Schema,
    sum_up: Callable[[Sequence[Summation]], Sequence[Sums]],
    watched: frozenset[int] = frozenset(),
    note: SeenNote | None = None,
) -> TableStatistics:
    """Return the statistics of the columns of ``schema``, those ``watched`` by period, too.

    ``metadata``: the table's, in JSON form; ``sum_up``: sums the metrics of the table's data files; ``note``:
    of the batches whose files were written anew.
    """
    commits, columns, gone = tuple(snapshots(metadata)), plain(schema), forgotten(metadata)
    commits = commits if note is not None else tuple(replace(s, noted=False) for s in commits)
    summations = [Summation(commits, columns, gone)]
    if watched:
        by_period = [replace(s, slot=period) for s, period in zip(commits, periods(commits), strict=True)]
        summations.append(Summation(by_period, {}, gone, watched))
    sums, *over_time = sum_up(summations)
    counts = Counts(
        commits,
        _counts(sums),
        {int(s["schema-id"]): frozenset(f.id for _, f in from_json(s).walk()) for s in metadata["schemas"]},
        frozenset(f.id for _, f in schema.walk() if f.initial_default is not None),
        int(metadata.get("properties", {}).get(EXPIRED, 0)),
        {} if note is None else note.columns,
    )
    summary = _summary(metadata)
    by_position, by_equality = (
        int(summary.get(f"total-{kind}-deletes", 0)) for kind in ("position", "equality")
    )
    # A vector goes with its data file; a delete file of positions may outlive it, and is counted still.
    is_exact = not by_equality and (not by_position or int(metadata["format-version"]) >= WITH_VECTORS)
    return TableStatistics(
        int(metadata["last-updated-ms"]),
        int(summary.get("total-data-files", 0)),
        int(summary.get("total-files-size", 0)),
        by_position + by_equality,
        counts,
        *_bounds(sums, columns),
        counts.records - by_position if is_exact else None,
        {
            period: replace(counts, by_column=by_column)
            for part in over_time
            for period, by_column in _periods(part)
        },
    )


def _periods(sums: Sums) -> Iterator[tuple[int | None, Mapping[int, Mapping[int | None, Count]]]]:
    """Yield the counts of each period, which is the slot of the sums."""
    parts: dict[int | None, Sums] = defaultdict(dict)
    for key, total in sums.items():
        parts[key.slot][key] = total
    for period, part in parts.items():
        yield period, _counts(part)


def plain(schema: Schema) -> dict[int, Primitive]:
    """Return the columns that may have bounds, by their ids."""
    return {f.id: f.type for _, f in schema.walk() if isinstance(f.type, Primitive)}


def _summary(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    current = metadata.get("current-snapshot-id")
    return next((s["summary"] for s in metadata.get("snapshots", ()) if s["snapshot-id"] == current), {})


def snapshots(metadata: Mapping[str, Any]) -> Iterator[KnownSnapshot]:
    """Yield the commits that lead to the current one, oldest first."""
    by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    chain = []
    snapshot_id = metadata.get("current-snapshot-id")
    # Files of removed snapshots lie behind the first gap, and would make "last seen" wrong.
    while snapshot_id in by_id:
        chain.append(by_id[snapshot_id])
        snapshot_id = chain[-1].get("parent-snapshot-id")
    chain.reverse()
    snapshots_ = []
    for s in chain:
        summary = s.get("summary", {})
        added = int(summary.get("added-records", 0))
        born = added > 0 and brought(summary)
        own_rows = added - int(summary.get(MOVED, 0))
        batch = CommittedBatch(int(s["timestamp-ms"]), summary.get(BATCH), own_rows)
        snapshot = KnownSnapshot(int(s["snapshot-id"]), s.get("schema-id"), batch, born)
        snapshots_.append(replace(snapshot, moved=MOVED in summary, noted=SEEN in summary))
    last = [i for i, s in enumerate(snapshots_) if s.born][-TREND:]
    for i, s in enumerate(snapshots_):
        yield replace(s, slot=last.index(i)) if i in last else s


def brought(summary: Mapping[str, str]) -> bool:
    """True if all rows in the files of a snapshot came with it: appended, or by a batch of changes by key."""
    if summary.get("operation") == "append":
        return True
    return BATCH in summary and not int(summary.get("deleted-data-files", 0))


def forgotten(metadata: Mapping[str, Any]) -> Forgotten:
    """Find out about the commits that are no longer known.

    Upkeep removes only snapshots that add files, and counts them. Each commit has a sequence number, so if
    more are missing, somebody else has removed them.
    """
    properties = metadata.get("properties", {})
    changes = log.last_changes(properties)
    schemas = list(reversed(log.written_with(changes, metadata["current-schema-id"])))
    known = {s.id for s in snapshots(metadata)}
    # A compaction behind a gap is no batch that went.
    known |= {s["snapshot-id"] for s in metadata.get("snapshots", ()) if is_compaction(s)}
    missing = int(metadata.get("last-sequence-number", 0)) - len(known)
    let_go = sum(int(properties.get(name, 0)) for name in (EXPIRED, EXPIRED_COMPACTIONS))
    return Forgotten(schemas, 0 <= missing <= let_go)


def _counts(sums: Sums) -> dict[int, dict[int | None, Count]]:
    counts: dict[int, dict[int | None, Count]] = defaultdict(dict)
    for key, total in sums.items():
        count = counts[key.column].setdefault(key.schema, Count())
        count.values += total.values
        count.files += total.files
        count.foreign += total.foreign
        count.rewritten += total.rewritten
        count.first = _of(min, count.first, total.first)
        count.last = _of(max, count.last, total.last)
        count.last_born = _of(max, count.last_born, total.last_born)
        if key.slot is not None:
            count.slots[key.slot] = count.slots.get(key.slot, 0) + total.values
    return dict(counts)


def _bounds(sums: Sums, columns: Mapping[int, Primitive]) -> tuple[dict[int, Numbers], dict[int, Numbers]]:
    """By column id: the bounds over all files, and in one of the first that have a value."""
    by_id: dict[int, list[MetricSum]] = defaultdict(list)
    for key, total in sums.items():
        if key.column in columns and total.values:
            by_id[key.column].append(total)
    bounds, firsts = {}, {}
    for id_, totals in by_id.items():
        if any(total.missing for total in totals):
            bounds[id_] = Numbers()
        else:
            lows = [total.low[1] for total in totals if total.low is not None]
            highs = [total.high[1] for total in totals if total.high is not None]
            bounds[id_] = numbers(lows, highs, columns[id_])
        starts = [total.earliest for total in totals if total.earliest is not None]
        if starts:
            _, low, high = min(starts, key=itemgetter(0))
            lows, highs = ([] if bound is None else [bound] for bound in (low, high))
            firsts[id_] = numbers(lows, highs, columns[id_])
    return bounds, firsts


def _of(which: Any, *values: Any) -> Any:
    return which((v for v in values if v is not None), default=None)
