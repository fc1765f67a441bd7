"""Sums of the metrics that a table's manifests have of its data files: read by Spark, or without Java on the
machine that has them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from driftline.core.columns.statistics import RECORDS, KnownSnapshot
from driftline.core.schema.types import Primitive
from driftline.formats.iceberg.bounds import kind, sorting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ROWS = 256
_MANIFESTS = 8 * 2**20  # bytes, of more than which Spark makes shorter work
_DELETED = 2
_FIELDS = ("record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


class ManifestEntry(NamedTuple):
    """A file of a table, with its metrics by column id.

    ``snapshot``: the commit that added it; ``sequence``: its sequence number.
    """

    snapshot: int
    sequence: int
    records: int
    values: Mapping[int, int]
    nulls: Mapping[int, int]
    lows: Mapping[int, bytes]
    highs: Mapping[int, bytes]
    is_data: bool = True

    def metrics(self) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """The values and bounds of each column, by its id; as column 0, the records of the file."""
        for id_, count in ({RECORDS: self.records} | dict(self.values)).items():
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
        """The schema of a file with this sequence number; None if unknown."""
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

    def met(self, place: int, low: bytes | None, high: bytes | None, *, born: bool) -> None:
        """Note a file with values of a known commit. ``born``: the commit only added records."""
        if self.earliest is None or place < self.earliest[0]:
            self.earliest = place, low, high
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
    """

    snapshots: Sequence[KnownSnapshot]
    plain: Mapping[int, Primitive]
    forgotten: Forgotten

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
            born = snapshot is not None and snapshot.born
            appended = self.forgotten.appended if snapshot is None else snapshot.born
            for id_, values, low, high in entry.metrics():
                kind_ = kinds.get(id_)
                width = len(low) if low is not None and kind_ in ("whole", "fraction") else 0
                key = (id_, schema, slot, width)  # equal to a `SumKey`, and made faster
                if (total := sums.get(key)) is None:  # type: ignore[call-overload]
                    total = sums[SumKey(*key)] = MetricSum()
                total.add(values, low, high, kind_)
                total.foreign += 0 if born else values
                total.rewritten += 0 if appended else values
                if values > 0 and place is not None:
                    total.met(place, low, high, born=born)
        return sums


def merged(parts: Iterable[Sums]) -> Sums:
    """Merge the sums over several parts of the entries."""
    sums: Sums = {}
    for part in parts:
        for key, total in part.items():
            sums.setdefault(key, MetricSum()).merge(total)
    return sums


def sums_by_spark(summation: Summation, entries: DataFrame) -> Sums:
    """Sum the metrics of a table's data files in tasks. ``entries``: the metadata table of that name."""
    files = entries.where("status <> 2 and data_file.content = 0").selectExpr(
        "snapshot_id", "file_sequence_number", *(f"data_file.{name}" for name in _FIELDS)
    )
    parts = files.mapInArrow(partial(_sums_of_task, summation), "sums binary").collect()  # one row a task
    return merged(pickle.loads(row.sums) for row in parts)  # noqa: S301  our own bytes


def _sums_of_task(summation: Summation, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    sums = summation.sums(entry for batch in batches for entry in _entries(batch))
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(sums)], pa.binary())], ["sums"])


def _entries(batch: pa.RecordBatch) -> Iterator[ManifestEntry]:
    for start in range(0, batch.num_rows, _ROWS):  # the maps of many columns are large as Python's objects
        columns = (column.to_pylist() for column in batch.slice(start, _ROWS).columns)
        for snapshot, sequence, records, *maps in zip(*columns, strict=True):
            values, nulls, lows, highs = (dict(pairs or ()) for pairs in maps)
            yield ManifestEntry(snapshot, sequence or 0, records, values, nulls, lows, highs)


def entries_of(metadata: Mapping[str, Any], snapshot: int) -> Iterator[ManifestEntry]:
    """The files of a snapshot, delete files too. Raises ValueError if there are too many manifests, and
    whatever a bad one raises.
    """
    listed = _avro(next(s["manifest-list"] for s in metadata["snapshots"] if s["snapshot-id"] == snapshot))
    if sum(manifest["manifest_length"] for manifest in listed) > _MANIFESTS:
        raise ValueError("too large")
    for manifest in listed:
        for entry in _avro(manifest["manifest_path"]):
            if entry["status"] != _DELETED:
                # What was not known when the manifest was written is the same for all of it.
                added_in, sequence = entry["snapshot_id"], entry.get("file_sequence_number")
                yield _manifest_entry(
                    manifest["added_snapshot_id"] if added_in is None else added_in,
                    manifest.get("sequence_number", 0) if sequence is None else sequence,
                    entry["data_file"],
                )


def manifests_of(manifest_list: str, snapshot: int) -> list[str]:
    """The manifests that a snapshot has of its own, by its manifest list on this machine."""
    return [
        str(manifest["manifest_path"])
        for manifest in _avro(manifest_list)
        if manifest["added_snapshot_id"] == snapshot
    ]


def _manifest_entry(snapshot: int, sequence: int, file: Mapping[str, Any]) -> ManifestEntry:
    # Avro has no maps with numbers as keys.
    values, nulls, lows, highs = (
        {pair["key"]: pair["value"] for pair in file.get(name) or ()}
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    )
    is_data = file.get("content", 0) == 0
    return ManifestEntry(snapshot, sequence, file["record_count"], values, nulls, lows, highs, is_data)


def _avro(location: str) -> list[Any]:
    from fastavro import reader

    with local_path(location).open("rb") as file:
        return list(reader(file))


def local_path(location: str) -> Path:
    """A location as a file of this machine. ValueError: it is elsewhere."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise ValueError(location)
    # Hadoop writes paths as they are, without escapes.
    return Path(location.removeprefix("file:")) if parts.scheme else Path(location)
