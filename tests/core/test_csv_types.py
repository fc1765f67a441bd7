"""The type of a CSV column: the one as whose values every text of it is written (rules 2.3)."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.schema.types import DOUBLE, FLOAT, INT, Primitive, SourceLocation, decimal
from driftline.core.settings.csv import Signs
from driftline.readers.csv.tally import WORDS, ColumnTally, tallied
from driftline.readers.csv.types import ALL, java_text, numbers_of, type_of, types_of
from driftline.verify.values import Cell, ValueSettings, holds

# The texts of one type, as Spark's casts decide; doubles as Java prints them since version 19.
PRINTED = {
    "boolean": ["true", "false", "TRUE", "False", "tRuE"],
    "long double": ["0", "1", "-20", "9007199254740992", "-9007199254740992", "1000000000000000",
        "20240229"],
    "long": ["9007199254740993", "9223372036854775807", "-9223372036854775808"],
    "double": [
        "0.0", "-0.0", "1.0", "100.0", "1.5", "-1.5", "0.1", "0.001", "0.30000000000000004", "9999999.0", "123456.789012345",
        "1.0E-4", "5.0E-4", "1.0E7", "1.23456789E7", "1.0E10", "1.0E23", "4.9E-324", "2.0E-323", "1.7976931348623157E308",
        "2.2250738585072014E-308", "1.50", "-19.90", "0.00", "0.0001", "0.00012", "10000000.0", "12345678.90", "0.10000000000000001",
        "1234567890123456.0", "0.1000000000000000000000", "1E-4", "1e-05", "1.5e-5", "3.12E-04", "-1.2370466854e-05", "1.50e-07",
        "9.99e-4", "5e-324", "5.0E-324", "1e+16", "-1.2345678e+22",
    ],
    "date": ["2024-02-29", "0001-01-01", "9999-12-31", "1582-10-10"],
    "timestamp": [
        "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00.123456Z", "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z", "1582-10-10T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00.50Z",
        "2024-01-01T00:00:00.000Z",
    ],
    "timestamp_ntz": [
        "2024-01-01T00:00:00", "2024-01-01T00:00:00.5", "0001-01-01T00:00:00", "2026-03-01 12:00:00", "2024-01-01 00:00:00.50",
    ],
    "": [
        "t", "yes", "ture", "\u212a", "-0", "00.5", "01.50", "9007199254740993.0", "1" * 400 + ".0", "+1", "007", " 1", "1 ", "1_000", "0x10", "\u0661", "9223372036854775808",
        "01.5", "1.", "10.", ".5", "1,5", "1e5", "1E5", "1.0e10", "1.0E+7",
        "1e-3", "4E-2", "12e-5", "0.5e-5", "0e-5", "1e-400", "1e400", "1e16", "1E+16", "1e+05", "1.23E+15", "1.2345678901234567890e-5",
        "1.0f", "0.1234567890123456789", "NaN", "nan", "Infinity", "-Infinity", "inf",
        "2023-02-29", "2024-1-1", "0000-01-01", "10000-01-01", "2024-02-29 ", "-001-01-01",
        "2024-01-01  00:00:00Z", "2024-01-01 00:00:00 Z", "2024-01-01T00:00:00-00:00",
        "2024-01-01T00:00:00.1234567Z", "2024-01-01T00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00z", "0000-01-01T00:00:00Z", "2024-01-01T10:00:00+01:00", "2024-01-01T00:00:00.Z",
        "2024-01-01 00:00", "2024-01-01T00:00", "0000-01-01T00:00:00",
        "x", "1\n", "\n", "é", "-", "2024-",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "text"), [(names, text) for names, texts in PRINTED.items() for text in texts]
)
def test_each_text(names: str, text: str) -> None:
    assert {type_.name for type_ in types_of(pa.array([text]))} == set(names.split())


@pytest.mark.parametrize("copies", [1, 40])  # Arrow judges many texts, Python a few
@pytest.mark.parametrize("names", [names for names in PRINTED if names])
def test_all_texts_of_a_type_together_and_none_beside_them(names: str, copies: int) -> None:
    texts = PRINTED[names] * copies
    assert {type_.name for type_ in types_of(pa.array([None, *texts]))} == set(names.split())
    for other in PRINTED[""]:
        assert types_of(pa.array([*texts, other])) == frozenset()
        assert types_of(pa.array([other, *texts])) == frozenset()


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ([["1"], ["2.5"]], "double"),
        ([["1"], [], ["-2"]], "long"),
        ([["2.5", "9007199254740992"]], "double"),
        ([["2.5"], ["9007199254740993"]], "string"),
        ([["1"], ["true"]], "string"),
        ([["19.90", "20", "0.00"], ["5.5"]], "double"),
        ([["TRUE"], ["false"]], "boolean"),
        ([["2024-01-01"], ["2024-01-01T00:00:00Z"]], "string"),
        ([["2024-01-01T00:00:00"], ["2024-01-01T00:00:00Z"]], "string"),
        ([["007"], []], "string"),
        ([[None], []], "void"),
        ([], "void"),
    ],
)
def test_a_column_has_the_type_of_all_its_parts(columns: list[list[str]], name: str) -> None:
    parts = [types_of(pa.array(texts, pa.string())) for texts in columns]
    assert type_of(parts).name == name


def test_only_types_that_are_left_are_tried() -> None:
    assert types_of(pa.array(["1"]), frozenset()) == frozenset()
    assert types_of(pa.array([None], pa.string()), types_of(pa.array(["1"]))) != ALL


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_one_as_java_prints_it(number: float) -> None:
    text = java_text(number)
    assert struct.pack("d", float(text)) == struct.pack("d", number)
    assert {type_.name for type_ in types_of(pa.array([text]))} == {"double"}
    assert "double" in {type_.name for type_ in types_of(pa.array([text, "1.5", "7"]))}


@given(st.floats(1e-300, 9e-4), st.integers(0, 16), st.sampled_from(["e-0", "e-", "E-0", "E-"]))
def test_a_small_number_is_a_double_however_its_exponent_is_spelled(
    number: float, digits: int, power: str
) -> None:
    mantissa, _, size = f"{number:.{digits}e}".partition("e-")
    text = f"{mantissa}{power}{int(size)}"

    assert {type_.name for type_ in types_of(pa.array([text]))} == {"double"}
    assert holds(DOUBLE, float(text), Cell(text), ValueSettings())


@given(st.lists(st.floats(-1e8, 1e8).map(lambda number: repr(round(number, 3))), min_size=1))
def test_a_column_of_doubles_is_judged_as_its_texts_are(texts: list[str]) -> None:
    each = frozenset.intersection(*(types_of(pa.array([text])) for text in texts))
    assert types_of(pa.array(texts)) == each
    assert types_of(pa.array(texts * 40)) == each  # Arrow judges many texts, Python a few


@pytest.mark.parametrize(
    ("texts", "held"),
    [
        (["1.50", "2", "-0.5e1", None], {decimal(10, 2), FLOAT}),
        (["1", "2147483647"], {INT, decimal(10, 0)}),
        (["2147483648"], {decimal(10, 0), FLOAT}),
        (["99999999.99"], {decimal(10, 2)}),
        (["1.505"], {FLOAT}),
        (["0.1234567890"], set()),
        (["-0"], {FLOAT}),
        (["1", "-0.00"], {FLOAT}),
        (["-0e1"], {FLOAT}),
        ([], {INT, FLOAT, decimal(10, 2), decimal(10, 0)}),
        (["007"], set()),
        (["1.50", "x"], set()),
        (["+1"], set()),
        (["NaN"], set()),
    ],
)
def test_declared_number_types_hold_numbers_as_json_writes_them(
    texts: list[str], held: set[Primitive]
) -> None:
    among = frozenset({INT, FLOAT, decimal(10, 2), decimal(10, 0)})
    assert numbers_of(pa.array(texts, pa.string()), among) == held


_ODD = st.sampled_from(
    ["", "NA", "nä", "true", "T", "False", "007", "7", "-7", "-0", "1.50", "1,50", "1.234,5", "+7", ".5", "7 %", "7\v", "7\n",
     "12 rooms", "v0", "2024-02-29", "2024-02-30", "2024-02-29T10:00:00Z", "2024-02-29 10:00:00", "9" * 17, "9" * 20, "1e5", "1.5e-05",
     "٣", "７"]
)  # fmt: skip


@given(
    st.lists(st.one_of(st.none(), _ODD, st.text(" -+.,%eE0159tfNx\t\n\v", max_size=6)), max_size=8),
    st.lists(_ODD, max_size=4),
    st.sampled_from([Signs(), Signs(",", "."), Signs(".", "'")]),
)
def test_tally_of_few_texts_is_that_of_many(texts: list[str | None], before: list[str], signs: Signs) -> None:
    def place(row: int) -> SourceLocation:
        return SourceLocation("a.csv", row + 1)

    first = tallied(pa.array(before, pa.string()), ColumnTally(), signs, place)
    few, many = (pa.array(texts + [None] * nulls, pa.string()) for nulls in (0, 40))
    assert tallied(few, first, signs, place) == tallied(many, first, signs, place)


def test_tally_of_few_texts_counts_as_many_words_as_that_of_many() -> None:
    words = [f"word {chr(letter)}" for letter in range(ord("a"), ord("a") + WORDS + 1)]
    enough, too_many = (
        tallied(pa.array(texts), ColumnTally(), Signs(), lambda row: SourceLocation("a.csv", row))
        for texts in (words[1:], words)
    )
    assert (len(enough.words), enough.many) == (WORDS, False)
    assert (len(too_many.words), too_many.many) == (0, True)
