"""The task of every reader: it reads a share of a batch, observes it, and makes rows by a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import ExpectedField
from driftline.write import Reported, SetAside

if TYPE_CHECKING:
    import pyarrow as pa

TaskInput = TypeVar("TaskInput")  # the input of a task: its number, or the rows of a frame
Group = TypeVar("Group")  # records that are converted at once
Accepted = TypeVar("Accepted")  # those of a group that are no rejects
Observed_co = TypeVar("Observed_co", covariant=True)


class Diverged(Exception):
    """A record has something that its task's plan does not cover."""


class OpenShare(Protocol[Group, Accepted, Observed_co]):
    """A share of a batch, opened in its task. Each group is observed before the next one is read."""

    def groups(self) -> Iterator[Group]:
        """Yield the records in groups."""
        ...

    def observe(self, group: Group, everything: str | None) -> tuple[Accepted, pa.RecordBatch | None]:
        """Observe the accepted records of a group.

        Args:
            group: some records.
            everything: the reason to reject all records, if there is one.

        Returns:
            The accepted records, and the rejects, if any.
        """
        ...

    def convert(self, accepted: Accepted) -> Iterator[pa.RecordBatch]:
        """Convert accepted records to table rows. Raises Diverged if the plan does not cover a record."""
        ...

    def observed(self) -> Observed_co:
        """Return the observation of all records."""
        ...


class TaskReader(ABC, Generic[TaskInput, Group, Accepted, Observed_co]):
    """A reader of one format; it is sent to tasks."""

    @property
    @abstractmethod
    def converts(self) -> bool:
        """True if the reader has a plan to make rows by; without one it only observes."""

    @abstractmethod
    def open(self, task_input: TaskInput) -> OpenShare[Group, Accepted, Observed_co]:
        """Open the share of one task."""

    def rows(
        self, task_input: TaskInput, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Observed_co]]:
        """Make the rows of a share, and report what was observed.

        A plan may be speculated. A task that meets a record which the plan does not cover makes no more rows,
        raises nothing, and reports that it `diverged`. It goes on observing and setting rejects aside to the
        end, so that the next plan is made from all records. It never drops a row and goes on.
        """
        share, diverged = self.open(task_input), False
        for group in share.groups():
            accepted, rejects = share.observe(group, None)
            if rejects is not None:
                set_aside(rejects)
            if self.converts and not diverged:
                try:
                    yield from share.convert(accepted)
                # An error would make Spark repeat the task. This costs one pass of observation, not one load.
                except Diverged:
                    diverged = True
        return Reported(share.observed(), diverged)

    def rejects(self, task_input: TaskInput, everything: str | None) -> Iterator[pa.RecordBatch]:
        """Yield the rejects of a share.

        Args:
            task_input: the input of its task.
            everything: the reason to reject all records, if there is one.
        """
        share = self.open(task_input)
        for group in share.groups():
            _, rejects = share.observe(group, everything)
            if rejects is not None:
                yield rejects


@dataclass(frozen=True, slots=True)
class AdmissionTerms:
    """The terms by which a table admits records; they are sent to tasks.

    Attributes:
        expected: the table's columns.
        conflicts: the reasons to refuse rows of columns.
        check: refuses JSON records, one by one.
    """

    expected: ExpectedField
    settings: TableSettings
    conflicts: tuple[Conflict, ...] = ()
    check: AdmissionCheck | None = None

    def refusing(self, check: AdmissionCheck, conflicts: Sequence[Conflict]) -> AdmissionTerms:
        """Return terms that refuse more records: by the ``check``, or for one of the ``conflicts``."""
        return replace(self, check=check, conflicts=(*self.conflicts, *conflicts))

    @property
    def refuse(self) -> bool:
        """True if the terms refuse any record."""
        return self.check is not None or bool(self.conflicts)


T = TypeVar("T")

# Rows that are converted at once, or bytes of them: each column of a batch
# costs some time, however few rows there are.
_MANY, _LARGE = 4_000, 32 * 2**20


def assign_parts(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Assign parts by size to at most so many tasks; within a task the parts are in order.

    Each gets a run of consecutive parts, where that is even to a tenth: what begins with each file, or goes
    on within it, is then done once. Else the largest part goes first, each to the least loaded task.

    >>> assign_parts([9, 9, 9, 9], 2), assign_parts([5, 9, 4], 2)
    ([[0, 1], [2, 3]], [[1], [0, 2]])
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(sizes))))]
    load = [0] * len(shares)
    # Small parts last, so that they even out what the large ones leave.
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        least = load.index(min(load))
        shares[least].append(number)
        load[least] += sizes[number]
    runs = in_runs(sizes, len(shares))
    if 10 * max(sum(sizes[number] for number in run) for run in runs) <= 11 * max(load):
        return runs
    return [sorted(share) for share in shares]


def in_runs(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Assign parts by size to at most so many tasks, each a run of consecutive parts.

    >>> in_runs([5, 9, 4], 2)
    [[0], [1, 2]]
    """
    total = 2 * sum(sizes) or 1
    shares: list[list[int]] = [[] for _ in range(tasks)]
    begin = 0
    for number, size in enumerate(sizes):
        # Doubled, to stay in integers: a part goes where its middle falls among equal shares of all bytes.
        middle = 2 * begin + size
        shares[min(middle * tasks // total, tasks - 1)].append(number)
        begin += size
    return [share for share in shares if share] or [[]]


def group_parts(parts: Iterable[T], weigh: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Group parts to be converted together.

    Args:
        weigh: the rows and bytes of a part.
    """
    group: list[T] = []
    rows = size = 0
    for part in parts:
        group.append(part)
        rows_of_part, size_of_part = weigh(part)
        rows, size = rows + rows_of_part, size + size_of_part
        if rows >= _MANY or size >= _LARGE:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
