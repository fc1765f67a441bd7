"""Files, folders, globs and pipes, by format."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from driftline.errors import DataError, SetupError, UsageError
from driftline.observe.endings import FORMATS, format_by_name, is_archive
from driftline.runtime.stores import Uri, is_stored, mapped, version
from driftline.source.archives import format_in
from driftline.source.buckets import listing
from driftline.source.pipes import STDIN, is_pipe
from driftline.source.web import is_url, shown

# The path of the file that a row came from, as SQL: Spark tells it as a URI.
ROW_FILE = "url_decode(replace(regexp_replace(_metadata.file_path, '^file:/+', '/'), '+', '%2B'))"


def expand(sources: Sequence[str], fmt: str | None = None) -> tuple[str, list[str]]:
    """The format of the sources, and their files, absolute, in name order; pipes as they were named.

    ``fmt`` None: by the files' endings; standard input is JSON. Folders are read with their
    sub-folders; names that begin with ``_`` or ``.`` are passed over there, as Spark does, and so
    is what is no file, such as a FIFO. Raises UsageError for a path that is not there, a folder
    without files, files of several formats.
    """
    if fmt is not None and fmt not in set(FORMATS.values()):
        raise UsageError(
            f"format {fmt!r} is not known", hint=f"one of {', '.join(sorted(set(FORMATS.values())))}"
        )
    files = [path for source in sources for path in _files(source, fmt)]
    formats = {fmt or ("json" if path == STDIN else format_of(path)) for path in files}
    if len(formats) > 1:
        raise UsageError(
            f"files of several formats in one batch: {', '.join(sorted(formats))}",
            hint="ingest them one after the other, or name one --format",
        )
    return formats.pop(), files


def format_of(path: str) -> str:
    """The format that the ending tells, or those of the files in an archive.

    >>> format_of("a/b.jsonl.gz")
    'json'
    """
    name = shown(path) if is_url(path) else path
    kind = format_in(path) if is_archive(path) and not is_url(path) else format_by_name(name)
    if kind is None:
        raise UsageError(
            f"{name}: the ending tells no format",
            hint="name it with --format json, csv, parquet, avro or orc",
        )
    return kind


def _files(source: str, fmt: str | None) -> list[str]:
    if is_pipe(source) or is_url(source) or isinstance(source, Uri):
        return [source]
    if is_stored(source):
        return _stored(source, fmt)
    path = Path(source)
    if path.is_dir():
        paths = sorted(Path(entry.path) for entry in below(source) if entry.is_file())
        if fmt is None:
            paths = [p for p in paths if _known(str(p))]
        if not paths:
            raise UsageError(f"{source}: the folder holds no files to ingest")
    elif path.exists():
        if not path.is_file():
            raise UsageError(f"{source}: this is a device or a socket, no file")
        paths = [path]
    else:
        paths = sorted(Path(p) for p in glob.glob(source, recursive=True) if Path(p).is_file())
        if not paths:
            raise UsageError(f"{source}: no such file, folder or glob")
    return [str(p.absolute()) for p in paths]


def below(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder and its sub-folders, without what a name hides. Raises SetupError for a folder that
    cannot be listed.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise SetupError(
            f"{folder}: cannot be listed: {error.strerror}",
            hint="give access to it, or name the folders or a glob that are to be read",
        ) from error
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from below(entry.path)
        else:
            yield entry


def _stored(source: str, fmt: str | None) -> list[str]:
    files, is_folder = listing(source)
    paths: list[str] = sorted(file.path for file in files)
    if is_folder and fmt is None:
        paths = [path for path in paths if _known(path)]
    if not paths:
        nothing = "the folder holds no files to ingest" if is_folder else "no such file, folder or glob"
        raise UsageError(f"{source}: {nothing}")
    return paths


def _known(path: str) -> bool:
    try:
        format_of(path)
    except UsageError:
        return False
    return True


class Stamp(NamedTuple):
    """How a file was; two that differ are two versions of it. ``modified``: nanoseconds since 1970;
    ``mark``: what a store gives to its content.
    """

    size: int
    modified: int
    mark: str = ""


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """How the files are now, as far as they are there."""
    files = list(files)
    stamped = zip(files, mapped(_stamp, files), strict=True)
    return {file: stamp for file, stamp in stamped if stamp is not None}


def _stamp(file: str) -> Stamp | None:
    with suppress(OSError, DataError):
        return Stamp(*version(file))
    return None


def changed(before: Mapping[str, Stamp]) -> str | None:
    """What has become of the first file that is no longer as it was."""
    now = stamps(before)
    for file, stamp in before.items():
        if file not in now:
            return f"{file} was deleted while it was read"
        if now[file] != stamp:
            return f"{file} changed while it was read"
    return None
