"""The places where tasks write a batch's data files.

On a disk that is a folder of the batch alone, out of which whole files are moved at the end. A store of
objects cannot move: there files get their places at once, under names that begin with the batch's own, and
the commit alone says which of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shutil import move
from typing import Protocol
from uuid import uuid4

from driftline.runtime.disk import NEW, delete_file, local, sync
from driftline.runtime.stores import created, explaining
from driftline.tasks.batch_folder import BatchFolder
from driftline.write.dealing import Partition
from driftline.write.parquet import NewFile, WrittenFile


class TaskDestination(Protocol):
    """The place where a task writes; it is sent to the task."""

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """A file that no other attempt of any task has. ``number``: of the task; ``file``: in the attempt."""
        ...

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Sync whole files of this machine, if no other would."""
        ...

    def remove(self, path: str) -> None:
        """Delete a whole file of an attempt that failed."""
        ...


class Destination(Protocol):
    """The place where the driver has a batch's files written, and their fate."""

    @property
    def needs_partitions(self) -> bool:
        """True if tasks can write a file only once the driver knows its partition."""
        ...

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """The place where tasks write the rows of these partitions."""
        ...

    def settled(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Return the files in their places in the table. After an error none is left there."""
        ...

    def clear(self) -> None:
        """After an error, delete files of tasks from the table's own folders. Never fails."""
        ...


@dataclass(frozen=True, slots=True)
class InFolder:
    """Files go into the ``folder`` of the batch, and from there to where ``place`` says."""

    folder: BatchFolder
    place: Callable[[WrittenFile], str]
    needs_partitions = False

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """The folder of the batch, for all partitions."""
        return _Folder(self.folder)

    def settled(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Move the files to their places in the table; after an error, those that were moved are deleted."""
        placed: list[WrittenFile] = []
        try:
            for file in files:
                placed.append(replace(file, path=self.place(file)))
                target = local(placed[-1].path)
                target.parent.mkdir(parents=True, exist_ok=True)
                move(file.path, target)
        except BaseException:
            for file in placed:
                delete_file(local(file.path), NEW)
            raise
        return placed

    def clear(self) -> None:
        """Nothing: the folder goes with the batch."""


@dataclass(frozen=True, slots=True)
class InStore:
    """Files are written where they stay.

    ``options``: of the store, as `stores.filesystem` takes them; ``prefix``: the beginning of the URIs of a
    partition's files, for a batch of this name; ``sweep``: deletes everything with such a prefix.
    """

    options: Mapping[str, str] = field(repr=False)
    prefix: Callable[[str, Partition], str]
    sweep: Callable[[str], None]
    batch: str = field(default_factory=lambda: uuid4().hex)
    needs_partitions = True
    _prefixes: dict[Partition, str] = field(default_factory=dict)

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """The prefixes of all partitions so far; they are kept for `clear`."""
        self._prefixes.update({partition: self.prefix(self.batch, partition) for partition in partitions})
        return _Store(self.options, dict(self._prefixes))

    def settled(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """The files, which are in their places already."""
        return list(files)

    def clear(self) -> None:
        """Delete all objects with the batch's prefixes."""
        for prefix in self._prefixes.values():
            self.sweep(prefix)


@dataclass(frozen=True, slots=True)
class _Folder:
    folder: BatchFolder

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """A new file, named by the task, the attempt, the batch and the file's number."""
        name = f"{number:05d}-{attempt}-{self.folder.name}-{file:05d}.parquet"
        path = f"{self.folder.path}/{name}"
        return NewFile(path, self.folder.create(name), partial(self.remove, path))

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Sync the files, on a cluster."""
        if self.folder.synced:
            sync((local(file.path) for file in files), local(self.folder.path))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        delete_file(path, NEW)


@dataclass(frozen=True, slots=True)
class _Store:
    options: Mapping[str, str] = field(repr=False)
    prefixes: Mapping[Partition, str]

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """A new object below its partition's prefix, named by the task, the attempt and the file's number."""
        uri = f"{self.prefixes[partition]}-{number:05d}-{attempt}-{file:05d}.parquet"
        stream = created(uri, self.options)
        return NewFile(uri, stream, partial(self.remove, uri), partial(explaining, uri, self.options))

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Nothing: a store has what it has taken."""

    def remove(self, path: str) -> None:
        """Delete an object."""
        delete_file(path, NEW, self.options)


def whole(files: Iterable[WrittenFile], target: TaskDestination) -> Sequence[WrittenFile]:
    """In a task: all of the files that it writes, or after an error none."""
    written: list[WrittenFile] = []
    try:
        for file in files:
            written.append(file)  # noqa: PERF402  those before an error count
        target.sync(written)
    except BaseException:
        for file in written:
            with suppress(OSError):
                target.remove(file.path)
        raise
    return written
