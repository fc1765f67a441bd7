"""Writes groups of an Iceberg table's files anew, without a change of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.core.schema.types import List, Map, Struct, Type
from driftline.errors import DataError
from driftline.formats.base import Moved, Rewritable
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.row_delta import RowDelta
from driftline.keys.anew import RewriteBudget, RewriteCandidate, RowsLeft, choose
from driftline.keys.stored import field_id, leaf_paths

_TARGET = 512 * 2**20  # bytes of a file, where the table does not say
_ENOUGH = "large enough, or too few small ones in their partition"
_CHANGED = "another writer changed its files meanwhile"


def target_of(properties: Mapping[str, str]) -> int:
    """The size of a table's files, in bytes."""
    return int(properties.get("write.target-file-size-bytes", _TARGET))


def only_in_tasks(name: str, why: str = "only Iceberg's own writer can write it") -> DataError:
    """The error for a table whose rows would lose their ids, or values, in files of Spark's writer."""
    return DataError(
        f"{name} cannot be compacted: {why}", "CALL … rewrite_data_files of Iceberg compacts it; it ends undo"
    )


class FileRewrite(RowDelta):
    """The files of a table that a transaction writes anew, one group of them."""

    def choose_behind_batch(self, struct: Struct) -> Rewritable:
        """Choose the files that are written anew behind a batch, in groups, each for one commit.

        Args:
            struct: the table's columns.
        """
        self._plan()
        readable = [path for path, file in self._files.items() if self._unreadable(file) is None]
        # Each look at a footer takes a read, so only files that would be taken are looked at.
        groups = choose(
            map(self._placed, readable),
            RewriteBudget.behind_batch(),
            lambda path: self._immovable(path, struct) is None,
        )
        return Rewritable(groups, files=len(self._files))

    def choose(self, target: int, struct: Struct, spec: int, sort_order: int | None = None) -> Rewritable:
        """Choose the files that are worth writing anew, in groups, each for one commit.

        Args:
            target: bytes that a file should have.
            struct: the table's columns.
            spec: the id of the present partition spec.
            sort_order: the id of the order that all files should be sorted by; None if any is right.
        """
        self._plan()
        budget = RewriteBudget.of_compaction(target, spec, sort_order)
        reasons: Counter[str] = Counter()
        candidates: list[RewriteCandidate] = []
        for path, file in self._files.items():
            reason = self._unreadable(file)
            if reason is None:
                candidate = self._placed(path)
                is_worth = candidate.size < budget.small or budget.wants(candidate)
                reason = self._immovable(path, struct) if is_worth else _ENOUGH
            if reason is None:
                candidates.append(candidate)
            else:
                reasons[reason] += 1
        groups = choose(candidates, budget)
        chosen = sum(map(len, groups))
        if len(candidates) > chosen:
            reasons[_ENOUGH] += len(candidates) - chosen
        sizes = [int(file["file-size-in-bytes"]) for file in self._files.values()]
        return Rewritable(groups, reasons, len(sizes), sum(sizes), target)

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

    def _unreadable(self, file: Mapping[str, Any]) -> str | None:
        """The reason for which a file's rows cannot be read, or not without those that are deleted."""
        if file["file-format"].lower() != "parquet" or file.get("key-metadata"):
            return "encrypted, or not in Parquet"
        if any(delete["content"] == "equality-deletes" for delete in file["deletes"]):
            return "rows of it are deleted by equality, which only Iceberg's rewrite_data_files applies"
        return None

    def _immovable(self, path: str, struct: Struct) -> str | None:
        """The reason for which another file could not have all of a file's values."""
        with self._key_files.open(path) as stream:
            stored = pq.read_schema(stream)
        if not self.stored(struct).can_move(path):
            return "its values are in another type than the table's"
        if any(field_id(column) is None for column in stored):
            return "its columns have no ids"
        in_file, present_ids = dict(_stored_fields(stored)), set(_ids(self.with_ids(struct)))
        dropped = {id_: type_ for id_, type_ in in_file.items() if id_ not in present_ids}
        if dropped and not self._is_empty(path, stored, dropped):
            return "it has values of dropped columns, which undo may bring back"
        file = self._files[path]
        sources = {int(each.sourceId()) for each in items(self._tasks[path].spec().fields())}
        has_partition = any(value is not None for value in _values(file.get("partition")))
        if has_partition and not sources <= in_file.keys():
            return "only its partition has the value of a column"
        return None

    def _is_empty(self, path: str, stored: pa.Schema, columns: Mapping[int, pa.DataType]) -> bool:
        """True if these columns of a file have no value for certain."""
        filled, of_structs = self.stored(self._schema.struct).filled(path), leaf_paths(stored)
        # Of lists and maps, and of what is in them, the metrics do not tell.
        return all(
            _has_fields(type_) or (id_ in of_structs and not pa.types.is_nested(type_) and id_ not in filled)
            for id_, type_ in columns.items()
        )

    def take(self, group: Sequence[RewriteCandidate], struct: Struct) -> RowsLeft:
        """Take a group out of the table; returns its rows, which are to be written again.

        Raises Moved if the table has these files no longer, or other rows of them are deleted.
        """
        if not self._files:
            self._plan()
        for file in group:
            if file.path not in self._files or self._placed(file.path) != file:
                raise Moved(_CHANGED)
        self._rewritten = list(group)
        with_ids = self.has_ids
        return RowsLeft(self.stored(self.with_ids(struct) if with_ids else struct), group, with_ids)

    def again(self, before: FileRewrite, struct: Struct) -> None:
        """Take the files that another rewrite took ``before``, whose rows are written. Raises Moved."""
        if self.has_ids != before.has_ids:
            raise Moved("the table's format version has changed")
        self.take(before._rewritten, struct)

    def __bool__(self) -> bool:
        return bool(self._rewritten)

    def update(self) -> Any:
        """Return a rewrite of the transaction; the files with the same rows are to be added to it."""
        rewrite = self._java.newRewrite()
        for file in self._rewritten:
            rewrite.deleteFile(self._tasks[file.path].file())
            for old in self._own_deletes(file.path):
                rewrite.deleteFile(old)
        now = self._base.currentSnapshot()
        if self._version > 1:
            # Deletes by equality that come meanwhile are for the new files too.
            rewrite.dataSequenceNumber(int(now.sequenceNumber()))
        return rewrite.validateFromSnapshot(int(now.snapshotId()))

    def _own_deletes(self, path: str) -> Iterator[Any]:
        """Java's delete files of a data file that serve no other."""
        for old in items(self._tasks[path].deletes()) if self._files[path]["deletes"] else ():
            if old.referencedDataFile() is not None:
                yield old


