"""Captures whose table or checkpoint was restored, moved or damaged: never a gap or a record twice without a word."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driftline.capture.seeking import Seek
from driftline.capture.targets import Batch
from driftline.errors import DataError, DriftlineError
from driftline.lake import Lake, Table
from lake.formats import catalog_file, database
from lake.test_capture_kafka import Restorable, deleted_before, ids, set_partitions
from servers.kafka import Kafka


class Run:
    """A capture of a folder, with its checkpoint beside it, and backups of both."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self.source, self.checkpoint = table, folder / "in", folder / "checkpoint"
        self.backups = folder / "backups"
        self.source.mkdir()
        self.number = 0

    def put(self, *, name: str | None = None) -> int:
        """One file more, of one record; returns its id."""
        self.number += 1
        (self.source / f"{name or self.number}.json").write_text(json.dumps({"id": self.number}) + "\n")
        return self.number

    def start(self, **options: Any) -> list[Batch]:
        batches: list[Batch] = []
        query = self.table.capture(
            self.source, name="orders", checkpoint=self.checkpoint, on_batch=batches.append, **options
        )
        assert query.awaitTermination(120)
        return batches

    def seek(self, to: str, *, dry_run: bool = False) -> Seek:
        return self.table.seek(self.source, name="orders", to=to, checkpoint=self.checkpoint, dry_run=dry_run)

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.table.read().select("id").collect())

    def keep_checkpoint(self) -> None:
        shutil.rmtree(self.backups / "checkpoint", ignore_errors=True)
        shutil.copytree(self.checkpoint, self.backups / "checkpoint")

    def restore_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.backups / "checkpoint", self.checkpoint)

    def keep_table(self) -> None:
        self.backups.mkdir(exist_ok=True)
        shutil.copyfile(catalog_file(self.table.lake), self.backups / "catalog")

    def restore_table(self) -> None:
        shutil.copyfile(self.backups / "catalog", catalog_file(self.table.lake))


@pytest.fixture
def run(lake: Lake, table_name: str, tmp_path: Path) -> Run:
    run = Run(lake.table(table_name), tmp_path)
    run.put()
    run.start()
    return run


