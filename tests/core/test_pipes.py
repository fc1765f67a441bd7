"""Pipes among the sources: told from files, and kept in a file as long as they are used."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from driftline.capture.finding import listed
from driftline.errors import DataError, SetupError, UsageError
from driftline.files.text import opened
from driftline.sources import spooled as pipes
from driftline.sources.files import expand
from driftline.sources.inputs import given_paths, paths_or_rows
from driftline.sources.spooled import is_pipe, spooled

Fifo = Callable[..., str]


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    writers = []

    def write(path: Path, data: bytes) -> None:
        with suppress(BrokenPipeError):  # whoever reads may give up before the end
            path.write_bytes(data)

    def made(data: bytes, name: str = "pipe") -> str:
        path = tmp_path / name
        os.mkfifo(path)
        writers.append(threading.Thread(target=write, args=[path, data]))
        writers[-1].start()
        return str(path)

    yield made
    for writer in writers:
        writer.join()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_pipe_is_a_file_while_it_is_used(fifo: Fifo, temporary: Path) -> None:
    (temporary.parent / "a.json").write_text("{}")
    plain, pipe = str(temporary.parent / "a.json"), fifo(b"x" * 3_000_000)
    with spooled([plain, pipe]) as (files, names):
        assert files[0] == plain and names == {files[1]: pipe}
        assert Path(files[1]).read_bytes() == b"x" * 3_000_000
    assert list(temporary.glob("*/*")) == []


def test_what_a_shell_substitutes_is_read_from_this_process(temporary: Path) -> None:
    end, start = os.pipe()
    os.write(start, b"text")
    os.close(start)
    with spooled([pipe := f"/dev/fd/{end}"]) as (files, names):
        assert names == {files[0]: pipe}
        assert Path(files[0]).read_bytes() == b"text"
    os.close(end)


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0"])
def test_standard_input(name: str, tmp_path: Path) -> None:
    """A file too, even one without a name any more, as some shells make for <<: Java has a standard input of its own."""
    (tmp_path / "in").write_bytes(b"text")
    stdin = os.dup(0)
    with (tmp_path / "in").open("rb") as file:
        os.dup2(file.fileno(), 0)
    (tmp_path / "in").unlink()
    try:
        assert is_pipe(name)
        with spooled([name]) as (files, _):
            assert Path(files[0]).read_bytes() == b"text"
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


def test_packed_text_is_known_as_such(fifo: Fifo) -> None:
    with spooled([fifo(gzip.compress(b"text"))]) as (files, _), opened(files[0]) as (file, _):
        assert file.read() == b"text"


def test_an_error_names_the_pipe(fifo: Fifo, temporary: Path) -> None:
    pipe = fifo(b"x")
    with pytest.raises(DataError) as told, spooled([pipe]) as (files, _):
        raise DataError(f"{files[0]}: broken", hint="mend it")
    assert (str(told.value), told.value.message) == (f"{pipe}: broken\nmend it", f"{pipe}: broken")
    assert list(temporary.glob("*/*")) == []


def test_no_room_for_what_comes(fifo: Fifo, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipes.shutil, "copyfileobj", full)
    pipe = fifo(b"x")
    with pytest.raises(SetupError, match=f"{pipe}: cannot be copied to .*: No space left"), spooled([pipe]):
        pass
    assert list(temporary.glob("*/*")) == []


def test_a_descriptor_that_is_closed() -> None:
    with (
        pytest.raises(UsageError, match="/dev/fd/999: cannot be read: Bad file descriptor"),
        spooled(["/dev/fd/999"]),
    ):
        pass


def test_formats_of_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in.csv")
    assert expand(["-"]) == ("json", ["-"])
    assert expand(["-"], "parquet") == ("parquet", ["-"])
    assert expand([str(tmp_path / "in.csv")]) == ("csv", [str(tmp_path / "in.csv")])
    with pytest.raises(UsageError, match="/dev/fd/63: unknown file extension"):
        expand(["/dev/fd/63"])


def test_a_folder_or_glob_passes_over_what_is_no_file(tmp_path: Path) -> None:
    """Nobody may be writing into a FIFO that lies about: to open it would wait for ever."""
    (tmp_path / "a.json").write_text("{}")
    os.mkfifo(tmp_path / "b.json")
    for source in (str(tmp_path), str(tmp_path / "*.json")):
        assert expand([source]) == ("json", [str(tmp_path / "a.json")])


def test_a_device_or_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.json")
        for source in ("s.json", "/dev/zero"):
            with pytest.raises(UsageError, match=f"{source}: this is a device or a socket"):
                expand([source], "json")


@pytest.mark.parametrize("source", [".", "..", "**/*.json", "../**/*.json"])
def test_the_lake_in_a_folder_is_none_of_its_files(source, tmp_path, monkeypatch):
    base = tmp_path / "base"
    for file in ("a.json", "lakes/b.json", "lake/a/b/metadata/1.json", "lake/a/b/data/1.json"):
        (base / file).parent.mkdir(parents=True, exist_ok=True)
        (base / file).write_text("{}")
    monkeypatch.chdir(base / "lakes" if source.startswith("..") else base)
    lake = base / "lake"
    outside = [str(base / "a.json"), str(base / "lakes" / "b.json")]
    assert [str(Path(path).resolve()) for path in expand([source], None, lake)[1]] == outside
    assert sorted(str(Path(entry.path).resolve()) for entry in listed(source, None, str(lake))) == outside
    inside = str(lake / "a")
    assert len(expand([inside], None, lake)[1]) == len(list(listed(inside, None, str(lake)))) == 2


def test_a_tilde_in_python_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert given_paths("~/h.jsonl") == ["/home/me/h.jsonl"]
    assert paths_or_rows([Path("~/h.jsonl"), "s3://b/~/x"]) == (["/home/me/h.jsonl", "s3://b/~/x"], None)
