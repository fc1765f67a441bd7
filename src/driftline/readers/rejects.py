"""Rejected records: the raw text or row, the reason, and the origin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from driftline.core.planning.plan import Conflict
from driftline.core.schema.types import Place, dotted, name_text

# The columns in which a source gives what is not accepted;
# `driftline.quarantine.table` adds the batch and the time.
REJECTED = (
    "raw string, raw_bytes binary, reason string, path string, table_type string, incoming_type string, "
    "source string, line bigint, topic string, partition int, offset bigint, key string, key_bytes binary"
)
_TYPES: dict[str, str] = dict(tuple(pair.split()) for pair in REJECTED.split(", "))  # type: ignore[misc]


class Origin(NamedTuple):
    """The origin of one record: a line of a file, or an offset of a topic's partition.

    ``key``: of its message, where the table reads it.
    """

    source: str | None = None
    line: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None

    @property
    def place(self) -> Place:
        """The place that reports show."""
        if self.topic is not None:
            return Place(f"{self.topic}/{self.partition}", self.offset or 0)
        return Place(self.source or "", self.line or 0)


class Reject(NamedTuple):
    """A rejected record. ``raw``: its text, or its bytes if they are no text; None for a null value."""

    origin: Origin
    raw: bytes | None
    why: str | Conflict


def reject_batch(rejects: Iterable[Reject]) -> pa.RecordBatch:
    """Rejects with the columns of `REJECTED`."""
    arrow = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
    rows = [_row(reject) for reject in rejects]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_TYPES)
    arrays = [pa.array(v, arrow[t]) for v, t in zip(columns, _TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(_TYPES))


def _row(reject: Reject) -> tuple[Any, ...]:
    why = reject.why
    reason = (
        (why, None, None, None)
        if isinstance(why, str)
        else (why.why, dotted(why.path), why.table_type, why.incoming_type)
    )
    source, *place, key = reject.origin
    file = None if source is None else name_text(source)
    return *_text_and_bytes(reject.raw), *reason, file, *place, *_text_and_bytes(key)


def _text_and_bytes(raw: bytes | None) -> tuple[str | None, bytes | None]:
    """The text of some bytes, and the bytes where they are no text."""
    if raw is None:
        return None, None
    text = raw.decode(errors="backslashreplace").replace("\0", "\\x00")
    # A NUL is UTF-8, and yet nothing that every database has in a text.
    return text, None if text.encode() == raw else raw
