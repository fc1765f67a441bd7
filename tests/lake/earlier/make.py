"""Makes ``lakes.tar.xz``: a lake of each format as an earlier version leaves it, with a quarantine and a capture that stands in the
middle of a batch.

Run once, with the sources of that version in front: ``PYTHONPATH=…/src python tests/lake/earlier/make.py``. Where the lakes are moved to,
`lake.earlier.moved` takes their paths along.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from driftline.session import stop_session

from driftline.lake import Lake, Table

ARCHIVE = Path(__file__).with_name("lakes.tar.xz")
WHEN = 1_767_225_600  # when the captured files were written: whole seconds, which an archive keeps
FIRST = [
    '{"id": 1, "price": 19.99, "at": "2026-01-02T03:04:05Z", "tags": ["a", 1], "who": {"name": "x", "age": 3}}',
    '{"id": 2, "price": "free", "at": 1767323045, "tags": ["b", {"deep": true}], "who": "nobody"}',
    '{"id": 12345678901234567890123, "price": 5, "n": {"o": {"p": [[1, 2.5], []]}}, "day": "2026-01-02", "flag": true}',
    '{"id": 4, "price": null, "flag": "yes", "who": {"name": 7, "Name": "twin"}, "empty": []}',
    "oops",
]
SECOND = [
    '{"id": 5, "price": 1e3, "day": "tomorrow", "new": {"x": 1}}',
    '{"id": "six", "strict": "refused", "flag": 0}',
    '{"id": 7, "strict": 3}',
]
CSV = "a,b,when\n1,x,2026-01-02\n2,1.50,\n"
CAPTURED = ['{"k": 1, "v": "a"}', '{"k": 2, "v": 1}'], ['{"k": "3", "v": [1]}', "broken"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        for fmt in ("iceberg", "ducklake"):
            _fill(folder / fmt, fmt)
        (folder / "where.json").write_text(json.dumps(str(folder)))
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            archive.add(folder, ".")
    print(f"{ARCHIVE.stat().st_size} bytes", file=sys.stderr)


def _fill(folder: Path, fmt: str) -> None:
    (folder / "in").mkdir(parents=True)
    lake = Lake.open(folder / "lake", ducklake="sqlite" if fmt == "ducklake" else None)
    events = lake.table("shop.events")
    events.ingest(_file(folder / "first.jsonl", FIRST))
    events.ingest(
        _file(folder / "second.jsonl", SECOND), settings={"policies.strict": "strict", "hints.strict": "long"}
    )
    lake.table("shop.rows").ingest(_file(folder / "rows.csv", [CSV.rstrip("\n")]))
    captured = lake.table("shop.captured")
    for number, lines in enumerate(CAPTURED):
        _file(folder / "in" / f"{number}.json", lines)
        os.utime(folder / "in" / f"{number}.json", (WHEN + number, WHEN + number))
        _capture(captured, folder)
    # As if the process had died before Spark noted that the last batch is in.
    (folder / "checkpoint" / "spark" / "commits" / "1").unlink()
    (folder / "rows.json").write_text(
        json.dumps({t.name: _rows(t) for t in (events, captured)}, sort_keys=True)
    )
    stop_session(lake.spark)
    for sums in [*folder.rglob("*.crc"), *folder.rglob("metadata/*.stats")]:
        sums.unlink()


def _capture(table: Table, folder: Path) -> None:
    table.capture(folder / "in", name="old", checkpoint=folder / "checkpoint").awaitTermination()


def _file(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def _rows(table: Table) -> list[str]:
    return sorted(row[0] for row in table.read().selectExpr("to_json(struct(*))").collect())


if __name__ == "__main__":
    main()
