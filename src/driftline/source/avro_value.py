"""Values of Avro that stand alone, outside of a file."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, parse_schema

from driftline.convert.avro import node_of
from driftline.convert.avro_binary import RecordReader, UnfitError, reader_of
from driftline.convert.nodes import RecordNode, UnionNode
from driftline.errors import UsageError
from driftline.source.registry import Registered
from driftline.source.wire import Payloads, UnreadableError, Whole

_TOP = "__top__"  # the record around a value, so that it may be a union; without a namespace


class AvroDecoder:
    """Reads values of an Avro schema. Raises UsageError for one that a table cannot have."""

    def __init__(self, schema: Registered) -> None:
        named: dict[str, Any] = {}
        self._schema: Any = None
        try:
            for one in schema.references.values():
                parse_schema(json.loads(one.text), named)
            field = {"name": "value", "type": json.loads(schema.text)}
            self._schema = parse_schema({"type": "record", "name": _TOP, "fields": [field]}, named)
        except (SchemaParseException, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"no schema of Avro: {type(error).__name__}: {error}") from error
        top = self._schema["fields"][0]["type"]
        node = node_of(top, named)
        branches = node.branches if isinstance(node, UnionNode) else (node,)
        records = [branch for branch in branches if isinstance(branch, RecordNode)]
        if len(records) < len(branches):
            raise UsageError("its values are no records")
        self.nodes = {branch.name: branch for branch in records}
        self._only = records[0].name
        self._reader: RecordReader | None = None
        with suppress(UnfitError):
            self._reader = reader_of(top, named)

    def whole(self, payloads: Payloads) -> Whole | None:
        if self._reader is None:
            return None
        numbers, arrays = self._reader.columns(payloads.data, payloads.starts, payloads.ends)
        return Whole(self._only, self._reader.struct, numbers, arrays)

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        file = io.BytesIO(payload)
        try:
            top: Any = schemaless_reader(file, self._schema, None, return_record_name=True)
        except Exception as error:  # whatever hostile bytes lead a reader into
            raise UnreadableError(f"no Avro of its schema: {str(error) or type(error).__name__}") from error
        if left := len(payload) - file.tell():
            raise UnreadableError(f"no Avro of its schema: {left} bytes are left behind the record")
        if (value := top["value"]) is None:
            raise UnreadableError("null is no record")
        return value if type(value) is tuple else (self._only, value)
