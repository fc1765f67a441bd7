"""Spark's files of a checkpoint after a power cut: what was not synced as a whole is planned anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from driftline.capture import checkpoint
from driftline.capture.checkpoint import Checkpoint, SparkFiles

WHOLE = {
    "metadata": '{"id":"x"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":1}',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "sources/0/0": 'v1\n{"path":"a"}',
    "sources/0/1": 'v1\n{"path":"b"}',
}
BATCH_1 = {"offsets/1"}
# What is cut, or gone, and what goes with it; None: all.
CASES: list[tuple[dict[str, str | None], set[str] | None]] = [
    ({}, set()),
    ({"offsets/1": ""}, BATCH_1),
    ({"offsets/1": 'v1\n{"batchWat'}, BATCH_1),
    ({"offsets/1": "\0\0\0"}, BATCH_1),
    ({"sources/0/1": ""}, {*BATCH_1, "sources/0/1"}),
    ({"sources/0/1": None}, BATCH_1),
    ({"commits/0": ""}, {*BATCH_1, "commits/0"}),
    ({"commits/0": None}, BATCH_1),
    ({"offsets/1": None, "sources/0/1": ""}, {"sources/0/1"}),
    ({"offsets/1": None, "sources/0/1": None, "commits/0": ""}, {"commits/0"}),
    ({"metadata": "", "commits/0": None}, None),
    ({"metadata": None, "commits/0": None, "offsets/1": None}, None),
]


@pytest.mark.parametrize(("cut", "dropped"), CASES)
def test_the_last_micro_batch_goes_unless_it_is_whole(
    tmp_path: Path, cut: dict[str, str | None], dropped: set[str] | None
) -> None:
    left = {name: text for name, text in {**WHOLE, **cut}.items() if text is not None}
    for name, text in left.items():
        for path in (tmp_path / name, (tmp_path / name).with_name(f".{Path(name).name}.crc")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    SparkFiles(tmp_path).drop_cut()

    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    kept = set() if dropped is None else left.keys() - dropped
    assert {name for name in there if not name.endswith(".crc")} == kept
    assert {
        name.replace("/.", "/").lstrip(".").removesuffix(".crc") for name in there if ".crc" in name
    } == kept


def test_a_checksum_without_its_file_goes(tmp_path: Path) -> None:
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / ".2.crc").write_text("crc")

    SparkFiles(tmp_path).drop_cut()

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_offsets_of_other_sources_are_whole_without_a_log(tmp_path: Path) -> None:
    for name, text in {
        **WHOLE,
        "offsets/1": 'v1\n{}\n{"topic":{"0":7}}',
        "sources/0/0": '\0v1\n{"t":{"0":0}}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    SparkFiles(tmp_path).drop_cut()

    assert (tmp_path / "offsets/1").exists() and (tmp_path / "sources/0/0").exists()


@pytest.mark.parametrize("when", ["while they are listed", "before they are synced"])
def test_files_that_spark_removes_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Spark lets go of the oldest batches in a thread of its own."""
    files = SparkFiles(tmp_path / "spark")
    for number in range(3):
        (files.folder / "commits").mkdir(parents=True, exist_ok=True)
        (files.folder / "commits" / str(number)).write_text("v1\n{}")
    oldest, synced = files.folder / "commits" / "0", set[str]()
    every, sync = SparkFiles._all, checkpoint.sync

    def purged(self: SparkFiles) -> Iterator[Path]:
        for file in list(every(self)):
            if when == "while they are listed":
                oldest.unlink(missing_ok=True)
            yield file

    def noted(paths: Iterable[Path], within: Path | None = None) -> None:
        paths = list(paths)
        oldest.unlink(missing_ok=True)
        sync(paths, within)
        synced.update(path.name for path in paths)

    monkeypatch.setattr(SparkFiles, "_all", purged)
    monkeypatch.setattr(checkpoint, "sync", noted)
    files.sync()
    assert synced == {"1", "2"}
    (files.folder / "commits" / "3").write_text("v1\n{}")
    files.sync()
    assert synced == {"1", "2", "3"}


def test_a_log_that_is_not_compacted_or_is_young_stays_as_it_is(tmp_path: Path) -> None:
    lines = [f'{{"path":"{second}.json","timestamp":{second}000}}' for second in (1, 2, 3)]
    log = tmp_path / "spark/sources/0/2.compact"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(["v1", *lines]))
    log.with_name(".2.compact.crc").write_text("crc")
    checkpoint = Checkpoint(str(tmp_path), "c")

    checkpoint.shorten_log(3, 1)
    checkpoint.shorten_log(2, 2)
    assert log.read_text() == "\n".join(["v1", *lines]) and log.with_name(".2.compact.crc").exists()

    checkpoint.shorten_log(2, 1)
    assert log.read_text() == "\n".join(["v1", *lines[1:]]) and not log.with_name(".2.compact.crc").exists()
