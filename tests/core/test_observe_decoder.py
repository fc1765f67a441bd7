"""The values that decoders take after some of one field were walked: all that is known, and nothing else."""

from __future__ import annotations

import pytest

from driftline.core.schema.types import (
    DATE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    UUID,
    Field,
    List,
    Map,
    Schema,
    Struct,
    Type,
    decimal,
)
from driftline.core.values import MAX_DEPTH, parse
from driftline.observe.decoder import REFUSED, build, doubtful
from driftline.observe.expect import expect
from driftline.observe.walk import Walker

BIG = "9007199254740993"
EXACT = "exact"  # the fast decoder leaves it to the exact one

# The field's column, values seen, values taken, values refused.
CASES: list[tuple[str, Type | None, str, str, str]] = [
    ("nothing but null", None, "null", "null", "1 | [] | {} | false"),
    ("long", None, "1", "null | -5 | 9007199254740992 | -0", f'{BIG} | 1.0 | 1e0 | "1" | true | [1] | {{}}'),
    ("wide long", None, BIG, "9223372036854775807 | -9223372036854775808", "9223372036854775808 | 1.0"),
    ("double", None, "1.5", "1.0 | 1e5 | -2.25 | 0.0", f"1 | {BIG} | 1e400 | 1e-400 | 0.1234567890123456789"),
    ("long and double", None, "1.5 | 1", "2 | 1e14 | 0.10000000000000001", f"{BIG} | 1e400 | 12345678901234567890.5"),
    ("boolean", None, "true", "false | null", '0 | "true"'),
    ("string", None, '"x"', '"y" | "" | "2024-01-01" | "\\u0000"', '1 | ["x"]'),
    ("date", None, '"2024-01-31"', '"1999-12-31" | "2024-02-29"',
     '"2023-02-29" | "1969-12-31" | "2200-01-01" | "2024-01-31\\n" | "2024-01-01T00:00:00" | "2024-1-1" | "x"'),
    ("whole seconds", None, '"2024-01-01T00:00:00Z"', '"2024-01-01T23:59:59+00:00" | "2024-01-01T00:00:00.000Z"',
     '"2024-01-01T00:00:00.5Z" | "2024-01-01T00:00:00" | "2024-01-01T24:00:00Z" | "2024-01-01T00:00:00+01:00"'),
    ("milliseconds", None, '"2024-01-01T00:00:00.5Z"', '"2024-01-01T00:00:00.123000Z" | "2024-01-01T00:00:00Z"',
     '"2024-01-01T00:00:00.1234Z" | "1960-01-01T00:00:00Z" | "2024-01-01T00:00:00.0000000Z"'),
    ("microseconds", None, '"2024-01-01T00:00:00.123456"', '"2024-01-01T00:00:00.1" | "2024-01-01T00:00:00"',
     '"2024-01-01T00:00:00Z" | "2024-01-01T00:00:00.1234567"'),
    ("dates beside other strings", None, '"x" | "2024-01-31"', '"y" | "1812-01-01T00:00:00"', "1"),
    ("other strings in a date column", DATE, '"x"', '"y" | "2023-02-29" | "2024-01-31\\n"', '"2024-01-31"'),
    ("a date column knows instants apart", TIMESTAMP, '"x" | "2024-01-01T00:00:00Z"', '"2024-05-05T05:05:05Z" | ""',
     '"2024-01-01T00:00:00.5Z" | "2024-01-31" | "1960-01-01T00:00:00Z"'),
    ("uuid column", UUID, '"x"', '"y" | "2024-01-01"', '"123e4567-e89b-12d3-a456-426614174000"'),
    ("list", None, "[1]", "[2, null] | [] | [null] | null | [1, 2]", '1 | [[1]] | [[]] | ["x"] | [1.5] | [{}]'),
    ("list of lists", None, "[[1]]", "[[2], null, []] | [[null]] | []", "[1] | [[[]]] | [1, [2]]"),
    ("lists of two depths", None, "[1] | [[1]]", "[2] | [[3, 4], []] | []", '[1, [2]] | [["x"]] | 1 | [[[]]]'),
    ("lists that mix depths", None, "[1, [2]]", "[[1], 2] | [[1]] | []", '[1] | [1, ["x"]]'),
    ("a value or a list", None, "1 | [1]", "2 | [3]", "[[1]] | [1, [2]]"),
    ("a date or a list of dates", None, '"2024-01-31" | ["2024-01-31"]', '"2024-05-05" | ["2024-05-05", null]',
     '"x" | ["x"] | [["2024-01-31"]] | "1960-01-01"'),
    ("nothing but empty lists", None, "[[]]", "[] | [null] | [[null], []]", "[1] | [[[]]] | [{}]"),
    ("an empty list deeper than values", None, "[1, []]", "[2, [null]] | [1, [], 2]", "[[1]] | [1, [[]]]"),
    ("nothing but empty objects", None, "{}", "{} | null", '{"x": 1} | [] | [{}]'),
    ("object", None, '{"x": 1}', '{} | {"x": 2} | {"x": null}', '{"y": 1} | {"x": "s"} | [{"x": 1}] | {"": 1}'),
    ("objects one or many", None, '{"x": 1} | [{"x": 1, "y": 2}]', '[{"y": 5}, {}, null] | {}', '{"y": 1} | [[{}]]'),
    ("objects and numbers in a list", None, '[{"x": 1}, 5]', "[6, {}] | []", "6 | [5.5]"),
    ("keys that msgspec cannot take", None, '{"a\\"b": 1, "x": 1}', '{"x": 5}', '{"a\\"b": "s"}'),
    ("big integers", None, "12345678901234567890", "-98765432109876543210 | 99999999999999999999999",
     f"5 | 1.5 | {'9' * 39} | 1e30"),
    ("int column", INT, "5", "6 | -7", "2147483648 | 1.5"),
    ("int column with longs", INT, "5 | 3000000000", "-6 | 4000000000", f"{BIG} | 1.5"),
    ("int column, only longs so far", INT, "3000000000", "4000000000", "5 | 1.5"),
    ("int column, fractions", INT, "1.5", "2.5", "5 | 3000000000"),
    ("long column", LONG, "5 | 1.5", "-6 | 2.5", BIG),
    ("decimal column, other fractions", decimal(9, 2), "19.99 | 0.125", "0.5 | 0.375", "5000000000"),
    ("float column", FLOAT, "0.5", "0.25 | 0.1", "0.12345678901 | 1e300"),
    ("decimal column", decimal(9, 2), "19.99", "20.5 | 20 | 1e3", '0.125 | 12345678901 | "x"'),
    ("required column", Field("", STRING, required=True), '"x"', '"y"', "null"),  # type: ignore[list-item]
    ("required column that was missing", Field("", STRING, required=True), '"x" | null', '"y" | null', "1"),  # type: ignore[list-item]
    ("map", Map(STRING, DATE), '{"1": "2024-01-31", "2": null}', '{"7": "2024-05-05", "": null} | {}',
     '{"7": "x"} | {"7": 1} | [{}]'),
    ("map of dates, with a list beside", Map(STRING, DATE), '{"1": "2024-01-31"} | ["x"]', '{"5": "2024-05-05"}',
     '{"5": "x"} | "x"'),
    ("what a record column requires", Struct((Field("x", STRING, required=True),)), '{"x": "1"}', '{"x": "2"}',
     '{} | {"x": null}'),
    ("what records in a list require", List(Struct((Field("x", STRING, required=True),))), '[{"x": "1"}] | []',
     '[{"x": "2"}, null]', "[{}]"),
]  # fmt: skip

