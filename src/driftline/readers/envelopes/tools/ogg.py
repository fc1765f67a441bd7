"""Messages of Oracle GoldenGate, JSON by operation: `op_type`, `before` and `after` of a row, `pos`."""

from __future__ import annotations

from msgspec import Raw

from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable
from driftline.readers.envelopes.log_positions import Digits
from driftline.readers.envelopes.opened import deleted, opened, positioned, truncate, written

WRITES = {"I": "c", "U": "u"}  # by `op_type`
_DIGITS = 40


def read(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    kind = message.value("op_type")
    if not isinstance(kind, str) or "table" not in message.fields:
        raise NotReadable("no message of GoldenGate's: it has no `op_type` and `table`")
    if kind == "T":
        return truncate(Digits(_DIGITS)(message.value("pos")), terms)
    if kind not in WRITES and kind != "D":
        raise NotReadable(f"op_type {kind!r} is none of GoldenGate's: I, U, D, T")
    if missing := message.value("missing_columns"):
        raise NotReadable(f"columns that the source has left out: {missing}, of which nothing is known")
    position = positioned(
        Digits(_DIGITS)(message.value("pos")), terms, "no number in `pos` that says where the change stood"
    )
    before, after = message.row("before"), message.row("after")
    if kind == "D":
        if before is None:
            raise NotReadable("op_type 'D' without an object in `before`")
        return [deleted(before, message.key, position, terms)]
    if after is None:
        raise NotReadable(f"op_type {kind!r} without an object in `after`")
    return written(after, before if kind == "U" else None, WRITES[kind], position, terms)
