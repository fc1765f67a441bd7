"""What reads values of Kafka by the schemas of a registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftline.errors import SetupError, UsageError
from driftline.source.avro_value import AvroDecoder
from driftline.source.registry import NoSchemaError, Registered, Registry
from driftline.source.wire import Decoder, UnreadableError

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF"}  # of the formats whose values need their schema


@dataclass(frozen=True, slots=True)
class Wire:
    """How values are written: ``format`` is one of `KINDS`; sent to tasks."""

    format: str
    registry: Registry

    def decoder(self, number: int) -> Decoder:
        """What reads values of the schema with this id: asked for once in a process.

        Raises UnreadableError where there is no such schema, or none that a table can have; SetupError
        where the registry does not answer.
        """
        key = (self.format, tuple(sorted(self.registry.settings.items())), number)
        decoder = _decoders.get(key)
        if decoder is None:
            decoder = _decoders[key] = self._new(number)
        return decoder

    def _new(self, number: int) -> Decoder:
        kind = KINDS[self.format]
        try:
            schema = self.registry.schema(number)
        except NoSchemaError as error:
            raise UnreadableError(f"the registry has no schema {number}: {error}") from error
        if schema.kind != kind:
            raise UnreadableError(f"schema {number} is {schema.kind}, not {kind}")
        try:
            return AvroDecoder(schema) if kind == "AVRO" else _protobuf(schema)
        except UsageError as error:
            raise UnreadableError(f"schema {number}: {error.message}") from error


_decoders: dict[tuple[Any, ...], Decoder] = {}  # an id's schema never changes


def _protobuf(schema: Registered) -> Decoder:
    try:
        from driftline.source.protobuf import ProtobufDecoder
    except ImportError as error:  # it comes with an extra
        raise SetupError("Protobuf needs its runtime.", "pip install 'driftline[registry]'") from error
    return ProtobufDecoder(schema)
