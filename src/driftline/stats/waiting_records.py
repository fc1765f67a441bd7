"""A summary of a table's quarantine: waiting records by reason, and the reasons by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core.columns.statistics import CommittedBatch, iso
from driftline.core.planning.plan import NO_COLUMN, NOTHING, NOWHERE
from driftline.errors import DriftlineError
from driftline.operations import quarantine_sql
from driftline.operations.quarantine_sql import ORDER, Ask
from driftline.quarantine.pending import Pending
from driftline.runtime.spark_conf import SMALL, configured
from driftline.sql.quoting import literal
from driftline.stats.model import WaitingRecords, WaitingSummary

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable
    from driftline.formats.open import EmbeddedLake

LARGEST = 5  # reasons that are told by batch
REASONS = 50  # that are reported, those of most records first
_SAMPLE = 200  # characters
# The reason without what differs from record to record. Texts are joined by ||, which is null if one is.
_REASON = (
    f"coalesce(case when r.incoming_type = {literal(NOTHING)} then 'no value for '"
    " || case when r.table_type like 'the %' then substring(r.table_type, 5) else 'required' end"
    " || ' column ' || r.path"
    f" when r.table_type = {literal(NO_COLUMN)} then r.path || ': ' || r.incoming_type || {literal(f' {NOWHERE}')}"
    " else r.path || ': ' || r.incoming_type || ' into ' || r.table_type end,"
    " regexp_replace(coalesce(r.reason, 'no reason was kept'), ' at character [0-9]+', ''{all}))"
)
_PLACE = (
    "coalesce(nullif(concat_ws(':', r.source, r.line), ''), concat_ws(':', r.topic, r.partition, r.offset))"
)
_REASONS = f"""
select {_REASON} as reason, count(*) as records,
  min_by(coalesce(left(r.raw, {_SAMPLE}), ''), {ORDER}) as sample, min_by({_PLACE}, {ORDER}) as place,
  {{millis}}(max(r.quarantined_at)) as last
from {{rows}} as r where {{waits}}
group by 1 order by records desc, reason limit {REASONS}
"""
_TOTAL = "select count(*) as records from {rows} as r where {waits}"
_BY_BATCH = f"""
with waiting as (select {_REASON} as reason, r.batch, r.quarantined_at from {{rows}} as r where {{waits}}),
  largest as (select reason from waiting group by reason order by count(*) desc, reason limit {LARGEST})
select coalesce(largest.reason, '') as reason, waiting.batch, count(*) as records,
  {{millis}}(min(waiting.quarantined_at)) as since
from waiting left join largest on waiting.reason = largest.reason
group by 1, 2 order by since
"""


def by_spark(table: CatalogTable, *, over_time: bool) -> WaitingSummary:
    """The records that wait in the quarantine of a table. ``over_time``: also by batch."""
    pending = Pending.of(table)
    if pending is None:
        return WaitingSummary()
    with configured(table.spark, SMALL):
        return _summary(quarantine_sql.by_spark(pending.rows(), pending.reached), over_time=over_time)


def by_duckdb(lake: EmbeddedLake, table: str, *, over_time: bool) -> WaitingSummary | None:
    """The records that wait, read by DuckDB; None where only Spark reads them, or there is no quarantine."""
    ask = quarantine_sql.by_duckdb(lake, table)
    try:
        return None if ask is None else _summary(ask, over_time=over_time)
    except DriftlineError:  # as where quarantines are listed: Spark says why, if it cannot, either
        return None


def _summary(ask: Ask, *, over_time: bool) -> WaitingSummary:
    reasons = tuple(
        WaitingRecords(
            row["reason"], row["records"], row["sample"], row["place"] or "", iso(row["last"] or 0)
        )
        for row in ask(_REASONS)
    )
    by_batch: dict[str, list[CommittedBatch]] = {reason.reason: [] for reason in reasons[:LARGEST]}
    for row in ask(_BY_BATCH) if over_time else ():
        by_batch.setdefault(row["reason"], []).append(
            CommittedBatch(row["since"], row["batch"], row["records"])
        )
    (total,) = ask(_TOTAL)
    return WaitingSummary(
        total["records"],
        reasons,
        {reason: tuple(batches) for reason, batches in by_batch.items()} if over_time else {},
    )
