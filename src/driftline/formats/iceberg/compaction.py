"""Writes groups of an Iceberg table's files anew, without a change of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from driftline.core.schema.types import Struct
from driftline.errors import DataError
from driftline.formats.base import Moved
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.row_delta import RowDelta
from driftline.formats.rewritable import MEANWHILE, FileChoice
from driftline.keys.anew import RewriteCandidate, RowsLeft
from driftline.keys.movable import are_readable, why_each_immovable
from driftline.write.positions import ROW_IDS


def only_in_tasks(name: str, why: str = "only Iceberg's own writer can write it") -> DataError:
    """The error for a table whose rows would lose their ids, or values, in files of Spark's writer."""
    return DataError(
        f"{name} cannot be compacted: {why}", "CALL … rewrite_data_files of Iceberg compacts it; it ends undo"
    )


class FileRewrite(RowDelta):
    """The files of a table that a transaction writes anew, one group of them."""

    def choice(self, struct: Struct) -> FileChoice:
        """Return the table's files to choose from; ``struct``: its columns."""
        self._plan()
        sizes = {path: int(file["file-size-in-bytes"]) for path, file in self._files.items()}
        return FileChoice(sizes, self._unreadable, self._placed, lambda paths: self._immovable(paths, struct))

    def _plan(self) -> None:
        planned = self._key_files.planned(self._base.newScan(), (), self._tasks)
        self._files = {file["file-path"]: file for file in planned}

    def _placed(self, path: str) -> RewriteCandidate:
        """Return a data file with its partition, and the sequence number of its rows."""
        file = self._files[path]
        changed = self._tasks[path].file().dataSequenceNumber()
        spec, partition = int(file["spec-id"]), str(file.get("partition", ""))
        order, candidate = file.get("sort-order-id"), self._as_candidate(path)
        return replace(candidate, changed=changed, spec=spec, partition=partition, sort_order=order)

    def _unreadable(self, path: str) -> str | None:
        """The reason for which a file's rows cannot be read, or not without those that are deleted."""
        file = self._files[path]
        if file["file-format"].lower() != "parquet" or file.get("key-metadata"):
            return "encrypted, or not in Parquet"
        if any(delete["content"] == "equality-deletes" for delete in file["deletes"]):
            return "rows of it are deleted by equality, which only Iceberg's rewrite_data_files applies"
        return None

    def _immovable(self, paths: Sequence[str], struct: Struct) -> Sequence[str | None]:
        """The reasons for which another file could not have all of a file's values."""
        files = {path: self._sources(path) for path in paths}
        return why_each_immovable(files, self.stored(struct), ROW_IDS)

    def _sources(self, path: str) -> set[int]:
        """The ids of the columns by whose values a file was put into its partition."""
        has_partition = any(value is not None for value in _values(self._files[path].get("partition")))
        fields = items(self._tasks[path].spec().fields()) if has_partition else ()
        return {int(each.sourceId()) for each in fields}

    def all_rows(self, struct: Struct) -> RowsLeft | None:
        """Return all rows of the table; None if its files alone do not tell them."""
        self._plan()
        if any(map(self._unreadable, self._files)):
            return None
        if not are_readable({path: self._sources(path) for path in self._files}, self.stored(struct)):
            return None
        return self._rows_of([*map(self._placed, self._files)], struct)

    def take(self, group: Sequence[RewriteCandidate], struct: Struct) -> RowsLeft:
        """Take a group out of the table; returns its rows, which are to be written again.

        Raises Moved if the table has these files no longer, or other rows of them are deleted.
        """
        if not self._files:
            self._plan()
        if not all(file.path in self._files for file in group):
            raise Moved(MEANWHILE)
        self._rewritten = [self._placed(file.path) for file in group]
        # The first commit of a table that became v3 gives ids to the rows that were there.
        if any(
            now != replace(file, first_id=now.first_id)
            for now, file in zip(self._rewritten, group, strict=True)
        ):
            raise Moved(MEANWHILE)
        return self._rows_of(self._rewritten, struct)

    def _rows_of(self, files: Sequence[RewriteCandidate], struct: Struct) -> RowsLeft:
        with_ids = self.has_ids
        return RowsLeft(self.stored(self.with_ids(struct) if with_ids else struct), files, with_ids)

    def again(self, before: FileRewrite, struct: Struct) -> None:
        """Take the files that another rewrite took ``before``, whose rows are written. Raises Moved."""
        if self.has_ids != before.has_ids:
            raise Moved("the table's format version has changed")
        self.take(before._rewritten, struct)
        if self._rewritten != before._rewritten:  # written without the ids that they have now
            raise Moved(MEANWHILE)

    def __bool__(self) -> bool:
        return bool(self._rewritten)

    def update(self) -> Any:
        """Return a rewrite of the transaction; the files with the same rows are to be added to it."""
        rewrite = self._java.newRewrite()
        for file in self._rewritten:
            rewrite.deleteFile(self._java_file(file.path))
            for old in self._java_deletes(file.path):
                rewrite.deleteFile(old)
        now = self._base.currentSnapshot()
        if self._version > 1:
            # Deletes by equality that come meanwhile are for the new files too.
            rewrite.dataSequenceNumber(int(now.sequenceNumber()))
        return rewrite.validateFromSnapshot(int(now.snapshotId()))


def _values(partition: Any) -> Iterator[Any]:
    """The values of a partition, in Iceberg's JSON."""
    yield from partition.values() if isinstance(partition, Mapping) else partition or ()
