"""Spools pipes, URLs and archives to folders that tasks can read."""

from __future__ import annotations

import http.client
import lzma
import os
import random
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from stat import S_ISFIFO
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import uuid4

from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.files.endings import ASK_FORMAT, format_by_name, is_archive, is_hidden
from driftline.files.text import largest, too_large
from driftline.formats.lakes import Orphan
from driftline.runtime import temporary
from driftline.runtime.disk import NEW, Bounds, delete_folder, mode, on_disk
from driftline.runtime.spark_conf import runs_here
from driftline.runtime.stores import RedirectError, Redirects, buffered, is_stored, opened, passes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "DRIFTLINE_SPOOL"
_PREFIX = "driftline-spool-"
_HINT = f"{VARIABLE} names a folder that all workers can reach: data from pipes and from Python is kept there"


def place_of(spark: SparkSession, shared: str | None) -> Path | None:
    """Return the folder for temporary files that tasks read; None for this machine's temporary folder.

    The variable DRIFTLINE_SPOOL may name it. On a cluster it is the ``shared`` path or URI, if that is on a
    disk.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    # The lake's own folder is the one place that all workers see.
    return None if shared is None or runs_here(spark.sparkContext) else on_disk(shared)


@contextmanager
def folder_in(place: Path | None) -> Iterator[Path]:
    """Create a folder that exists while it is used. Raises SetupError if that fails."""
    if place is None:
        with TemporaryDirectory(prefix="spool-", dir=temporary.folder()) as folder:
            yield Path(os.path.realpath(folder))
        return
    # Not a temporary folder of Python's: workers may be of another user, who could not read it.
    path = Path(os.path.realpath(place)) / f"{_PREFIX}{uuid4().hex}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise SetupError(f"{path.parent}: no files can be put there: {error.strerror}", _HINT) from error
    try:
        yield path
    finally:
        delete_folder(path, NEW)


@contextmanager
def told_where(spark: SparkSession, place: Path | None) -> Iterator[None]:
    """Add advice to errors of tasks that cannot see this machine's files."""
    try:
        yield
    except DriftlineError as error:
        if place is None and not runs_here(spark.sparkContext) and "No such file" in error.message:
            raise type(error)(error.message, _HINT) from error
        raise


