"""Offsets of a topic that Kafka deleted before they were ingested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.kafka_admin import Admin, ByPartition


class LostOffsetsJson(TypedDict):
    """Offsets of a partition that were gone when they were to be read."""

    topic: str
    partition: int
    first: int
    last: int
    offsets: int


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets of a partition, from ``first`` to ``last``, that were gone when they were to be read."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of offsets, of records and of transaction markers."""
        return self.last - self.first + 1

    def to_dict(self) -> LostOffsetsJson:
        """The form that `--json` prints."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first": self.first,
            "last": self.last,
            "offsets": self.count,
        }

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: offsets {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of micro-batches, as Spark keeps them in a checkpoint."""

    checkpoint: Checkpoint

    def of(self, epoch: int) -> tuple[ByPartition, ByPartition]:
        """The begin and end offsets of a micro-batch, by partition."""
        before = f"offsets/{epoch - 1}" if epoch else "sources/0/0"
        return self._read(before), self._read(f"offsets/{epoch}")

    def _read(self, name: str) -> ByPartition:
        return {
            (topic, int(number)): offset
            for topic, partitions in self.checkpoint.spark_offsets(name).items()
            for number, offset in partitions.items()
        }


def lost(admin: Admin, offsets: Offsets, epoch: int) -> tuple[LostOffsets, ...]:
    """The offsets of a micro-batch that were gone when it was read.

    The brokers are asked after the read: offsets deleted meanwhile count as lost, read or not.
    """
    begin, end = offsets.of(epoch)
    first = admin.first_offsets(begin)
    gone = [
        LostOffsets(*place, start, min(first[place], end.get(place, start)) - 1)
        for place, start in begin.items()
    ]
    return tuple(sorted(interval for interval in gone if interval.count > 0))
