"""Statistics of columns from an Iceberg table's metadata: data files' metrics, and their batches.

No data are read. Iceberg keeps no metrics of lists and maps, nor of their contents, and by default only those
of a table's first 100 columns: all others are unknown here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.changelog import last_changes
from driftline.core.changelog.record import BATCH, EXPIRED
from driftline.core.columns.statistics import (
    TREND,
    CommittedBatch,
    Count,
    Counts,
    KnownSnapshot,
    Numbers,
    TableStatistics,
)
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Primitive, Schema
from driftline.errors import no_table
from driftline.formats.iceberg.bounds import HIGHEST, LOWEST, WIDTH, kinds, numbers
from driftline.runtime.spark_conf import SMALL, configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.iceberg.table import IcebergTable

_NEW = "status <> 2 and data_file.content = 0"  # entries of data files that are in the table
# A row for each file and column; as column 0, the records of the file.
_METRICS = (
    "snapshot_id",
    "file_sequence_number",
    """explode(map_zip_with(
        map_zip_with(
            map_concat(map(0, data_file.record_count), coalesce(data_file.value_counts, map())),
            coalesce(data_file.null_value_counts, map()), (id, n, nulls) -> n - coalesce(nulls, 0)),
        map_zip_with(
            coalesce(data_file.lower_bounds, map()), coalesce(data_file.upper_bounds, map()),
            (id, low, high) -> struct(low, high)),
        (id, v, bounds) -> struct(v, bounds.low, bounds.high))) as (id, m)""",
)

Summed: TypeAlias = Mapping[str, Any]  # a row of `_rows`: one column, schema, slot and width of bounds


def table_statistics(table: IcebergTable, schema: Schema) -> TableStatistics:
    """Read the statistics from a table's metadata, with Spark."""
    java = table.java()
    if java is None:
        raise no_table(table.name)
    jvm: Any = table.spark._jvm
    metadata = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
    with configured(table.spark, SMALL):
        rows = _rows(table, tuple(snapshots(metadata)), plain(schema), forgotten(metadata))
    return summed(metadata, schema, rows)


def plain(schema: Schema) -> dict[int, Primitive]:
    """The columns that may have bounds, by their ids."""
    return {f.id: f.type for _, f in schema.walk() if isinstance(f.type, Primitive)}


def summed(metadata: Mapping[str, Any], schema: Schema, rows: Sequence[Summed]) -> TableStatistics:
    """The statistics in a table's metadata file and in the summed metrics of its files.

    ``rows``: the sums by column, schema, slot and width of bounds.
    """
    counts = Counts(
        tuple(snapshots(metadata)),
        _counts(rows),
        {int(s["schema-id"]): frozenset(f.id for _, f in from_json(s).walk()) for s in metadata["schemas"]},
        frozenset(f.id for _, f in schema.walk() if f.initial_default is not None),
        int(metadata.get("properties", {}).get(EXPIRED, 0)),
    )
    summary = _summary(metadata)
    return TableStatistics(
        int(metadata["last-updated-ms"]),
        int(summary.get("total-data-files", 0)),
        int(summary.get("total-files-size", 0)),
        int(summary.get("total-position-deletes", 0)) + int(summary.get("total-equality-deletes", 0)),
        counts,
        *_bounds(rows, plain(schema)),
    )


