"""Limits and fields that wait, planned and converted in memory; what bounds the rest, whatever the batching."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.random_steps import Change, Json, Promote, Typed
from core.table_in_memory import TableInMemory
from driftline.convert import Converter, arrow_schema
from driftline.convert.arrow_values import ArrowRecords
from driftline.convert.promoter import Chosen, Plans, Promoter, Selection, parts_of
from driftline.convert.types import arrow_type
from driftline.core.changes import AddColumn, apply
from driftline.core.changes.apply import documented, renamed
from driftline.core.history.batch_properties import MOST, REST_SINCE, first_seen, rest_since
from driftline.core.planning.limits import leaf_columns
from driftline.core.planning.own_columns import REST, rest_column, type_key
from driftline.core.planning.planner import plan
from driftline.core.schema.schema_json import to_json, type_text
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
    leaves,
    peel,
)
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import Number
from driftline.core.values import parse as parse_record
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.operations.promote import SelectedValues, plans, seen_in
from driftline.verify.json_texts import parse
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import is_nothing

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from([0, 7, 2**53 + 1, 10**40, 0.5, "", "x", "2024-01-02"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["p", "q", "a.b", "`"]), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
RECORDS = st.dictionaries(st.sampled_from(["a", "b", "c", "_rest", "A", "d e", "x[0]"]), VALUES, max_size=5)
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=4), min_size=1, max_size=4)
SETTINGS = st.builds(
    lambda most, fields, new, maps: TableSettings(
        max_columns=most, max_fields=fields, beyond="rest", fields=field_settings(new_fields=new, maps=maps)
    ),
    st.sampled_from([1, 3, 6, 10_000]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["add", "hold"]),
    st.sampled_from(["auto", "off"]),
)


def taken(schema: Schema, records: list[dict[str, object]], limits: TableSettings):  # type: ignore[no-untyped-def]
    """The table after a batch, and its rows of it."""
    lines = [json.dumps(record).encode() for record in records]
    observer = JsonObserver(expect(schema, limits), limits)
    observer.feed(lines, "batch", 1)
    planned = plan(schema, observer.result().shape, limits)
    assert planned.conflicts == ()
    again = plan(planned.schema, observer.result().shape, limits)
    assert again.schema == planned.schema, "the same batch again brings nothing new"
    made = Converter(planned.schema.struct, planned.route, limits)
    return planned, made.of_json([parse_record(line) for line in lines])


@settings(max_examples=60)
@given(batches=BATCHES, limits=SETTINGS)
def test_nothing_is_lost_nor_refused_for_a_limit(
    batches: list[list[dict[str, object]]], limits: TableSettings
) -> None:
    """All that comes is in columns or in the rest, and the table stays within its limits."""
    schema = Schema()
    for records in batches:
        planned, rows = taken(schema, records, limits)
        schema = planned.schema
        if not schema.struct.fields:
            continue
        columns = TableStruct.of(schema.struct)
        for record, row in zip(records, rows.to_pylist(maps_as_pydicts="strict"), strict=True):
            found = differences(columns, row, parse(json.dumps(record).encode()))
            assert [d for d in found if not (d.unproven or is_nothing(d.value))] == []
        assert leaf_columns(schema.struct) <= limits.max_columns
        for struct in _structs(schema):
            assert limits.max_fields is None or len(struct.fields) <= limits.max_fields


@pytest.mark.parametrize(
    "limits",
    [*({"max_columns": n} for n in range(1, 6)), {"max_fields": 0}, {"max_fields": 1}],
    ids=str,
)
@pytest.mark.parametrize(
    "before", [[], [{"m": {"2024-01-03": 7}}], [{"m": {"2024-01-03": {"a": 7}}}]], ids=str
)
def test_values_of_a_map_without_room_wait_by_their_keys(
    limits: dict[str, int], before: list[dict[str, object]]
) -> None:
    """The column is that of a map of other values."""
    schema = taken(Schema(), before, TableSettings(fields=field_settings(maps="auto")))[0].schema
    records: list[dict[str, object]] = [{"m": {"2024-01-01": {"a": 1, "b": {"c": 2}}, "2024-01-02": 5}}]
    planned, rows = taken(
        schema,
        records,
        TableSettings(beyond="rest", fields=field_settings(maps="auto"), **limits),  # type: ignore[arg-type]
    )
    (row,) = rows.to_pylist(maps_as_pydicts="strict")
    assert (
        differences(TableStruct.of(planned.schema.struct), row, parse(json.dumps(records[0]).encode())) == []
    )


def _structs(schema: Schema) -> list[Struct]:
    inner = [peel(f.type)[1] for _, f in schema.walk()]
    return [type_ for type_ in inner if isinstance(type_, Struct)]


@settings(max_examples=30)
@given(batches=BATCHES)
def test_one_by_one_what_came_first_has_its_columns(batches: list[list[dict[str, object]]]) -> None:
    """Records one by one, or in batches: the limit is kept, and the first record that needs columns gets them."""
    limits = TableSettings(max_columns=4, beyond="rest", dates="off")
    records = [record for batch in batches for record in batch]
    alone = Schema()
    for record in records:
        alone = taken(alone, [record], limits)[0].schema
    whole = taken(Schema(), records, limits)[0].schema
    first = taken(Schema(), records[:1], limits)[0].schema
    assert all(f.name in {g.name for g in alone.struct.fields} for f in first.struct.fields)
    assert (leaves(alone.struct) == 0) is (leaves(whole.struct) == 0)


@settings(max_examples=60)
@given(records=st.lists(RECORDS, min_size=1, max_size=4), most=st.sampled_from([1, 3]))
@example([{"a": [[False], {"p": False, "q": False, "a.b": False}]}], 3)
def test_promoted_rows_hold_what_they_did(records: list[dict[str, object]], most: int) -> None:
    """All that waits gets columns, and the rows still hold their records; nulls behind the last value of an inner list
    aside."""
    records = [{key: without_nulls(value) for key, value in record.items()} for record in records]
    limits = TableSettings(max_columns=most, beyond="rest", dates="off")
    planned, rows = taken(Schema(), records, limits)
    rest = rest_column(planned.schema.struct)
    if rest is None:
        return
    made, after = all_promoted(planned.schema, rows, rest.name)
    assert made.column("new rest").null_count == len(records)
    columns = TableStruct.of(Struct(tuple(f for f in after.fields if f.name not in (rest.name, "new rest"))))
    for record, row in zip(records, made.to_pylist(maps_as_pydicts="strict"), strict=True):
        found = differences(columns, row, parse(json.dumps(record).encode()))
        assert [d for d in found if d.lost and not d.unproven] == []


def without_nulls(value: object) -> object:
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items()}
    return value


def test_a_required_column_whose_value_goes_to_the_rest_becomes_optional() -> None:
    limits = TableSettings(max_columns=1, beyond="rest")
    schema = taken(Schema(), [{"a": 1}], limits)[0].schema
    column = replace(schema.struct.fields[0], required=True)
    planned, rows = taken(Schema(Struct((column,))), [{"a": "x"}], limits)
    assert not planned.schema.struct.fields[0].required
    assert rows.to_pylist() == [{"a": None, "_rest": [("a", '"x"')]}]


def test_the_rest_keeps_its_mark_under_another_name_and_comment() -> None:
    column = renamed(REST, "what_else")
    assert rest_column(Struct((column,))) is column
    column = replace(column, doc=documented(column.doc, "mine"))
    assert rest_column(Struct((column,))) is column
    assert (column.doc or "").endswith("\nmine")
    assert "upsolver" not in str(to_json(Schema(Struct((column,)))))


def all_promoted(before: Schema, rows: pa.RecordBatch, rest: str) -> tuple[pa.RecordBatch, Struct]:
    """The rows once all that waits has columns, and these; what is left waits in ``new rest``."""
    limits = TableSettings(dates="off")
    parts = parts_of(rows, before.struct, rest, Selection(), limits.mark)
    planned = planned_for(before, parts, limits)
    after = apply(planned.schema, [AddColumn((), replace(REST, name="new rest"))]).struct
    return Promoter.of(planned, after, limits, Selection(), rest, "new rest").rows(rows), after


def planned_for(before: Schema, parts: list[Chosen], limits: TableSettings) -> Plans:
    def look(known: Schema) -> SelectedValues:
        return seen_in([parts], expect(known, limits), limits.dates)

    return plans(before, look(before), look, limits)


def promoted(before: Schema, rows: pa.RecordBatch) -> tuple[dict[str, Any], ...]:
    """The rows once all that waits has columns, without the rest."""
    made, _ = all_promoted(before, rows, "_rest")
    return tuple({k: v for k, v in row.items() if k not in ("_rest", "new rest")} for row in made.to_pylist())


def test_defaults_do_not_come_with_what_is_promoted() -> None:
    """A null that is there stays, though its column has a default."""
    x = Field("x", LONG, 2, write_default=7)
    before = Schema(Struct((Field("p", Struct((x, Field("y", LONG, 3))), 1), replace(REST, id=4))))
    rows = pa.RecordBatch.from_pylist(
        [{"p": {"x": None, "y": 1}, "_rest": [("p.z", "true")]}], arrow_schema(before.struct)
    )
    assert promoted(before, rows) == ({"p": {"x": None, "y": 1, "z": True}},)


@pytest.mark.parametrize("types", [[], [(type_key("c"), "long")]], ids=["json", "typed"])
def test_what_is_required_stays_so(types: list[tuple[str, str]]) -> None:
    """A value that waits is a part of its record: the others of its values are in the table."""
    column = Field("id", LONG, 1, required=True)
    before = Schema(Struct((column, replace(REST, id=2))), identifiers=frozenset({1}))
    rows = pa.RecordBatch.from_pylist([{"id": 1, "_rest": [("c", "7"), *types]}], arrow_schema(before.struct))
    parts = parts_of(rows, before.struct, "_rest", Selection(), TableSettings().mark)
    planned = planned_for(before, parts, TableSettings())
    assert [type(change) for change in planned.changes] == [AddColumn]
    assert promoted(before, rows) == ({"id": 1, "c": 7},)


def test_objects_beside_a_typed_map_are_of_a_map() -> None:
    """No batch has both; in the rest they meet before there is a column."""
    before = Schema(Struct((replace(REST, id=1),)))
    waiting = [[("m", '{"k":"x"}')], [("m", '{"k":7}'), (type_key("m"), type_text(Map(STRING, LONG)))]]
    rows = pa.RecordBatch.from_pylist([{"_rest": rest} for rest in waiting], arrow_schema(before.struct))
    assert promoted(before, rows) == (
        {"m": [("k", None)], "m_map_string": [("k", "x")]},
        {"m": [("k", 7)], "m_map_string": None},
    )


def test_parts_of_a_list_that_was_wrapped_whole_go_where_they_were() -> None:
    """As JSON and as typed values, in a column with a list more around it."""
    inner = Struct((Field("p", LONG, 4),))
    before = Schema(Struct((Field("b", List(List(inner, 3), 2), 1), replace(REST, id=5))))
    waiting = [("b[0].q", '"x"'), ("b[1].q", '"y"')]
    types = [(type_key(path), "string") for path, _ in waiting]
    for rest in (waiting, waiting + types):
        rows = pa.RecordBatch.from_pylist(
            [{"b": [[{"p": 1}, {"p": 2}]], "_rest": rest}], arrow_schema(before.struct)
        )
        assert promoted(before, rows) == ({"b": [[{"p": 1, "q": "x"}, {"p": 2, "q": "y"}]]},)


def test_a_typed_value_without_a_type_for_a_part_is_promoted() -> None:
    before = Schema(Struct((Field("a", LONG, 1), replace(REST, id=2))))
    type_ = type_text(List(Struct((Field("p", LONG), Field("q", Primitive("void"))))))
    rows = pa.RecordBatch.from_pylist(
        [{"a": 1, "_rest": [("c", '[{"p":7}]'), (type_key("c"), type_)]}], arrow_schema(before.struct)
    )
    assert promoted(before, rows) == ({"a": 1, "c": [{"p": 7}]},)


def test_a_part_of_a_value_that_waits_whole_comes_with_it() -> None:
    """Two columns of a field lack different parts of one value."""
    before = Struct((Field("a", LONG, 1), replace(REST, id=2)))
    rest = [("d.p.q", "false"), ("d.p", '{"q":false,"r":[1]}'), ("d.p.r[0]", "1")]
    rows = pa.RecordBatch.from_pylist([{"a": 1, "_rest": rest}], arrow_schema(before))
    (whole,) = parts_of(rows, before, "_rest", Selection(), TableSettings().mark)
    assert (whole.record, whole.counts) == ({"d": {"p": {"q": False, "r": [Number("1")]}}}, {("d", "p"): 1})
    (part,) = parts_of(rows, before, "_rest", Selection((("d", "p", "q"),)), TableSettings().mark)
    assert (part.record, part.remaining) == ({"d": {"p": {"q": False}}}, rest[1:])


def test_a_key_too_long_for_a_column_waits_until_a_person_promotes_it() -> None:
    """Its column's doc would stand in every metadata file."""
    key = "k" * (TableSettings().max_key + 1)
    table = TableInMemory(settings=TableSettings(fields=field_settings(maps="off")))
    table.take(Json([{key: 1}]))
    table.take(Json([{key[1:]: 2, "s": {key: [3]}}]))
    assert [f.name for f in table.schema.struct.fields] == [REST.name, key[:255]]
    assert [dict(rows[REST.name][0].as_py()) for rows in table.rows] == [
        {key: "1"},
        {"s": f'{{"{key}":[3]}}'},
    ]
    table.take(Promote(None))
    assert [rows[REST.name][0].as_py() for rows in table.rows] == [None, None]


