"""Writes files of a table anew: a group of them in one commit, and small ones behind a batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.history.entries import COMPACTED, MOVED
from driftline.core.schema.text import counted
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import Added, CatalogTable, FileTransaction, Moved
from driftline.formats.commit import Progress, Retry, commit
from driftline.keys.slices import tasks_over
from driftline.runtime.failure import explained
from driftline.tasks.batch_folder import folder_of_batch

if TYPE_CHECKING:
    from driftline.keys.anew import RewriteCandidate

_FAULT = "nothing is changed by this group; please report it"
_PATIENCE = 10.0  # seconds: the next batch waits for it


def file_transaction(table: CatalogTable, retry: Retry) -> FileTransaction:
    """Begin a transaction that writes files of a table anew. Raises UsageError, DataError if it cannot."""
    return retry.run(lambda: table.transaction(table.load()).by_file())


def write_anew(
    transaction: FileTransaction, table: CatalogTable, group: Sequence[RewriteCandidate], retry: Retry
) -> Added:
    """Write a group of files anew, and commit it; returns the files that took its place.

    Args:
        transaction: of the table, in which nothing has been written.
        table: the table.
        group: of files that `rewritable` has chosen.
        retry: limits the attempts to commit.

    Raises:
        Moved: another writer has changed the files.
        DataError: their rows cannot be written anew as they are.
    """
    try:
        rows_left = transaction.rewrite_files(group)
        with folder_of_batch(table.spark, transaction) as folder:
            if folder is None:
                raise DataError(
                    f"{table.name} cannot be compacted: tasks see no common folder",
                    "keep the table on a disk that all workers share, or in a store that they reach",
                )
            summary = {MOVED: str(len(rows_left)), COMPACTED: str(len(group))}
            tasks = tasks_over(table.spark, rows_left)
            written = transaction.write(tasks, folder, summary, with_ids=rows_left.with_ids)
        if written != len(rows_left):
            raise DataError(f"{table.name}: {written} of {len(rows_left)} rows were written", _FAULT)
        added = transaction.written
        commit(transaction, table.load, retry)
    except BaseException:
        transaction.abandon()
        raise
    transaction.upkeep()
    return added


def compact_behind(table: CatalogTable, progress: Progress) -> tuple[str, ...]:
    """Write small files of a table anew, behind a batch that is in; returns notes for a person.

    The batch has ended well whatever happens here: what fails is told, and tried again with a later batch.
    """
    notes: list[str] = []
    progress("compacting")
    # Nobody is told of its waits: they are short, and an interrupt then still leaves the report of the batch.
    retry = Retry(table.name, patience=_PATIENCE)
    try:
        transaction = file_transaction(table, retry)
        for number, group in enumerate(transaction.rewritable(behind_batch=True).groups):
            # Whoever changed the files looks for small ones, too
            with suppress(Moved):
                if number:
                    transaction = file_transaction(table, retry)
                added = write_anew(transaction, table, group, retry)
                rows = counted(sum(file.left for file in group), "row")
                notes.append(f"{len(group)} small files became {counted(added.files, 'file')}, of {rows}")
    except (DriftlineError, PySparkException, Py4JError, OSError, pa.ArrowException) as error:
        message = error.message if isinstance(error, DriftlineError) else explained(error)[0]
        notes.append(f"small files are not compacted: {message}")
    return tuple(notes)
