"""A capture that dies between any two files of its checkpoint: what it was to bring comes once, and at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from driftline.capture import checkpoint
from driftline.capture.flows import Files
from driftline.capture.targets import Batch
from driftline.errors import DataError, SetupError
from driftline.lake import Lake, Table
from driftline.runtime import stores
from servers.s3 import S3


class Died(Exception):
    pass


class Run:
    """A capture of the folder ``source``, with its checkpoint beside it."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self.source = table, folder / "in"
        self.place: Any = folder / "checkpoint"
        self.source.mkdir()
        self.expected: list[int] = []

    def put(self) -> None:
        """One file more, of one record."""
        number = len(self.expected)
        (self.source / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
        self.expected.append(number)

    def start(self, **options: Any) -> list[Batch]:
        batches: list[Batch] = []
        query = self.table.capture(
            self.source, name="orders", checkpoint=self.place, on_batch=batches.append, **options
        )
        assert query.awaitTermination(120)
        return batches

    def dies(self, phase: str, **options: Any) -> None:
        def die(now: str) -> None:
            if now == phase:
                raise Died

        with pytest.raises(Died):
            self.start(progress=die, **options)

    def files(self) -> list[str]:
        """The files of the checkpoint but their checksums, the oldest first."""
        files = [path for path in self.place.rglob("[!.]*") if path.is_file()]
        files.sort(key=lambda path: path.stat().st_ctime_ns)
        return [path.relative_to(self.place).as_posix() for path in files]

    def forget(self, *names: str) -> None:
        """Deletes files of the checkpoint, as if it had died before they were written."""
        for name in names:
            path = self.place / name
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def goes_on(self) -> None:
        """All is there once, and a further start finds nothing to do."""
        batches = self.start()
        assert sorted(row.id for row in self.table.read().select("id").collect()) == self.expected
        assert not batches or batches[-1].lag == 0
        assert self.start() == []


@pytest.fixture
def run(lake: Lake, table_name: str, tmp_path: Path) -> Run:
    run = Run(lake.table(table_name), tmp_path)
    run.put()
    run.goes_on()
    return run


def last(run: Run, kind: str) -> int:
    return max(int(path.name) for path in (run.place / "spark" / kind).glob("[0-9]*"))


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_after_each_file_that_is_written_before_the_commit(run: Run) -> None:
    for written in (1, 2, 3):
        before, number, epoch = run.files(), len(run.expected), last(run, "offsets") + 1
        run.put()
        run.dies("committing")
        # The list is written once more as its files are read.
        new = [f"files/{number:012}.json", f"spark/sources/0/{number}", f"spark/offsets/{epoch}"]
        assert {name for name in run.files() if name not in before} == set(new)
        run.forget(*new[written:])
        run.put()
        run.goes_on()


def test_after_each_file_that_is_written_after_the_commit(run: Run) -> None:
    run.put()
    run.dies("committed")
    done = run.place / "files/_done"
    assert done.read_text() == "0"
    run.put()
    run.goes_on()
    assert done.read_text() == "2"
    files = run.files()
    assert files.index("files/_done") < files.index("spark/commits/2")
    run.forget("spark/commits/2")
    run.put()
    run.goes_on()


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_backlog_of_small_batches_is_divided_anew(run: Run) -> None:
    for _ in range(4):
        run.put()
    run.dies("committing", max_files=1)
    assert [batch.result.rows_written for batch in run.start()] == [1, 3]
    run.goes_on()


@pytest.mark.parametrize(
    "committed",
    [
        pytest.param(True, marks=pytest.mark.ducklake_only("the other format has the other case")),
        pytest.param(False, marks=pytest.mark.iceberg_only("the other format has the other case")),
    ],
)
def test_a_checkpoint_of_an_earlier_version_that_is_a_list_late(
    run: Run, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a version took one list a micro-batch, by the micro-batch's number."""
    run.put()
    run.dies("committing")
    run.forget("spark/offsets/1")
    run.put()
    with monkeypatch.context() as patch:
        patch.setattr(Files, "batches", lambda _, epoch: (epoch,))
        with pytest.raises(DataError, match="the stream ended, and 1 file of its log did not come"):
            run.start()
    run.forget("files/_done")
    if not committed:  # Spark gives the batch that the table has, and the late list with it, again
        run.forget("spark/commits/1")
    run.goes_on()


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_after_each_file_that_is_written_to_a_store(
    run: Run,
    s3: S3,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A login may end between two of them."""
    monkeypatch.setattr(stores, "_configured", {})
    stores.configure("s3", s3.options)
    bucket = s3.bucket("deaths")
    run.table, run.place = run.table.lake.table(f"{run.table.name}_stored"), f"{bucket}/checkpoint"
    run.goes_on()
    for written in (1, 2, 3, 4):
        run.put()
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "put", after(written))
            with suppress(SetupError):
                run.start()
        run.put()
        run.goes_on()


def after(written: int) -> Callable[[str, bytes], None]:
    """Puts so many objects, and then no more."""
    left = list(range(written))

    def put(uri: str, data: bytes) -> None:
        if not left:
            raise SetupError("the login has ended")
        left.pop()
        stores.put(uri, data)

    return put
