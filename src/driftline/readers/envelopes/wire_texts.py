"""Messages in the wire format of a registry as texts of JSON, with their keys."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.rest import row_texts
from driftline.readers.decoders import Wire
from driftline.readers.envelopes.avro_texts import AvroTexts
from driftline.readers.wire import UnreadableError
from driftline.readers.wire_values import WireValues

Texts = tuple[list[bytes | None], dict[int, str]]  # of values, and why others have none, by their places


def texts_of(wire: Wire, batch: pa.RecordBatch, values: pa.Array) -> Texts:
    """The texts of ``values`` of a batch of Kafka's; null for null, and the bytes of what has none."""
    if wire.format == "avro":
        return _of_avro(wire, values.to_pylist())
    texts: list[bytes | None] = values.to_pylist()
    alike, unreadable = WireValues(wire).read(batch, values)
    for some in alike:
        for place, text in zip(
            some.places, row_texts(some.rows.batch, some.struct, points=True), strict=True
        ):
            texts[place] = text
    return texts, dict(unreadable)


def key_texts_of(wire: Wire, batch: pa.RecordBatch) -> Texts:
    """The texts of the keys in a batch of Kafka's; those that are not framed stay as they are."""
    keys = batch.column("key")
    framed = pc.equal(pc.binary_slice(keys, 0, 1), pa.scalar(b"\0", keys.type))
    texts, wrong = texts_of(wire, batch, pc.if_else(framed, keys, pa.scalar(None, keys.type)))
    return [key if text is None else text for key, text in zip(keys.to_pylist(), texts, strict=True)], wrong


def _of_avro(wire: Wire, values: Sequence[bytes | None]) -> Texts:
    texts, wrong, reader = list(values), dict[int, str](), AvroTexts(wire)
    for place, value in enumerate(values):
        try:
            texts[place] = None if value is None else reader.of(value)
        except UnreadableError as error:
            wrong[place] = str(error)
    return texts, wrong
