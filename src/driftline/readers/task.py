"""The task of every source: it reads a share of a batch, observes each record, and makes rows by a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

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
