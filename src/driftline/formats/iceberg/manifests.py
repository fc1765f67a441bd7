"""Sums of a table's file metrics from its manifests, without Spark; `table_statistics` has them from
Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from driftline.core.columns.statistics import RECORDS, KnownSnapshot
from driftline.core.schema.types import Primitive
from driftline.formats.iceberg.bounds import kind, sorting
from driftline.formats.iceberg.table_statistics import Forgotten, Summed

Bound = bytes | None


class ManifestEntry(NamedTuple):
    """A file of a table. ``snapshot``: the commit that added it; ``sequence``: its sequence number."""

    snapshot: int
    sequence: int
    file: dict[str, Any]


@dataclass(slots=True)
class _Sum:
    """The sum of metrics for one column, schema, slot and width of bounds."""

    v: int = 0
    files: int = 0
    seen: list[int] = field(default_factory=list)
    born: list[int] = field(default_factory=list)
    foreign: int = 0
    rewritten: int = 0
    lows: list[bytes] = field(default_factory=list)
    highs: list[bytes] = field(default_factory=list)
    missing: bool = False
    earliest: tuple[int, Bound, Bound] | None = None

    def add(self, v: int, low: Bound, high: Bound, place: int | None, *, born: bool) -> None:
        """Add the metrics of one file.

        Args:
            v: the number of values.
            low: the lower bound; None if the file has none.
            high: the upper bound; None if the file has none.
            place: the commit that added the file, as an index; None if unknown.
            born: the file contains only records that this commit added.
        """
        self.v += v
        self.files += 1
        self.foreign += 0 if born else v
        self.missing |= v > 0 and (low is None or high is None)
        self.lows += [] if low is None else [low]
        self.highs += [] if high is None else [high]
        if v > 0 and place is not None:
            self.seen.append(place)
            self.born += [place] if born else []
            if self.earliest is None or place < self.earliest[0]:
                self.earliest = place, low, high

    def told(self, key: tuple[Any, ...], kind: str | None) -> Summed:
        """The sum as a row of `summed`; bounds are compared by ``kind``."""
        order = partial(sorting, kind)
        return {
            "id": key[0], "schema": key[1], "slot": key[2],
            "v": self.v, "files": self.files, "foreign": self.foreign, "rewritten": self.rewritten,
            "missing": self.missing,
            "first": min(self.seen, default=None), "last": max(self.seen, default=None),
            "last_born": max(self.born, default=None),
            "low": min(self.lows, key=order, default=None), "high": max(self.highs, key=order, default=None),
            "earliest": (None, None) if self.earliest is None else self.earliest[1:],
        }  # fmt: skip


def rows(
    entries: Iterable[ManifestEntry],
    snapshots: Sequence[KnownSnapshot],
    plain: Mapping[int, Primitive],
    forgotten: Forgotten,
) -> list[Summed]:
    """Sum the metrics of data files by column, schema, slot and width of bounds, as `summed` takes them.

    Args:
        entries: the table's files; delete files are passed over.
        snapshots: the known commits, oldest first.
        plain: the columns that may have bounds, by id.
        forgotten: the commits that are no longer known.
    """
    kinds = {id_: kind(type_) for id_, type_ in plain.items()}
    places = {s.id: (place, s) for place, s in enumerate(snapshots)}
    sums: dict[tuple[Any, ...], _Sum] = {}
    for entry in entries:
        if entry.file.get("content", 0) != 0:
            continue
        place, snapshot = places.get(entry.snapshot, (None, None))
        schema = None if snapshot is None else snapshot.schema
        if schema is None:
            schema = forgotten.schema(entry.sequence)
        slot = None if snapshot is None else snapshot.slot
        appended = forgotten.appended if snapshot is None else snapshot.born
        for id_, v, low, high in _metrics(entry.file):
            width = len(low or b"") if kinds.get(id_) in ("whole", "fraction") else 0
            one = sums.setdefault((id_, schema, slot, width), _Sum())
            one.add(v, low, high, place, born=snapshot is not None and snapshot.born)
            one.rewritten += 0 if appended else v
    return [one.told(key, kinds.get(key[0])) for key, one in sums.items()]


def _metrics(file: Mapping[str, Any]) -> Iterator[tuple[int, int, Bound, Bound]]:
    """By column id: its values and bounds; as column 0, the records of the file."""
    nulls, lows, highs = (
        _map(file.get(name)) for name in ("null_value_counts", "lower_bounds", "upper_bounds")
    )
    for id_, n in ({RECORDS: file["record_count"]} | _map(file.get("value_counts"))).items():
        yield id_, n - nulls.get(id_, 0), lows.get(id_), highs.get(id_)


def _map(pairs: Iterable[Mapping[str, Any]] | None) -> dict[int, Any]:
    """Avro has no maps with numbers as keys."""
    return {pair["key"]: pair["value"] for pair in pairs or ()}
