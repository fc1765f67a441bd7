"""Commits with retries after conflicts, and rewrites of a whole table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from driftline.core.columns.statistics import Seen, SeenNote
from driftline.core.schema.types import Schema, dotted
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import CatalogTable, CommitConflict, Moved, State, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.base import FileTransaction
    from driftline.keys.anew import RowsLeft
    from driftline.tasks.run import BatchMap

PATIENCE = 300.0  # seconds, of all but captures
WAITING = "waiting: "

_CHANGED = "TABLE_CHANGE_AFTER_ANALYSIS"

T = TypeVar("T")
Progress = Callable[[str], None]

# Seconds of a pause, at most, after the first and after many conflicts
_FIRST, _MOST = 0.05, 1.0
_EAGER = 5.0  # seconds of waiting after which the pauses are half as long


@dataclass(slots=True)
class Retry:
    """The conflicts of one operation on the table ``name``.

    Attributes:
        progress: called with each wait, and may end it by raising an error.
        endless: keep waiting until then.
        patience: seconds after which it ends otherwise.
    """

    name: str
    progress: Progress = lambda _: None
    # A capture runs without anybody who would try again later.
    endless: bool = False
    patience: float = field(default_factory=lambda: PATIENCE)
    conflicts: int = 0
    since: float | None = None
    committing: float = 0.0  # seconds, waits for others included

    def run(self, attempt: Callable[[], T], *, passing: tuple[type[CommitConflict], ...] = ()) -> T:
        """Run the attempt, again after each conflict, and return its result; raise ``passing`` conflicts."""
        while True:
            try:
                return attempt()
            except passing:
                raise
            except CommitConflict as conflict:
                self.wait(conflict)
            except Exception as error:
                if not is_conflict(error):
                    raise
                self.wait(CommitConflict("its columns were changed by another writer"))

    def wait(self, conflict: Exception) -> None:
        """Pause before the next attempt. Raises DataError when patience is exhausted.

        Pauses are random, so that two writers do not meet again, and grow with the first conflicts. A writer
        that has waited long makes shorter ones, and so gets its turn before newcomers.
        """
        pause(self.count(conflict))

    def count(self, conflict: Exception) -> float:
        """Count a conflict; returns the seconds of the longest pause. Raises as `wait`."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        self.conflicts += 1
        waited = now - self.since
        times = "once" if self.conflicts == 1 else f"{self.conflicts} times"
        # A capture has nobody who would run it again, so it waits without limit; a command has.
        if not self.endless and waited >= self.patience:
            raise DataError(
                f"{self.name}: {conflict}: others changed it {times} in {waited:.0f} s",
                "other writers keep changing this table; try again later",
            ) from conflict
        self.progress(f"{WAITING}others changed {self.name} {times} in {waited:.0f} s")
        return min(_MOST, _FIRST * self.conflicts) / (1 + waited / _EAGER)


def pause(longest: float) -> None:
    """Sleep for a while."""
    time.sleep(random.uniform(0, longest))  # noqa: S311  no secret


def is_conflict(error: Exception) -> bool:
    """True if Spark, checking a table again before reading it, found that another writer had changed it."""
    return not isinstance(error, DriftlineError) and _CHANGED in str(error)


def commit(transaction: Transaction, now: Callable[[], State], retry: Retry) -> None:
    """Commit the changes of a transaction, again after each conflict.

    Args:
        transaction: the transaction.
        now: loads the table, for which the same must have been planned.
        retry: limits the attempts.

    Raises:
        Moved: the rows are not right for the table's new state.
    """
    commit_all([transaction], lambda: transaction.rebase(now()), retry)


def make_visible(transactions: Sequence[Transaction]) -> None:
    """Commit transactions of a lake at once; several only if they can. Raises CommitConflict."""
    match transactions:
        case [alone]:
            alone.commit()
        case [first, *others]:
            first.commit_with(others)


def commit_all(transactions: Sequence[Transaction], rebase: Callable[[], None], retry: Retry) -> None:
    """Commit transactions at once, again after each conflict. ``rebase``: has them fit the tables again.

    Raises Moved as `commit`.
    """
    before = retry.conflicts

    def attempt() -> None:
        """Commit; after a conflict, to the tables as they are now."""
        if retry.conflicts > before:
            rebase()
        make_visible(transactions)

    began = time.monotonic()
    try:
        retry.run(attempt, passing=(Moved,))
    finally:
        retry.committing += time.monotonic() - began


