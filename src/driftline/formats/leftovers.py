"""Lists files in a folder, to find those that no snapshot has, and makes sure that deleted ones are gone."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.errors import SetupError
from driftline.formats.lakes import Orphan
from driftline.runtime.disk import sync
from driftline.runtime.file_io import hadoop_file_system, hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def listed(spark: SparkSession, folder: str, before: float) -> Iterator[Orphan]:
    """Yield all files in a folder that were last changed ``before`` then, in seconds since 1970."""
    path = hadoop_path(spark, folder)
    fs = hadoop_file_system(spark, path)
    if "LocalFileSystem" in fs.getClass().getName():
        # Through Java each file takes several calls; Hadoop's own would hide the checksums, too.
        yield from listed_here(str(path.toUri().getPath()), before)
        return
    if not fs.exists(path):
        return
    files = fs.listFiles(path, True)
    while files.hasNext():
        status = files.next()
        if status.getModificationTime() / 1000 <= before:
            yield Orphan(str(status.getPath().toString()), int(status.getLen()))


def listed_here(folder: str | os.PathLike[str], before: float) -> Iterator[Orphan]:
    """Yield all files in a folder of this machine, as `listed` does."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            # Its writer may move or delete it meanwhile
            with suppress(FileNotFoundError):
                status = path.stat()
                if status.st_mtime <= before:
                    yield Orphan(f"file:{path}", status.st_size)


def bare(path: str) -> str:
    """Return a path without its scheme, as one is written in several ways.

    >>> bare("file:///a/b"), bare("/a/b")
    ('/a/b', '/a/b')
    """
    return re.sub(r"^[a-z0-9+.-]+:/+", "/", path)


def check_deleted(table: str, staying: Collection[str]) -> None:
    """Raise SetupError if files of a table are still there after their deletion."""
    if staying:
        raise SetupError(
            f"{table}: {len(staying)} files cannot be deleted, the first is {min(staying)}",
            "once the cause is gone, run it again: it goes on where it was",
        )


def sync_deletions(places: Iterable[Path | None]) -> None:
    """Sync the folders that files on a disk were deleted from: a power cut could bring them back."""
    folders = {place.parent for place in places if place is not None}
    sync(sorted(folder for folder in folders if folder.is_dir()))
