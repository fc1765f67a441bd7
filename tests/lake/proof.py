"""That nothing was lost, by the independent check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftline import quarantine
from driftline.lake import Table
from driftline.verify import verify


def proven(table: Table, files: Path | Sequence[Path], fmt: str = "json") -> None:
    """Every record of the files is in the table or in its quarantine."""
    paths = [files] if isinstance(files, Path) else files
    state = table.state()
    kept = quarantine.of(table.format)
    verdict = verify(
        table.lake.spark,
        table.format.full_name,
        state.schema,
        [str(path) for path in paths],
        fmt,
        quarantine=kept.full_name if kept.load().exists else None,
        properties=state.properties,
    )
    assert verdict.ok, verdict.to_dict()
