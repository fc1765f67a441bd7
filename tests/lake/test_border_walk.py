"""Random walks over the border of a lake: captures, copies, moves, and backups of any age, against an oracle."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline import DataError, Lake, UsageError

KINDS = ("iceberg", "duckdb")
KEY = {"key": "id", "order_by": "at", "delete_when": "op = 'd'"}
TABLE, NAME = "s.orders", "orders"
STEPS = (
    ("capture", 4), ("ingest", 1), ("copy the lake", 1), ("keep checkpoint", 1), ("restore checkpoint", 1),
    ("keep catalog", 1), ("restore catalog", 1), ("move", 1), ("clean", 1), ("undo", 1),
)  # fmt: skip


Rows = dict[int, dict[str, Any]]  # the newest change of each id, deletes too


@dataclass(frozen=True)
class State:
    """The table: its rows, the numbers of the changes that have come, and of those of them that were undone.

    ``before``: the rows before each batch that changed some, the newest last, with the number of its change.
    """

    rows: Rows
    taken: frozenset[int] = frozenset()
    undone: frozenset[int] = frozenset()
    before: tuple[tuple[int, Rows], ...] = ()

    def after(self, number: int, change: dict[str, Any]) -> State:
        """The table once a change has come, which is late if there is a newer one of its id."""
        old, before = self.rows.get(change["id"]), self.before
        if old is None or (is_delete(old) and is_delete(change)):
            changes_rows = not is_delete(change)
        else:
            changes_rows = old["at"] < change["at"]
        if changes_rows and self.rows:
            before = (*before, (number, self.rows))
        elif not changes_rows:  # a delete of a row that is not there is remembered, whatever is undone
            before = tuple((batch, with_change(rows, change)) for batch, rows in before)
        return State(with_change(self.rows, change), self.taken | {number}, self.undone - {number}, before)

    def undo(self) -> State:
        (number, rows), others = self.before[-1], self.before[:-1]
        return State(rows, self.taken, self.undone | {number}, others)

    def visible(self) -> Counter[tuple[int, int]]:
        return Counter((row["id"], row["at"]) for row in self.rows.values() if not is_delete(row))


def with_change(rows: Rows, change: dict[str, Any]) -> Rows:
    old = rows.get(change["id"])
    return rows if old is not None and old["at"] > change["at"] else {**rows, change["id"]: change}


def is_delete(change: dict[str, Any]) -> bool:
    return "op" in change


class Walk:
    """A lake with a capture of a folder, the rows that it is to have, and lakes that are not to be touched.

    Each file and each ingest brings one change, and is a batch by itself. Without a key each change has an id
    of its own; a table with a key has the newest change of each of a few ids.
    """

    def __init__(self, folder: Path, kind: str, seed: int, *, keyed: bool) -> None:
        self.folder, self.kind, self.keyed = folder, kind, keyed
        self.chance = random.Random(seed)
        self.source, self.place, self.backups = folder / "in", folder / "lake", folder / "backups"
        self.source.mkdir()
        self.backups.mkdir()
        self.changes: list[dict[str, Any]] = []
        self.files: list[int] = []  # of changes, by their numbers
        self.state = self.kept_state = State({})
        self.is_unsure = False  # whether what was undone has come again
        self.others: dict[Path, dict[Path, bytes]] = {}
        self.steps: list[str] = []

    def open(self, place: Path | None = None) -> Lake:
        ducklake: Any = None if self.kind == "iceberg" else self.kind
        return Lake.open(place or self.place, ducklake=ducklake)

    def take(self, step: str) -> None:
        """Take a step, and check that every row is there once, and every file of the other lakes."""
        self.steps.append(step)
        getattr(self, step.replace(" ", "_"))()
        self.check()

    def check(self) -> None:
        here = self.open()
        assert self.rows(here) == self.state.visible(), self.steps
        for place, content in self.others.items():
            assert files(place) == content, self.steps

    def rows(self, lake: Lake) -> Counter[tuple[int, int]]:
        return Counter((row.id, row.at) for row in lake.table(TABLE).read().select("id", "at").collect())

    def change(self) -> dict[str, Any]:
        """One change more: with a column of its own now and then, and a late one, or a delete, of a table with a key."""
        number = len(self.changes)
        change: dict[str, Any] = {"id": number, "at": 10 * number}
        if number % 3 == 0:
            change[f"n{number}"] = 1
        if self.keyed:
            change["id"] = self.chance.randrange(4)
            change["at"] -= self.chance.choice((0, 0, 61))
            if self.chance.random() < 0.2:
                change["op"] = "d"
        self.changes.append(change)
        return change

    def put(self) -> None:
        """One file more."""
        change = self.change()
        self.files.append(len(self.changes) - 1)
        (self.source / f"{len(self.files)}.json").write_text(json.dumps(change) + "\n")

    def start(self, lake: Lake, **options: Any) -> None:
        settings = KEY if self.keyed else None
        query = lake.table(TABLE).capture(self.source, name=NAME, max_files=1, settings=settings, **options)
        assert query.awaitTermination(240)

    def resume(self, lake: Lake) -> None:
        """Start the capture; where table and checkpoint differ, the table counts."""
        try:
            self.start(lake)
        except DataError as error:
            if "resume_from=" not in str(error.hint):
                raise
            self.start(lake, resume_from="table")

    def capture(self) -> None:
        self.put()
        self.resume(self.open())
        undone = self.state.undone
        coming = [number for number in self.files if number not in self.state.taken]
        # What was undone comes again where a restored checkpoint does not know it, or where the table counts.
        again = [number for number in self.files if number in {*coming, *undone}]
        states = self.after(coming), self.after(again)
        self.state = self.among(*states)
        self.is_unsure |= coming != again and states[0].visible() == states[1].visible()

    def after(self, numbers: list[int]) -> State:
        state = self.state
        for number in numbers:
            state = state.after(number, self.changes[number])
        return state

    def among(self, *states: State) -> State:
        """The one of these states in which the table is, the first if in none."""
        rows = self.rows(self.open())
        return next((state for state in states if state.visible() == rows), states[0])

    def ingest(self) -> None:
        change = self.change()
        self.open().table(TABLE).ingest([change])
        self.state = self.state.after(len(self.changes) - 1, change)

    def keep_checkpoint(self) -> None:
        replace_folder(self.place / "_captures", self.backups / "checkpoint")

    def restore_checkpoint(self) -> None:
        replace_folder(self.backups / "checkpoint", self.place / "_captures")

    def keep_catalog(self) -> None:
        """Back up the catalog, and the files that its tables name, as `clean` may delete them here."""
        shutil.rmtree(self.backups / "lake", ignore_errors=True)
        shutil.copytree(self.place, self.backups / "lake", ignore=shutil.ignore_patterns("_captures"))
        self.kept_state = self.state

    def restore_catalog(self) -> None:
        shutil.copytree(self.backups / "lake", self.place, dirs_exist_ok=True)
        self.state = self.kept_state
        self.make_whole(self.place)  # it may be of a time before a move

    def make_whole(self, place: Path) -> None:
        """Do what a lake says that was not made where it is."""
        try:
            self.open(place).clean(0, dry_run=True)
        except UsageError as error:
            if "relocate" not in str(error):
                raise
            self.open(place).relocate()

    def move(self) -> None:
        self.place = self.place.rename(self.folder / f"moved{len(self.steps)}")
        with pytest.raises(UsageError, match="relocate"):
            self.open().table(TABLE).ingest([{"id": 0, "at": 0}])
        self.make_whole(self.place)

    def copy_the_lake(self) -> None:
        """Copy the lake, which goes on in one of both places, at random; the other one is not touched from then on."""
        copy = self.folder / f"copy{len(self.steps)}"
        shutil.copytree(self.place, copy)
        before = files(self.place)
        for write in (lambda: self.open(copy).clean(0), lambda: self.start(self.open(copy))):
            with pytest.raises(UsageError, match="is a copy of the lake at"):
                write()
        self.make_whole(copy)
        self.open(copy).clean(0)
        assert self.rows(self.open(copy)) == self.state.visible()
        assert files(self.place) == before
        goes_on, stays = (copy, self.place) if self.chance.random() < 0.5 else (self.place, copy)
        self.place, self.others[stays] = goes_on, files(stays)

    def clean(self) -> None:
        self.open().clean(0)

    def undo(self) -> None:
        """Take back the last change of columns, if there is one; of a table with a key, its last batch."""
        if self.is_unsure:
            return
        try:
            undone = self.open().table(TABLE).undo(yes=True)
        except (DataError, UsageError):
            assert not (self.keyed and self.state.before) or self.state.undone, self.steps
            return
        if undone.batch is not None:
            assert self.keyed, self.steps
            self.state = self.state.undo()


def files(folder: Path) -> dict[Path, bytes]:
    """The files of a lake. An open may leave empty locks of a catalog behind."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def replace_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def walk(folder: Path, kind: str, seed: int, steps: int, *, keyed: bool) -> None:
    """Begin with a row and a backup of it, then take steps at random, each kind at least once."""
    trip = Walk(folder, kind, seed, keyed=keyed)
    for step in ("capture", "keep checkpoint", "keep catalog"):
        trip.take(step)
    kinds, weights = zip(*STEPS, strict=True)
    chosen = trip.chance.choices(kinds, weights, k=steps - len(kinds))
    for step in trip.chance.sample([*chosen, *kinds], k=steps):
        trip.take(step)
    trip.take("capture")


OF_A_FOLDER = "a lake's folder is what is copied and moved"
FUZZED = "DRIFTLINE_FUZZ" in os.environ


@pytest.mark.nightly
@pytest.mark.embedded_only(OF_A_FOLDER)
@pytest.mark.parametrize(("kind", "keyed"), [("iceberg", True), ("duckdb", False)])
def test_walk_over_copies_moves_and_restores_has_every_row_once(
    spark: SparkSession, tmp_path: Path, kind: str, keyed: bool
) -> None:
    walk(tmp_path, kind, seed=4, steps=12, keyed=keyed)


@pytest.mark.nightly
@pytest.mark.embedded_only(OF_A_FOLDER)
@pytest.mark.parametrize("seed", range(10 if FUZZED else 1))
@pytest.mark.parametrize(
    ("kind", "keyed"), [*product(KINDS, (False, True))] if FUZZED else [("iceberg", False), ("duckdb", True)]
)
def test_longer_walks_over_copies_moves_and_restores_have_every_row_once(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int, keyed: bool
) -> None:
    """The tables that the walks by day leave out; `make fuzz` takes all of them on walks of 40 steps."""
    walk(tmp_path, kind, seed=100 + seed, steps=40 if FUZZED else 20, keyed=keyed)
