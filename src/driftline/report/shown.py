"""Printed forms of results in Python."""

from __future__ import annotations

from driftline.ingest.fan_out import FanOutResult
from driftline.ingest.result import Result
from driftline.operations.alter import Altered
from driftline.operations.compact import Compacted
from driftline.operations.drop import Dropped
from driftline.operations.erase import Erased
from driftline.operations.expire import Expired
from driftline.operations.history import Difference, History
from driftline.operations.layout import Layout
from driftline.operations.listing import Quarantine
from driftline.operations.promote import Promoted
from driftline.operations.replan import Replan
from driftline.operations.replay import Discarded, Replay
from driftline.operations.resolve import Resolved
from driftline.operations.split import TableSplit
from driftline.operations.undo import Undone
from driftline.operations.view import View
from driftline.report import drift, stats_text, text
from driftline.report.fan_out import fan_out, split
from driftline.report.tables import (
    altered,
    compacted,
    difference,
    dropped,
    erased,
    expired,
    history,
    layout,
    undone,
)
from driftline.runtime.shown import shows
from driftline.stats.lake import LakeStats
from driftline.stats.model import Stats
from driftline.verify.verdict import PatternVerdict, Verdict

shows(Result, text.batch)
shows(FanOutResult, fan_out)
shows(TableSplit, split)


def _drift(stats: Stats) -> str:
    """The charts of a table's drifted fields."""
    from driftline.report.page.over_time import in_short  # late: jinja2 is slow to load

    return in_short(stats)


shows(Stats, stats_text.stats, _drift)
shows(LakeStats, lambda of: stats_text.lake(of.tables))
shows(Verdict, lambda verdict: text.verdict(verdict, "the table"))
shows(PatternVerdict, text.pattern_verdict)
shows(Altered, altered)
shows(History, history)
shows(Difference, difference)
shows(Dropped, dropped)
shows(Erased, erased)
shows(Expired, expired)
shows(Compacted, compacted)
shows(Undone, undone)
shows(Layout, layout)
shows(View, drift.view)
shows(Resolved, drift.resolved)
shows(Promoted, drift.promoted)
shows(Replan, drift.replanned)
shows(Quarantine, drift.quarantine)
shows(Replay, drift.replayed)
shows(Discarded, drift.discarded)
