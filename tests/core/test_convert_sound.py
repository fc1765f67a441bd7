"""All that was observed and planned converts: the rows hold every value of every record, by the check that knows no routes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.test_observe_sound import SCHEMAS, batches, observed
from driftline.convert import Converter, arrow_schema, arrow_type
from driftline.core.planning.plan import Plan
from driftline.core.planning.planner import plan
from driftline.core.schema.schema_json import type_text
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    peel,
)
from driftline.core.settings.table import TableSettings
from driftline.core.values import Malformed, has_value, parse
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.readers.json.usual import limited, usual_struct, valueless_keys
from driftline.verify.json_texts import parse as parse_apart
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import Pairs, Single, ValueSettings

DATES = st.sampled_from(["on", "off", "instant"])


def records_of(lines: list[bytes]) -> tuple[list[dict[str, object]], list[dict[str, Any]]]:
    """The records of some lines, as driftline parses them, and as its check does."""
    records, others = [], []
    for line in lines:
        if b'"": ' in line:  # a key of a map to the rules, none to the check
            continue
        try:
            record = parse(line)
        except Malformed:
            continue
        records.append(record)
        others.append(parse_apart(line))
    return records, others


def planned_of(lines: list[bytes], schema: Schema, wanted: TableSettings) -> Plan | None:
    seen = observed(lines, expect(schema, wanted), wanted.dates)
    planned = plan(schema, seen.shape, wanted)
    return planned if planned.schema.struct.fields and not planned.conflicts else None


@pytest.mark.slow
@given(batches(), SCHEMAS, DATES)
@settings(max_examples=50, deadline=None)
def test_rows_hold_their_records(lines: list[bytes], schema: Schema, dates: str) -> None:
    wanted = TableSettings(dates=dates)
    planned = planned_of(lines, schema, wanted)
    if planned is None:
        return
    records, others = records_of(lines)
    rows = Converter(planned.schema.struct, planned.route, wanted).of_json(records)
    rows.validate(full=True)
    columns, reading = TableStruct.of(planned.schema.struct), ValueSettings(offsets=dates == "instant")
    for row, record in zip(plain(rows, planned.schema.struct), others, strict=True):
        assert differences(columns, row, record, reading) == []


MIXED = st.recursive(
    st.sampled_from(
        [
            "1",
            '"t"',
            "null",
            "{}",
            '{"a": null}',
            '{"a": 1}',
            '{"a": []}',
            '{"a": {"b": null}}',
            '{"c": [{}]}',
        ]
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=5,
)
TABLES = st.sampled_from(
    [
        *(None, LONG, List(LONG), List(STRING), List(List(LONG)), Struct((Field("a", LONG),))),
        List(Struct((Field("a", LONG),))),
    ]
)


@pytest.mark.slow
@given(st.lists(MIXED, min_size=1, max_size=4), TABLES)
@settings(max_examples=130, deadline=None)
def test_objects_without_values_decide_no_column(values: list[str], type_: Type | None) -> None:
    schema = Schema(Struct((Field("f", type_),)) if type_ else Struct())
    lines = [f'{{"f": {value}}}'.encode() for value in values]
    planned = planned_of(lines, schema, TableSettings())
    bare = planned_of(
        [json.dumps(_bare(json.loads(line))).encode() for line in lines], schema, TableSettings()
    )
    if planned is None or bare is None:
        assert planned == bare
        return
    assert types_of(planned.schema) == types_of(bare.schema)
    records, others = records_of(lines)
    rows = Converter(planned.schema.struct, planned.route, TableSettings()).of_json(records)
    columns = TableStruct.of(planned.schema.struct)
    for row, record in zip(plain(rows, planned.schema.struct), others, strict=True):
        assert differences(columns, row, record, ValueSettings()) == []


def _bare(value: Any) -> Any:
    """The value, without the keys whose values are none."""
    match value:
        case dict():
            return {key: _bare(item) for key, item in value.items() if has_value(item)}
        case list():
            return [_bare(item) for item in value]
        case _:
            return value


_ID = re.compile(r'"(?:element-)?id": \d+')


def types_of(schema: Schema) -> set[tuple[Path, str]]:
    """The columns and their types, in no order: the first record of a kind decides that."""
    leaves = ((path, f) for path, f in schema.walk() if isinstance(peel(f.type)[1], Primitive))
    return {(path, _ID.sub("", type_text(f.type))) for path, f in leaves}


def plain(rows: pa.RecordBatch, struct: Struct) -> list[dict[str, Any]]:
    """Rows as a plain reader gives them."""
    return [_plain(row, struct) for row in rows.to_pylist()]


def _plain(value: Any, type_: Type) -> Any:
    match type_:
        case _ if value is None:
            return None
        case Struct(fields):
            return {f.name: _plain(value[f.name], f.type) for f in fields}
        case List(element):
            return [_plain(item, element) for item in value]
        case Map():
            return Pairs({key: _plain(item, type_.value) for key, item in value})
        case Primitive("float"):
            return Single(value)
        case Primitive("uuid"):
            return UUID(bytes=value)
        case _:
            return value


# Typed columns: a value of each type, among them those that other types do not hold.
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)) | st.datetimes(datetime(1969, 12, 31)).map(
    lambda m: m.replace(microsecond=0)
)
TYPED: dict[Primitive, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    LONG: st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1),
    FLOAT: st.floats(width=32, allow_nan=False),
    DOUBLE: st.floats(allow_nan=False),
    decimal(9, 2): st.decimals(-1000, 1000, places=2),
    decimal(38, 18): st.decimals(-(10**19), 10**19, places=18),
    DATE: st.dates(),
    TIMESTAMP: MOMENTS.map(lambda m: m.replace(tzinfo=UTC)),
    TIMESTAMP_NTZ: MOMENTS,
    STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    BINARY: st.binary(max_size=4),
}
COLUMN_TYPES = st.recursive(
    st.sampled_from([*TYPED]),
    lambda inner: st.one_of(
        inner.map(List),
        inner.map(lambda t: Map(STRING, t)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2).map(
            lambda fields: Struct(tuple(Field(k, t) for k, t in fields.items()))
        ),
    ),
    max_leaves=3,
)


def values_of(type_: Type) -> st.SearchStrategy[Any]:
    match type_:
        case Struct(fields):
            some = st.fixed_dictionaries({f.name: values_of(f.type) for f in fields})
        case List(element):
            some = st.lists(values_of(element), max_size=3)
        case Map(value=value):
            keys = TYPED[STRING].filter(bool)
            some = st.dictionaries(keys, values_of(value), max_size=2).map(lambda m: list(m.items()))
        case _:
            some = TYPED[type_]  # type: ignore[index]
    return st.none() | some


@pytest.mark.slow
@given(st.data(), st.lists(COLUMN_TYPES, min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_rows_hold_typed_columns(data: Any, types: list[Type]) -> None:
    """Batches in which one field has another type each time, into one table."""
    table = Schema()
    for type_ in types:
        struct = Struct((Field("f", type_),))
        values = data.draw(st.lists(values_of(type_), max_size=5))
        batch = pa.record_batch([pa.array(values, arrow_type(type_))], ["f"])
        observer = ArrowObserver(struct, expect(table), "batch")
        observer.feed(batch)
        planned = plan(table, observer.result().shape)
        assert not planned.conflicts
        table = planned.schema
        rows = Converter(table.struct, planned.route, TableSettings()).of_arrow(batch, struct, json=False)
        rows.validate(full=True)
        columns = TableStruct.of(table.struct)
        for row, record in zip(plain(rows, table.struct), plain(batch, struct), strict=True):
            assert differences(columns, row, record, ValueSettings()) == []


@pytest.mark.slow
@given(batches(), DATES)
@settings(max_examples=50, deadline=None)
def test_whole_columns_convert_as_single_values_do(lines: list[bytes], dates: str) -> None:
    """Lines of the usual types, parsed by Arrow, give the rows that the same lines give one by one."""
    wanted = TableSettings(dates=dates)
    planned = planned_of(lines, Schema(), wanted)
    if planned is None:
        return
    usual, valueless = usual_struct(planned.route), valueless_keys([planned.route])
    observer = JsonObserver(
        expect(planned.schema, wanted),
        wanted,
        usual=lambda shape: limited(shape, usual, valueless, wanted.fields),
    )
    others = {place for place, _ in observer.feed(lines, "batch", 1)}
    taken = [line for number, line in enumerate(lines) if number not in others and line.strip()]
    try:
        batches_ = read_json(b"\n".join(taken), usual)
    except pa.ArrowInvalid:  # a key stands twice, say
        return
    converter = Converter(planned.schema.struct, planned.route, wanted)
    rows = [row for b in batches_ for row in converter.of_arrow(b, usual, json=True).to_pylist()]
    assert rows == converter.of_json([parse(line) for line in taken]).to_pylist()


def read_json(text: bytes, usual: Struct) -> list[pa.RecordBatch]:
    types = pa.schema([pa.field(f.name, f.type) for f in arrow_schema(usual)])
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(explicit_schema=types, unexpected_field_behavior="ignore"),
    )
    return table.combine_chunks().to_batches()  # type: ignore[no-any-return]


def test_fields_without_a_value_need_no_look_of_their_own() -> None:
    """Fields that hold `{}` and `[]` alone have no column, and the parser skips them, at any depth."""
    line = b'{"id": 1, "a": {}, "b": [], "c": {"x": 1, "y": []}, "d": [{"x": 1, "y": {}}]}'
    planned = planned_of([line], Schema(), TableSettings())
    assert planned is not None
    usual, valueless = usual_struct(planned.route), valueless_keys([planned.route])
    assert valueless == {"a": None, "b": None, "c": {"y": None}, "d": {"y": None}}
    observer = JsonObserver(
        expect(planned.schema, TableSettings()),
        TableSettings(),
        usual=lambda shape: limited(shape, usual, valueless, TableSettings().fields),
    )
    observer.feed([line] * 100, "batch", 1)
    assert observer.feed([line], "batch", 101) == []
    with_a_value = line.replace(b'"y": {}', b'"y": {"z": 1}')
    assert observer.feed([with_a_value], "batch", 102) == [(0, None)]
