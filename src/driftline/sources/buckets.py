"""Folders and globs of stores: which files there are."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyarrow.fs import FileSelector, FileType

from driftline.errors import SetupError
from driftline.files.endings import is_hidden
from driftline.runtime.aws import client
from driftline.runtime.aws import explaining as explaining_aws
from driftline.runtime.stores import Uri, configured, explaining, filesystem

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_SECOND = 10**9  # nanoseconds


class Listed(NamedTuple):
    """A file in a listing. ``modified``: nanoseconds since 1970, in whole seconds."""

    path: Uri
    size: int
    modified: int


class Listing(NamedTuple):
    """The files that a URI names: a file, or those of a folder or glob; none if nothing is there."""

    files: Iterator[Listed]
    is_folder: bool = False


def listing(source: str) -> Listing:
    """List the files that a URI names. The path of each begins as ``source`` does.

    Hidden names are passed over in folders, as on this machine. Raises SetupError if the store does not
    answer, or denies access.
    """
    system, path = filesystem(source)
    with explaining(source):
        info = system.get_file_info(path)
    if info.type == FileType.File and not source.endswith("/"):
        return Listing(iter([_listed(Uri(source), info)]))
    if info.type == FileType.NotFound and has_magic(source):
        base, steps = _of_glob(source)
        return Listing(_below(base, partial(_fits, steps), deep=len(steps) > 1 or "**" in steps))
    is_folder = info.type != FileType.NotFound
    if not is_folder and not _has_root(system, path):
        if path.startswith("/"):
            raise SetupError(f"{source}: HDFS does not respond", "check the network, the host and the port")
        raise SetupError(f"{source}: no such bucket")
    return Listing(_below(source.rstrip("/"), _is_shown, deep=True), is_folder)


def behind(source: str, path: str) -> Iterator[Listed]:
    """List the objects in S3 below a URI that sort behind ``path``; not all may match: see `may_hold`.
    Raises SetupError.
    """
    options = configured(source)
    scheme, _, place = _of_glob(source)[0].partition("://")
    bucket, _, prefix = place.partition("/")
    pages = client("s3", options).get_paginator("list_objects_v2")
    last = path.partition("://")[2].partition("/")[2]
    with explaining_aws(source, options):
        for page in pages.paginate(Bucket=bucket, Prefix=prefix and f"{prefix}/", StartAfter=last):
            for entry in page.get("Contents", ()):
                modified = calendar.timegm(entry["LastModified"].utctimetuple()) * _SECOND
                yield Listed(Uri(f"{scheme}://{bucket}/{entry['Key']}"), entry["Size"], modified)


def may_hold(source: str) -> Callable[[str], bool]:
    """Return a test for paths: true if the URI could name the path, judged by its name alone."""
    folder = f"{source.rstrip('/')}/"
    base, pattern = _of_glob(source)

    def fits(path: str) -> bool:
        """True if the URI could name this path."""
        if {"", ".", ".."} & set(path.partition("://")[2].split("/")):
            return False  # a key, but no path
        if path.startswith(folder):
            return _is_shown(path.removeprefix(folder).split("/"))
        below = path.removeprefix(f"{base}/")
        return path == source or (bool(pattern) and below != path and _fits(pattern, below.split("/")))

    return fits


def _of_glob(source: str) -> tuple[str, list[str]]:
    """The folder at which a glob begins, and the steps of its pattern; no steps for a path."""
    base, steps = source.rstrip("/"), list[str]()
    while has_magic(base):
        base, _, step = base.rpartition("/")
        steps.insert(0, step)
    return base, steps


def _has_root(system: FileSystem, path: str) -> bool:
    """True if the bucket or HDFS's root exists, or may not be asked."""
    root = "/" if path.startswith("/") else path.partition("/")[0]
    try:
        return bool(system.get_file_info(root).type != FileType.NotFound)
    except OSError:
        return True


def _below(base: str, fits: Callable[[Sequence[str]], bool], *, deep: bool) -> Iterator[Listed]:
    system, path = filesystem(base)
    with explaining(base):
        infos = system.get_file_info(FileSelector(path, recursive=deep, allow_not_found=True))
    for info in infos:
        name = info.path[len(path) :].lstrip("/")
        if info.type == FileType.File and fits(name.split("/")):
            yield _listed(Uri(f"{base}/{name}"), info)


def _listed(path: Uri, info: FileInfo) -> Listed:
    return Listed(path, info.size, info.mtime_ns // _SECOND * _SECOND)


def _is_shown(steps: Sequence[str]) -> bool:
    return not is_hidden(Path(*steps))


def _fits(pattern: Sequence[str], steps: Sequence[str]) -> bool:
    """True if a path matches a glob step by step, as in folders of this machine.

    >>> _fits(["**", "*.json"], ["a", "b", "c.json"]), _fits(["*"], ["a", "b"]), _fits(["*"], [".a"])
    (True, False, False)
    """
    if not pattern:
        return not steps
    first, *rest = pattern
    if first == "**":
        return _fits(rest, steps) or (
            bool(steps) and not steps[0].startswith(".") and _fits(pattern, steps[1:])
        )
    return bool(steps) and fits_step(first, steps[0]) and _fits(rest, steps[1:])


def fits_step(pattern: str, name: str) -> bool:
    """True if the name of a file or folder matches one step of a glob, other than ``**``."""
    return fnmatchcase(name, pattern) and name.startswith(".") <= pattern.startswith(".")