TEXT_MATTERS = [
    ("decimals", None, "12345678901234567890.5", "-99999999999999999999.25", "1.5 | 0.1234567890123456789"),
    ("numbers that no type holds", None, "0.1234567890123456789", "1e400 | 1e-400", "1.5 | 5"),
    ("far doubles", None, "1e300 | 1.5", "1e20 | 12345678901234567e3 | 2.5", "1e400 | 1"),
    ("small doubles", None, "1.5", "1e-300 | 12345678.1234567e-5", "1e-400"),
]


def _learnt(column: Type | Field | None, values: str, dates: str) -> Walker:
    field = column if isinstance(column, Field) else column and Field("", column)
    table = Struct((Field("f", field.type, required=field.required),) if field else ())
    walker = Walker(expect(Schema(table)), dates)
    for number, line in enumerate(_lines(values)):
        walker.walk(parse(line), "file", number)
    return walker


def _lines(values: str) -> list[bytes]:
    return [f'{{"f": {value}}}'.encode() for value in values.split(" | ")]


def _takes(walker: Walker, line: bytes, *, exact: bool) -> bool:
    decoder = build(walker, exact=exact)
    if decoder.doubles and doubtful([line]):
        return False
    try:
        decoder.decode(line)
    except REFUSED:
        return False
    return True


