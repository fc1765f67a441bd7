"""A table's quarantine in short: how many records wait, for which reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.quarantine import table as quarantine
from driftline.runtime.spark_conf import SMALL, configured
from driftline.stats.model import WaitingRecords

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable

REASONS = 50  # that are reported, those of most records first
_SAMPLE = 200  # characters


def waiting(table: CatalogTable) -> tuple[int, tuple[WaitingRecords, ...]]:
    """The number of records in quarantine, and the reasons, each with a record."""
    from pyspark.sql import functions as F

    quarantined: Any = quarantine.of(table)
    state = quarantined.load()
    if not state.exists:
        return 0, ()
    names = {f.name for f in state.schema.struct.fields}
    with configured(table.spark, SMALL):
        frame = quarantined.read()
        rows = (
            frame.selectExpr(
                f"{_reason(names)} as reason", "raw", f"{_place(names)} as place", "quarantined_at"
            )
            .groupBy("reason")
            .agg(
                F.expr("count(*) as records"),
                F.expr(f"min_by(struct(left(raw, {_SAMPLE}) as raw, place), quarantined_at) as one"),
                F.expr("""date_format(max(quarantined_at), "yyyy-MM-dd'T'HH:mm:ss'Z'") as last"""),
            )
            .orderBy(F.desc("records"), "reason")
            .limit(REASONS)
            .collect()
        )
        return int(frame.count()), tuple(
            WaitingRecords(
                r["reason"], r["records"], r["one"]["raw"] or "", r["one"]["place"] or "", r["last"] or ""
            )
            for r in rows
        )


def _reason(columns: set[str]) -> str:
    """The reason without what differs from record to record."""
    reason = "regexp_replace(coalesce(reason, 'no reason was kept'), ' at character \\\\d+', '')"
    if {"path", "table_type", "incoming_type"} <= columns:
        return f"coalesce(concat(path, ': ', incoming_type, ' into ', table_type), {reason})"
    return reason


def _place(columns: set[str]) -> str:
    place = "nullif(concat_ws(':', source, line), '')"
    return f"coalesce({place}, concat_ws(':', topic, partition, offset))" if "offset" in columns else place
