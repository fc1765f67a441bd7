"""Reads what an Iceberg table's metadata say of its columns: data files' metrics, and the batches that added them.

No data are read. Iceberg keeps no metrics of lists and maps, nor of what is in them, and by default those of a table's
first 100 columns only: the rest is not known here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from driftline.core.record import BATCH
from driftline.core.schema_json import from_json
from driftline.core.types import Path, Primitive, Schema, dotted
from driftline.engine import CASE, PLAIN, configured
from driftline.errors import UsageError
from driftline.route.sql import name
from driftline.stats.counts import Count, Counts, Snapshot
from driftline.stats.model import TREND, Batch, Numbers, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from driftline.formats.iceberg import IcebergTable

_CUT = 16  # characters, at which Iceberg cuts the bounds of texts
_AT_ONCE = 200  # columns whose bounds are asked for in one query
_NEW = "status <> 2 and data_file.content = 0"  # entries of data files that are in the table
_UNBOUNDED = ("binary", "fixed", "variant", "unknown")
CONF = {**PLAIN, CASE: "true", "spark.sql.session.timeZone": "UTC"}
# Metadata are few rows, and many expressions: to compile these takes longer than to interpret them.
SMALL = {
    **CONF,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Metadata:
    """``bounds``: by column id, over all files; ``firsts``: by column id, in the batch that brought its first value.
    ``deleted``: rows that delete files hide, and metrics still count."""

    at: int
    files: int
    bytes: int
    deleted: int
    counts: Counts
    bounds: Mapping[int, Numbers]
    firsts: Mapping[int, Numbers]


def metadata(table: IcebergTable, schema: Schema, sampled: set[int]) -> Metadata:
    """Reads a table's metadata. ``sampled``: columns whose first batch is asked for its bounds."""
    java = table.java()
    if java is None:
        raise UsageError(f"there is no table {table.name}", "it is made by its first ingest")
    jvm: Any = table.spark._jvm
    told = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
    snapshots = tuple(_snapshots(told))
    with configured(table.spark, SMALL):
        entries = table.spark.table(f"{table.full_name}.entries").where(_NEW)
        counts = Counts(
            snapshots,
            _counts(entries, snapshots),
            {int(s["schema-id"]): frozenset(f.id for _, f in from_json(s).walk()) for s in told["schemas"]},
            frozenset(f.id for _, f in schema.walk() if f.initial_default is not None),
        )
        bounds, firsts = _bounds(entries, schema, counts, sampled)
    summary = _summary(told)
    return Metadata(
        int(told["last-updated-ms"]),
        int(summary.get("total-data-files", 0)),
        int(summary.get("total-files-size", 0)),
        int(summary.get("total-position-deletes", 0)) + int(summary.get("total-equality-deletes", 0)),
        counts,
        bounds,
        firsts,
    )


def _summary(told: Mapping[str, Any]) -> Mapping[str, str]:
    current = told.get("current-snapshot-id")
    return next((s["summary"] for s in told.get("snapshots", ()) if s["snapshot-id"] == current), {})


def _snapshots(told: Mapping[str, Any]) -> Iterator[Snapshot]:
    """The commits that lead to the current one, oldest first."""
    by_id = {s["snapshot-id"]: s for s in told.get("snapshots", ())}
    chain = []
    at = told.get("current-snapshot-id")
    while at in by_id:
        chain.append(by_id[at])
        at = chain[-1].get("parent-snapshot-id")
    chain.reverse()
    found = []
    for s in chain:
        summary = s.get("summary", {})
        added = int(summary.get("added-records", 0))
        born = summary.get("operation") == "append" and added > 0
        batch = Batch(int(s["timestamp-ms"]), summary.get(BATCH), added)
        found.append(Snapshot(int(s["snapshot-id"]), s.get("schema-id"), batch, born))
    last = [i for i, s in enumerate(found) if s.born][-TREND:]
    for i, s in enumerate(found):
        yield replace(s, slot=last.index(i)) if i in last else s


def _counts(entries: DataFrame, snapshots: Sequence[Snapshot]) -> dict[int, dict[int | None, Count]]:
    from pyspark.sql import functions as F

    known = _known(entries.sparkSession, snapshots)
    rows = (
        entries.select("snapshot_id", "data_file.*")
        .join(F.broadcast(known), "snapshot_id", "left")
        .selectExpr(
            "place", "schema", "slot", "coalesce(born, false) as born", "null_value_counts as nulls",
            "explode(map_concat(map(0, record_count), coalesce(value_counts, map()))) as (id, n)",
        )
        .selectExpr("*", "n - coalesce(try_element_at(nulls, id), 0) as v")
        .groupBy("id", "schema", "slot")
        .agg(
            F.expr("sum(v) as v"),
            F.expr("count(*) as files"),
            F.expr("min(if(v > 0, place, null)) as first"),
            F.expr("max(if(v > 0, place, null)) as last"),
            F.expr("max(if(v > 0 and born, place, null)) as last_born"),
            F.expr("sum(if(born, 0, v)) as foreign"),
        )
    )  # fmt: skip
    out: dict[int, dict[int | None, Count]] = defaultdict(dict)
    for row in rows.collect():
        count = out[row["id"]].setdefault(row["schema"], Count())
        count.values += row["v"]
        count.files += row["files"]
        count.foreign += row["foreign"]
        count.first = _of(min, count.first, row["first"])
        count.last = _of(max, count.last, row["last"])
        count.last_born = _of(max, count.last_born, row["last_born"])
        if row["slot"] is not None:
            count.slots[row["slot"]] = row["v"]
    return dict(out)


