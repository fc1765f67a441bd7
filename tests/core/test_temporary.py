"""The folder of a process's temporary files: private, and gone with its process, however that ended."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driftline.errors import SetupError
from driftline.runtime import temporary

MAKES = """
import sys
from driftline.runtime.temporary import folder
(folder() / "rows").write_text("secret")
print(folder(), flush=True)
sys.stdin.read()
"""
Start = Callable[[], tuple[subprocess.Popen[str], Path]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Start a process that makes its folder, and waits for the end of its input."""
    processes = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", MAKES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(place)},
        )
        processes.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_folder_is_private_and_the_same_for_its_process(place: Path) -> None:
    folder = temporary.folder()
    assert folder.parent == place
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert temporary.folder() == folder


def test_folder_that_a_cleaner_removed_is_made_again() -> None:
    temporary.folder().rmdir()
    assert temporary.folder().is_dir()


def test_folder_goes_with_its_process(start: Start) -> None:
    process, folder = start()
    assert (folder / "rows").is_file()
    process.communicate("")
    assert not folder.exists()


def test_folder_of_a_killed_process_goes_with_the_next_start_and_that_of_a_living_one_stays(
    start: Start,
) -> None:
    killed, leftover = start()
    _, living = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert leftover.is_dir()

    temporary.folder()

    assert not leftover.exists()
    assert (living / "rows").is_file()


def test_what_is_not_of_a_process_here_stays(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").touch()
    link = place / f"{temporary._prefix()}link"
    link.symlink_to(elsewhere)
    of_other_host = place / "driftline-run.other-host.abc"
    of_other_host.mkdir()
    (place / "spark-of-others").mkdir()

    temporary.folder()

    assert (elsewhere / "file").exists()
    assert link.is_symlink()
    assert of_other_host.is_dir()
    assert (place / "spark-of-others").is_dir()


def test_folder_of_another_user_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place / f"{temporary._prefix()}other"
    other.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    temporary.folder()
    assert other.is_dir()


def test_place_that_takes_no_file_is_one_sentence(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "gone"))
    with pytest.raises(SetupError, match=r"temporary files cannot be created: .*gone"):
        temporary.folder()
