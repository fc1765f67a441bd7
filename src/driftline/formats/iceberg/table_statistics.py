"""Statistics of columns from an Iceberg table's metadata: data files' metrics, and their batches.

No data are read. Iceberg keeps no metrics of lists and maps, nor of their contents, and by default only those
of a table's first 100 columns: all others are unknown here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from driftline.core.columns.statistics import (
    TREND,
    CommittedBatch,
    Count,
    Counts,
    KnownSnapshot,
    Numbers,
    TableStatistics,
)
from driftline.core.history import entries
from driftline.core.history.entries import BATCH, EXPIRED, MOVED
from driftline.core.schema.definition import WITH_VECTORS
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Primitive, Schema
from driftline.formats.iceberg.bounds import numbers
from driftline.formats.iceberg.manifests import Forgotten, MetricSum, Summation, Sums


def table_statistics(
    metadata: Mapping[str, Any], schema: Schema, sum_up: Callable[[Summation], Sums]
) -> TableStatistics:
    """The statistics of the columns of ``schema``.

    ``metadata``: the table's, in JSON form; ``sum_up``: sums the metrics of the table's data files.
    """
    commits, columns = tuple(snapshots(metadata)), plain(schema)
    sums = sum_up(Summation(commits, columns, forgotten(metadata)))
    counts = Counts(
        commits,
        _counts(sums),
        {int(s["schema-id"]): frozenset(f.id for _, f in from_json(s).walk()) for s in metadata["schemas"]},
        frozenset(f.id for _, f in schema.walk() if f.initial_default is not None),
        int(metadata.get("properties", {}).get(EXPIRED, 0)),
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
    )


def plain(schema: Schema) -> dict[int, Primitive]:
    """The columns that may have bounds, by their ids."""
    return {f.id: f.type for _, f in schema.walk() if isinstance(f.type, Primitive)}


def _summary(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    current = metadata.get("current-snapshot-id")
    return next((s["summary"] for s in metadata.get("snapshots", ()) if s["snapshot-id"] == current), {})


def snapshots(metadata: Mapping[str, Any]) -> Iterator[KnownSnapshot]:
    """The commits that lead to the current one, oldest first."""
    by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    chain = []
    snapshot_id = metadata.get("current-snapshot-id")
    while snapshot_id in by_id:
        chain.append(by_id[snapshot_id])
        snapshot_id = chain[-1].get("parent-snapshot-id")
    chain.reverse()
    snapshots_ = []
    for s in chain:
        summary = s.get("summary", {})
        added = int(summary.get("added-records", 0))
        born = added > 0 and _brought(summary)
        own_rows = added - int(summary.get(MOVED, 0))
        batch = CommittedBatch(int(s["timestamp-ms"]), summary.get(BATCH), own_rows)
        snapshot = KnownSnapshot(int(s["snapshot-id"]), s.get("schema-id"), batch, born)
        snapshots_.append(replace(snapshot, moved=MOVED in summary))
    last = [i for i, s in enumerate(snapshots_) if s.born][-TREND:]
    for i, s in enumerate(snapshots_):
        yield replace(s, slot=last.index(i)) if i in last else s


def _brought(summary: Mapping[str, str]) -> bool:
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
    changes = entries.last_changes(properties)
    schemas = list(reversed(entries.written_with(changes, metadata["current-schema-id"])))
    missing = int(metadata.get("last-sequence-number", 0)) - sum(1 for _ in snapshots(metadata))
    return Forgotten(schemas, 0 <= missing <= int(properties.get(EXPIRED, 0)))


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
