"""`verify`, as the command line and the demo call it."""

from __future__ import annotations

from collections.abc import Sequence

from driftline import quarantine
from driftline.lake import Table
from driftline.verify import Verdict, verify


def check(table: Table, files: Sequence[str], fmt: str) -> Verdict:
    """Compares files with a table and its quarantine. Raises UsageError where there is no such table."""
    state = table.state()
    kept = quarantine.of(table.format)
    return verify(
        table.lake.spark,
        table.format.full_name,
        state.schema,
        files,
        fmt,
        quarantine=kept.full_name if kept.load().exists else None,
        properties=state.properties,
    )
