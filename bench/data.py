"""The data of the contestants: drifting events, and real webhooks if their file is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import events

NEXT_RECORDS, NEXT_DRIFT = 20_000, 0.1
FILES = 8


@dataclass(frozen=True, slots=True)
class Data:
    """Files of JSON lines. ``next``: a further batch for the same table, empty if there is none."""

    title: str
    records: int
    size: int  # bytes
    files: list[Path]
    next: list[Path]


def drifting(folder: Path, records: int, drift: float) -> Data:
    """Seeded events, and another batch of them that drifts more."""
    size = events.write(folder / "first", records, drift, files=FILES)
    events.write(folder / "next", min(NEXT_RECORDS, records), NEXT_DRIFT, files=1, seed=11)
    return Data(
        f"events, {drift:.0%} drifted", records, size, _files(folder / "first"), _files(folder / "next")
    )


def repeated(folder: Path, source: Path, size: int) -> Data:
    """The lines of a file, again and again, to so many bytes or little more."""
    folder.mkdir(parents=True)
    text = source.read_bytes()
    text = text if text.endswith(b"\n") else text + b"\n"
    times = -(-size // len(text))
    per_file = -(-times // FILES)
    for i in range(0, times, per_file):
        (folder / f"part-{i:05}.jsonl").write_bytes(text * min(per_file, times - i))
    return Data(f"{source.stem} × {times}", text.count(b"\n") * times, len(text) * times, _files(folder), [])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))
