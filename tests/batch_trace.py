"""The road of one steady batch: which files and functions of driftline run in the driver's process.

A batch is a file of 200 JSON lines; small ones are read and written in the driver's process, so the trace has the task's
part too. Two batches go before, so the table exists and nothing is new to it. A process of its own prints the figures:
a session that another test has used would take other calls.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Self

import driftline
from driftline import Lake

ROOT = f"{Path(driftline.__file__).parent}/"
RECORDS, STEADY = 200, 3  # of a batch; the batch that is traced


@dataclass(frozen=True, slots=True)
class Road:
    """The functions of a batch, by the files that hold them."""

    functions: Mapping[str, list[str]]
    calls: int

    @property
    def single(self) -> list[str]:
        """Files that are entered for one function."""
        return [
            f"{file}: {functions[0]}" for file, functions in self.functions.items() if len(functions) == 1
        ]

    @property
    def trunk(self) -> list[str]:
        """Files that hold half of the functions, those with most first."""
        files = sorted(self.functions, key=lambda file: -len(self.functions[file]))
        total, covered, trunk = sum(map(len, self.functions.values())), 0, []
        for file in files:
            if 2 * covered >= total:
                break
            covered += len(self.functions[file])
            trunk.append(f"{file}: {len(self.functions[file])}")
        return trunk


def road() -> Road:
    """Trace a steady batch in a process of its own, which starts Spark: a quarter of a minute."""
    command = [sys.executable, __file__]
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return Road(**json.loads(process.stdout.splitlines()[-1]))


class _Calls:
    """The calls of driftline's functions, on all threads that begin meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # file, function

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            self.calls.append((code.co_filename.removeprefix(ROOT), code.co_qualname))

    def __enter__(self) -> Self:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _records(batch: int, rnd: random.Random) -> Iterator[dict[str, Any]]:
    """The records of one batch, nested, with the same fields and types in each."""
    for i in range(RECORDS):
        yield {
            "id": batch * 1000 + i,
            "name": f"n{i}",
            "total": round(rnd.random() * 100, 2),
            "at": f"2026-11-{1 + i % 28:02}T10:00:00Z",
            "customer": {"zip": f"{i:05}", "tags": ["a", "b"][: i % 3]},
            "items": [{"sku": f"s{i}", "qty": i % 5}],
        }


def _trace(folder: Path) -> Road:
    rnd = random.Random(1)
    files = [folder / f"{batch}.jsonl" for batch in range(STEADY)]
    for batch, file in enumerate(files):
        file.write_text("".join(json.dumps(record) + "\n" for record in _records(batch, rnd)))
    with Lake.open(folder / "lake") as lake:
        table = lake.table("trace.events")
        for file in files[:-1]:
            table.ingest(str(file))
        with _Calls() as traced:
            result = table.ingest(str(files[-1]))
    assert result.rows_written == RECORDS, result
    functions: dict[str, set[str]] = defaultdict(set)
    for file, function in Counter(traced.calls):
        functions[file].add(function)
    return Road({file: sorted(names) for file, names in functions.items()}, len(traced.calls))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        print(json.dumps(asdict(_trace(Path(folder)))))
