"""The parser of whole columns next to `parse`, which reads one line: what the one makes of lines that the
decoder takes, the other makes too; where it cannot, it says so.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.schema.types import (
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    Field,
    List,
    Map,
    Primitive,
    Struct,
    Type,
)
from driftline.core.values import Number, parse
from driftline.readers.json.usual import Unparsed, parsed

# Read otherwise, or the end of the process.
MISREAD = re.compile(rb"\\u(0000|d8[4-9a-f]|d[9ab])")
LONGS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
KEYS = st.sampled_from(["a", "b", 'q"\\', "é", "\n", "\u2028", "", "_", "a.b", "\U0001f600"])


def values(type_: Type) -> st.SearchStrategy[Any]:
    match type_:
        case Struct(fields):
            return st.fixed_dictionaries({}, optional={f.name: values(f.type) for f in fields})
        case List(element):
            return st.lists(st.none() | values(element), max_size=3)
        case Map(value=value):
            return st.dictionaries(KEYS, st.none() | values(value), max_size=4)
        case _:
            return {BOOLEAN: st.booleans(), LONG: LONGS, DOUBLE: DOUBLES, STRING: TEXTS}[type_]  # type: ignore[index]


def structs(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    names = st.lists(KEYS.filter(bool), min_size=1, max_size=3, unique=True)
    types = st.lists(inner, min_size=3, max_size=3)
    return st.builds(lambda ns, ts: Struct(tuple(map(Field, ns, ts))), names, types)


LEAVES = st.sampled_from([BOOLEAN, LONG, DOUBLE, STRING])
TYPES = st.recursive(
    LEAVES, lambda t: structs(t) | t.map(List) | t.map(lambda v: Map(STRING, v)), max_leaves=6
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Struct, list[bytes]]:
    struct = draw(structs(TYPES))
    assert isinstance(struct, Struct)
    records = draw(st.lists(values(struct), min_size=1, max_size=4))
    more = draw(st.booleans())
    ascii_ = draw(st.booleans())
    texts = [
        json.dumps({**record, **({"other": [1, {"x": "\u00e9"}]} if more else {})}, ensure_ascii=ascii_)
        for record in records
    ]
    return struct, [text.encode() for text in texts]


def plain(value: Any, type_: Type) -> Any:
    """A value of `parse` as Arrow gives it back."""
    match type_:
        case _ if value is None:
            return None
        case Struct(fields):
            return {f.name: plain(value.get(f.name), f.type) for f in fields}
        case List(element):
            return [plain(item, element) for item in value]
        case Map(value=inner):
            return [(key, plain(item, inner)) for key, item in value.items()]
        case Primitive() if isinstance(value, Number):
            return float(value).hex() if type_ == DOUBLE else int(value)
        case _:
            return value


def exact(value: Any) -> Any:
    """Doubles to the last bit, and the sign of zero."""
    match value:
        case float():
            return value.hex()
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case list():
            return [exact(item) for item in value]
        case tuple():
            return tuple(map(exact, value))
        case _:
            return value


@given(batches())
def test_lines_are_parsed_as_one_by_one(batch: tuple[Struct, list[bytes]]) -> None:
    struct, lines = batch
    try:
        rows = parsed(lines, struct).to_pylist()
    except Unparsed:
        assert any(MISREAD.search(line) for line in lines)
        return
    assert exact(rows) == [plain(parse(line), struct) for line in lines]


STRUCT = Struct(
    (
        Field("n", LONG),
        Field("s", STRING),
        Field("r", Struct((Field("n", LONG),))),
        Field("m", Map(STRING, LONG)),
        Field("deep", List(Struct((Field("m", Map(STRING, LONG)),)))),
    )
)


@pytest.mark.parametrize(
    "line",
    [
        '{"n": 1, "n": 2}',
        '{"r": {"n": 1, "n": 2}, "r": {}}',
        '{"\\u006e": 7, "s": "\\ud83d\\ude00 \\/ \\b"}',
        ' {"n" :\t1 } \r',
        '{"m": {"": 1, "a": null}, "deep": [null, {}, {"m": {"a": 1}}, {"m": {"a": 2}}]}',
        '{"n": -0, "zz": {"n": 1e999, "q": ["\\ud83d\\ude00", [[[[]]]]]}}',
    ],
)
def test_odd_lines(line: str) -> None:
    lines = [line.encode(), b'{"n": 5}']
    assert parsed(lines, STRUCT).to_pylist() == [plain(parse(line), STRUCT) for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        b'{"m": {"k": 1, "k": 2}}',
        b'{"m": {"k": 1, "\\u006b": 2}}',
        b'{"deep": [{"m": {"a": 1}}, {"m": {"a": 1, "a": 1}}]}',
        b'{"s": "\\ud800"}',
        b'{"s": "\\u0000"}',
        b'{"s": "\\ud840\\udc00"}',
        b'{"s": "\\uDBff\\udfff"}',
        b'{"s": "a\0b"}',
        b"\0",
        b"",
        b"[1]",
        b'{"n": 1} {"n": 2}',
        b'{"n": "x\\u0000"}',
        b'{"n": 9223372036854775808}',
        b'{"s": "\xff"}',
        b'{"n": tru}',
        b"{" * 5000,
        b'{"zz": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\xff",
    ],
)
def test_what_is_not_taken(line: bytes) -> None:
    with pytest.raises(Unparsed):
        parsed([b'{"n": 5, "m": {"k": 1}}', line], STRUCT)


@pytest.mark.parametrize(
    ("line", "misread"),
    [
        (b'{"s": "@@ -0,0 +1 @@"}', False),
        (b'{"s": "a\\"b, -0, c", "n": 0}', False),
        (b'{"s": "\\"-0\\",", "r": {"n": 0}}', False),
        (b'{"s": "-0, or more"}', False),
        (b'{"s": "user-0", "n": 10}', False),
        (b'{"n": -0}', True),
        (b'{"s": "-0"}', True),
        (b'{"s": "@@ -0,0 +1 @@", "n":-0 }', True),
        (b'{"s": "a\\\\", "n": -0, "t": "\\\\"}', True),
        (b'{"s": "a\\"", "r": {"n": -0}}', True),
    ],
)
def test_a_line_with_a_negative_zero_is_misread_where_texts_spell_whole_numbers(
    line: bytes, misread: bool
) -> None:
    lines = [b'{"n": 5}', line, b'{"s": "x"}']
    if not misread:
        assert parsed(lines, STRUCT, spells_integers=True).num_rows == 3
        return
    with pytest.raises(Unparsed) as refused:
        parsed(lines, STRUCT, spells_integers=True)
    assert refused.value.misread == [1]
