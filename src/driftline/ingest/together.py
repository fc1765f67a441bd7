"""Commits the batches of several tables in one snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.history.batch_properties import BatchIsInError
from driftline.errors import DriftlineError, SetupError
from driftline.formats.base import CommitConflict
from driftline.formats.commit import make_visible, pause
from driftline.ingest.attempts import PreparedBatch
from driftline.ingest.result import Result

# Of a batch: its result, or what kept it out; None if another process has brought it.
Outcome: TypeAlias = Result | DriftlineError | None


def commit_together(batches: Sequence[PreparedBatch]) -> list[Outcome]:
    """Commit the batches of several tables of a lake at once; what keeps one out keeps no other one out.

    Those that are left out are taken back.
    """
    commit = JointCommit(list(batches))
    try:
        commit.run()
    finally:
        for batch in batches:
            batch.abandon()
    return [commit.outcomes[batch.table.name] for batch in batches]


def commit_alone(batch: PreparedBatch) -> Outcome:
    """Commit one batch."""
    try:
        return batch.commit()
    except BatchIsInError:
        return None
    except DriftlineError as error:
        return error


@dataclass(slots=True)
class JointCommit:
    """A commit of several batches.

    Attributes:
        batches: those that are still to be committed.
        outcomes: of the others, by the names of their tables.
    """

    batches: list[PreparedBatch]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def run(self) -> None:
        """Commit all of them that can be; after a conflict, with what has changed prepared anew."""
        self._each(PreparedBatch.begin_commit, self.batches)
        began = time.monotonic()
        while self.batches:
            try:
                make_visible([transaction for batch in self.batches for transaction in batch.transactions])
            except CommitConflict as conflict:
                self._rebase(conflict)
            except (DriftlineError, PySparkException, Py4JError, OSError) as error:
                self._apart(error)
            else:
                break
        for batch in self.batches:  # each has its part, as sums are made of them
            batch.retry.committing += (time.monotonic() - began) / len(self.batches)
        for batch in [*self.batches]:
            self._ended(batch, _reported(batch))

    def _each(self, step: Callable[[PreparedBatch], None], batches: Sequence[PreparedBatch]) -> None:
        """Take a step with each batch; those that fail stay out."""
        for batch in [*batches]:  # of which those that end are taken out
            try:
                step(batch)
            except BatchIsInError as error:
                batch.tell(error)
                self._ended(batch, None)
            except DriftlineError as error:
                batch.tell(error)
                self._ended(batch, error)

    def _ended(self, batch: PreparedBatch, outcome: Outcome) -> None:
        self.outcomes[batch.table.name] = outcome
        self.batches.remove(batch)

    def _rebase(self, conflict: CommitConflict) -> None:
        """After a conflict, have the batches of tables that have changed fit them; all wait once."""
        named = [batch for batch in self.batches if _is_of(batch, conflict.tables)]
        changed, pauses = named or [*self.batches], [0.0]
        self._each(lambda batch: pauses.append(batch.retry.count(conflict)), changed)
        pause(max(pauses))
        if conflict.tables:  # else the catalog was locked
            self._each(PreparedBatch.rebase, [b for b in changed if b.table.name not in self.outcomes])

    def _apart(self, error: Exception) -> None:
        """After an error, commit each batch by itself, so that it meets its own; the catalog's is of all."""
        for batch in [*self.batches]:
            if isinstance(error, SetupError):
                batch.tell(error)
                self._ended(batch, error)
            else:
                self._ended(batch, commit_alone(batch))


def _reported(batch: PreparedBatch) -> Outcome:
    """The result of a batch that is visible, or the error of its report."""
    try:
        return batch.report()
    except DriftlineError as error:
        return error


def _is_of(batch: PreparedBatch, tables: Sequence[str]) -> bool:
    """True if one of the tables is that of the batch, its quarantine, or what remembers its deletes."""
    name = batch.table.name
    return any(table == name or table.startswith(f"{name}__") for table in tables)