def _values(partition: Any) -> Iterator[Any]:
    """The values of a partition, in Iceberg's JSON."""
    yield from partition.values() if isinstance(partition, Mapping) else partition or ()


def _ids(type_: Type) -> Iterator[int]:
    """The ids of the fields of structs in a type."""
    match type_:
        case Struct():
            for each in type_.fields:
                yield each.id
                yield from _ids(each.type)
        case List():
            yield from _ids(type_.element)
        case Map():
            yield from _ids(type_.key)
            yield from _ids(type_.value)


def _stored_fields(stored: pa.Schema | pa.DataType) -> Iterator[tuple[int, pa.DataType]]:
    """The ids of the fields of structs in a file, with their types."""
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if isinstance(stored, pa.Schema) or pa.types.is_struct(stored):
        for column in stored:
            id_ = field_id(column)
            if id_ is not None:
                yield id_, column.type
            yield from _stored_fields(column.type)
    elif pa.types.is_map(stored):
        yield from _stored_fields(stored.key_type)
        yield from _stored_fields(stored.item_type)
    elif pa.types.is_list(stored) or pa.types.is_large_list(stored):
        yield from _stored_fields(stored.value_type)


def _has_fields(type_: pa.DataType) -> bool:
    """True for a struct whose fields have ids, which are judged by themselves: a VARIANT is none."""
    is_struct = pa.types.is_struct(type_) and type_.num_fields > 0
    return bool(is_struct and all(field_id(each) is not None for each in type_))
