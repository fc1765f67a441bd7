"""The listeners to the batches of a table. The first is the log of Python, logger `driftline`: a line for
each batch, with its figures as fields of the record.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from driftline.core.schema.text import counted
from driftline.ingest.batch import Listener, Listeners
from driftline.ingest.result import Result
from driftline.report import lineage
from driftline.report.dataset_names import inputs
from driftline.report.findings import findings, schema_changes
from driftline.report.metrics import Telemetry
from driftline.sources.given import given_paths

LOGGER = logging.getLogger("driftline")


def listeners(data: Any, capture: str | None = None) -> Listeners:
    """All listeners to the batches of one call.

    ``data``: the data that it ingests; ``capture``: the capture whose micro-batches they are.
    """
    told_of_each: list[Listener] = [Log(capture)]
    if lineage.wanted():
        told_of_each.append(lineage.Lineage(inputs(given_paths(data)), capture))
    if Telemetry.wanted():
        told_of_each.append(Telemetry(capture))
    return Listeners(told_of_each)


class Log:
    """Logs each committed batch. ``capture``: the capture whose micro-batches they are."""

    def __init__(self, capture: str | None = None) -> None:
        self._own = {} if capture is None else {"capture": capture}

    def begins(self, table: str, batch: str) -> None:
        """Log the beginning of a batch, at level DEBUG."""
        fields = {"event": "begin", **self._own, "table": table, "batch": batch}
        LOGGER.debug("%s: batch %s begins", table, batch, extra=fields)

    def ended(self, result: Result) -> None:
        """Log the batch in a sentence, with its figures as fields, at level INFO."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        fields = {**self._own, **figures(result)}
        LOGGER.info("%s: %s", result.table, _sentence(result), extra={"event": "batch", **fields})

    def failed(self, error: BaseException) -> None:
        """Log nothing: whoever the error is raised to reports it."""


def figures(result: Result) -> dict[str, Any]:
    """The counts of a batch, with schema changes and reasons for quarantine by kind."""
    return {
        "table": result.table,
        "batch": result.batch,
        "rows_read": result.rows_read,
        "rows_written": result.rows_written,
        "rows_quarantined": result.rows_quarantined,
        **(result.outcomes if result.by_key is not None else {}),
        "changes": dict(Counter(finding.kind for finding in findings(result))),
        "snapshot": result.snapshot,
        "bytes_read": result.bytes_read,
        "files_written": result.files_written,
        "bytes_written": result.bytes_written,
        "seconds": round(result.seconds, 3),
        "commit_seconds": round(result.commit_seconds, 3),
        "retries": result.retries,
    }


def _sentence(result: Result) -> str:
    counts = [counted(result.rows_read, "record read", "records read"), *result.outcomes_in_words]
    if result.rows_quarantined:
        counts.append(f"{result.rows_quarantined} in quarantine")
    if changes := schema_changes(result):
        counts.append(counted(changes, "change of the schema", "changes of the schema"))
    return ", ".join(counts)
