"""The lake that every fault strikes, and the commands that write: what each does, and what must be there after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftline import Lake
from driftline.core.changes import AddColumn, RenameColumn
from driftline.core.schema.types import LONG, Field

TABLE, NEW = "s.t", "s.new"
USUAL = {"policy": "preserve", "on_conflict": "quarantine", "new_fields": "add"}

FIRST = [{"id": 1, "price": 4, "name": "a"}, {"id": 2, "price": "x", "name": "b"}, {"id": 3, "price": 5}]
HELD = [{"id": 4, "price": 6, "waits": {"u": 1}}]
REFUSED = [{"id": 5, "odd": 1}, {"id": 6, "price": 7}]
TAKEN = [{"id": 7, "price": 8}]
MORE = [{"id": 10, "price": 9, "fresh": True}, {"id": 11, "price": "y"}]
STREAM = [[{"id": 20, "price": 1, "c": 1}], [{"id": 21, "price": 2, "d": 1}]]


def put(file: Path, records: Sequence[object], *more: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([*map(json.dumps, records), *more]) + "\n")
    return file


def prepare(lake: Lake, home: Path) -> None:
    """Makes the lake: a field of two types, values in the rest, a refused record, a rename, a capture that has run,
    and a file that no snapshot has.
    """
    table, files = lake.table(TABLE), home / "files"
    table.ingest(put(files / "first.jsonl", FIRST))
    table.ingest(put(files / "held.jsonl", HELD), settings={"new_fields": "hold"})
    strict = {"policy": "strict", "on_conflict": "quarantine"}
    table.ingest(put(files / "refused.jsonl", REFUSED, "broken 0"), settings=strict)
    capture_from(lake, put(files / "stream" / "0.jsonl", TAKEN).parent)
    table.alter(RenameColumn(("name",), "title"))
    put(files / "more.jsonl", MORE, "broken 1")
    for number, records in enumerate(STREAM, 1):
        put(files / "stream" / f"{number}.jsonl", records, f"broken {number}")
    data = next((home / "lake").rglob("*/t/**/*.parquet"))
    shutil.copy(data, data.with_name(f"{data.name[:-13]}00009.parquet"))


def capture_from(lake: Lake, folder: Path) -> None:
    lake.table(TABLE).capture(folder, name="c", max_files=1, settings=USUAL).awaitTermination()


@dataclass(frozen=True)
class Case:
    """A command that writes. ``ids``: those that the table has after it, beside those that it had; ``raws``: what is in
    quarantine after it, beside what was. ``always``: given twice, it does once what it does; any other is only given
    again where the table is as before. ``steps``: it commits more than once, so what is in between may be seen.
    ``copies``: killed between its two commits, or where the disk is full then, it leaves a copy of its rejects in an
    Iceberg quarantine.
    """

    run: Callable[[Lake, Path], object]
    ids: frozenset[int] = frozenset()
    raws: frozenset[str] = frozenset()
    table: str = TABLE
    always: bool = False
    steps: bool = False
    copies: bool = False


CASES = {
    "ingest": Case(
        lambda lake, home: lake.table(TABLE).ingest(home / "files" / "more.jsonl"),
        frozenset({10, 11}), frozenset({"broken 1"}), copies=True,
    ),
    "ingest a new table": Case(
        lambda lake, home: lake.table(NEW).ingest(home / "files" / "more.jsonl"),
        frozenset({10, 11}), frozenset({"broken 1"}), NEW, copies=True,
    ),
    "alter": Case(
        lambda lake, home: lake.table(TABLE).alter(
            AddColumn((), Field("added", LONG)), RenameColumn(("title",), "heading")
        )
    ),
    "undo": Case(lambda lake, home: lake.table(TABLE).undo(yes=True)),
    "resolve": Case(lambda lake, home: lake.table(TABLE).resolve("price", "string")),
    "promote": Case(lambda lake, home: lake.table(TABLE).promote(everything=True)),
    "replay": Case(
        lambda lake, home: lake.table(TABLE).replay(), frozenset({5}), always=True
    ),
    "clean": Case(lambda lake, home: lake.clean(0), always=True),
    "capture": Case(
        lambda lake, home: capture_from(lake, home / "files" / "stream"),
        frozenset({20, 21}), frozenset({"broken 1", "broken 2"}), always=True, steps=True,
    ),
}  # fmt: skip
