"""Files, folders, globs and pipes, by format."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from driftline.errors import UsageError
from driftline.observe.endings import FORMATS, format_by_name, is_archive, is_hidden
from driftline.source.archives import format_in
from driftline.source.pipes import STDIN, is_pipe

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
    found = format_in(path) if is_archive(path) else format_by_name(path)
    if found is None:
        raise UsageError(
            f"{path}: the ending tells no format",
            hint="name it with --format json, csv, parquet, avro or orc",
        )
    return found


def _files(source: str, fmt: str | None) -> list[str]:
    if is_pipe(source):
        return [source]
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and not is_hidden(p.relative_to(path)))
        if fmt is None:
            found = [p for p in found if _known(p)]
        if not found:
            raise UsageError(f"{source}: the folder holds no files to ingest")
    elif path.exists():
        if not path.is_file():
            raise UsageError(f"{source}: this is a device or a socket, no file")
        found = [path]
    else:
        found = sorted(Path(p) for p in glob.glob(source, recursive=True) if Path(p).is_file())
        if not found:
            raise UsageError(f"{source}: no such file, folder or glob")
    return [str(p.absolute()) for p in found]


def _known(path: Path) -> bool:
    try:
        format_of(str(path))
    except UsageError:
        return False
    return True


class Stamp(NamedTuple):
    """How a file was; two that differ are two versions of it. ``modified``: nanoseconds since 1970."""

    size: int
    modified: int


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """How the files are now, as far as they are on this machine."""
    found = {}
    for file in files:
        with suppress(OSError):
            stat = Path(file).stat()
            found[file] = Stamp(stat.st_size, stat.st_mtime_ns)
    return found


def changed(before: Mapping[str, Stamp]) -> str | None:
    """What has become of the first file that is no longer as it was."""
    now = stamps(before)
    for file, stamp in before.items():
        if file not in now:
            return f"{file} was deleted while it was read"
        if now[file] != stamp:
            return f"{file} changed while it was read"
    return None
