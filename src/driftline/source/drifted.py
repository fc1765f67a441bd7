"""Lines of JSON of which some fields are not of the usual types: taken apart by field. A field that is usual
in all of them is parsed as a whole column; the others come as objects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Raw, json

from driftline.core.schema.types import Struct
from driftline.core.values.parse import parse
from driftline.observe.decoder import REFUSED, Fields
from driftline.observe.screen import doubtful
from driftline.source.arrow_json import Unparsed, parsed

if TYPE_CHECKING:
    import pyarrow as pa

_split = json.Decoder(dict[str, Raw]).decode


@dataclass(frozen=True, slots=True)
class ByField:
    """Records by field: those of ``struct`` as ``columns``, the others as ``objects``, one a record."""

    columns: pa.RecordBatch
    struct: Struct
    objects: Sequence[dict[str, object]]


def by_field(lines: Sequence[bytes], usual: Struct, keys: Collection[str], takes: Fields) -> ByField | None:
    """The lines' records by field; None where they have to be read one by one.

    ``usual``: the fields that may be parsed as columns; ``keys``: of all fields that count; ``takes``:
    decoders that take usual values alone, but for numbers that a double does not tell.
    """
    if doubtful(lines):
        return None
    try:
        records = [_split(line) for line in lines]
    except MsgspecError:
        return None
    drifted = _drifted(records, {f.name for f in usual.fields}, takes)
    struct = Struct(tuple(f for f in usual.fields if f.name not in drifted))
    if not struct.fields:
        return None
    try:
        columns = parsed(lines, struct)
    except Unparsed:
        return None
    whole = {f.name for f in struct.fields}
    names = {key: json.encode(key) + b":" for key in keys if key not in whole}
    objects = [
        parse(b"{%b}" % b",".join([names[key] + value for key, value in record.items() if key in names]))
        for record in records
    ]
    return ByField(columns, struct, objects)


def _drifted(records: Sequence[dict[str, Raw]], usual: Collection[str], takes: Fields) -> set[str]:
    """The keys under which some record has a value that is not usual."""
    drifted: set[str] = set()
    for record in records:
        for key, value in record.items():
            if key in usual and key not in drifted:
                try:
                    takes[key](value)
                except REFUSED:
                    drifted.add(key)
    return drifted
