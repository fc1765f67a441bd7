"""The last micro-batch of a capture that a table has: properties, set in the commit that brings the data.

Unlike a snapshot's summary, they outlive expiry, compaction and rollbacks. One has the checkpoint and the
number, as all versions read it; the other says what the batch was made of, because numbers are given anew
where a checkpoint is restored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driftline.errors import DataError

PREFIX = "driftline.capture."
CONTENTS = "driftline.captured."


class BatchIsInError(Exception):
    """The table has this micro-batch already."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The last micro-batch of a capture that a table has: ``epoch`` of the checkpoint ``stream``.

    ``contents``: what it was made of; empty where an earlier version brought it.
    """

    stream: str
    epoch: int
    contents: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> Captured | None:
        """The last batch of the capture ``name`` by a table's properties; None if there is none."""
        if not (text := properties.get(PREFIX + name, "")):
            return None
        stream, _, epoch = text.rpartition(":")
        contents = json.loads(properties.get(CONTENTS + name, "{}"))
        # An earlier version has brought a batch since, which sets the number alone.
        return cls(stream, int(epoch), contents if contents.pop("batch", None) == text else {})

    @property
    def digest(self) -> str:
        """A short text that only this batch has."""
        text = json.dumps([self.stream, self.epoch, dict(self.contents)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """Micro-batch ``epoch`` of the stream that its checkpoint knows as ``stream``, in the capture ``name``.

    ``table``: the uuid of the capture's table, None while there is none. ``tried``: an earlier attempt may
    have left rejects behind. ``contents``: what the batch is made of; ``files``: the fingerprints of its
    files. ``follows``: another checkpoint, whose batches this one goes on from.
    """

    name: str
    stream: str
    epoch: int
    table: str | None = None
    tried: bool = True
    contents: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[int, ...] = ()
    follows: str | None = None

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
        """The property that shows the batch is in."""
        return {PREFIX + self.name: f"{self.stream}:{self.epoch}"}

    def marks(self, before: Mapping[str, str]) -> dict[str, str]:
        """The properties that the table gets with the batch. ``before``: those that it has."""
        if not self.contents:
            return self.properties
        last = Captured.of(self.name, before)
        # While the table's ledger has the capture's first file, it has all of its files.
        first = last.contents.get("first") if last is not None else next(iter(self.files), None)
        contents = {**self.contents, "batch": f"{self.stream}:{self.epoch}"}
        contents |= {} if first is None else {"first": first}
        return {**self.properties, CONTENTS + self.name: json.dumps(contents)}

    def reached(self, properties: Mapping[str, str]) -> bool:
        """True if a table with these properties has this micro-batch, or a later one of the stream."""
        last = Captured.of(self.name, properties)
        return last is not None and last.stream == self.stream and last.epoch >= self.epoch

    def check(self, name: str, uuid: str | None, properties: Mapping[str, str]) -> None:
        """Check that the table does not have the batch. ``uuid`` None: there is no such table now.

        Raises BatchIsInError if it has, DataError if it is not the capture's table or has batches of another
        checkpoint.
        """
        check_table(self.name, self.table, name, uuid)
        if self.reached(properties):
            raise BatchIsInError
        last = Captured.of(self.name, properties)
        if last is not None and last.stream not in (self.stream, self.follows):
            raise other_checkpoint(self.name, name, last)


def check_table(capture: str, expected: str | None, name: str, uuid: str | None) -> None:
    """Raise DataError if the table ``name`` is not the one that a capture began with.

    ``expected``: the uuid of that one, None while there is none; ``uuid``: that of the present one, None if
    there is no table.
    """
    if expected not in (None, uuid):
        became = "was dropped" if uuid is None else "is another one than at the last batch"
        raise DataError(
            f"{name} {became}: capture {capture} goes on where it was before",
            hint="restore the table; or take everything again into a new one: --resume-from table",
        )


def other_checkpoint(capture: str, name: str, last: Captured) -> DataError:
    """The error for a table that has the batches of another checkpoint."""
    return DataError(
        f"{name} has the batches of capture {capture} up to {last.epoch}, by another checkpoint; "
        "this one would bring them again",
        hint="use that checkpoint; if it is lost, go on with what the table does not have: --resume-from table; "
        "or give the capture another name to ingest everything again",
    )
