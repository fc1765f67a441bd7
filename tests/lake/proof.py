"""That nothing was lost, by the independent check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftline.lake import Table


def proven(table: Table, files: Path | Sequence[Path], fmt: str = "json") -> None:
    """Every record of the files is in the table or in its quarantine."""
    paths = [files] if isinstance(files, Path) else files
    verdict = table.verify([str(path) for path in paths], fmt)
    assert verdict.ok, verdict.to_dict()
