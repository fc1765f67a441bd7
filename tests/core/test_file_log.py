"""The log of files that a capture keeps: which it takes, in which order, each once."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from driftline.capture.finding import Finder
from driftline.capture.folder import FileLog
from driftline.capture.listing import listed
from driftline.errors import SetupError, UsageError
from driftline.source.files import expand


def log_of(folder: Path, fmt: str | None = None) -> FileLog:
    """The log of the folder `in`, as a capture opens it when it starts."""
    (folder / "in").mkdir(exist_ok=True)
    log = FileLog(Finder(str(folder / "in"), folder / "log"), folder / "log", fmt)
    log.open()
    return log


def names(log: FileLog) -> list[list[str]]:
    return [[Path(entry.path).name for entry in entries] for entries in log.lists.values()]


def test_what_comes_later_is_judged_as_what_came_first(tmp_path):
    log = log_of(tmp_path)
    (tmp_path / "in/a.json").write_text("{}")
    log.add(-1)
    (tmp_path / "in/notes.txt").write_text("no data")
    (tmp_path / "in/b.json").write_text("{}")
    log.add(0)

    assert names(log) == [["a.json"], ["b.json"]]
    (tmp_path / "in/c.csv").write_text("a,b\n")
    for again in (log, log_of(tmp_path)):  # while it runs, and started again
        with pytest.raises(UsageError, match=r"c\.csv: the capture takes json from this folder"):
            again.add(1)


def test_a_format_that_is_named_takes_all_names(tmp_path):
    log = log_of(tmp_path, "json")
    (tmp_path / "in/a.txt").write_text("{}")
    log.add(-1)

    assert names(log) == [["a.txt"]]


def test_archives_that_are_gone_say_nothing_of_those_that_come(tmp_path):
    log = log_of(tmp_path)
    with zipfile.ZipFile(tmp_path / "in/a.zip", "w") as archive:
        archive.writestr("a.json", "{}")
    log.add(-1)
    (tmp_path / "in/a.zip").rename(tmp_path / "in/b.zip")
    for again in (log, log_of(tmp_path)):
        again.add(0)

    assert names(again) == [["a.zip"], ["b.zip"]]


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be missing, and nobody told."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.json").write_text("{}")
    scandir = os.scandir

    def refusing(folder: str) -> Any:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SetupError, match=r"closed: cannot be listed: Permission denied"):
        expand([str(tmp_path)])
    with pytest.raises(SetupError, match=r"closed: cannot be listed"):
        list(listed(str(tmp_path), None))
