"""Zip archives as sources: the files in one are unpacked while they are used."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from driftline.errors import DataError, SetupError, UsageError
from driftline.files.endings import ASK_FORMAT, format_by_name, is_hidden
from driftline.files.text import largest, too_large
from driftline.runtime.stores import opened

_BROKEN = (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error, lzma.LZMAError)
_CHUNK = 2**20  # bytes that are held at once


def format_in(path: str) -> str:
    """The format of the files in an archive. Raises UsageError if they have several, or none is known."""
    with _opened(path) as archive:
        formats = {format_by_name(member.filename) for member in _members(archive)}
    kinds = sorted(kind for kind in formats if kind is not None) or [format_by_name(path) or ""]
    if len(kinds) > 1:
        raise UsageError(
            f"{path}: holds files of several formats: {', '.join(kinds)}",
            hint="pass --format to take one of them",
        )
    if not kinds[0]:
        raise UsageError(
            f"{path}: none of its files has a known extension",
            hint=ASK_FORMAT,
        )
    return kinds[0]


def unpack(path: str, kind: str | None, folder: Path) -> Iterator[tuple[Path, str]]:
    """Unpack the files of a format, or all if no name shows it, into a folder; yields each with its name.

    Raises DataError if the archive is broken or larger than the limit, SetupError if there is no room.
    """
    with _opened(path) as archive:
        members = _members(archive)
        members = [member for member in members if format_by_name(member.filename) == kind] or members
        limit = largest()
        if sum(member.file_size for member in members) > limit:
            raise too_large(path, limit)
        for number, member in enumerate(members):
            file = folder / f"{number:08}"
            _unpack_one(path, archive, member, file)
            yield file, member.filename


def _members(archive: zipfile.ZipFile) -> Sequence[zipfile.ZipInfo]:
    """The files in the archive, by name; of one name there may be several."""
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
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with opened(path) as (file, _), zipfile.ZipFile(file) as archive:
            yield archive
    except _BROKEN as error:
        raise DataError(
            f"{path}: broken zip: {error}", hint="the file is cut off, damaged or locked: copy it again"
        ) from error
