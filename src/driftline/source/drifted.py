"""Lines of JSON of which some values are not of the usual types: those come as objects, and what is usual is
parsed as whole columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
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

# The share of records from which on all values of a field come as objects: to put
# single ones into a column costs more.
_OFTEN = 0.25

_split = json.Decoder(dict[str, Raw]).decode


@dataclass(frozen=True, slots=True)
class ByField:
    """Records by field: those of ``struct`` as ``columns``, the others in ``objects``, one a record.
    ``drifted``: by the key of a column, the records that have its value in their object, and null there.
    """

    columns: pa.RecordBatch
    struct: Struct
    objects: Sequence[dict[str, object]]
    drifted: Mapping[str, Sequence[int]]


def by_field(
    lines: Sequence[bytes], usual: Struct, drifting: AbstractSet[str], keys: Collection[str], takes: Fields
) -> ByField | None:
    """The lines' records by field; None where they have to be read one by one.

    ``usual``: the fields that may be parsed as columns; ``drifting``: those of them that have other values,
    too; ``keys``: of all fields that count; ``takes``: decoders that take usual values alone, but for numbers
    that a double does not tell.
    """
    if doubtful(lines):
        return None
    try:
        records = [_split(line) for line in lines]
    except MsgspecError:
        return None
    unusual = [_unusual(record, drifting, takes) for record in records]
    drifted = _by_key(unusual)
    often = {key for key, numbers in drifted.items() if len(numbers) > _OFTEN * len(lines)}
    struct = Struct(tuple(field for field in usual.fields if field.name not in often))
    if not struct.fields:
        return None
    of_columns = {field.name for field in struct.fields}
    object_keys = set(keys) - of_columns
    names = {key: json.encode(key) + b":" for key in keys}
    try:
        columns = parsed(
            [
                line if often.issuperset(apart) else _text(record, of_columns.difference(apart), names)
                for line, record, apart in zip(lines, records, unusual, strict=True)
            ],
            struct,
        )
    except Unparsed:
        return None
    objects = [
        parse(_text(record, object_keys.union(apart), names)) if object_keys or apart else {}
        for record, apart in zip(records, unusual, strict=True)
    ]
    return ByField(columns, struct, objects, {key: drifted[key] for key in drifted if key not in often})


def _unusual(record: Mapping[str, Raw], drifting: AbstractSet[str], takes: Fields) -> list[str]:
    """Which of the ``drifting`` keys have a value that is not usual."""
    keys: list[str] = []
    for key, value in record.items():
        if key in drifting:
            try:
                takes[key](value)
            except REFUSED:
                keys.append(key)
    return keys


def _text(record: Mapping[str, Raw], keys: AbstractSet[str], names: Mapping[str, bytes]) -> bytes:
    """The record as JSON, with these keys alone."""
    return b"{%b}" % b",".join([names[key] + value for key, value in record.items() if key in keys])


def _by_key(keys: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """The records by each of their keys."""
    out: dict[str, list[int]] = {}
    for number, of_record in enumerate(keys):
        for key in of_record:
            out.setdefault(key, []).append(number)
    return out
