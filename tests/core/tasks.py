"""A reader's task, run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from driftline.core.settings.table import TableSettings
from driftline.observe.expect import ExpectedField
from driftline.readers.json.rows import SplitReader
from driftline.readers.json.splits import ObservedSplits, Share
from driftline.readers.task import AdmissionTerms, TaskReader
from driftline.write import Reported


def run(
    reader: TaskReader[Any, Any, Any, Any], given: Any
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch], Reported[Any]]:
    """The rows of the task, the rejects, and its report."""
    rows: list[pa.RecordBatch] = []
    rejects: list[pa.RecordBatch] = []
    task = reader.rows(given, rejects.append)
    while True:
        try:
            rows.append(next(task))
        except StopIteration as ended:
            return rows, rejects, ended.value


def observe_splits(known: ExpectedField, settings: TableSettings, share: Share) -> Sequence[ObservedSplits]:
    """Observe splits without a plan, in parts."""
    rows, _, reported = run(SplitReader([share], AdmissionTerms(known, settings)), 0)
    assert not rows
    parts: Sequence[ObservedSplits] = reported.observed
    return parts
