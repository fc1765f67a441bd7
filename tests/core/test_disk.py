"""Files that are synced before anything is acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.capture.checkpoint import Checkpoint
from driftline.errors import SetupError
from driftline.runtime import disk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and folders that are synced, in order."""
    names: list[str] = []
    flush = disk.flush

    def noted(file: int) -> None:
        names.append(Path(f"/proc/self/fd/{file}").readlink().name)
        flush(file)

    monkeypatch.setattr(disk, "flush", noted)
    return names


def test_files_are_synced_once_with_the_folders_that_name_them(tmp_path: Path, synced: list[str]) -> None:
    folder = tmp_path / "s" / "t"
    folder.mkdir(parents=True)
    files = [folder / name for name in ("a", "b")]
    for file in files:
        file.write_text("x")

    disk.sync(files, within=tmp_path)

    assert sorted(synced) == sorted(["a", "b", "s", "t", tmp_path.name])


def test_a_replaced_file_is_synced_before_it_has_its_name(tmp_path: Path, synced: list[str]) -> None:
    disk.replace_file(tmp_path / "a", b"old")
    disk.replace_file(tmp_path / "a", b"new")

    assert synced == ["a.new", tmp_path.name] * 2
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_new_folder_is_synced_with_those_above_it(tmp_path: Path, synced: list[str]) -> None:
    disk.replace_file(tmp_path / "s" / "a", b"x")

    assert synced[0] == "a.new"
    assert {"s", tmp_path.name} <= set(synced)


def test_nothing_is_synced_without_durability(tmp_path: Path, synced: list[str]) -> None:
    disk.replace_file(tmp_path / "s" / "a", b"x", durable=False)

    assert synced == []
    assert (tmp_path / "s" / "a").read_bytes() == b"x"


def test_a_file_that_is_gone_is_not_acknowledged(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be synced to the disk"):
        disk.sync([tmp_path / "gone"])


def test_names_of_new_folders_above_a_checkpoint_are_synced(tmp_path: Path, synced: list[str]) -> None:
    checkpoint = Checkpoint(str(tmp_path / "captures" / "t" / "c"), "c")
    with checkpoint.locked():
        checkpoint.claim("s.t", "files of in")

    assert {"c", "t", "captures", tmp_path.name} <= set(synced)
