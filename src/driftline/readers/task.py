"""The task of every reader: it reads a share of a batch, observes it, and makes rows by a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict
from driftline.core.settings.table import Settings
from driftline.observe.expect import ExpectedField
from driftline.write import Reported, SetAside

if TYPE_CHECKING:
    import pyarrow as pa

Given = TypeVar("Given")  # what a task is given: its number, or the rows of a frame
Group = TypeVar("Group")  # records that are converted at once
Accepted = TypeVar("Accepted")  # those of a group that are no rejects
Observed_co = TypeVar("Observed_co", covariant=True)


class Diverged(Exception):
    """A record has what the plan of its task does not cover."""


class OpenShare(Protocol[Group, Accepted, Observed_co]):
    """A share of a batch, open in its task. Each group is observed before the next one is read."""

    def groups(self) -> Iterator[Group]:
        """Read the records, some at a time."""
        ...

    def observe(self, group: Group, everything: str | None) -> tuple[Accepted, pa.RecordBatch | None]:
        """Observe the records of a group that are accepted; returns them, and the rejects if there are some.

        ``everything``: the reason for which all records are rejects.
        """
        ...

    def convert(self, accepted: Accepted) -> Iterator[pa.RecordBatch]:
        """Make rows of the table. Raises Diverged if the plan does not cover a record."""
        ...

    def observed(self) -> Observed_co:
        """The observation of all records."""
        ...


class TaskReader(ABC, Generic[Given, Group, Accepted, Observed_co]):
    """Reads one format in tasks, to which it is sent."""

    @property
    @abstractmethod
    def converts(self) -> bool:
        """True if it has a plan to make rows by; without one it only observes."""

    @abstractmethod
    def open(self, given: Given) -> OpenShare[Group, Accepted, Observed_co]:
        """Open the share of one task."""

    def rows(
        self, given: Given, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Observed_co]]:
        """Make the rows of a share, and report what was observed.

        A plan may be speculated. A task that meets a record which the plan does not cover makes no more rows,
        raises nothing, and reports that it `diverged`. It goes on observing and setting rejects aside to the
        end, so that the next plan is made from all records. It never drops a row and goes on.
        """
        share, diverged = self.open(given), False
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

    def rejects(self, given: Given, everything: str | None) -> Iterator[pa.RecordBatch]:
        """The rejects of a share; all of its records if there is a reason for ``everything``."""
        share = self.open(given)
        for group in share.groups():
            _, rejects = share.observe(group, everything)
            if rejects is not None:
                yield rejects


@dataclass(frozen=True, slots=True)
class AdmissionTerms:
    """The terms on which a table admits records; they are sent to tasks.

    ``expected``: the table's columns. Records of JSON are refused one by one, by the ``judge``, and rows of
    columns by the ``conflicts``.
    """

    expected: ExpectedField
    settings: Settings
    conflicts: tuple[Conflict, ...] = ()
    judge: AdmissionCheck | None = None

    def refusing(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> AdmissionTerms:
        """These terms, which refuse more records: by the ``judge``, or for one of the ``conflicts``."""
        return replace(self, judge=judge, conflicts=(*self.conflicts, *conflicts))

    @property
    def refuse(self) -> bool:
        """True if some records are refused."""
        return self.judge is not None or bool(self.conflicts)


T = TypeVar("T")

# Rows that are converted at once, or bytes of them: each column of a batch
# costs some time, however few rows there are.
_MANY, _LARGE = 4_000, 32 * 2**20


def dealt(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The numbers of parts of these sizes, for so many tasks at most, the largest first to
    the least laden; in order within a task.

    >>> dealt([5, 9, 4], 2)
    [[1], [0, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(sizes))))]
    laden = [0] * len(shares)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        least = laden.index(min(laden))
        shares[least].append(number)
        laden[least] += sizes[number]
    return [sorted(share) for share in shares]


def in_runs(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The numbers of parts of these sizes, in order: those of a task follow one another.

    >>> in_runs([5, 9, 4], 2)
    [[0], [1, 2]]
    """
    total = 2 * sum(sizes) or 1
    shares: list[list[int]] = [[] for _ in range(tasks)]
    begin = 0
    for number, size in enumerate(sizes):
        middle = 2 * begin + size
        shares[min(middle * tasks // total, tasks - 1)].append(number)
        begin += size
    return [share for share in shares if share] or [[]]


def gathered(parts: Iterable[T], weigh: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Some parts at a time, which are converted at once. ``weigh``: the rows of one, and their bytes."""
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
