"""Files of drifting records, and the proof that all of them are in."""

from __future__ import annotations

import json
from pathlib import Path

from driftline.lake import Table


def lines(folder: Path, name: str, *records: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def proven(table: Table, files: Path, fmt: str = "json") -> None:
    found = [str(path) for path in sorted(files.rglob(f"*.{fmt}*")) if not path.name.startswith(".")]
    verdict = table.verify(found, fmt)
    assert verdict.ok, verdict.to_dict()


def versions(table: Table) -> int:
    """The number of metadata versions that the table has had."""
    return int(table.format.handle.java().operations().current().previousFiles().size()) + 1
