"""The last micro-batch of a capture that a table has: a property, set in the commit that brings the data.

Unlike a snapshot's summary, it outlives expiry, compaction and rollbacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftline.errors import DataError

PREFIX = "driftline.capture."


class BatchIsInError(Exception):
    """The table has this micro-batch already."""


@dataclass(frozen=True, slots=True)
class Token:
    """Micro-batch ``epoch`` of the stream that its checkpoint knows as ``stream``, in the capture ``name``.

    ``table``: the uuid of the capture's table, None while there is none. ``tried``: an earlier attempt may
    have left rejects behind.
    """

    name: str
    stream: str
    epoch: int
    table: str | None = None
    tried: bool = True

    @classmethod
    def of(cls, item: tuple[str, str]) -> Token | None:
        """The token that a property sets; None for any other property."""
        stream, _, epoch = item[1].rpartition(":")
        return cls(item[0].removeprefix(PREFIX), stream, int(epoch)) if item[0].startswith(PREFIX) else None

    @property
    def batch(self) -> str:
        """The batch's id, the same at each attempt."""
        return f"{self.name}-{self.epoch}-{self.stream[:8]}"

    @property
    def properties(self) -> dict[str, str]:
        """The table property that shows the batch is in."""
        return {PREFIX + self.name: f"{self.stream}:{self.epoch}"}

    def reached(self, properties: Mapping[str, str]) -> bool:
        """True if a table with these properties has this micro-batch, or a later one of the stream."""
        stream, _, epoch = properties.get(PREFIX + self.name, "").rpartition(":")
        return stream == self.stream and int(epoch) >= self.epoch

    def check(self, name: str, uuid: str | None, properties: Mapping[str, str]) -> None:
        """Check that the table does not have the batch. ``uuid`` None: there is no such table now.

        Raises BatchIsInError if it has, DataError if it is not the capture's table or has batches of another
        checkpoint.
        """
        if self.table not in (None, uuid):
            became = "was dropped" if uuid is None else "is another one than at the last batch"
            raise DataError(
                f"{name} {became}: capture {self.name} goes on where it was before",
                hint="restore the table; or delete the capture's checkpoint to ingest everything again into a new one",
            )
        if self.reached(properties):
            raise BatchIsInError
        stream, _, epoch = properties.get(PREFIX + self.name, "").rpartition(":")
        if stream and stream != self.stream:
            raise DataError(
                f"{name} has the batches of capture {self.name} up to {epoch}, by another checkpoint; "
                "this one would bring them again",
                hint="use that checkpoint, or give the capture another name to ingest everything again",
            )
