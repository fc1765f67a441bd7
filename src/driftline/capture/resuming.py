"""Resumes a capture whose checkpoint and table differ in age, after a restore or a loss.

The table records with each batch what the batch was made of. If the checkpoint is older, the capture skips
what the table already has. If the table is older, a person decides how to go on: only they can know why the
batches are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.finding import ListedFile
from driftline.core.history.batch_properties import Captured, check_table, other_checkpoint
from driftline.core.schema.text import counted
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, State
from driftline.ingest.fan_out import RESTORE

ResumeFrom: TypeAlias = Literal["table", "checkpoint"]
Positions: TypeAlias = Mapping[str, Mapping[str, int]]  # offsets by topic and partition
_NAMED = 5  # files, or partitions, that a message lists
_CHOICE = "--resume-from table takes them again, --resume-from checkpoint goes on without them"


@dataclass(frozen=True, slots=True)
class Resumption:
    """The table and the checkpoint of the capture ``name`` before it begins.

    Attributes:
        resume_from: what a person said counts where they differ.
        of_pattern: the table is one of those of a pattern, of which nobody says so.
    """

    name: str
    table: CatalogTable
    state: State
    checkpoint: Checkpoint
    resume_from: ResumeFrom | None
    of_pattern: bool = False

    @property
    def last(self) -> Captured | None:
        """The last batch that the table has."""
        return Captured.of(self.name, self.state.properties)

    @property
    def is_adopted(self) -> bool:
        """True if the table has batches of another checkpoint, or is not the one of this checkpoint."""
        last, checkpoint = self.last, self.checkpoint
        if checkpoint.uuid not in (None, self.state.uuid):
            return True
        return last is not None and last.stream not in (checkpoint.stream, checkpoint.follows)

    def check(self) -> None:
        """Raise DataError if the table is not this checkpoint's, unless a person said how to go on."""
        if self.resume_from is None and self.is_adopted:
            check_table(self.name, self.checkpoint.uuid, self.table.name, self.state.uuid)
            assert self.last is not None
            raise other_checkpoint(self.name, self.table.name, self.last)

    def ingested(self, files: Sequence[ListedFile]) -> set[ListedFile]:
        """The files among these that the table remembers of this capture."""
        state = self.table.load()
        if not (files and state.exists):
            return set()
        by_number = {file.fingerprint(self.name): file for file in files}
        return {by_number[number] for number in self.table.ingested_files(state, by_number.keys())}

    def has_parts(self, files: Sequence[ListedFile]) -> bool:
        """True if the table has parts of one of these files that this capture has brought."""
        numbers = [file.part_fingerprint(self.name) for file in files]
        return bool(numbers and self.state.exists and self.table.ingested_files(self.table.load(), numbers))

    def has_all(self) -> bool:
        """True if the table remembers all files that it has of this capture."""
        first = None if self.last is None else self.last.contents.get("first")
        return first is not None and bool(self.table.ingested_files(self.state, [first]))

    def settle(self, number: int, contents: Mapping[str, Any]) -> None:
        """Note that table and checkpoint belong together as they are.

        Args:
            number: the last batch that the checkpoint counts as in.
            contents: of it.
        """
        last, checkpoint = self.last, self.checkpoint
        checkpoint.settle(last, number, contents)
        # Spark's numbers and the table's epochs differ after a restore; new batches must count as later ones.
        if last is not None:
            checkpoint.renumber(number + 1, last.epoch + 1)
        if self.is_adopted:
            checkpoint.follow(last, self.state.uuid)

    def behind(self, first: int, last: int, lacks: str) -> DataError:
        """The error for a table that lacks the batches ``first`` to ``last`` of its checkpoint.

        Args:
            lacks: what they were made of.
        """
        has = "no batch" if self.last is None else f"batches up to {self.last.epoch}"
        epochs = sorted({self.checkpoint.epoch_of(first), self.checkpoint.epoch_of(last)})
        batches = f"batch {epochs[0]}" if len(epochs) == 1 else f"batches {epochs[0]} to {epochs[1]}"
        return DataError(
            f"{self.table.name} has {has} of capture {self.name}, and its checkpoint goes on at "
            f"{self.checkpoint.epoch_of(last) + 1}: {batches} ({lacks}) are not in the table, which may be restored",
            hint=RESTORE if self.of_pattern else _CHOICE,
        )

    def unsettled(self) -> DataError:
        """The error for a change of position while table and checkpoint differ."""
        return DataError(
            f"{self.table.name} and the checkpoint of capture {self.name} differ, as one of them was restored",
            hint="start the capture first: it says what differs, and how to go on",
        )

    def unknown(self, records: str) -> DataError:
        """The error for a checkpoint of another time than its table, where nobody knows what came between.

        Args:
            records: a word for what the checkpoint would bring again.
        """
        assert self.last is not None
        return DataError(
            f"{self.table.name} has batches up to {self.last.epoch} of capture {self.name}, and does not remember "
            f"which {records} they were made of: its checkpoint is of another time, and cannot be compared with it",
            hint=f"put the newest checkpoint back; or {RESTORE}"
            if self.of_pattern
            else f"put the newest checkpoint back; or --resume-from checkpoint takes all {records} that the checkpoint "
            "does not know, once more if they are in",
        )


def named_files(files: Sequence[ListedFile]) -> str:
    """Files in a message.

    >>> named_files([ListedFile("in/a.json", 1, 1)])
    '1 file, in/a.json'
    """
    unnamed = len(files) - _NAMED
    named = ", ".join(file.path for file in files[:_NAMED])
    return f"{counted(len(files), 'file')}, {named}{f' and {unnamed} more' if unnamed > 0 else ''}"


def named_offsets(begin: Positions, end: Positions) -> str:
    """The offsets between two positions in a message.

    >>> named_offsets({"t": {"0": 4, "1": 3}}, {"t": {"0": 10, "1": 3}})
    't/0: offsets 4 to 9'
    """
    ranges = offset_ranges(begin, end)
    unnamed = len(ranges) - _NAMED
    return ", ".join(ranges[:_NAMED]) + (f" and {unnamed} more" if unnamed > 0 else "")


def offset_ranges(begin: Positions, end: Positions) -> list[str]:
    """The offsets between two positions, one text for each partition that has some.

    >>> offset_ranges({"t": {"0": 4}}, {"t": {"0": 10, "1": 1}})
    ['t/0: offsets 4 to 9', 't/1: offsets 0 to 0']
    """
    return [
        f"{topic}/{partition}: offsets {begin.get(topic, {}).get(partition, 0)} to {offset - 1}"
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
        if begin.get(topic, {}).get(partition, 0) < offset
    ]


def is_ahead(position: Positions, than: Positions) -> bool:
    """True if a position is behind another one in the order of the topics, in any partition.

    >>> is_ahead({"t": {"0": 5}}, {"t": {"0": 4}}), is_ahead({"t": {"0": 5}}, {"t": {"0": 5, "1": 2}})
    (True, False)
    """
    return bool(named_offsets(than, position))
