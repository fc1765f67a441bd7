"""The log of files that a capture keeps: which it takes, in which order, each once."""

from __future__ import annotations

import glob
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from driftline.capture import folder
from driftline.capture.finding import Finder, listed
from driftline.capture.folder import FileLog
from driftline.errors import SetupError, UsageError
from driftline.sources.files import expand
from driftline.sources.listing import matching


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
    log.add()
    (tmp_path / "in/notes.txt").write_text("no data")
    (tmp_path / "in/b.json").write_text("{}")
    log.finish(0)
    log.add()

    assert names(log) == [["a.json"], ["b.json"]]
    (tmp_path / "in/c.csv").write_text("a,b\n")
    for again in (log, log_of(tmp_path)):  # while it runs, and started again
        with pytest.raises(UsageError, match=r"c\.csv: the capture takes json from this folder"):
            again.add()


def test_a_format_that_is_named_takes_all_names(tmp_path):
    log = log_of(tmp_path, "json")
    (tmp_path / "in/a.txt").write_text("{}")
    log.add()

    assert names(log) == [["a.txt"]]


def test_links_that_lead_nowhere_are_passed_over(tmp_path):
    log = log_of(tmp_path)
    (tmp_path / "in/a.json").symlink_to("b.json")
    (tmp_path / "in/b.json").symlink_to("a.json")
    (tmp_path / "in/c.json").symlink_to("nothing.json")
    (tmp_path / "file").write_text("{}")
    (tmp_path / "in/d.json").symlink_to(tmp_path / "file")
    log.add()

    assert names(log) == [["d.json"]]


def test_linked_folders_are_listed_once_by_their_own_path_if_they_are_inside(tmp_path):
    for name in ("in/a/1.json", "in/z/2.json", "else/3.json", "else/deep/4.json", "lake/t/5.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "in/a/round").symlink_to(tmp_path / "in")
    (tmp_path / "in/b").symlink_to("z")
    (tmp_path / "in/linked").symlink_to(tmp_path / "else")
    (tmp_path / "in/twice").symlink_to(tmp_path / "else")
    (tmp_path / "else/back").symlink_to(tmp_path / "in")
    (tmp_path / "in/of the lake").symlink_to(tmp_path / "lake")

    paths = ["in/a/1.json", "in/linked/3.json", "in/linked/deep/4.json", "in/z/2.json"]
    _, files = expand([str(tmp_path / "in")], lake=tmp_path / "lake")
    assert files == [str(tmp_path / path) for path in paths]
    found = listed(str(tmp_path / "in"), None, str(tmp_path / "lake"))
    assert sorted(file.path for file in found) == files
    assert len(set(matching(f"{tmp_path}/in/**/*.json"))) < 20


@pytest.mark.parametrize("dies", [1, 2, 3, None])
def test_a_backlog_is_divided_anew_at_the_next_start(tmp_path, monkeypatch, dies):
    """Lists that Spark knows of stay as they are; whatever it dies of, each file is in one list."""
    first = log_of(tmp_path)
    first.max_files = 2
    files = [f"{number}.json" for number in range(9)]
    for number, file in enumerate(files):
        (tmp_path / "in" / file).write_text("{}")
        os.utime(tmp_path / "in" / file, (number, number))
    first.add()

    left = list(range(dies or 100))

    def dying(act):
        def acts(self, *args):
            if not left:
                raise ChildProcessError
            left.pop()
            return act(self, *args)

        return acts

    log = log_of(tmp_path)
    log.max_files = 5
    with monkeypatch.context() as patch, nullcontext() if dies is None else pytest.raises(ChildProcessError):
        patch.setattr(FileLog, "_write", dying(FileLog._write))
        patch.setattr(FileLog, "_unlink", dying(FileLog._unlink))
        log.merge(0)
    again = log_of(tmp_path)
    again.add()
    assert [file for entries in names(again) for file in entries] == files
    again.max_files = 5
    again.merge(0)
    assert names(again) == [files[:2], files[2:7], files[7:]]
    assert again.next == 3
    (tmp_path / "in/new.json").write_text("{}")
    again.add()
    assert names(log_of(tmp_path))[3:] == [["new.json"]]


def test_a_file_that_was_renamed_is_known_by_its_size_and_time(tmp_path):
    log = log_of(tmp_path)
    for name, text in ("a.json", "{}"), ("b.json", "[]"), ("empty.json", ""):
        (tmp_path / "in" / name).write_text(text)
        os.utime(tmp_path / "in" / name, (1, 1))
    log.add()
    log.finish(0)
    assert log.renamed(0) == []
    (tmp_path / "in/a.json").rename(tmp_path / "in/renamed.json")
    (tmp_path / "in/empty.json").unlink()
    for name, text in ("new.json", "{}"), ("empty-too.json", ""):
        (tmp_path / "in" / name).write_text(text)
    os.utime(tmp_path / "in/empty-too.json", (1, 1))
    shutil.copy2(tmp_path / "in/b.json", tmp_path / "in/copy.json")
    log.add()
    (entries,) = names(log)[1:]
    assert sorted(entries) == ["copy.json", "empty-too.json", "new.json", "renamed.json"]
    assert log.renamed(1) == [(str(tmp_path / "in/a.json"), str(tmp_path / "in/renamed.json"))]


def test_archives_that_are_gone_say_nothing_of_those_that_come(tmp_path):
    log = log_of(tmp_path)
    with zipfile.ZipFile(tmp_path / "in/a.zip", "w") as archive:
        archive.writestr("a.json", "{}")
    log.add()
    (tmp_path / "in/a.zip").rename(tmp_path / "in/b.zip")
    for again in (log, log_of(tmp_path)):
        again.finish(0)
        again.add()

    assert names(again) == [["a.zip"], ["b.zip"]]


def denied(monkeypatch: pytest.MonkeyPatch, function: str, is_closed: Callable[[Path], bool]) -> None:
    """Have a function of `os` refuse the paths that are closed, as it refuses nobody who is root."""
    real = getattr(os, function)

    def refusing(path: Any, **options: Any) -> Any:
        if is_closed(Path(path)):
            raise PermissionError(13, "Permission denied")
        return real(path, **options)

    monkeypatch.setattr(os, function, refusing)


@pytest.mark.parametrize("named", ["", "**", "**/*.json", "*/*.json", "closed/*.json"])
def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Its files would be missing, and nobody told."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.json").write_text("{}")
    denied(monkeypatch, "scandir", lambda folder: folder.name == "closed")
    with pytest.raises(SetupError, match=r"closed: cannot be listed: Permission denied"):
        expand([str(tmp_path / named)])
    with pytest.raises(SetupError, match=r"closed: cannot be listed: Permission denied"):
        list(listed(str(tmp_path / named), None))


