"""The folder of one batch: files that tasks exchange, and data files not yet moved."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EDQUOT, ENOSPC
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pyarrow as pa

from driftline.errors import SetupError
from driftline.runtime import temporary
from driftline.runtime.disk import NEW, delete_folder, on_disk
from driftline.runtime.spark_conf import runs_here
from driftline.runtime.stores import created, native

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """A folder of one batch: on a disk that all tasks see, by its path; or in a store, by its URI.

    ``options``: of the store, as `stores.filesystem` takes them. ``synced``: tasks sync their files, as the
    driver cannot sync what another machine has in memory.
    """

    path: str
    options: Mapping[str, str] | None = field(default=None, repr=False)
    synced: bool = False

    @property
    def disk(self) -> Path | None:
        """The folder, if it is on a disk."""
        return Path(self.path) if self.options is None else None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.rpartition("/")[2]

    def check(self) -> None:
        """Raise SetupError if this machine cannot see the folder."""
        if self.disk is not None and not self.disk.is_dir():
            raise SetupError(
                f"a task on {socket.gethostname()} cannot see the folder {self.path}",
                hint="keep the table where all workers can reach it",
            )

    def create(self, name: str) -> pa.NativeFile:
        """A new file, open for writing."""
        path = f"{self.path}/{name}"
        return pa.OSFile(path, "wb") if self.options is None else created(path, self.options)

    def open(self, name: str) -> pa.NativeFile:
        """A file of it, to be read anywhere in it."""
        path = f"{self.path}/{name}"
        return pa.memory_map(path) if self.options is None else native(path, self.options)


class Located(Protocol):
    """The transaction that files are written for."""

    @property
    def location(self) -> str:
        """A path or URI."""
        ...

    def reached_with(self) -> Mapping[str, str] | None:
        """The options by which tasks reach the store of the location; None if it is in none, or
        unreachable.
        """
        ...

    @property
    def durable(self) -> bool:
        """False if files on a disk are written without syncs."""
        ...


@contextmanager
def folder_of_batch(spark: SparkSession, files: Located) -> Iterator[BatchFolder | None]:
    """A folder of one batch alone, for as long as its tasks run: where the ``files`` are, if on a disk;
    elsewhere on this machine, where the tasks run here; else in the files' store, or None.

    Raises SetupError where nothing can be written there.
    """
    location = files.location
    if (disk := on_disk(location)) is not None:
        path = disk / uuid4().hex
        _make(path)
    elif runs_here(spark.sparkContext):
        path = Path(mkdtemp(prefix="batch-", dir=temporary.folder()))
    elif (options := files.reached_with()) is not None:
        with _in_store(f"{location}/{uuid4().hex}", options) as folder:
            yield folder
        return
    else:
        yield None
        return
    try:
        yield BatchFolder(str(path), synced=not runs_here(spark.sparkContext) and files.durable)
    finally:
        # By another name no late attempt of a task finds it, and makes a file while it is emptied.
        delete_folder(path.rename(path.with_suffix(".gone")), NEW)


@contextmanager
def _in_store(uri: str, options: Mapping[str, str]) -> Iterator[BatchFolder]:
    try:
        yield BatchFolder(uri, options)
    finally:
        with suppress(OSError):  # what is left is for `clean`; often there is nothing
            delete_folder(uri, NEW, options)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise
        raise SetupError(
            f"{path.parent}: no files of the table can be written there: {error.strerror}",
            hint="let this user write to the table's location, on each worker of a cluster too",
        ) from error