def _known(spark: SparkSession, snapshots: Sequence[Snapshot]) -> DataFrame:
    rows: list[tuple[object, ...]] = [(s.id, i, s.schema, s.slot, s.born) for i, s in enumerate(snapshots)]
    rows = rows or [(None, None, None, None, False)]
    listed = ", ".join(f"({', '.join('null' if v is None else str(v).lower() for v in row)})" for row in rows)
    typed = "cast(a as long) snapshot_id, cast(b as int) place, cast(c as int) schema, cast(d as int) slot, e born"
    return spark.sql(f"select {typed} from values {listed} as known(a, b, c, d, e)")


def _of(which: Any, *values: Any) -> Any:
    return which((v for v in values if v is not None), default=None)


# Bounds -------------------------------------------------------------------------------------------------------


def _bounds(
    entries: DataFrame, schema: Schema, counts: Counts, sampled: set[int]
) -> tuple[dict[int, Numbers], dict[int, Numbers]]:
    """The bounds of each column over all files, and those of the sampled in the batch that brought their first value."""
    places = {i: place for i in sampled if (place := counts.first_place(i)) is not None}
    snapshots = {i: counts.snapshots[place].id for i, place in places.items()}
    columns = [
        (path, f.id, f.type)
        for path, f in schema.walk()
        if isinstance(f.type, Primitive)
        and f.type.name not in _UNBOUNDED
        and any(c.values for c in counts.of.get(f.id, {}).values())
    ]
    all_over: dict[int, Numbers] = {}
    firsts: dict[int, Numbers] = {}
    for start in range(0, len(columns), _AT_ONCE):
        some = columns[start : start + _AT_ONCE]
        asked = sorted({s for i, s in snapshots.items() if i in {i for _, i, _ in some}})
        rows = _rows(entries, some, asked)
        for k, (_, i, type_) in enumerate(some):
            all_over[i] = _numbers(rows, k, type_)
            if i in snapshots:
                firsts[i] = _numbers([r for r in rows if r["at"] == snapshots[i]], k, type_)
    return all_over, firsts


def _rows(
    entries: DataFrame, columns: Sequence[tuple[Path, int, Primitive]], asked: Sequence[int]
) -> list[Row]:
    """For each of the snapshots asked for, and for all others together: ``l0`` and ``h0`` are the bounds of the first column,
    ``m0`` tells whether a file has none though it has values."""
    from pyspark.sql import functions as F

    made = []
    for k, (path, _, type_) in enumerate(columns):
        metrics = f"readable_metrics.{name(dotted(path))}"
        plain = type_.name in ("boolean", "int", "long", "float", "double", "decimal")
        low, high = (f"{metrics}.{side}_bound" for side in ("lower", "upper"))
        low, high = (f"min({low})", f"max({high})")
        if not plain:
            low, high = f"cast({low} as string)", f"cast({high} as string)"
        missing = f"{metrics}.lower_bound is null and {metrics}.value_count > {metrics}.null_value_count"
        made += [f"{low} as l{k}", f"{high} as h{k}", f"coalesce(bool_or({missing}), false) as m{k}"]
    listed = ", ".join(map(str, asked)) or "null"
    at = F.expr(f"if(snapshot_id in ({listed}), snapshot_id, null) as at")
    return entries.groupBy(at).agg(*map(F.expr, made)).collect()


def _numbers(rows: Sequence[Row], k: int, type_: Primitive) -> Numbers:
    lows = [row[f"l{k}"] for row in rows if row[f"l{k}"] is not None]
    highs = [row[f"h{k}"] for row in rows if row[f"h{k}"] is not None]
    if any(row[f"m{k}"] for row in rows) or not lows or not highs:
        return Numbers()
    low, high = shown(min(lows), type_), shown(max(highs), type_)
    low_cut = high_cut = False
    if type_.name == "string":
        low_cut, high_cut = len(str(low)) >= _CUT, len(str(high)) >= _CUT
        # The last character of an upper bound that was cut is one higher than it was.
        high = str(high)[:-1] if high_cut else high
    return Numbers(low=low, high=high, low_cut=low_cut, high_cut=high_cut)


def shown(value: Any, type_: Primitive) -> Value:
    """A value as JSON and people have it: instants in ISO form, decimals with all their digits as text.

    >>> from driftline.core.types import TIMESTAMP
    >>> shown("2026-03-02 08:00:00.25", TIMESTAMP), shown(Decimal("1.50"), Primitive("decimal", (4, 2)))
    ('2026-03-02T08:00:00.25Z', '1.5')
    """
    match type_.name:
        case "timestamp" | "timestamp_ntz":
            return str(value).replace(" ", "T") + "Z" * (type_.name == "timestamp")
        case "decimal":
            text = format(Decimal(value), "f")
            return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
