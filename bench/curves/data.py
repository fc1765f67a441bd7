"""The files of the curves: seeded, JSON lines, made cheaply (what repeats is linked, not written again)."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from events import drifted, event

BLOCK = 100_000  # events that are written once, and linked for more of them
BLOCK_FILES = 4
WIDE = 600  # columns of the records that drift
LEAVES = 64  # of a nested record
DRIFT = 0.01
UPDATES = 0.8  # of changes
QUARTERS = 4


def rows(folder: Path, records: int) -> list[Path]:
    """So many events in files of 25,000, fewer where there are fewer; beyond a hundred thousand they repeat."""
    named = folder / f"rows-{records}"
    named.mkdir()
    for i, file in enumerate(_blocks(folder, records)):
        os.link(file, named / f"{i:05}.jsonl")
    return sorted(named.iterdir())


def one_file(folder: Path, records: int) -> list[Path]:
    """The same events in one file."""
    whole = folder / f"one-{records}.jsonl"
    with whole.open("wb") as out:
        for path in _blocks(folder, records):
            with path.open("rb") as part:
                shutil.copyfileobj(part, out)
    return [whole]


def files(folder: Path, count: int, records: int) -> list[Path]:
    """The same events, split over so many files."""
    return _split(folder / f"files-{count}", _events(records), count)


def batches(folder: Path, count: int, records: int) -> list[Path]:
    """So many files of events, each of so many."""
    return _split(folder, _events(count * records), count)


def changes(folder: Path, rows: int, count: int, records: int) -> tuple[Path, list[Path]]:
    """A file of events, and so many files of changes: four fifths are of events that there were."""
    rng, first = random.Random(7), folder / "first"
    (start,) = _split(first, _lines(event(i, rng) for i in range(rows)), 1)
    known, made = rows, []
    for _ in range(count * records):
        update = rng.random() < UPDATES
        made.append(event(rng.randrange(known) if update else known, rng))
        known += not update
    return start, _split(folder / "in", _lines(made), count)


def columns(folder: Path, count: int, records: int) -> list[list[Path]]:
    """Two batches of flat records, the second with nothing new."""
    return [_flat(folder / f"columns-{count}-{batch}", range(count), records) for batch in (1, 2)]


def widening(folder: Path, count: int, records: int) -> tuple[list[Path], list[list[Path]]]:
    """Flat records in one batch, and in batches that each have a quarter of the columns."""
    whole = _flat(folder / f"widening-{count}", range(count), records)
    ends = [count * part // QUARTERS for part in range(QUARTERS + 1)]
    parts = [
        _flat(folder / f"widening-{count}-{begin}", range(begin, end), records)
        for begin, end in pairwise(ends)
    ]
    return whole, parts


def _flat(folder: Path, columns: Iterable[int], records: int) -> list[Path]:
    values = (lambda i: i, lambda i: i + 0.5, lambda i: f"text {i}", lambda i: i % 2 == 0)
    return _split(folder, _lines({f"c{j}": values[j % 4](i) for j in columns} for i in range(records)), 1)


def structs(folder: Path, depth: int, records: int) -> list[Path]:
    """Structs in structs, with the same number of leaves spread over their levels."""

    def nested(i: int, level: int) -> dict[str, object]:
        here: dict[str, object] = {f"v{level}_{j}": i + j for j in range(level, LEAVES, depth)}
        return here | ({"below": nested(i, level + 1)} if level + 1 < depth else {})

    return _split(folder / f"structs-{depth}", _lines(nested(i, 0) for i in range(records)), 2)


def lists(folder: Path, depth: int, records: int) -> list[Path]:
    """Fields with lists in lists around one number each, as many fields whatever the depth."""

    def nested(value: object) -> object:
        for _ in range(depth):
            value = [value]
        return value

    return _split(
        folder / f"lists-{depth}",
        _lines({f"l{j}": nested(i + j) for j in range(8)} for i in range(records)),
        2,
    )


def drifting(folder: Path, fields: int, records: int) -> list[Path]:
    """Records of 600 fields, of which so many drift: one value in ten is a string, an object or a list."""
    rng = random.Random(7)

    def value(i: int, j: int) -> object:
        if j >= fields or rng.random() > 0.1:
            return i + j
        return (f"E{i}", {"value": i}, [i, j])[j % 3]

    return _split(
        folder / f"drifting-{fields}",
        _lines({f"c{j}": value(i, j) for j in range(WIDE)} for i in range(records)),
        2,
    )


def kinds(folder: Path, count: int, records: int) -> tuple[list[Path], list[Path]]:
    """Records of so many kinds, of which each has a field of its own; and a hundred of the first kind."""

    def record(number: int, kind: int) -> dict[str, object]:
        return {"kind": f"k{kind}", "number": number, f"of_{kind}": number}

    dealt = _lines(record(number, number % count) for number in range(records))
    one = _lines(record(number, 0) for number in range(100))
    return _split(folder / f"kinds-{count}", dealt, 1), _split(folder / f"kinds-{count}-one", one, 1)


def _blocks(folder: Path, records: int) -> list[Path]:
    block = folder / f"block-{min(records, BLOCK)}"
    written = (
        sorted(block.iterdir())
        if block.exists()
        else _split(block, _events(min(records, BLOCK)), BLOCK_FILES)
    )
    return written * -(-records // BLOCK)


def _events(records: int) -> list[str]:
    rng = random.Random(7)
    made = (event(i, rng) for i in range(records))
    return list(_lines(drifted(e, rng) if rng.random() < DRIFT else e for e in made))


def _lines(records: Iterable[dict[str, object]]) -> Iterable[str]:
    return (json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def _split(folder: Path, lines: Iterable[str], count: int) -> list[Path]:
    folder.mkdir(parents=True)
    lines = list(lines)
    paths = []
    for i in range(count):
        paths.append(folder / f"{i:05}.jsonl")
        paths[-1].write_text("".join(lines[i * len(lines) // count : (i + 1) * len(lines) // count]))
    return paths
