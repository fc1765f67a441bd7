"""Random walks over the border of a lake: captures, copies, moves, and backups of any age, against an oracle."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline import DataError, Lake, UsageError

KINDS = ("iceberg", "duckdb")
TABLE, NAME = "s.orders", "orders"
STEPS = (
    ("capture", 4), ("ingest", 1), ("copy the lake", 1), ("keep checkpoint", 1), ("restore checkpoint", 1),
    ("keep catalog", 1), ("restore catalog", 1), ("move", 1), ("clean", 1), ("undo", 1),
)  # fmt: skip


class Walk:
    """A lake with a capture of a folder, the rows that it is to have, and lakes that are not to be touched."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.folder, self.kind, self.chance = folder, kind, random.Random(seed)
        self.source, self.place, self.backups = folder / "in", folder / "lake", folder / "backups"
        self.source.mkdir()
        self.backups.mkdir()
        self.rows: Counter[int] = Counter()
        self.kept_rows: Counter[int] = Counter()
        self.others: dict[Path, dict[Path, bytes]] = {}
        self.number = 0
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
        assert self.ids(here) == self.rows, self.steps
        for place, content in self.others.items():
            assert files(place) == content, self.steps

    def ids(self, lake: Lake) -> Counter[int]:
        return Counter(row.id for row in lake.table(TABLE).read().select("id").collect())

    def put(self) -> None:
        """One file more, with a column of its own now and then."""
        self.number += 1
        record = {"id": self.number} | ({f"n{self.number}": 1} if self.number % 3 == 0 else {})
        (self.source / f"{self.number}.json").write_text(json.dumps(record) + "\n")

    def start(self, lake: Lake, **options: Any) -> None:
        query = lake.table(TABLE).capture(self.source, name=NAME, **options)
        assert query.awaitTermination(240)

    def resume(self, lake: Lake) -> None:
        """Start the capture; where table and checkpoint differ, the table counts."""
        try:
            self.start(lake)
        except DataError as error:
            if "--resume-from" not in str(error.hint):
                raise
            self.start(lake, resume_from="table")

    def capture(self) -> None:
        self.put()
        self.resume(self.open())
        for number in range(1, self.number + 1):
            self.rows[number] = 1

    def ingest(self) -> None:
        self.open().table(TABLE).ingest([{"id": -len(self.steps)}])
        self.rows[-len(self.steps)] = 1

    def keep_checkpoint(self) -> None:
        replace_folder(self.place / "_captures", self.backups / "checkpoint")

    def restore_checkpoint(self) -> None:
        replace_folder(self.backups / "checkpoint", self.place / "_captures")

    def keep_catalog(self) -> None:
        """Back up the catalog, and the files that its tables name, as `clean` may delete them here."""
        shutil.rmtree(self.backups / "lake", ignore_errors=True)
        shutil.copytree(self.place, self.backups / "lake", ignore=shutil.ignore_patterns("_captures"))
        self.kept_rows = self.rows.copy()

    def restore_catalog(self) -> None:
        shutil.copytree(self.backups / "lake", self.place, dirs_exist_ok=True)
        self.rows = self.kept_rows.copy()
        self.make_whole(self.place)  # it may be of a time before a move

    def make_whole(self, place: Path) -> None:
        """Do what a lake says that was not made where it is."""
        try:
            self.open(place).clean(0, dry_run=True)
        except UsageError as error:
            if "relocate --yes" not in str(error):
                raise
            self.open(place).relocate()

    def move(self) -> None:
        self.place = self.place.rename(self.folder / f"moved{len(self.steps)}")
        with pytest.raises(UsageError, match="relocate"):
            self.open().table(TABLE).ingest([{"id": 0}])
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
        assert self.ids(self.open(copy)) == self.rows
        assert files(self.place) == before
        goes_on, stays = (copy, self.place) if self.chance.random() < 0.5 else (self.place, copy)
        self.place, self.others[stays] = goes_on, files(stays)

    def clean(self) -> None:
        self.open().clean(0)

    def undo(self) -> None:
        """Take back the last change of columns, if there is one; rows stay."""
        with suppress(DataError, UsageError):
            self.open().table(TABLE).undo(yes=True)


def files(folder: Path) -> dict[Path, bytes]:
    """The files of a lake. An open may leave empty locks of a catalog behind."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def replace_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def walk(folder: Path, kind: str, seed: int, steps: int) -> None:
    """Begin with a row and a backup of it, then take steps at random, each kind at least once."""
    trip = Walk(folder, kind, seed)
    for step in ("capture", "keep checkpoint", "keep catalog"):
        trip.take(step)
    kinds, weights = zip(*STEPS, strict=True)
    chosen = trip.chance.choices(kinds, weights, k=steps - len(kinds))
    for step in trip.chance.sample([*chosen, *kinds], k=steps):
        trip.take(step)
    trip.take("capture")


@pytest.mark.embedded_only("a lake's folder is what is copied and moved")
@pytest.mark.parametrize("kind", KINDS)
def test_walk_over_copies_moves_and_restores_has_every_row_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    walk(tmp_path, kind, seed=4, steps=12)


@pytest.mark.nightly
@pytest.mark.embedded_only("a lake's folder is what is copied and moved")
@pytest.mark.parametrize("seed", range(10 if "DRIFTLINE_FUZZ" in os.environ else 1))
@pytest.mark.parametrize("kind", KINDS)
def test_long_walks_over_copies_moves_and_restores_have_every_row_once(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    walk(tmp_path, kind, seed=100 + seed, steps=40)