@pytest.mark.parametrize(("name", "column", "seen", "taken", "refused"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("exact", [False, True])
def test_takes(name: str, column: Type | None, seen: str, taken: str, refused: str, exact: bool) -> None:
    walker = _learnt(column, seen, "on")
    assert [line for line in _lines(f"{seen} | {taken}") if not _takes(walker, line, exact=exact)] == []
    assert [line for line in _lines(refused) if _takes(walker, line, exact=exact)] == []


@pytest.mark.parametrize(
    ("name", "column", "seen", "taken", "refused"), TEXT_MATTERS, ids=[c[0] for c in TEXT_MATTERS]
)
def test_the_exact_one_takes(name: str, column: Type | None, seen: str, taken: str, refused: str) -> None:
    walker = _learnt(column, seen, "on")
    assert [line for line in _lines(f"{seen} | {taken}") if not _takes(walker, line, exact=True)] == []
    assert [line for line in _lines(refused) if _takes(walker, line, exact=True)] == []


@pytest.mark.parametrize(
    ("opened", "leaf", "other", "closed"),
    [
        (b'{"a": 1, "b": ' * MAX_DEPTH, b'"x"', b"5", b"}" * MAX_DEPTH),
        (b'{"a": ' + b"[" * (MAX_DEPTH - 1), b"1", b"true", b"]" * (MAX_DEPTH - 1) + b"}"),
        (b'{"a": [' * (MAX_DEPTH // 2), b'"2024-01-31"', b'"x"', b"]}" * (MAX_DEPTH // 2)),
    ],
    ids=["records", "lists", "both"],
)
@pytest.mark.parametrize("exact", [False, True])
def test_takes_what_is_as_deep_as_can_be(
    opened: bytes, leaf: bytes, other: bytes, closed: bytes, exact: bool
) -> None:
    walker = Walker(expect(Schema()), "on")
    walker.walk(parse(opened + leaf + closed), "file", 1)
    assert _takes(walker, opened + leaf + closed, exact=exact)
    assert not _takes(walker, opened + other + closed, exact=exact)


def test_offsets() -> None:
    walker = _learnt(None, '"2024-01-01T00:00:00+05:30"', "instant")
    assert [
        _takes(walker, line, exact=False)
        for line in _lines('"2024-01-01T00:00:00Z" | "1970-01-01T00:00:00+00:00"')
    ]
    for line in _lines(
        '"1970-01-01T00:00:00-05:00" | "2199-12-31T23:00:00+01:00" | "2024-01-01T00:00:00+18:01"'
    ):
        assert not _takes(walker, line, exact=False)


def test_a_required_column_whose_name_no_decoder_can_have() -> None:
    """Records of a table with such a column are walked, and it is found missing."""
    schema = Schema(Struct((Field("a", LONG), Field('q"', LONG, required=True))))
    walker = Walker(expect(schema), "on")
    decoder = build(walker, exact=False)
    for line in (b"{}", b'{"a": 1}'):
        with pytest.raises(REFUSED):
            decoder.decode(line)
        walker.walk(parse(line), "file", 1)
    assert walker.shape.fields['q"'].missing
    decoder = build(walker, exact=False)
    decoder.decode(b'{"a": 2}')
    with pytest.raises(REFUSED):
        decoder.decode(b'{"q\\"": 1}')
