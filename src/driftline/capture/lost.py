"""Offsets of a topic that Kafka deleted before they were taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.kafka_admin import Admin, ByPartition


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets of a partition, from ``first`` to ``last``, that were gone when they were to be read."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many offsets: records, and markers of transactions."""
        return self.last - self.first + 1

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        place = {"topic": self.topic, "partition": self.partition}
        return {**place, "first": self.first, "last": self.last, "offsets": self.count}

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: offsets {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of micro-batches, as Spark keeps them in a checkpoint."""

    checkpoint: Checkpoint

    def of(self, epoch: int) -> tuple[ByPartition, ByPartition]:
        """Where a micro-batch begins in each partition, and where it ends."""
        before = f"offsets/{epoch - 1}" if epoch else "sources/0/0"
        return self._read(before), self._read(f"offsets/{epoch}")

    def _read(self, name: str) -> ByPartition:
        return {
            (topic, int(number)): offset
            for topic, partitions in self.checkpoint.spark_offsets(name).items()
            for number, offset in partitions.items()
        }


def lost(admin: Admin, offsets: Offsets, epoch: int) -> tuple[LostOffsets, ...]:
    """What of a micro-batch was gone when it was read.

    It is asked for behind the reading: what went meanwhile counts as lost, whether it was read before or not.
    """
    begin, end = offsets.of(epoch)
    first = admin.first_offsets(begin)
    gone = [
        LostOffsets(*place, start, min(first[place], end.get(place, start)) - 1)
        for place, start in begin.items()
    ]
    return tuple(sorted(one for one in gone if one.count > 0))