@pytest.mark.parametrize("named", ["closed/a.json", "*/a.json", "closed/*.json"])
def test_what_lies_in_a_folder_without_access_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/a.json").write_text("{}")
    denied(monkeypatch, "stat", lambda path: path.parent.name == "closed")  # which Path.stat calls
    with pytest.raises(SetupError, match=r"closed/.*\.json: cannot be read: Permission denied"):
        expand([str(tmp_path / named)])


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "**",
        "**/*",
        "**/*.json",
        "*/*.json",
        "?/b.json",
        "*/../a.json",
        ".*",
        "**/.*",
        ".h/*",
        "[ab]/**/b.*",
        "a/**/c/*",
        "**/c",
        "x/*",
        "a.json/*",
        "**/**/b.json",
        "nothing.json",
    ],
)
def test_a_glob_names_what_pythons_own_does(tmp_path: Path, pattern: str) -> None:
    for path in [
        "a.json",
        ".b.json",
        "_c.json",
        "a/b.json",
        "a/c/d.json",
        "b/c/c/b.json",
        ".h/e.json",
        "b/.i/f",
    ]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    (tmp_path / "l").symlink_to(tmp_path / "b/c")
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "round").symlink_to("round")
    source = str(tmp_path / pattern)
    named = sorted(path for path in glob.glob(source, recursive=True) if Path(path).is_file())
    assert sorted({str(path) for path in matching(source)}) == sorted(set(named))


# Links, and names of folders -----------------------------------------------------------------------------------


def test_link_that_leads_to_the_next_file_brings_that_file_alone(tmp_path):
    """The usual rotation of logs: the link is the file it leads to, in each batch."""
    log = log_of(tmp_path)
    today = tmp_path / "in/current.json"
    for number in range(3):
        file = tmp_path / f"in/day-{number}.json"
        file.write_text(f'{{"id": {number}}}' * (number + 1))
        today.unlink(missing_ok=True)
        today.symlink_to(file.name)
        log.add()
        log.finish(number)
        log.add()
        log = log_of(tmp_path)

    assert names(log) == [["day-0.json"], ["day-1.json"], ["day-2.json"]]


def test_link_to_a_file_of_an_earlier_batch_is_that_file(tmp_path):
    log = log_of(tmp_path)
    (tmp_path / "in/a.json").write_text("{}")
    log.add()
    log.finish(0)
    (tmp_path / "in/b.json").symlink_to("a.json")
    (tmp_path / "in/sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/c.json").symlink_to(tmp_path / "in/a.json")
    for again in (log, log_of(tmp_path)):
        again.add()

    assert names(log) == [["a.json"]]


def test_link_that_moves_before_its_file_was_read_leaves_the_file_as_it_was_listed(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / name).write_text(f'{{"id": "{name}"}}')
    link = tmp_path / "in/current.json"
    link.symlink_to(tmp_path / "a")
    log = log_of(tmp_path)
    log.add()
    link.unlink()
    link.symlink_to(tmp_path / "b")
    log.add()

    assert log.read(0) == [str(tmp_path / "a")]
    assert log.read(1) == [str(link)]


def test_log_of_a_linked_folder_goes_on_under_its_own_name(tmp_path):
    """Earlier versions noted files by the folder as it was spelled."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text("{}")
    (tmp_path / "link").symlink_to("in")
    early = FileLog(Finder(str(tmp_path / "link"), tmp_path / "log"), tmp_path / "log")
    early.open()
    early.add()
    early.finish(0)
    (tmp_path / "log/000000000000.json").write_text(json.dumps([entry[:3] for entry in early.lists[0]]))
    log = log_of(tmp_path)
    log.add()

    assert names(log) == [["a.json"]]


# Damage --------------------------------------------------------------------------------------------------------

DAMAGES = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["000000000001.json", "000000000002.json", "_done", "_taken.json.gz"])
def test_damaged_file_of_the_log_is_one_sentence(tmp_path, monkeypatch, name, damage):
    monkeypatch.setattr(folder, "_KEPT", 1)
    log = log_of(tmp_path)
    for number in range(3):
        (tmp_path / f"in/{number}.json").write_text("{}")
        log.add()
        log.finish(number)
    assert sorted(path.name for path in log.folder.iterdir()) == [
        "000000000001.json", "000000000002.json", "_done", "_taken.json.gz",
    ]  # fmt: skip
    DAMAGES[damage](log.folder / name)
    with pytest.raises(SetupError, match="is cut, empty or gone") as raised:
        log_of(tmp_path)
    assert "--resume-from table" in raised.value.hint
