"""The shape of one field's values: facets, marks, places, samples."""

from __future__ import annotations

import pytest

from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.naming import mark
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIME,
    UUID,
    Field,
    List,
    Map,
    Schema,
    SourceLocation,
    Struct,
    Type,
    decimal,
    wrap,
)
from driftline.core.values import MAX_DEPTH, parse, reason
from driftline.observe.expect import expect
from driftline.observe.walk import Walker


def walked(*lines: str, table: Struct | None = None, dates: str = "on") -> Walker:
    walker = Walker(expect(Schema(table or Struct())), dates)
    for number, line in enumerate(lines, 1):
        walker.walk(parse(line.encode()), "file", number)
    return walker


def show(field: FieldShape) -> str:
    """A field's shape as text, facets in the order of their names."""
    parts = []
    for facet, seen in sorted(field.facets.items(), key=lambda item: str(item[0])):
        marks = [m for m in ("wide", "far", "ragged") if getattr(seen, m)]
        marks += [f".{seen.fraction}"] if seen.fraction else []
        inner = [show_record(seen.record)] if seen.record is not None else []
        inner += [show(seen.value)] if seen.value is not None else []
        parts.append(" ".join([str(facet), *marks, *inner]))
    parts += [f"[]{field.empty_lists}"] if field.empty_lists else []
    parts += ["{}"] if field.empty_record else []
    parts += ["missing"] if field.missing else []
    return " | ".join(parts) or "-"


def show_record(record: RecordShape) -> str:
    return "{" + ", ".join(f"{key}: {show(field)}" for key, field in record.fields.items()) + "}"


SEEN = [
    ("null", "-"),
    ("1 | null", "long"),
    ("9007199254740992 | -9007199254740992", "long"),
    ("1 | -9007199254740993", "long wide"),
    ("1 | 1.5 | 12345678901234567890 | 1e400", "decimal(38, 0) | double | long | number_text"),
    ('"x" | true', "boolean | string"),
    ('"2024-01-31" | "2024-01-01T00:00:00.5Z" | "1950-01-01T00:00:00"',
     "date | timestamp .3 | timestamp_ntz far"),
    ('"x" | "2024-01-31"', "string"),
    ('"2024-01-31" | "x"', "date | string"),
    ('["2024-01-31"] | "x" | ["y"] | ["2024-01-01T00:00:00Z"]', "date[1] | string | string[1]"),
    ("[1, 2] | [[3]]", "long[1] | long[2]"),
    ("[1, [2]]", "long[2] ragged"),
    ('[1, "x", {"y": true}]', "long[1] | record[1] {y: boolean} | string[1]"),
    ('["x", [2]]', "long[2] ragged | string[2] ragged"),
    ("[] | [null]", "[]1"),
    ("[[]] | []", "[]2"),
    ("[1, []]", "long[1] | []2"),
    ("[] | [1]", "long[1] | []1"),
    ("[1] | []", "long[1]"),
    ("[[1], [], null]", "long[2]"),
    ("{}", "{}"),
    ("[{}]", "[]1 | {}"),
    ("[{}, 1]", "long[1] | {}"),
    ('{"x": 1} | {}', "record {x: long}"),
    ('{"x": 1} | [{}]', "record {x: long} | []1 | {}"),
    ('{"x": 1} | {"x": "s", "y": null}', "record {x: long | string, y: -}"),
    ('{"x": 1} | [{"y": 1}, {"x": true}]', "record {x: long} | record[1] {y: long, x: boolean}"),
    ('{"x": 1, "x": "last"}', "record {x: string}"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "shape"), SEEN)
def test_seen(values: str, shape: str) -> None:
    walker = walked(*(f'{{"f": {value}}}' for value in values.split(" | ")))
    assert show(walker.shape.fields["f"]) == shape


KNOWN: list[tuple[Type, str, str]] = [
    (INT, "5 | 3000000000 | 1.5", "double | int | long"),
    (wrap(decimal(9, 2), 2), "[19.99] | [[20, 1.005]]", "decimal(9, 2)[1] | decimal(9, 2)[2] | double[2]"),
    (DATE, '"x" | "2024-01-31"', "date | string"),
    (UUID, '"123e4567-e89b-12d3-a456-426614174000" | "x"', "string | uuid"),
    (TIME, '["10:00:00"]', "time[1]"),
    (Map(STRING, LONG), '{"1": 5, "2": "x", "": null} | {}', "map<string> long | string"),
    (
        List(Map(STRING, decimal(5, 1))),
        '[{"a": 1.5}, {"b": [2]}]',
        "map<string>[1] decimal(5, 1) | decimal(5, 1)[1]",
    ),
    (Map(LONG, LONG), '{"1": 5}', "record {1: long}"),
    (Struct((Field("x", INT),)), '{"x": 5, "y": 5}', "record {x: int, y: long}"),
    (Struct((Field("x", INT, required=True),)), '{"x": 5} | null', "record {x: int}"),
    (Struct((Field("x", INT, required=True),)), '{"x": 5} | {"x": null}', "record {x: int | missing}"),
    (Struct((Field("x", INT, required=True),)), "{}", "record {x: missing}"),
    (List(Struct((Field("x", INT, required=True),))), '[{"x": 5}, {}] | []', "record[1] {x: int | missing}"),
]


