"""Arrow rows as JSON, as `driftline query` prints them: each null, each digit, instants in UTC."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.kernels import convert
from driftline.core.schema.types import DATE, STRING, TIME, TIMESTAMP, TIMESTAMP_NTZ, Primitive
from driftline.errors import DataError
from driftline.readers.csv.types import java_text

_NOT_A_NUMBER = ("NaN", "Infinity", "-Infinity")


def row_objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Each row as a JSON object with these names.

    Raises DataError for a column that has no such form.

    >>> row_objects(pa.record_batch([[1, None], ["x", "y"]], names=["a", "b"]), ["0", "1"])
    ['{"0":1,"1":"x"}', '{"0":null,"1":"y"}']
    """
    return _objects(batch.columns, names, batch.num_rows)


def _objects(columns: Sequence[pa.Array], names: Sequence[str], count: int) -> list[str]:
    keys = [_quoted(name) for name in names]
    cells = [_texts(column) for column in columns]
    return [
        "{" + ",".join(f"{key}:{values[i]}" for key, values in zip(keys, cells, strict=True)) + "}"
        for i in range(count)
    ]


def _texts(array: pa.Array) -> list[str]:
    """Each value as JSON."""
    type_ = array.type
    if isinstance(array, pa.ExtensionArray):
        return _texts(array.storage)
    if pa.types.is_dictionary(type_):
        return _texts(array.dictionary_decode())
    if pa.types.is_struct(type_):
        fields = [array.field(i) for i in range(type_.num_fields)]
        objects = _objects(fields, [f.name for f in type_], len(array))
        return _nulled(objects, array)
    if pa.types.is_map(type_):
        keys = [_key(text) for text in _texts(array.keys)]
        values = _texts(array.items)
        return _nulled(
            [
                "{" + ",".join(f"{keys[i]}:{values[i]}" for i in range(begin, end)) + "}"
                for begin, end in _spans(array)
            ],
            array,
        )
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        items = _texts(array.values)
        return _nulled(["[" + ",".join(items[begin:end]) + "]" for begin, end in _spans(array)], array)
    if pa.types.is_fixed_size_list(type_):
        return _texts(array.cast(pa.list_(type_.value_type)))
    return _leaves(array)


def _spans(array: pa.Array) -> list[tuple[int, int]]:
    """The places among all items at which those of each list begin and end."""
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))


def _nulled(texts: list[str], array: pa.Array) -> list[str]:
    if not array.null_count:
        return texts
    return [text if v else "null" for text, v in zip(texts, array.is_valid().to_pylist(), strict=True)]


def _key(text: str) -> str:
    return text if text.startswith('"') else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _leaves(array: pa.Array) -> list[str]:
    type_ = array.type
    if pa.types.is_decimal(type_):
        return _each(array, str)  # Java and Python write one text, 1E-18 too
    if pa.types.is_floating(type_):
        # The shortest text of a single reads back, as a double, with the same digits.
        doubles = array if pa.types.is_float64(type_) else array.cast(pa.string()).cast(pa.float64())
        return _each(doubles, lambda v: _number(java_text(v)))
    if pa.types.is_integer(type_):
        return _each(array, str)
    if pa.types.is_boolean(type_):
        return _each(array, lambda v: "true" if v else "false")
    if pa.types.is_null(type_):
        return ["null"] * len(array)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return _each(array, lambda v: f'"{base64.b64encode(v).decode()}"')
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _each(array, _quoted)
    return _each(_moments(array), _quoted)


def _moments(array: pa.Array) -> pa.Array:
    """Dates and times as text."""
    type_ = array.type
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pc.replace_substring(array.cast(pa.timestamp("ns")).cast(pa.string()), " ", "T")
    source: Primitive
    if pa.types.is_timestamp(type_):
        source = TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
        array = array.cast(pa.timestamp("us", type_.tz))
    elif pa.types.is_date(type_):
        source, array = DATE, array.cast(pa.date32())
    elif pa.types.is_time(type_):
        source = TIME
    else:
        raise DataError(f"SQL: Arrow's type {type_} has no text", "cast the column AS VARCHAR")
    return convert(array, source, STRING)


def _number(text: str) -> str:
    return f'"{text}"' if text in _NOT_A_NUMBER else text


def _each(array: pa.Array, text: Callable[..., str]) -> list[str]:
    return ["null" if value is None else text(value) for value in array.to_pylist()]