def test_typed_scalars_without_room_wait_together_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, tuple[Type, list[Any]]] = {
        "id": (LONG, [1, 2, 3]),
        "n": (LONG, [None, -5, 2**62]),
        "m": (LONG, [7, None, None]),
        "d": (DOUBLE, [1.0, float("nan"), -0.0]),
        "t": (STRING, ['"', "", None]),
        "u": (STRING, ["x" * 20_000, "ü", "\n"]),
        "b": (BOOLEAN, [True, None, False]),
        "a.b": (DATE, [date(2024, 1, 2), None, None]),
        "y": (Primitive("binary"), [b"\xff", None, b""]),
    }
    struct = Struct(tuple(Field(key, type_) for key, (type_, _) in columns.items()))
    arrays = [pa.array(values, arrow_type(type_)) for type_, values in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    observer = ArrowObserver(struct, expect(Schema(), TableSettings()), "f")
    observer.feed(batch)
    planned = plan(Schema(), observer.result().shape, TableSettings(max_columns=1))
    calls, together = [], ArrowRecords.scalar_texts

    def rows() -> pa.RecordBatch:
        converter = Converter(planned.schema.struct, planned.route, TableSettings())
        return converter.of_arrow(batch, struct, json=False)

    def counted(records: ArrowRecords, types: Mapping[str, Primitive]) -> Mapping[str, list[str | None]]:
        calls.append(set(types))
        return together(records, types)

    monkeypatch.setattr(ArrowRecords, "scalar_texts", counted)
    quick = rows()
    assert calls == [columns.keys() - {"id"}]
    monkeypatch.setattr(ArrowRecords, "scalar", lambda *_: None)
    assert quick.equals(rows())
    assert [dict(row)["d"] for row in quick.column("_rest").to_pylist()] == ["1", '"NaN"', "-0.0"]


def test_an_empty_key_waits_and_never_gets_a_column() -> None:
    table = TableInMemory(settings=TableSettings(beyond="rest", keep_empty_names=True))
    table.take(Json([{"": 1, "s": {"": [2]}}, {"l": [{"": 3}, 4], "s": 5}]))
    fields = (Field("", DATE), Field("x", LONG))
    struct = Struct((Field("", LONG), Field("t", List(Struct(fields)))))
    table.take(Typed(struct, [{"": 6, "t": [{"": date(2024, 1, 2), "x": 7}, {"": None, "x": 8}]}]))

    def rest() -> list[dict[str, str]]:
        rows = (row for batch in table.rows for row in batch[REST.name].to_pylist())
        return [dict(entries) for entries in rows]

    typed = {"``": "6", "`` type": "long", "t[0].``": '"2024-01-02"', "t[0].`` type": "date"}
    waiting = [{"``": "1", "s": '{"":[2]}'}, {"l[0]": '{"":3}'}, typed]
    assert rest() == waiting
    columns = {f.name for f in table.schema.struct.fields}
    assert columns == {"s_long", "l_array_long", REST.name, "t"}
    # Settings of later do not count: what waits is not dropped.
    for later in (table.settings, TableSettings(beyond="rest")):
        table.take(Change(later))
        table.take(Promote(None))
        assert rest() == waiting
        assert {f.name for f in table.schema.struct.fields} == columns


def test_an_empty_key_in_what_waited_whole_stays() -> None:
    table = TableInMemory(settings=TableSettings(beyond="rest", max_columns=1))
    table.take(Json([{"a": 1, "s": {"": 2, "x": 3}}]))
    table.take(Promote(None))
    (row,) = table.rows[0].to_pylist(maps_as_pydicts="strict")
    assert row == {"a": 1, "s": {"x": 3}, REST.name: {"s.``": "2"}}


def test_since_when_a_path_waits_is_noted_once() -> None:
    first = first_seen({}, ["new", "items.element.`a.b`"], "b1", begins=True)
    later = first | first_seen(first, ["new", "m.value.v"], "b2", begins=False)
    assert [getattr(rest_since(later, path), "batch", None) for path in ("new", "m.value.v", "nowhere")] == [
        "b1", "b2", None,
    ]  # fmt: skip
    assert rest_since(later, "items.`a.b`") == rest_since(later, "items.element.`a.b`") is not None
    assert first_seen({}, ["new"], "b1", begins=False) == {}, "what waits was brought by nobody knows whom"
    assert len(first_seen({}, [f"p{n}" for n in range(10_000)], "b1", begins=True)) == MOST
    assert rest_since({REST_SINCE + "new": "yesterday"}, "new") is None


def test_keys_of_a_map_are_one_field_to_promote() -> None:
    values = Struct((Field("u", LONG, 4),))
    struct = Struct((Field("m", Map(STRING, values, 2, 3), 1), replace(REST, id=5)))
    rest = [("m.`2024.01`.v", "1"), ("m.x.v", "2"), ("m.x.w", "3")]
    rows = pa.RecordBatch.from_pylist([{"m": None, "_rest": rest}], arrow_schema(struct))
    for paths, counts in [
        ((("m", "value", "v"),), {("m", "value", "v"): 2}),
        ((("m", "x"),), {("m", "value", "v"): 1, ("m", "value", "w"): 1}),
    ]:
        (part,) = parts_of(rows, struct, "_rest", Selection(paths), TableSettings().mark)
        assert (part.counts, part.met) == (counts, set(paths))
    (part,) = parts_of(
        rows, struct, "_rest", Selection(excluded=(("m", "value", "v"),)), TableSettings().mark
    )
    assert (part.record, dict(part.remaining)) == ({"m": {"x": {"w": Number("3")}}}, dict(rest[:2]))
