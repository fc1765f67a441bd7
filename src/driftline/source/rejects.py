"""What is no record of the table's: a text or a row, why, and where it stood."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.core.planning.routes import Conflict
from driftline.core.schema.types import dotted
from driftline.source.base import REJECTED

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, str] = dict(tuple(pair.split()) for pair in REJECTED.split(", "))  # type: ignore[misc]


class Origin(NamedTuple):
    """Where one record came from: a line of a file, or an offset of a topic's partition."""

    source: str | None = None
    line: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class Reject(NamedTuple):
    """What is set aside. ``raw``: its text, or its bytes where they are no UTF-8."""

    origin: Origin
    raw: bytes
    why: str | Conflict


def reject_batch(rejects: Iterable[Reject]) -> pa.RecordBatch:
    """Rejects with the columns of `driftline.source.base.REJECTED`."""
    import pyarrow as pa

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
    try:
        return reject.raw.decode(), None, *reason, *reject.origin
    except UnicodeDecodeError:
        return reject.raw.decode(errors="backslashreplace"), reject.raw, *reason, *reject.origin
