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
    """A folder of one batch, on a disk that all tasks see or in a store.

    Attributes:
        path: the path on the disk, or the URI in the store.
        options: the store's options, as `stores.filesystem` takes them; None on a disk.
        synced: tasks sync their files, as the driver cannot sync what another machine has in memory.
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
        """Create a file and open it for writing."""
        path = f"{self.path}/{name}"
        return pa.OSFile(path, "wb") if self.options is None else created(path, self.options)

    def open(self, name: str) -> pa.NativeFile:
        """Open a file of the folder for random access."""
        path = f"{self.path}/{name}"
        # Arrow reads the batches of a mapped file in place, without a copy in memory.
        return pa.memory_map(path) if self.options is None else native(path, self.options)


class Located(Protocol):
    """The transaction that files are written for."""

    @property
    def location(self) -> str:
        """A path or URI."""
        ...

    def reached_with(self) -> Mapping[str, str] | None:
        """Return the store options that tasks need; None if the location is in no store they can reach."""
        ...

    @property
    def durable(self) -> bool:
        """False if files on a disk are written without syncs."""
        ...


@contextmanager
def folder_of_batch(spark: SparkSession, files: Located) -> Iterator[BatchFolder | None]:
    """Make a folder for one batch, and delete it after the batch's tasks.

    Yields:
        The folder: next to the ``files`` if these are on a disk, on this machine if its tasks run here, else
        in the files' store; None if tasks cannot reach that store.

    Raises:
        SetupError: the folder cannot be written.
    """
    location = files.location
    if (disk := on_disk(location)) is not None:
        # On the table's own disk whole files reach their final places by a rename, without a copy.
        path = disk / uuid4().hex
        _make(path)
    elif runs_here(spark.sparkContext):
        # Rejects and exchanged rows then stay on this machine, though the table's files are in a store.
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
        # What is left is for `clean`; often there is nothing
        with suppress(OSError):
            delete_folder(uri, NEW, options)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        # A full disk is no matter of rights, so the hint below would mislead.
        if error.errno in (ENOSPC, EDQUOT):
            raise
        raise SetupError(
            f"{path.parent}: no files of the table can be written there: {error.strerror}",
            hint="let this user write to the table's location, on each worker of a cluster too",
        ) from error
