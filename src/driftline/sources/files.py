"""Finds files by path, folder or glob, tells their formats, and fingerprints them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from driftline.errors import DataError, UsageError
from driftline.files.endings import (
    ASK_FORMAT,
    FORMATS,
    format_by_name,
    format_by_text,
    is_archive,
    may_be_text,
)
from driftline.files.text import opened
from driftline.runtime.disk import mode
from driftline.runtime.stores import Uri, is_stored, mapped, version
from driftline.sources.listing import below, glob_base, listing, matching, outside
from driftline.sources.spooled import STDIN, format_in, is_pipe, is_url, shown

_TOPIC = "kafka://"  # begins the URL of a topic
_HEAD = 2**16  # bytes that show the format of a text
# SQL of the path of the file that a row came from, which Spark has as a URI.
ROW_FILE = "url_decode(replace(regexp_replace(_metadata.file_path, '^file:/+', '/'), '+', '%2B'))"


def expand(
    sources: Sequence[str], fmt: str | None = None, lake: str | Path | None = None
) -> tuple[str, list[str]]:
    """Find the files of the sources, and their format.

    Folders are read with their sub-folders, linked ones too. Hidden names there, which begin with ``_`` or
    ``.``, are skipped, as Spark does, and so are FIFOs and the like. A file that is named twice is one file.

    Args:
        sources: paths, folders and globs; pipes keep their names.
        fmt: the format; None to judge by the files' endings, or JSON for standard input.
        lake: a folder to skip.

    Returns:
        The format, and the absolute paths in name order.

    Raises:
        UsageError: a path is missing, a folder has no files, or files have several formats.
    """
    if fmt is not None and fmt not in set(FORMATS.values()):
        raise UsageError(
            f"format {fmt!r} is not known", hint=f"one of {', '.join(sorted(set(FORMATS.values())))}"
        )
    by_identity: dict[str, str] = {}
    for path in (path for source in sources for path in _files(source, fmt, lake)):
        # By the real path: a link and its file, or two spellings of one name, are one file.
        by_identity.setdefault(_identity(path), path)
    files = list(by_identity.values())
    formats = {fmt or ("json" if path == STDIN else format_of(path)) for path in files}
    if len(formats) > 1:
        raise UsageError(
            f"one batch cannot mix formats: {', '.join(sorted(formats))}",
            hint="ingest each format by itself, or take one of them: --format NAME",
        )
    return formats.pop(), files


def topics_in(paths: Sequence[str]) -> str | None:
    """The URL of the topics among paths; None if there is none. Raises UsageError if it is not alone.

    >>> topics_in(["kafka://broker:9092/orders,refunds"]), topics_in(["orders.jsonl"])
    ('kafka://broker:9092/orders,refunds', None)
    """
    urls = [path for path in paths if path.startswith(_TOPIC)]
    if urls and len(paths) > 1:
        raise UsageError(
            f"{urls[0]}: topics are checked by themselves, against all that a table has taken of them",
            "name one URL alone; it may have several topics: kafka://HOST:PORT/TOPIC,TOPIC",
        )
    return urls[0] if urls else None


def format_of(path: str) -> str:
    """Return the format by the path's ending; for archives by their files, for `.txt` and `.log` by the text.

    >>> format_of("a/b.jsonl.gz")
    'json'
    """
    name = shown(path) if is_url(path) else path
    kind = _shown_format(path)
    if kind is None and may_be_text(name) and not (is_url(path) or is_pipe(path)):
        with opened(path) as (file, _):
            kind = format_by_text(file.read(_HEAD).decode(errors="replace"))
        if kind is None:
            raise UsageError(
                f"{name}: begins neither with JSON nor with rows of as many commas, semicolons, tabs or bars",
                "pass --format json or csv; lines of other text are not read",
            )
    if kind is None:
        raise UsageError(f"{name}: unknown file extension", ASK_FORMAT)
    return kind


def _shown_format(path: str) -> str | None:
    """Return the format by the name, or by the files in an archive."""
    if is_archive(path) and not is_url(path):
        return format_in(path)
    return format_by_name(shown(path) if is_url(path) else path)


def _files(source: str, fmt: str | None, lake: str | Path | None) -> list[str]:
    if is_pipe(source) or is_url(source) or isinstance(source, Uri):
        return [source]
    if is_stored(source):
        return _stored(source, fmt)
    if source.startswith(_TOPIC):
        raise UsageError(
            f"{source}: a topic has no files", "capture it; or give a copy of its messages in files"
        )
    path = Path(source)
    file_mode = mode(path)
    if S_ISDIR(file_mode):
        paths = sorted(Path(entry.path) for entry in below(source, lake))
        if fmt is None:
            paths = [p for p in paths if _known(str(p))]
        if not paths:
            raise UsageError(f"{source}: no files to ingest in this folder")
    elif file_mode:
        if not S_ISREG(file_mode):
            raise UsageError(f"{source}: this is a device or a socket, not a file")
        paths = [path]
    else:
        paths = sorted(outside(matching(source), glob_base(source), lake))
        if not paths:
            raise UsageError(f"{source}: no such file, folder or glob")
    return [str(p.absolute()) for p in paths]


def _stored(source: str, fmt: str | None) -> list[str]:
    files, is_folder = listing(source)
    paths: list[str] = sorted(file.path for file in files)
    if is_folder and fmt is None:
        paths = [path for path in paths if _known(path)]
    if not paths:
        nothing = "no files to ingest in this folder" if is_folder else "no such file, folder or glob"
        raise UsageError(f"{source}: {nothing}")
    return paths


def _known(path: str) -> bool:
    try:
        return _shown_format(path) is not None
    except UsageError:  # of an archive
        return False


class Stamp(NamedTuple):
    """The version of a file: two that differ are two versions.

    Attributes:
        modified: nanoseconds since 1970.
        mark: the store's mark of the content, such as an ETag.
    """

    size: int
    modified: int
    mark: str = ""


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """Return the present versions of the files that exist."""
    files = list(files)
    stamped = zip(files, mapped(_stamp, files), strict=True)
    return {file: stamp for file, stamp in stamped if stamp is not None}


def _stamp(file: str) -> Stamp | None:
    # A file that is gone by now has no version; who needs it reports so.
    with suppress(OSError, DataError):
        return Stamp(*version(file))
    return None


def fingerprint(path: str, stamp: Stamp) -> int:
    """Hash a version of a file to 64 bits.

    It covers the file's location, its size, and the store's mark of its content, or else the time of its
    last change.
    """
    return hashed(f"{_identity(path)}\0{stamp.size}\0{_version(stamp)}")


def path_fingerprint(path: str) -> int:
    """Hash a file's location to 64 bits, whatever its version."""
    return hashed(f"path\0{_identity(path)}")


def version_fingerprint(stamp: Stamp) -> int:
    """Hash a version to 64 bits, whatever the file's location."""
    return hashed(f"version\0{stamp.size}\0{_version(stamp)}")


def hashed(text: str) -> int:
    """Hash a text to a signed number of 64 bits."""
    # Two of the 40,000 entries that a ledger may have collide with a chance of 1 in 10^10.
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _version(stamp: Stamp) -> str:
    return stamp.mark.partition(" ")[0] or f"{stamp.modified} {stamp.mark}"


def _identity(path: str) -> str:
    """Return a file's canonical name."""
    elsewhere = is_pipe(path) or is_url(path) or is_stored(path)
    # Through links: a file that has two paths is one.
    return path if elsewhere else os.path.realpath(path)


def changed(before: Mapping[str, Stamp]) -> str | None:
    """Return a sentence about the first file changed or deleted since ``before``; None if there is none."""
    now = stamps(before)
    for file, stamp in before.items():
        if file not in now:
            return f"{file} was deleted while it was read"
        if now[file] != stamp:
            return f"{file} changed while it was read"
    return None