@dataclass(slots=True)
class Rewrite:
    """A transaction that replaces all rows of a table. ``schema``, ``rows``: those it began on."""

    table: CatalogTable
    transaction: Transaction
    schema: Schema
    rows: DataFrame
    replaced: bool = False

    def replace(
        self,
        convert: Callable[[DataFrame], DataFrame],
        summary: Mapping[str, str],
        check: Callable[[DataFrame], None] | None = None,
        sources: Mapping[int, Collection[int]] | None = None,
        in_tasks: tuple[RowsLeft, BatchMap] | None = None,
    ) -> None:
        """Replace the rows by converted ones.

        Args:
            convert: converts the rows.
            summary: the properties of the snapshot.
            in_tasks: the rows as tasks read them, and what converts a batch of them, with what the format has
                behind their columns. Tasks then write them, in place of Spark.
            sources: by column id, the columns of before whose values a column has: it keeps the batches in
                which these were first and last seen.
            check: raises Moved if rows that other writers append meanwhile cannot be converted likewise.
                Without it, any such row is a conflict.

        Raises:
            DataError: the number of rows has changed.
        """

        def carry(appended: DataFrame) -> DataFrame:
            """Convert rows that others appended meanwhile."""
            assert check is not None
            check(appended)
            return convert(appended)

        note = None if sources is None else partial(_note, self.table, self.schema, sources)
        carries = None if check is None else carry
        transaction = self.transaction.replace_all(carries, note)
        if in_tasks is None:
            written, expected = transaction.append(convert(self.rows), summary), self.rows.count()
        else:
            written, expected = self._write(transaction, *in_tasks, summary), len(in_tasks[0])
        if written != expected:
            raise DataError(
                f"{self.table.name}: {expected} rows were there, {written} were written: nothing is changed"
            )
        self.replaced = True

    def _write(
        self, transaction: FileTransaction, live: RowsLeft, convert: BatchMap, summary: Mapping[str, str]
    ) -> int:
        """Have tasks read, convert and write the rows; returns their number."""
        from driftline.keys.slices import tasks_over
        from driftline.tasks.batch_folder import folder_of_batch

        spark = self.table.spark
        with folder_of_batch(spark, transaction) as folder:
            tasks = tasks_over(spark, live).mapped(convert)
            return transaction.write(tasks, folder, summary, with_ids=live.with_ids)


def check_branches(table: CatalogTable, before: Schema, after: Schema) -> None:
    """Raise DataError if a branch was written with a column that goes: its rows would be without it."""
    stay = {f.id for _, f in after.walk()}
    gone = {f.id: dotted(path) for path, f in before.walk() if f.id not in stay}
    # Tags do not count, because they read their own schema.
    for branch, columns in table.branches().items() if gone else ():
        needed = [path for id_, path in gone.items() if id_ in columns]
        if needed:
            raise DataError(
                f"{table.name}: branch {branch} was written with {needed[0]}, and branches read with the table's schema",
                f"drop the branch or merge it first: ALTER TABLE … DROP BRANCH {branch}",
            )


def _note(table: CatalogTable, schema: Schema, sources: Mapping[int, Collection[int]]) -> SeenNote:
    """The batches that brought the values of columns, as far as metadata tell."""
    counts = table.statistics(schema).counts
    numbers = {f.id: counts.numbers(f.id) for _, f in schema.walk()}
    known_sources = {
        id_: before for id_, before in sources.items() if all(numbers[b].values is not None for b in before)
    }
    note = SeenNote({id_: Seen(of_id.first, of_id.last) for id_, of_id in numbers.items() if of_id.values})
    return note.of_columns(known_sources)


@contextmanager
def rewriting(table: CatalogTable, state: State, retry: Retry) -> Iterator[Rewrite]:
    """Rewrite a table, from the ``state`` in which it was loaded.

    The block may replace the rows. At its end they become visible; after an error, their files are deleted.
    Raises CommitConflict if the rows are not right for the changes of another writer, DataError if a branch
    needs a column that goes.
    """
    transaction = table.transaction(state)
    try:
        # Read behind the start of the transaction: what others write from now on is a conflict.
        # All else is converted from one snapshot; what others append meanwhile is carried over, converted and
        # counted alone.
        rewrite = Rewrite(table, transaction, state.schema, transaction.read())
        yield rewrite
        if rewrite.replaced:
            check_branches(table, state.schema, transaction.schema)
            commit(transaction, table.load, retry)
    except BaseException:
        transaction.abandon()
        raise
    if rewrite.replaced:
        transaction.upkeep()
