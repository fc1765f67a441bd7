"""Durable writes and bounded deletions of files: the one place that syncs and deletes.

A process's writes, renames and deletions are in memory first; the disk follows some thirty seconds later,
in any order. So anything that is acknowledged, or that a synced file names, has to be synced before: files,
and the folders that have their names.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.errors import SetupError
from driftline.runtime import stores
from driftline.runtime.file_io import hadoop_file_system, hadoop_path
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.runtime.stores import Options

NO_ACCESS = "grant access to it, or pass only the folders or a glob to read"
# Links that point at each other lead nowhere, either.
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_AT_ONCE = 8  # syncs in parallel share one flush of the disk
_NOT_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # of file systems that sync no folder
# macOS: fsync alone leaves data in the disk's own cache.
_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync(paths: Iterable[Path], within: Path | None = None) -> None:
    """Sync files and folders, and the folders that name them. A file that Hadoop wrote takes along the
    checksum beside it, without which it could not be read.

    Args:
        paths: The files and folders, each once or more often.
        within: A folder that is known to be on the disk, and names of folders above it too; by default all
            are synced up to the mount point.

    Raises:
        SetupError: One cannot be synced.
    """
    wanted: dict[Path, None] = {}  # in the order given
    for path in map(Path.absolute, paths):
        checksum = path.with_name(f".{path.name}.crc")
        wanted |= dict.fromkeys([*([checksum] if checksum.exists() else ()), *_with_folders(path, within)])
    if wanted:
        # Of 100 small files this takes 11 ms, one after the other 22 ms. `syncfs` takes 3 ms on a quiet disk,
        # but waits for whatever else is being written there.
        with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as pool:
            for task in [pool.submit(_sync, path) for path in wanted]:
                task.result()


def replace_file(path: Path, data: bytes, *, durable: bool = True, modified: int | None = None) -> None:
    """Write a file whole, in place of what is there: after a power cut there is the old one or the new one.

    The folder is created if it is not there; one that is there must be on the disk. ``durable`` False:
    nothing is synced. ``modified``: the file's time of change, in seconds since 1970. Raises SetupError.
    """
    draft, folder = path.with_name(f"{path.name}.new"), path.parent
    known = folder if folder.is_dir() else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            if modified is not None:
                os.utime(file.fileno(), (modified, modified))
            if durable:
                flush(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise SetupError(f"{path}: cannot be written: {error.strerror}") from error
    if durable:
        sync([folder], within=known)


def copy_file(source: Path, path: Path) -> None:
    """Copy a file whole, in place of what is there; nothing is synced. Raises SetupError."""
    draft = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, draft)
        draft.replace(path)
    except OSError as error:
        raise SetupError(f"{source} cannot be copied to {path}: {error.strerror}") from error


def flush(file: int) -> None:
    """Sync an open file, by its descriptor."""
    if _FULL is not None:
        with suppress(OSError):  # network disks have no such call
            fcntl.fcntl(file, _FULL)
            return
    os.fsync(file)


def mode(path: Path) -> int:
    """Return the mode of a file or folder, through links; 0 if nothing is there. Raises SetupError."""
    try:
        return path.stat().st_mode
    except ValueError:  # a name that no file can have
        return 0
    except OSError as error:
        if error.errno in _NOWHERE:
            return 0
        raise SetupError(f"{path}: cannot be read: {error.strerror}", NO_ACCESS) from error


def on_disk(location: str) -> Path | None:
    """The folder of a path or ``file:`` URI; None for the URI of a store."""
    return local(location) if location.startswith(("/", "file:")) else None


def local(path: str) -> Path:
    """The file of a path or ``file:`` URI."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


def _with_folders(path: Path, within: Path | None) -> list[Path]:
    """A path, and the folders that name it."""
    folders = [path]
    while folders[-1] != within and not os.path.ismount(folders[-1]):
        folders.append(folders[-1].parent)
    return folders


def _sync(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            flush(file)
        finally:
            os.close(file)
    except OSError as error:
        if path.is_dir() and error.errno in (*_NOT_FOLDERS, errno.EACCES):
            return
        raise SetupError(f"{path}: cannot be synced to the disk: {error.strerror}") from error


# A catalog that names a file gives no right to delete it: the catalog of a copied lake names the original's
# files.
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


def delete_with_folders(path: str, within: Bounds) -> None:
    """Delete a file of this machine, its checksum of Hadoop's, and the folders that they leave empty.

    ``path``: or its ``file:`` URI. Raises SetupError if the file cannot be deleted.
    """
    file = local(path)
    try:
        for each in (file, file.with_name(f".{file.name}.crc")):
            delete_file(each, within)
    except OSError as error:
        raise SetupError(
            f"{file}: cannot be deleted: {error.strerror}", "once the cause is gone, run it again"
        ) from error
    for folder in file.parents:
        try:
            if not within.hold(str(folder)):
                return
            folder.rmdir()
        except OSError:  # it has other files
            return


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