def test_checkpoint_older_than_the_table_leaves_out_what_it_has(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.keep_checkpoint()
    for _ in range(2):
        run.put()
        run.start()
    run.restore_checkpoint()
    new = run.put()
    (batch,) = run.start()
    assert (batch.epoch, batch.result.rows_written) == (3, 1)
    assert "2 files, " in caplog.text and "2.json" in caplog.text and f"{new}.json" not in caplog.text
    assert run.start() == []
    run.put()
    assert [batch.epoch for batch in run.start()] == [4]
    assert run.ids() == [1, 2, 3, 4, 5]


def test_checkpoint_with_a_list_that_waits_leaves_out_what_the_table_has_of_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.put()
    with pytest.raises(Died):
        run.start(progress=die)
    run.keep_checkpoint()
    run.start()
    run.put()
    run.start()
    run.restore_checkpoint()
    run.put()
    run.start()
    assert run.ids() == [1, 2, 3, 4]
    assert run.start() == []


@pytest.mark.parametrize("choice", ["table", "checkpoint"])
def test_table_older_than_its_checkpoint_is_an_error_until_a_person_says_how_to_go_on(
    run: Run, choice: Any
) -> None:
    run.keep_table()
    for _ in range(2):
        run.put()
        run.start()
    run.restore_table()
    for _ in range(2):
        with pytest.raises(DataError, match=r"batches 1 to 2 \(2 files, .*2\.json, .*3\.json\)") as raised:
            run.start()
    assert 'resume_from="table"' in str(raised.value.hint)
    run.put()
    run.start(resume_from=choice)
    expected = [1, 2, 3, 4] if choice == "table" else [1, 4]
    assert run.ids() == expected
    run.put()
    run.start()
    assert run.ids() == [*expected, 5]


def grow(run: Run) -> None:
    """One line more in the same file."""
    run.number += 1
    with (run.source / "1.json").open("a") as file:
        file.write(json.dumps({"id": run.number}) + "\n")


def test_table_older_than_its_checkpoint_gets_the_lines_that_it_lacks_of_a_growing_file(run: Run) -> None:
    run.keep_table()
    for _ in range(2):
        grow(run)
        run.start(changed_files="append")
    run.restore_table()
    assert run.ids() == [1]
    with pytest.raises(DataError, match=r"batches 1 to 2 \(2 files, .*1\.json, .*1\.json\)"):
        run.start(changed_files="append")
    grow(run)
    run.start(changed_files="append", resume_from="table")
    assert run.ids() == [1, 2, 3, 4]
    assert run.start(changed_files="append") == []


def test_checkpoint_older_than_the_table_asks_how_much_it_has_of_a_growing_file(run: Run) -> None:
    run.keep_checkpoint()
    grow(run)
    run.start(changed_files="append")
    run.restore_checkpoint()
    run.start(changed_files="append")
    assert run.ids() == [1, 2]  # the table knows this version of the file
    run.restore_checkpoint()
    grow(run)
    with pytest.raises(DataError, match="does not remember which lines they were made of"):
        run.start(changed_files="append")
    assert run.ids() == [1, 2]
    run.start(changed_files="append", resume_from="checkpoint")
    assert run.ids() == [1, 2, 2, 3]


def test_going_on_without_the_batches_holds_though_nothing_new_came(run: Run) -> None:
    run.keep_table()
    run.put()
    run.start()
    run.restore_table()
    assert run.start(resume_from="checkpoint") == []
    assert run.start() == []
    assert run.ids() == [1]


def test_a_lost_checkpoint_goes_on_with_what_the_table_does_not_have(run: Run) -> None:
    run.put()
    run.start()
    shutil.rmtree(run.checkpoint)
    run.put()
    with pytest.raises(DataError, match="by another checkpoint") as raised:
        run.start()
    assert 'resume_from="table"' in str(raised.value.hint)
    run.start(resume_from="table")
    run.put()
    run.start()
    assert run.ids() == [1, 2, 3, 4]


def test_batches_without_records_are_no_gap(run: Run) -> None:
    for _ in range(2):
        (run.source / f"empty{_}.json").write_text("")
        run.start()
    assert run.start() == []
    run.put()
    run.start()
    assert run.ids() == [1, 2]


def test_both_older_at_different_times(run: Run) -> None:
    run.keep_table()
    run.put()
    run.start()
    run.keep_checkpoint()
    run.put()
    run.start()
    run.restore_table()
    run.restore_checkpoint()
    with pytest.raises(DataError, match=r"batch 1 \(1 file, .*2\.json\)"):
        run.start()
    run.start(resume_from="table")
    assert run.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    "brings_more",
    [
        pytest.param(False, marks=pytest.mark.iceberg_only("the other format has the other case")),
        pytest.param(True, marks=pytest.mark.ducklake_only("the other format has the other case")),
    ],
)
def test_files_left_out_are_missed_in_a_table_restored_to_before_them(run: Run, brings_more: bool) -> None:
    run.keep_checkpoint()
    run.keep_table()
    run.put()
    run.start()
    run.restore_checkpoint()
    if brings_more:
        run.put()
    run.start()  # leaves out 2.json
    run.restore_table()
    with pytest.raises(DataError, match=r"2\.json"):
        run.start()
    run.start(resume_from="table")
    assert run.ids() == [*range(1, run.number + 1)]
    assert run.start() == []


# Another position, by seek ---------------------------------------------------------------------------------------

# A seek asks a table for its last batch, and writes in the checkpoint: each case is over one format or the other.
ALIKE = "the cases of seek share both formats"


class Died(Exception):
    """The end of a micro-batch before its commit."""


def die(phase: str) -> None:
    if phase == "committing":
        raise Died


@pytest.mark.ducklake_only(ALIKE)
def test_seek_to_the_beginning_takes_every_file_again(run: Run) -> None:
    run.put()
    run.start()
    before = {path: path.read_bytes() for path in run.checkpoint.rglob("*") if path.is_file()}
    planned = run.seek("earliest", dry_run=True)
    assert {path: path.read_bytes() for path in run.checkpoint.rglob("*") if path.is_file()} == before
    assert run.start() == []

    done = run.seek("earliest")
    assert (done.again, done.passed) == (tuple(f"{run.source}/{n}.json" for n in (1, 2)), ())
    assert planned == replace(done, is_done=False)
    run.put()
    run.start()
    assert run.ids() == [1, 1, 2, 2, 3]
    assert run.start() == []
    run.put()
    run.start()
    assert run.ids() == [1, 1, 2, 2, 3, 4]