@pytest.mark.parametrize(("column", "values", "shape"), KNOWN)
def test_seen_against_a_column(column: Type, values: str, shape: str) -> None:
    lines = [f'{{"f": {value}}}' for value in values.split(" | ")]
    walker = walked(*lines, table=Struct((Field("f", column),)))
    assert show(walker.shape.fields["f"]) == shape


def test_siblings_are_columns_of_the_field() -> None:
    table = Struct((Field("f", STRING), Field("f_decimal", decimal(5, 2), doc=mark("f")), Field("f_x", INT)))
    assert show(walked('{"f": 1.5, "f_x": 1.5}', table=table).shape.fields["f"]) == "decimal(5, 2)"


def test_required_columns_that_some_record_lacks() -> None:
    table = Struct(tuple(Field(name, DOUBLE, required=True) for name in "abc"))
    shape = walked('{"a": 1.5, "b": 1.5}', '{"a": 1.5, "b": null}', table=table).shape
    assert show_record(shape) == "{a: double, b: double | missing, c: missing}"
    assert shape.fields["c"].location == SourceLocation("file", 1, 2)


def test_places_and_samples_are_of_the_first_time() -> None:
    shape = walked(
        '{"a": 1, "f": [1.50, {"x": "y"}]}', '{"f": "' + "long " * 40 + '"}', '{"f": 2, "g": null}'
    ).shape
    f = shape.fields["f"]
    assert f.location == SourceLocation("file", 1, 1)
    seen = {str(facet): (seen.location.line, seen.sample) for facet, seen in f.facets.items()}
    assert seen == {
        "double[1]": (1, '[1.50, {"x": "y"}]'),
        "record[1]": (1, '[1.50, {"x": "y"}]'),
        "string": (2, ("long " * 40)[:79] + "…"),
        "long": (3, "2"),
    }
    assert shape.fields["g"].location == SourceLocation("file", 3, 1)


def test_empty_keys_are_for_maps_only_and_counted() -> None:
    walker = walked(
        '{"": 1, "a": [{"": 1}, {"b": {"": 2}}]}', '{"": 5}', table=Struct((Field("m", Map(STRING, LONG)),))
    )
    walker.walk(parse(b'{"m": {"": 1}}'), "file", 3)
    assert (
        show_record(walker.shape)
        == "{: long, a: record[1] {: long, b: record {: long}}, m: map<string> long}"
    )
    assert walker.dropped == {(): 2, ("a",): 1, ("a", "b"): 1}


def test_objects_are_open() -> None:
    assert not any(seen.typed for seen in walked('{"a": {"x": 1}}').shape.fields["a"].facets.values())


REASONS = [
    (b'{"a": 1}\r', None),
    (b'{"a": "\\ud83d\\ude00 \\u0000 \xf0\x9f\x98\x80"}', None),
    (b'{"": 1, "a\\"\\n": 1e999}', None),
    (b"", "invalid JSON: Expecting value at character 0"),
    (b'{"a": 1', "invalid JSON: Expecting ',' delimiter at character 7"),
    (b'{"a": 1} {"a": 2}', "invalid JSON: Extra data at character 9"),
    (b'{"a": "x', "invalid JSON: Unterminated string at character 6"),
    (b'{"a": [NaN]}', "invalid JSON: NaN is not a number"),
    (b'{"a": -Infinity}', "invalid JSON: -Infinity is not a number"),
    (b'{"a": "\xff"}', "invalid UTF-8: invalid start byte at byte 7"),
    (b'{"a": "\xed\xa0\x80"}', "invalid UTF-8: invalid continuation byte at byte 7"),
    (b'{"a": "\\ud83d"}', "invalid Unicode: half of a surrogate pair"),
    (b'{"\\ude00\\ud83d": 1}', "invalid Unicode: half of a surrogate pair"),
    (b'{"a": "\\ud800", "a": 1}', "invalid Unicode: half of a surrogate pair"),
    (b'{"a": "\\\\ud800"}', None),
    (b'{"a": "\\ud83d\\uDE00\\ud83d\\u0041"}', "invalid Unicode: half of a surrogate pair"),
    (b"[{}]", "not an object but a list"),
    (b"7", "not an object but a number"),
    (b'"x"', "not an object but a string"),
    (b"null", "not an object but a null"),
    (b"true", "not an object but a boolean"),
    (b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH, None),
    (
        b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
        f"too deeply nested: more than {MAX_DEPTH} levels",
    ),
    (b'{"a":' + b"[" * 100_000, f"too deeply nested: more than {MAX_DEPTH} levels"),
    (b'{"a":["' + b"[{" * 1000 + b'"]}', None),
    (b'{"a":[' + b"{}," * 1000 + b"1]}", None),
]


@pytest.mark.parametrize(("line", "expected"), REASONS)
def test_reason(line: bytes, expected: str | None) -> None:
    assert reason(line) == expected
