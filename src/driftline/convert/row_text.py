"""Rows of typed columns as JSON text that keeps every value: section 3's text
of each, binary as base64; nulls left out. Text that is not UTF-8 stands there as its bytes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from driftline.convert.declared import entries_of
from driftline.convert.kernels import convert, converts
from driftline.convert.lists import merged
from driftline.core.schema.types import STRING, List, Map, Primitive, Struct, Type

_NUMBERS = ("int", "long", "float", "double", "decimal")
_WHOLE = re.compile(r"-?[0-9]+")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # in JSON


def row_texts(batch: pa.RecordBatch, struct: Struct, *, points: bool = False) -> list[bytes]:
    """Each row as the text of a JSON object.

    ``struct``: the types of the columns, in their order, by key; ``points``: numbers of types that have a
    fraction are written with one, as the type is read from the text again.
    """
    return list(map(msgspec.json.encode, _records(batch.columns, struct, batch.num_rows, points)))


def _records(arrays: Sequence[pa.Array], struct: Struct, count: int, points: bool) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{} for _ in range(count)]
    for f, array in zip(struct.fields, arrays, strict=True):
        for record, value in zip(records, json_values(array, f.type, points), strict=True):
            if value is not None:
                # Of a key that occurs several times, each record has one
                # value; of its lists, one in each place.
                record[f.name] = merged(record[f.name], value) if f.name in record else value
    return records


def json_values(array: pa.Array, type_: Type, points: bool = False) -> list[Any]:
    """Each value as what msgspec writes it from; None where there is none."""
    match type_:
        case Struct(fields):
            children = [array.field(i) for i in range(len(fields))]
            records = _records(children, type_, len(array), points)
            return [r if v else None for r, v in zip(records, array.is_valid().to_pylist(), strict=True)]
        case List(element):
            return _cut(json_values(array.flatten(), element, points), array)
        case Map(key, value):
            entries = entries_of(array)
            flat = entries.flatten()
            keys = [_key(k) for k in json_values(flat.field(0), key)]
            pairs = _cut(list(zip(keys, json_values(flat.field(1), value, points), strict=True)), entries)
            return [None if items is None else _object(items) for items in pairs]
        case Primitive():
            return _leaves(array, type_, points)


def _key(value: Any) -> str | msgspec.Raw:
    if isinstance(value, msgspec.Raw):
        raw = bytes(value)
        return value if raw.startswith(b'"') else raw.decode()
    return str(value)


def _object(pairs: Sequence[tuple[str | msgspec.Raw, Any]]) -> Any:
    """An object of these keys; as text where a dict cannot hold them: bytes, or a key twice."""
    encode = msgspec.json.encode
    if any(isinstance(key, msgspec.Raw) for key, _ in pairs) or len(dict(pairs)) < len(pairs):
        return msgspec.Raw(b"{%b}" % b",".join(b"%b:%b" % (encode(k), encode(v)) for k, v in pairs))
    return dict(pairs)


def _cut(items: list[Any], lists: pa.Array) -> list[Any]:
    """The items of each list."""
    out: list[Any] = []
    start = 0
    for length in lists.value_lengths().to_pylist():
        out.append(None if length is None else items[start : start + length])
        start += length or 0
    return out


def _leaves(array: pa.Array, type_: Primitive, points: bool) -> list[Any]:
    if type_.name == "boolean":
        return array.to_pylist()  # type: ignore[no-any-return]
    if type_.name in _NUMBERS:
        texts = convert(array, type_, STRING).to_pylist()
        if points and (type_.name in ("float", "double") or any(type_.args[1:])):
            texts = [f"{t}.0" if t is not None and _WHOLE.fullmatch(t) else t for t in texts]
        return [t if t is None or t in _NO_NUMBERS else msgspec.Raw(t.encode()) for t in texts]
    if type_ == STRING or (converts(type_, STRING) and type_.name != "binary"):
        texts = convert(array, type_, STRING).cast(pa.binary()).to_pylist()
        return [None if t is None else _text(t) for t in texts]
    if type_.name in ("binary", "fixed"):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    return [None if v is None else str(v) for v in array.to_pylist()]


def _text(raw: bytes) -> str | msgspec.Raw:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        text = json.dumps(raw.decode(errors="surrogateescape"), ensure_ascii=False)
        return msgspec.Raw(text.encode(errors="surrogateescape"))