@pytest.mark.iceberg_only(ALIKE)
def test_seek_to_the_end_passes_over_what_waits(run: Run) -> None:
    run.put()
    with pytest.raises(Died):
        run.start(progress=die)
    run.put()
    done = run.seek("latest")
    assert (done.again, done.passed) == ((), tuple(f"{run.source}/{n}.json" for n in (2, 3)))
    assert run.start() == []
    run.put()
    run.start()
    assert run.ids() == [1, 4]


@pytest.mark.ducklake_only(ALIKE)
def test_seek_to_a_time_takes_files_changed_since_then_and_no_older_ones(run: Run) -> None:
    for second in (20, 30, 10, 40):
        name = run.put()
        os.utime(run.source / f"{name}.json", (second, second))
        if name == 3:
            run.start()
    done = run.seek("1970-01-01T00:00:20Z")
    assert [Path(path).stem for path in done.again] == ["2", "3", "1"]
    assert [Path(path).stem for path in done.passed] == ["4"]
    run.start()
    assert run.ids() == [1, 1, 2, 2, 3, 3, 5]


@pytest.mark.iceberg_only(ALIKE)
def test_seek_takes_no_file_twice_that_waits_already(run: Run) -> None:
    run.put()
    with pytest.raises(Died):
        run.start(progress=die)
    assert [len(run.seek("earliest").again) for _ in range(2)] == [1, 0]
    run.start()
    assert run.ids() == [1, 1, 2]


def test_seek_in_a_restored_table_is_refused_until_a_start_has_said_how_to_go_on(run: Run) -> None:
    run.keep_table()
    run.put()
    run.start()
    run.restore_table()
    with pytest.raises(DataError, match="differ, as one of them was restored"):
        run.seek("latest")
    run.start(resume_from="table")
    assert run.seek("latest").passed == ()
    assert run.ids() == [1, 2]


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_seek_of_a_capture_that_has_not_begun_leaves_no_folder_behind(run: Run) -> None:
    shutil.rmtree(run.checkpoint)
    with pytest.raises(DataError, match="has not begun"):
        run.seek("earliest")
    assert not run.checkpoint.exists()


# Moved, and called by other names ------------------------------------------------------------------------------


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_checkpoint_that_was_moved_or_copied_goes_on(run: Run) -> None:
    moved = run.checkpoint.with_name("moved [1] ü")
    run.checkpoint.rename(moved)
    run.checkpoint = moved
    for _ in range(2):
        run.put()
        assert len(run.start()) == 1
    assert run.ids() == [1, 2, 3]


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_one_folder_is_one_whatever_it_is_called(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.source)
    (tmp_path / "x").mkdir()
    for source in (tmp_path / "link", tmp_path / "x/../in", run.source):
        run.source = source
        run.put()
        assert len(run.start()) == 1
    assert run.ids() == [1, 2, 3, 4]


# Damaged -------------------------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": lambda path: path.unlink(),
}
FILES = [
    "capture.json", "files/000000000000.json", "files/000000000001.json", "files/_done", "lock", "spark/metadata",
    "spark/commits/0", "spark/commits/1", "spark/offsets/0", "spark/offsets/1", "spark/sources/0/0", "spark/sources/0/1",
]  # fmt: skip
BY_DAY = {
    ("capture.json", "deleted"), ("files/000000000000.json", "deleted"), ("files/000000000001.json", "deleted"),
    ("spark/metadata", "cut"), ("spark/offsets/1", "zeroed"), ("spark/sources/0/1", "deleted"),
}  # fmt: skip


def tries() -> list[Any]:
    """Each file damaged in each way; a few of them by day."""
    every = [(name, damage) for name in FILES for damage in DAMAGES]
    return [
        pytest.param(*one, marks=[] if one in BY_DAY else pytest.mark.nightly, id=" ".join(one))
        for one in every
    ]


