"""A summary of a table's quarantine: waiting records, by reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftline.core.columns.statistics import CommittedBatch
from driftline.core.planning.plan import NO_COLUMN, NOTHING, NOWHERE
from driftline.quarantine.pending import Pending
from driftline.runtime.spark_conf import SMALL, configured
from driftline.sql.quoting import literal
from driftline.stats.model import WaitingRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.base import CatalogTable

LARGEST = 5  # reasons that are told by batch
REASONS = 50  # that are reported, those of most records first
_SAMPLE = 200  # characters
# The reason without what differs from record to record.
_REASON = (
    f"coalesce(case when incoming_type = {literal(NOTHING)} then concat('no value for ',"
    " if(table_type like 'the %', substring(table_type, 5), 'required'), ' column ', path)"
    f" when table_type = {literal(NO_COLUMN)} then concat(path, ': ', incoming_type, {literal(f' {NOWHERE}')})"
    " else concat(path, ': ', incoming_type, ' into ', table_type) end,"
    " regexp_replace(coalesce(reason, 'no reason was kept'), ' at character \\\\d+', ''))"
)
_PLACE = "coalesce(nullif(concat_ws(':', source, line), ''), concat_ws(':', topic, partition, offset))"


def waiting(
    table: CatalogTable, *, over_time: bool
) -> tuple[int, tuple[WaitingRecords, ...], dict[str, tuple[CommittedBatch, ...]]]:
    """The number of records in quarantine, and the reasons, each with a record.

    ``over_time``: the most frequent ones also by batch.
    """
    from pyspark.sql import functions as F

    pending = Pending.of(table)
    if pending is None:
        return 0, (), {}
    with configured(table.spark, SMALL):
        frame = pending.rows().where(pending.waits)
        reasons = (
            frame.selectExpr(f"{_REASON} as reason", "raw", f"{_PLACE} as place", "quarantined_at")
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
        groups = tuple(
            WaitingRecords(
                r["reason"], r["records"], r["one"]["raw"] or "", r["one"]["place"] or "", r["last"] or ""
            )
            for r in reasons
        )
        refused = _by_batch(frame, [group.reason for group in groups[:LARGEST]]) if over_time else {}
        return int(frame.count()), groups, refused


def _by_batch(frame: DataFrame, reasons: Sequence[str]) -> dict[str, tuple[CommittedBatch, ...]]:
    """The number of records by reason and batch, in order of time; all other reasons are ""."""
    from pyspark.sql import functions as F

    listed = ", ".join(map(literal, reasons)) or "''"
    rows = (
        frame.selectExpr(f"{_REASON} as reason", "batch", "quarantined_at")
        .selectExpr(f"if(reason in ({listed}), reason, '') as reason", "batch", "quarantined_at")
        .groupBy("reason", "batch")
        .agg(F.expr("unix_millis(min(quarantined_at)) as at"), F.expr("count(*) as records"))
        .orderBy("at")
        .collect()
    )
    out: dict[str, list[CommittedBatch]] = {reason: [] for reason in reasons}
    for row in rows:
        out.setdefault(row["reason"], []).append(CommittedBatch(row["at"], row["batch"], row["records"]))
    return {reason: tuple(batches) for reason, batches in out.items()}
