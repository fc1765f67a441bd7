"""The lake that every fault strikes, and the commands that write: what each does, and what must be there after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

from driftline import AuditError, Lake
from driftline.core.changes import AddColumn, RenameColumn
from driftline.core.schema.types import LONG, Field
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.formats.open import EmbeddedLake, relocate, relocate_table
from driftline.ingest.fan_out import FanOutError
from driftline.keys import anew

FORMATS = ("iceberg", "duckdb", "sqlite")
TABLE, NEW, OTHER = "s.t", "s.new", "s.other"
KEYED, OF_VERSION_2, UNUSED = "s.keyed", "s.keyed_2", "s.unused"
USUAL = {"policy": "preserve", "on_conflict": "quarantine", "new_fields": "add"}

FIRST = [{"id": 1, "price": 4, "name": "a"}, {"id": 2, "price": "x", "name": "b"}, {"id": 3, "price": 5}]
HELD = [{"id": 4, "price": 6, "waits": {"u": 1}}]
REFUSED = [{"id": 5, "odd": 1}, {"id": 6, "price": 7}]
TAKEN = [{"id": 7, "price": 8}]
MORE = [{"id": 10, "price": 9, "fresh": True}, {"id": 11, "price": "y"}]
STREAM = [[{"id": 20, "price": 1, "c": 1}], [{"id": 21, "price": 2, "d": 1}]]

OF_KINDS = [
    [{"id": 40 + n, "kind": "a", "price": n}, {"id": 50 + n, "kind": "b", f"c{n}": 1}, {"id": 60 + n}]
    for n in range(2)
]
PAST = [[{"id": 70 + n, "kind": "a"}, {"id": 80 + n, "kind": "b", f"c{n}": n}] for n in range(2)]

CHANGED = {"key": "id", "order_by": "at", "delete_when": "op = 'd'"}
ROWS = [{"id": i, "price": i, "at": 1} for i in range(1, 4)]
UPDATE = [{"id": 3, "price": 30, "at": 2}]
CHANGES = [
    {"id": 1, "price": 10, "at": 2, "fresh": True}, {"id": 2, "at": 2, "op": "d"}, {"id": 3, "price": 0, "at": 0},
    {"id": 4, "price": 4, "at": 1},
]  # fmt: skip
STREAM_OF_CHANGES = [CHANGES, [{"id": 4, "at": 3, "op": "d"}, {"id": 1, "price": "x", "at": 3}]]
# Of each batch one change is a row's, one deletes another, and all but the first to row 9 are late.
LONG_STREAM = [
    [
        {"id": n % 4, "price": n, "at": 100 + n},
        {"id": (n + n % 3) % 4, "at": 100 + n, "op": "d" if n % 3 else "u", "price": n},
        {"id": 9, "price": n, "at": 100 - n},
    ]
    for n in range(30)
]


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
    for number, records in enumerate(OF_KINDS):
        put(files / "kinds" / f"{number}.jsonl", records, f"broken {number}")
    prepare_keyed(lake, files)
    put(files / "past" / "0.jsonl", PAST[0])
    capture_past_an_error(lake, files / "past")
    lake.alter("ALTER TABLE s.of_a RENAME TO away")
    put(files / "past" / "1.jsonl", PAST[1])
    data = next((home / "lake").rglob("*/t/**/*.parquet"))
    shutil.copy(data, data.with_name(f"{data.name[:-13]}00009.parquet"))


def prepare_keyed(lake: Lake, files: Path) -> None:
    """Makes tables with a key, whose rows are deleted in part, and files of changes."""
    versions = {KEYED: "3", OF_VERSION_2: "2"} if isinstance(lake.format, IcebergCatalog) else {KEYED: ""}
    for name, version in versions.items():
        settings = CHANGED | ({"format_version": version} if version else {})
        lake.table(name).ingest(put(files / name / "0.jsonl", ROWS), settings=settings)
        lake.table(name).ingest(put(files / name / "1.jsonl", UPDATE))
    for number, price in enumerate([1, {"x": 1}, 30]):  # the object, in a column of its own, is updated away
        change = [{"id": 3, "price": price, "at": number}]
        lake.table(UNUSED).ingest(put(files / UNUSED / f"{number}.jsonl", change), settings=CHANGED)
    put(files / "changes.jsonl", CHANGES, "broken 1")
    for folder, stream in (("changes", STREAM_OF_CHANGES), ("many", LONG_STREAM)):
        for number, records in enumerate(stream):
            put(files / folder / f"{number:02}.jsonl", records, f"broken {number}")


def prepare_source(lake: Lake, home: Path) -> None:
    """Makes another lake, with a table whose rows are deleted in part, and its quarantine."""
    files = home / "files" / "other"
    settings = CHANGED | {"format_version": "2"}  # with paths in its files of deletes
    lake.table(OTHER).ingest(put(files / "0.jsonl", ROWS), settings=settings)
    lake.table(OTHER).ingest(put(files / "1.jsonl", UPDATE))
    lake.table(OTHER).ingest(put(files / "2.jsonl", CHANGES, "broken 1"))


def lake_at(home: Path, folder: str) -> EmbeddedLake:
    return EmbeddedLake(home / folder, None if home.name == "iceberg" else home.name)


def relocated(home: Path, folder: str = "lake") -> None:
    """Makes a lake that was copied or moved whole, unless it is at home."""
    lake = lake_at(home, folder)
    if lake.displaced() is not None:
        relocate(lake, dry_run=False)


def prices_after(batches: Sequence[Sequence[Mapping[str, object]]]) -> dict[int, object]:
    """The rows once all changes have come, by a dictionary."""
    rows: dict[Any, Any] = {}
    for change in chain(ROWS, UPDATE, *batches):
        if change["id"] not in rows or change["at"] >= rows[change["id"]]["at"]:  # type: ignore[operator]
            rows[change["id"]] = change
    return {id_: row["price"] for id_, row in rows.items() if row.get("op") != "d"}


def capture_from(lake: Lake, folder: Path, table: str = TABLE, settings: Mapping[str, str] = USUAL) -> None:
    lake.table(table).capture(folder, name="c", max_files=1, settings=settings).awaitTermination()


def capture_into_tables(lake: Lake, folder: Path, *, verify: bool = False) -> None:
    tables = lake.fan_out("s.{kind}")
    tables.capture(
        folder, name="kinds", max_files=1, settings=USUAL, audit=verify, verify=verify
    ).awaitTermination()


def capture_past_an_error(lake: Lake, folder: Path) -> None:
    """Captures into tables, of which those in error have their records wait; takes in what a fault has had wait, too."""
    tables = lake.fan_out("s.of_{kind}")
    with suppress(FanOutError):
        tables.capture(folder, name="past", on_table_error="quarantine").awaitTermination()
    if lake.table("s.of_b__quarantine").format.load().exists:
        lake.table("s.of_b").replay()


def ingest_audited(lake: Lake, home: Path, **audit: Any) -> None:
    """Ingests what may fail its audit, and then is abandoned."""
    with suppress(AuditError):
        lake.table(TABLE).ingest(home / "files" / "more.jsonl", audit=True, **audit)


def compacted(lake: Lake, table: str) -> None:
    """Compacts a table, of which two small files are worth it in place of eight."""
    with patch.object(anew, "_MANY", 2):
        lake.table(table).compact()


@dataclass(frozen=True)
class Case:
    """A command that writes. ``ids``: those that the table has after it, beside those that it had; ``prices``: of all
    its rows, where it has a key; ``raws``: what is in quarantine after it, beside what was. ``always``: given twice, it does once what it does; any other is only given
    again where the table is as before. ``steps``: it commits more than once, so what is in between may be seen.
    ``copies``: killed between its two commits, or where the disk is full then, it leaves a copy of its rejects in an
    Iceberg quarantine. ``formats``: of the lakes that have its table. ``kills``: it is killed so often, before another
    process goes on; else it is struck once. ``moved``: it begins with a lake that was made elsewhere, whose files nobody
    finds before. ``tables``: each gets a part of a batch, and acknowledges it by itself. ``beside``: another table, whose
    quarantine is in the end as after the command.
    """

    run: Callable[[Lake, Path], object]
    ids: frozenset[int] = frozenset()
    prices: Mapping[int, object] | None = None
    raws: frozenset[str] = frozenset()
    table: str = TABLE
    always: bool = False
    steps: bool = False
    copies: bool = False
    formats: Sequence[str] = FORMATS
    kills: int = 0
    moved: bool = False
    tables: int = 1
    beside: str = ""


def by_key(table: str, formats: Sequence[str] = FORMATS) -> Case:
    return Case(
        lambda lake, home: lake.table(table).ingest(home / "files" / "changes.jsonl"),
        prices=prices_after([CHANGES]), raws=frozenset({"broken 1"}), table=table, copies=True, formats=formats,
    )  # fmt: skip


CASES = {
    "ingest": Case(
        lambda lake, home: lake.table(TABLE).ingest(home / "files" / "more.jsonl"),
        frozenset({10, 11}), raws=frozenset({"broken 1"}), copies=True,
    ),
    "ingest a new table": Case(
        lambda lake, home: lake.table(NEW).ingest(home / "files" / "more.jsonl"),
        frozenset({10, 11}), raws=frozenset({"broken 1"}), table=NEW, copies=True,
    ),
    "ingest audited": Case(
        lambda lake, home: ingest_audited(lake, home, fail_on="widen"),
        frozenset({10, 11}), raws=frozenset({"broken 1"}), copies=True,
    ),
    "ingest abandoned": Case(
        lambda lake, home: ingest_audited(lake, home, fail_on="quarantine"), always=True
    ),
    "ingest by key": by_key(KEYED),
    "ingest by key, format version 2": by_key(OF_VERSION_2, ["iceberg"]),
    "alter": Case(
        lambda lake, home: lake.table(TABLE).alter(
            AddColumn((), Field("added", LONG)), RenameColumn(("title",), "heading")
        )
    ),
    "undo": Case(lambda lake, home: lake.table(TABLE).undo(yes=True)),
    "resolve": Case(lambda lake, home: lake.table(TABLE).resolve("price", "string")),
    "promote": Case(lambda lake, home: lake.table(TABLE).promote(everything=True)),
    "replan": Case(  # its commit, and that of the replay behind it
        lambda lake, home: lake.table(TABLE).replan(apply=True), frozenset({5}), always=True, steps=True
    ),
    "replay": Case(
        lambda lake, home: lake.table(TABLE).replay(), frozenset({5}), always=True
    ),
    "relocate": Case(lambda lake, home: relocated(home), always=True, moved=True),
    "relocate a table": Case(
        lambda lake, home: relocate_table(lake_at(home, "source"), OTHER, lake.format, dry_run=False),
        prices=prices_after([CHANGES]), raws=frozenset({"broken 1"}), table=OTHER, formats=["iceberg"],
    ),
    "compact": Case(lambda lake, home: compacted(lake, TABLE), always=True),
    "compact, unused columns": Case(
        lambda lake, home: lake.table(UNUSED).compact(drop_unused=True), prices={3: 30}, table=UNUSED, always=True
    ),
    "clean": Case(lambda lake, home: lake.clean(0), always=True),
    "capture": Case(
        lambda lake, home: capture_from(lake, home / "files" / "stream"),
        frozenset({20, 21}), raws=frozenset({"broken 1", "broken 2"}), always=True, steps=True,
    ),
    "capture into tables": Case(
        lambda lake, home: capture_into_tables(lake, home / "files" / "kinds"),
        frozenset({60, 61}), raws=frozenset({"broken 0", "broken 1"}), table="s._other", always=True, steps=True,
        tables=3,
    ),
    "capture into tables, verified": Case(
        lambda lake, home: capture_into_tables(lake, home / "files" / "kinds", verify=True),
        frozenset({60, 61}), raws=frozenset({"broken 0", "broken 1"}), table="s._other", always=True, steps=True,
        tables=3,
    ),
    "capture past a table in error": Case(
        lambda lake, home: capture_past_an_error(lake, home / "files" / "past"),
        frozenset({81}), table="s.of_b", always=True, steps=True, beside="s.of_a",
    ),
    "capture by key": Case(
        lambda lake, home: capture_from(lake, home / "files" / "changes", KEYED, CHANGED),
        prices=prices_after(STREAM_OF_CHANGES), raws=frozenset({"broken 0", "broken 1"}), table=KEYED, always=True,
        steps=True,
    ),
    "capture by key, again and again": Case(
        lambda lake, home: capture_from(lake, home / "files" / "many", KEYED, CHANGED),
        prices=prices_after(LONG_STREAM), raws=frozenset(f"broken {n}" for n in range(len(LONG_STREAM))), table=KEYED,
        always=True, steps=True, kills=20,
    ),
}  # fmt: skip