@pytest.fixture(scope="module")
def two_batches(iceberg: Lake, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A capture of two files, and backups from which each damage begins."""
    run = Run(iceberg.table("t.damaged"), tmp_path_factory.mktemp("damaged"))
    for _ in range(2):
        run.put()
        run.start()
    assert {
        path.relative_to(run.checkpoint).as_posix()
        for path in run.checkpoint.rglob("[!.]*")
        if path.is_file()
    } == {*FILES, "status.json"}  # which is read by no capture
    run.keep_table()
    run.keep_checkpoint()
    shutil.copytree(folder / "t/damaged", run.backups / "files")
    return run


@pytest.mark.embedded_only("its backup is the catalog's file")
@pytest.mark.parametrize(("name", "damage"), tries())
def test_a_damaged_checkpoint_goes_on_rightly_or_is_one_sentence_with_a_way_on(
    two_batches: Run, folder: Path, name: str, damage: str
) -> None:
    run = two_batches
    run.restore_table()
    run.restore_checkpoint()
    # The list of files that the table remembers is a file, which the next batch replaces.
    shutil.rmtree(folder / "t/damaged")
    shutil.copytree(run.backups / "files", folder / "t/damaged")
    run.number = 2
    DAMAGES[damage](run.checkpoint / name)
    run.put()
    refused: DriftlineError | None = None
    try:
        run.start()
    except DriftlineError as error:
        refused = error
    if refused is not None:
        assert name in refused.message and 'resume_from="table"' in str(refused.hint)
        shutil.rmtree(run.checkpoint)
        run.start(resume_from="table")
    assert run.ids() == [1, 2, 3]
    assert run.start() == []


# Random walks --------------------------------------------------------------------------------------------------

LONG = "DRIFTLINE_FUZZ" in os.environ


def walk(run: Run, seed: int, steps: int) -> None:
    """Take random steps; after each start every record is in the table once, or an error has said how to go on."""
    chance, others = random.Random(seed), 0
    run.keep_checkpoint()
    run.keep_table()
    for step in range(steps):
        act = chance.choice(
            ["start", "start", "ingest", "keep checkpoint", "keep table", "checkpoint", "table"]
        )
        if act == "keep checkpoint":
            run.keep_checkpoint()
        elif act == "keep table":
            run.keep_table()
        elif act == "checkpoint":
            run.restore_checkpoint()
        elif act == "table":
            run.restore_table()
            others = run.table.read().where("id < 0").count()
        elif act == "ingest":
            others += 1
            run.table.ingest([{"id": -step - 1}])
        else:
            run.put()
            try:
                run.start()
            except DriftlineError:
                try:
                    run.start(resume_from="table")
                except DataError as error:
                    if "does not remember" not in error.message:
                        raise
                    return  # its ledger went with the table
            captured = [number for number in run.ids() if number > 0]
            assert captured == [*range(1, run.number + 1)], f"seed {seed}, step {step}"
            assert len(run.ids()) == len(captured) + others


@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_a_random_walk_of_backups_and_restores_has_every_record_once(run: Run, seed: int) -> None:
    """Each format has a walk of its own; `make fuzz` takes more and longer ones."""
    is_ducklake = database(run.table.lake) is not None
    walk(run, seed=100 + 2 * seed + is_ducklake, steps=40 if LONG else 20)


OFFSETS = re.compile(r"/(\d+): offsets (\d+) to (\d+)")


class TopicWalk(Restorable):
    """Random steps, and what their errors and results have named: records to be missed, or to come again."""

    def __init__(self, table: Table, kafka: Kafka, topic: str, folder: Path, seed: int) -> None:
        super().__init__(table, kafka, topic, folder)
        self.chance = random.Random(seed)
        self.sent: list[list[int]] = [[], []]  # ids, by partition and offset
        self.gone, self.again = set[int](), Counter[int]()
        self.steps: list[str] = []

    def named(self, texts: Iterable[object]) -> set[int]:
        """The ids of the offsets in some texts."""
        found = [tuple(map(int, place)) for text in texts for place in OFFSETS.findall(str(text))]
        return {id_ for partition, *ends in found for id_ in self.sent[partition][ends[0] : ends[1] + 1]}

    def send(self) -> None:
        """Up to two records more in each partition."""
        for partition, ids_ in enumerate(self.sent):
            new = range(self.number, self.number + self.chance.randrange(3))
            self.kafka.send(self.topic, [json.dumps({"id": n}).encode() for n in new], partition=partition)
            ids_ += new
            self.number = new.stop

    def go_on(self) -> None:
        self.send()
        self.resume({"resume_from": "table"} if self.chance.random() < 0.2 else {})
        rows = Counter(ids(self.table))
        about = "\n".join(self.steps)
        for id_ in range(-1, self.number):
            assert rows[id_] or id_ in self.gone, f"{id_} was lost\n{about}"
            assert rows[id_] <= 1 + self.again[id_], f"{id_} came {rows[id_]} times\n{about}"

    def resume(self, options: dict[str, Any]) -> None:
        """Start, by one of the ways on that each error names."""
        for _ in range(6):
            try:
                batches = self.start(max_records=self.chance.choice([None, 2]), **options)
            except DataError as error:
                hint = str(error.hint)
                self.steps.append(f"{options}: {error.message}")
                if "were deleted" in error.message:
                    assert "skip_lost=True" in hint
                    options = {"skip_lost": True}
                    continue
                ways = re.findall(r'resume_from="(\w+)"', hint)
                assert "another checkpoint" in error.message or ways == ["table", "checkpoint"], hint  # noqa: PT017
                options = {"resume_from": self.chance.choice(ways)}
                if options["resume_from"] == "checkpoint":
                    self.gone |= self.named([error.message])
                    self.again.update(range(-1, self.number))
            else:
                self.gone |= self.named(lost for batch in batches for lost in batch.lost)
                return
        raise AssertionError("\n".join(self.steps))

    def die(self) -> None:
        self.send()
        ends = self.chance.choice(["writing", "committing", "committed"])

        def progress(phase: str) -> None:
            if phase == ends:
                raise Died

        with suppress(Died, DataError):
            self.start(progress=progress)

    def move(self) -> None:
        with suppress(DataError):  # it has not begun, or differs from the table
            done = self.seek(self.chance.choice(["earliest", "latest"]))
            self.again.update(self.named(done.again))
            self.gone |= self.named(done.passed)

    def delete(self) -> None:
        """Kafka deletes the oldest records of a partition, now and then some that no batch had."""
        sent = len(self.sent[0])
        deleted_before(self.kafka, self.topic, self.chance.randrange(max(0, sent - 2), sent + 1))

    def grow(self) -> None:
        self.sent.append([])
        set_partitions(self.kafka, self.topic, len(self.sent))

    def step(self) -> None:
        steps = [self.go_on] * 3 + [self.die] * 2 + [self.move] * 2 + [self.restore_table] * 2
        steps += [self.restore_checkpoint, self.lose_checkpoint, self.keep_table, self.delete]
        steps += [self.keep_checkpoint] * self.checkpoint.exists() + [self.grow] * (len(self.sent) < 4)
        take = self.chance.choice(steps)
        self.steps.append(take.__name__)
        take()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_random_walk_of_a_topic_loses_and_doubles_nothing_that_it_does_not_name(
    lake: Lake, table_name: str, kafka: Kafka, tmp_path: Path, seed: int, keyed: bool
) -> None:
    """Each format, with and without a key, has a walk of its own; `make fuzz` takes more and longer ones."""
    table, is_ducklake = lake.table(table_name), database(lake) is not None
    walk = TopicWalk(table, kafka, f"topic-{table_name}", tmp_path, 4 * seed + 2 * keyed + is_ducklake)
    walk.kafka.send(walk.topic, [b'{"id": -1}'], partition=0)
    walk.sent[0].append(-1)
    walk.start(settings={"key": "id"} if keyed else {})
    walk.keep_checkpoint()
    walk.keep_table()
    for _ in range(40 if LONG else 20):
        walk.step()
    walk.go_on()
    rows = ids(table)
    assert not keyed or len({*rows}) == len(rows)