def leftovers(place: str | None, older_than: float, *, dry_run: bool) -> list[Orphan]:
    """Delete and return the folders of killed processes, if untouched for so many seconds."""
    disk = None if place is None else on_disk(place)
    if disk is None:
        return []
    out = []
    for folder in disk.glob(f"{_PREFIX}*"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        latest = max(path.stat().st_mtime for path in [folder, *files])
        # By the newest file in it: a long download writes to its folder all the time.
        if latest <= time.time() - older_than:
            out += [Orphan(str(path), path.stat().st_size) for path in files]
            if not dry_run:
                delete_folder(folder, Bounds((str(disk),)))
    return out


_BROKEN = (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error, lzma.LZMAError)
_CHUNK = 2**20  # bytes that are held at once


def format_in(path: str) -> str:
    """Return the format of the files in an archive. Raises UsageError for several or unknown formats."""
    with _open_archive(path) as archive:
        formats = {format_by_name(member.filename) for member in _members(archive)}
    kinds = sorted(kind for kind in formats if kind is not None) or [format_by_name(path) or ""]
    if len(kinds) > 1:
        raise UsageError(
            f"{path}: holds files of several formats: {', '.join(kinds)}",
            hint="take one of them: --format NAME",
        )
    if not kinds[0]:
        raise UsageError(
            f"{path}: none of its files has a known extension",
            hint=ASK_FORMAT,
        )
    return kinds[0]


def unpack(path: str, kind: str | None, folder: Path) -> Iterator[tuple[Path, str]]:
    """Unpack the files of a format into a folder, or all if no name shows it; yields each with its name.

    Raises DataError if the archive is broken or larger than the limit, SetupError if there is no space.
    """
    with _open_archive(path) as archive:
        members = _members(archive)
        members = [member for member in members if format_by_name(member.filename) == kind] or members
        limit = largest()
        # By the sizes that the archive states, before anything is written; Python's reader holds members to
        # them.
        if sum(member.file_size for member in members) > limit:
            raise too_large(path, limit)
        for number, member in enumerate(members):
            # A number, not the member's name: that may lead out of the folder.
            file = folder / f"{number:08}"
            _unpack_one(path, archive, member, file)
            yield file, member.filename


def _members(archive: zipfile.ZipFile) -> Sequence[zipfile.ZipInfo]:
    """Return the files in the archive, by name; a name may occur several times."""
    files = [info for info in archive.infolist() if not info.is_dir() and not is_hidden(Path(info.filename))]
    return sorted(files, key=lambda info: info.filename)


def _unpack_one(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> None:
    with archive.open(member) as source, file.open("wb") as target:
        while data := source.read(_CHUNK):
            try:
                target.write(data)
            except OSError as error:
                raise SetupError(
                    f"{path}: cannot be unpacked to {file}: {error.strerror}",
                    hint="unpacking an archive needs disk space there; set TMPDIR to use another folder",
                ) from error


@contextmanager
def _open_archive(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with opened(path) as (file, _), zipfile.ZipFile(file) as archive:
            yield archive
    except _BROKEN as error:
        raise DataError(
            f"{path}: broken zip: {error}", hint="the file is cut off, damaged or locked: copy it again"
        ) from error


_ATTEMPTS = 5
# Seconds before the second try; twice as long before each further one, up to
_PAUSE, _LONGEST = 1.0, 30.0
_TIMEOUT = 60.0  # seconds without an answer
_OPENER = urllib.request.build_opener(Redirects)


def is_url(source: str) -> bool:
    """True for the URL of a file.

    >>> is_url("https://example.com/a.json"), is_url("s3://bucket/a.json")
    (True, False)
    """
    return bool(re.match(r"https?://", source, re.IGNORECASE))


def shown(url: str) -> str:
    """Return the URL for reports, without parts that may be secret.

    >>> shown("https://me:pw@example.com/a.json.gz?token=x#y")
    'https://example.com/a.json.gz'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch(url: str, path: Path) -> None:
    """Download the file of a URL, and retry after transient errors.

    Raises UsageError if there is no such file or no access, SetupError if the server fails, or there is no
    space.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch(url, path)
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            pause = _pause_after(error, attempt)
            if pause is None or attempt == _ATTEMPTS:
                raise _explained(url, path, error) from error
            time.sleep(pause)


class _CutOffError(OSError):
    """The server sent less than it announced."""


class _NoRoomError(OSError):
    """The downloaded file cannot be written."""


def _fetch(url: str, path: Path) -> None:
    with _OPENER.open(_request(url), timeout=_TIMEOUT) as answer, path.open("wb") as file:
        size = 0
        while data := answer.read(_CHUNK):
            try:
                file.write(data)
            except OSError as error:
                raise _NoRoomError(*error.args) from error
            size += len(data)
        announced = answer.headers.get("Content-Length")
        # http.client ends a body that breaks off without an error when it is read in parts.
        if announced is not None and size < int(announced):
            raise _CutOffError(f"{size} bytes came, of {announced}")


def _request(url: str) -> urllib.request.Request:
    """Build the request for a URL; its login becomes a header, which `Redirects` protects."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    headers = {"Accept-Encoding": "identity", "User-Agent": "driftline"}
    plain = urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(plain, headers=headers)  # noqa: S310  `is_url` saw to it
    if at:
        user, _, password = login.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        # Another host that the server redirects to must not see the login.
        request.add_unredirected_header("Authorization", f"Basic {b64encode(pair).decode()}")
    return request


def _pause_after(error: Exception, attempt: int) -> float | None:
    """Return the seconds until the next attempt; None if it would be useless."""
    if isinstance(error, _NoRoomError):
        return None
    # Random, so that many clients that failed together do not come back together.
    pause = min(_LONGEST, _PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311  no secret
    if not isinstance(error, urllib.error.HTTPError):
        return None if isinstance(error, ValueError) else pause
    if not passes(error.code):
        return None
    header = error.headers.get("Retry-After", "")
    return min(_LONGEST, float(header)) if header.isdecimal() else pause


def _explained(url: str, path: Path, error: Exception) -> DriftlineError:
    name = shown(url)
    match error:
        case _NoRoomError():
            hint = "it needs disk space there; set TMPDIR to use another folder"
            return SetupError(f"{name}: cannot be copied to {path}: {error.strerror}", hint)
        case RedirectError():
            return UsageError(f"{name}: {error}", "name the address of the file itself")
        case urllib.error.HTTPError() if error.code in (401, 403):
            return UsageError(
                f"{name}: the server denies access (HTTP {error.code})",
                "check that the link, or its login, is still valid",
            )
        case urllib.error.HTTPError() if error.code in (404, 410):
            return UsageError(f"{name}: there is no such file (HTTP {error.code})")
        case urllib.error.HTTPError():
            return SetupError(f"{name}: the server says HTTP {error.code}", "try again later")
        case urllib.error.URLError():
            return SetupError(f"{name}: cannot be fetched: {error.reason}", "check the network connection")
        case _:
            words = str(error) or type(error).__name__
            return SetupError(f"{name}: cannot be fetched: {words.replace(url, name)}", "try again later")


STDIN = "-"
# Java has descriptors of its own, so these names mean other files there.
_OF_THIS_PROCESS = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d+)")


def is_pipe(source: str) -> bool:
    """True if only this process can read the source, and only once: standard input, a FIFO, a descriptor.

    Raises SetupError for a source without access.
    """
    return source == STDIN or bool(_OF_THIS_PROCESS.fullmatch(source)) or S_ISFIFO(mode(Path(source)))


@contextmanager
def spooled(
    files: Sequence[str], kind: str | None = None, room: Path | None = None
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Copy pipes, URLs and archives to temporary files, which are deleted at the end.

    Errors name the original in place of the copy.

    Args:
        files: the files.
        kind: the format of the files to take from archives.
        room: a folder for copies, as `place_of` returns it.

    Returns:
        The files, with copies in place of their originals, and the names of the copies by path.

    Raises:
        UsageError: a pipe cannot be read.
        DataError: an archive is broken.
        SetupError: there is no space.
    """
    # A batch may be read several times, and these can be read once.
    if not any(_is_spooled(file, kind) for file in files):
        yield list(files), {}
        return
    with folder_in(room) as folder:
        names: dict[str, str] = {}
        out = []
        for i, file in enumerate(files):
            place = folder / f"{i:08}"  # none begins as another one does
            copies = _spooled(file, kind, place)
            names.update(copies)
            out += list(copies) or [file]
        try:
            yield out, names
        except DriftlineError as error:
            _rename(error, names)
            raise


def _is_spooled(file: str, kind: str | None) -> bool:
    # Spark, which reads ORC, does not know the stores as we do.
    return is_pipe(file) or is_url(file) or is_archive(file) or (kind == "orc" and is_stored(file))


def _spooled(file: str, kind: str | None, place: Path) -> dict[str, str]:
    """Copy a file that cannot be read in place to ``place``; returns each copy with its name.

    Returns nothing for other files. Each file of the ``kind`` in an archive is a copy.
    """
    if not _is_spooled(file, kind):
        return {}
    name, source = file, file
    if is_url(file):
        name, source = shown(file), f"{place}.zip" if is_archive(shown(file)) else str(place)
        fetch(file, Path(source))
    elif not is_archive(file):
        _copy(file, place)
    if not is_archive(name):
        return {str(place): name}
    place.mkdir()
    return {str(path): f"{name}/{inner}" for path, inner in unpack(source, kind, place)}


def _copy(pipe: str, path: Path) -> None:
    """Write the contents of a pipe, or of a file in a store, to a file."""
    try:
        source = _open_pipe(pipe)
    except OSError as error:
        raise UsageError(f"{pipe}: cannot be read: {error.strerror}") from error
    try:
        with source, path.open("wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
    except OSError as error:
        raise SetupError(
            f"{pipe}: cannot be copied to {path}: {error.strerror}",
            hint="data from a pipe needs disk space there; set TMPDIR to use another folder",
        ) from error


def _open_pipe(pipe: str) -> Any:
    own = _OF_THIS_PROCESS.fullmatch(pipe)
    if is_stored(pipe):
        return buffered(pipe)
    if pipe == STDIN or own:
        # Not by its name: a socket, and a file that is deleted already, have none that opens.
        return os.fdopen(os.dup(int(own[1] or 0) if own else 0), "rb")
    return open(pipe, "rb")


def _rename(error: DriftlineError, names: Mapping[str, str]) -> None:
    for path, pipe in names.items():
        error.rewrite(partial(_replaced, path, pipe))


def _replaced(path: str, pipe: str, text: str) -> str:
    return text.replace(path, pipe)
