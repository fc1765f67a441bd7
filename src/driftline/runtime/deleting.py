"""All deletions of files, each within bounds.

A path that a catalog names proves nothing: the catalog may be a copy of another lake's, whose files it still
names. So each caller says below which folders it may delete, and what lies elsewhere stays, at worst an
orphan. A test finds deletions that do not go through this module.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.runtime import stores
from driftline.runtime.hadoop import hadoop_file_system, hadoop_path
from driftline.runtime.java_types import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.runtime.stores import Options


@dataclass(frozen=True, slots=True)
class Bounds:
    """The folders, paths or URIs, below which files may be deleted; ``folders`` None: anywhere."""

    folders: tuple[str, ...] | None = ()

    @classmethod
    def either(cls, bounds: Iterable[Bounds]) -> Bounds:
        """All of these bounds together."""
        return cls(tuple(folder for each in bounds for folder in each.folders or ()))

    def hold(self, path: str) -> bool:
        """True if a path or URI lies below one of the folders, links on the way followed.

        >>> Bounds(("/lake",)).hold("file:/lake/s/t/a.parquet"), Bounds(("/lake",)).hold("/lake2/a.parquet")
        (True, False)
        >>> Bounds(("s3://b/lake",)).hold("s3a://b/lake/a"), Bounds(("s3://b/lake",)).hold("/b/lake/a")
        (True, False)
        """
        if self.folders is None:
            return True
        place = _canonical(path)
        return any(place.startswith(f"{_canonical(folder).rstrip('/')}/") for folder in self.folders)


NEW = Bounds(None)  # for files that this very process has made, under names of its own


def _canonical(path: str) -> str:
    scheme, slashes, key = path.partition("://")
    if slashes and scheme != "file":
        # S3 has three schemes; `..` is a name like any other there, and no name of ours.
        return path if "/../" in path else f"{re.sub('^s3[an]$', 's3', scheme)}://{key}"
    return os.path.realpath(path.removeprefix("file://").removeprefix("file:"))


def delete_file(path: str | os.PathLike[str], within: Bounds, options: Options | None = None) -> None:
    """Delete a file of this machine, if it is there, or by its URI one of a store.

    ``options``: of the store, as `stores.filesystem` takes them. Raises OSError.
    """
    text = os.fspath(path)
    if not within.hold(text):
        return
    if "://" in text:
        system, place = stores.filesystem(text, options)
        system.delete_file(place)
    else:
        Path(text).unlink(missing_ok=True)


def delete_folder(path: str | os.PathLike[str], within: Bounds, options: Options | None = None) -> None:
    """Delete a folder with all that is in it, as `delete_file` does; on this machine as far as possible."""
    text = os.fspath(path)
    if not within.hold(text):
        return
    if "://" in text:
        system, place = stores.filesystem(text, options)
        system.delete_dir(place)
    else:
        shutil.rmtree(text, ignore_errors=True)


def delete_by_file_io(io: Any, path: str, within: Bounds) -> None:
    """Delete a file by Iceberg's Java ``io``. Raises Java's errors."""
    if within.hold(path):
        io.deleteFile(path)


def delete_all_by_file_io(jvm: Any, io: Any, paths: Iterable[str], within: Bounds) -> None:
    """Delete files by Iceberg's Java ``io``, many at once; those that cannot be deleted stay."""
    listed = java_type(jvm, "java.util.ArrayList")()
    for path in filter(within.hold, paths):
        listed.add(path)
    java_type(jvm, "org.apache.iceberg.CatalogUtil").deleteFiles(io, listed, "file")


def delete_by_hadoop(spark: SparkSession, path: str, within: Bounds, *, empty_folders: bool = False) -> None:
    """Delete a file or a folder, by Hadoop. ``empty_folders``: those that it leaves empty go too.

    Raises Java's errors.
    """
    if not within.hold(path):
        return
    place = hadoop_path(spark, path)
    system = hadoop_file_system(spark, place)
    system.delete(place, True)
    while (
        empty_folders
        and (place := place.getParent()) is not None
        and within.hold(str(place.toString()))
        and system.exists(place)
        and not len(system.listStatus(place))
    ):
        system.delete(place, False)