def _summary(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    current = metadata.get("current-snapshot-id")
    return next((s["summary"] for s in metadata.get("snapshots", ()) if s["snapshot-id"] == current), {})


def snapshots(metadata: Mapping[str, Any]) -> Iterator[KnownSnapshot]:
    """The commits that lead to the current one, oldest first."""
    by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    chain = []
    at = metadata.get("current-snapshot-id")
    while at in by_id:
        chain.append(by_id[at])
        at = chain[-1].get("parent-snapshot-id")
    chain.reverse()
    snapshots_ = []
    for s in chain:
        summary = s.get("summary", {})
        added = int(summary.get("added-records", 0))
        born = summary.get("operation") == "append" and added > 0
        batch = CommittedBatch(int(s["timestamp-ms"]), summary.get(BATCH), added)
        snapshots_.append(KnownSnapshot(int(s["snapshot-id"]), s.get("schema-id"), batch, born))
    last = [i for i, s in enumerate(snapshots_) if s.born][-TREND:]
    for i, s in enumerate(snapshots_):
        yield replace(s, slot=last.index(i)) if i in last else s


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


def forgotten(metadata: Mapping[str, Any]) -> Forgotten:
    """Find out about the commits that are no longer known.

    Upkeep removes only appends, and counts them. Each commit has a sequence number, so if more are missing,
    somebody else has removed them.
    """
    properties = metadata.get("properties", {})
    changes = last_changes.read(properties)
    schemas = list(reversed(last_changes.written_with(changes, metadata["current-schema-id"])))
    missing = int(metadata.get("last-sequence-number", 0)) - sum(1 for _ in snapshots(metadata))
    return Forgotten(schemas, 0 <= missing <= int(properties.get(EXPIRED, 0)))


def _rows(
    table: IcebergTable,
    snapshots: Sequence[KnownSnapshot],
    plain: Mapping[int, Primitive],
    forgotten: Forgotten,
) -> Sequence[Summed]:
    """Sum the metrics of all files by column, schema, slot and width of bounds."""
    from pyspark.sql import functions as F

    cases = [
        f"when file_sequence_number >= {n} then {'null' if s is None else s}" for n, s in forgotten.schemas
    ]
    schema = f"cast(case {' '.join(cases or ['when false then 0'])} end as int)"

    spark = table.spark
    collected = (
        table.metadata_table("entries")
        .where(_NEW)
        .selectExpr(*_METRICS)
        .selectExpr("snapshot_id", f"{schema} as forgotten", "id", "m.v", "m.low", "m.high")
        .where("v is not null")
        .join(F.broadcast(_known(spark, snapshots)), "snapshot_id", "left")
        .join(F.broadcast(spark.sql(kinds(plain))), "id", "left")
        .selectExpr(
            "id", "coalesce(schema, forgotten) as schema", "slot", "kind", WIDTH, "v", "coalesce(born, false) as born", "low", "high",
            f"coalesce(born, {str(forgotten.appended).lower()}) as appended",
            "if(v > 0, place, null) as seen",
        )
        .groupBy("id", "schema", "slot", "width")
        .agg(
            F.expr("sum(v) as v"),
            F.expr("count(*) as files"),
            F.expr("min(seen) as first"),
            F.expr("max(seen) as last"),
            F.expr("max(if(born, seen, null)) as last_born"),
            F.expr("sum(if(born, 0, v)) as foreign"),
            F.expr("sum(if(appended, 0, v)) as rewritten"),
            F.expr(LOWEST),
            F.expr(HIGHEST),
            F.expr("bool_or(v > 0 and (low is null or high is null)) as missing"),
            F.expr("min_by(struct(low, high), seen) as earliest"),
        )
        .collect()
    )  # fmt: skip
    return [row.asDict() for row in collected]


def _counts(rows: Iterable[Summed]) -> dict[int, dict[int | None, Count]]:
    out: dict[int, dict[int | None, Count]] = defaultdict(dict)
    for row in rows:
        count = out[row["id"]].setdefault(row["schema"], Count())
        count.values += row["v"]
        count.files += row["files"]
        count.foreign += row["foreign"]
        count.rewritten += row["rewritten"]
        count.first = _of(min, count.first, row["first"])
        count.last = _of(max, count.last, row["last"])
        count.last_born = _of(max, count.last_born, row["last_born"])
        if (slot := row["slot"]) is not None:
            count.slots[slot] = count.slots.get(slot, 0) + row["v"]
    return dict(out)


def _bounds(
    rows: Iterable[Summed], plain: Mapping[int, Primitive]
) -> tuple[dict[int, Numbers], dict[int, Numbers]]:
    """By column id: the bounds over all files, and in one of the first that have a value."""
    by_id: dict[int, list[Summed]] = defaultdict(list)
    for row in rows:
        if row["id"] in plain and row["v"]:
            by_id[row["id"]].append(row)
    bounds, firsts = {}, {}
    for i, some in by_id.items():
        whole = not any(row["missing"] for row in some)
        bounds[i] = numbers([(row["low"], row["high"]) for row in some], plain[i]) if whole else Numbers()
        seen = [row for row in some if row["first"] is not None]
        if seen:
            low, high = min(seen, key=lambda row: row["first"])["earliest"]
            firsts[i] = numbers([(low, high)], plain[i])
    return bounds, firsts


def _known(spark: SparkSession, snapshots: Sequence[KnownSnapshot]) -> DataFrame:
    rows: list[tuple[object, ...]] = [(s.id, i, s.schema, s.slot, s.born) for i, s in enumerate(snapshots)]
    rows = rows or [(None, None, None, None, False)]
    listed = ", ".join(f"({', '.join('null' if v is None else str(v).lower() for v in row)})" for row in rows)
    typed = "cast(a as long) snapshot_id, cast(b as int) place, cast(c as int) schema, cast(d as int) slot, e born"
    return spark.sql(f"select {typed} from values {listed} as known(a, b, c, d, e)")


def _of(which: Any, *values: Any) -> Any:
    return which((v for v in values if v is not None), default=None)
