"""Suffixes, marks and safe spellings, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.shapes import schema
from driftline.core.schema.naming import METADATA_NAMES, Names, caseless, mark, marked_key, safe, suffix


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("boolean", "_boolean"),
        ("int", "_int"),
        ("long", "_long"),
        ("float", "_float"),
        ("double", "_double"),
        ("decimal(18, 2)", "_decimal_18_2"),
        ("date", "_date"),
        ("time", "_time"),
        ("timestamp", "_timestamp"),
        ("timestamp_ntz", "_timestamp_ntz"),
        ("string", "_string"),
        ("uuid", "_uuid"),
        ("binary", "_binary"),
        ("fixed[16]", "_fixed_16"),
        ("{x: long}", "_record"),
        ("map<string, long>", "_map_long"),
        ("map<string, long[2]>[1]", "_array_map_array2_long"),
        ("map<int, {x: long}>", "_map_record"),
        ("string[1]", "_array_string"),
        ("{x: long}[2]", "_array2_record"),
        ("long[3]", "_array3_long"),
    ],
)
def test_suffix(type_: str, expected: str) -> None:
    (column,) = schema(f"a: {type_}").struct.fields
    assert suffix(column.type) == expected


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("size", "upsolver_evolved_from:size"),
        ("two words", "upsolver_evolved_from:two words"),
        ("größe", "upsolver_evolved_from:größe"),
        ("a.b", "upsolver_evolved_from:a.b"),
        ("a:b", "upsolver_evolved_from:a:b"),
        ("", "upsolver_evolved_from:"),
        (" ", 'upsolver_evolved_from:" "'),
        ("size ", 'upsolver_evolved_from:"size "'),
        ('"', 'upsolver_evolved_from:"\\""'),
        ('say "a"', 'upsolver_evolved_from:say "a"'),
        ("two\nlines", 'upsolver_evolved_from:"two\\nlines"'),
        ("\u2028", 'upsolver_evolved_from:"\\u2028"'),
        ("\x00", 'upsolver_evolved_from:"\\u0000"'),
    ],
)
def test_mark_is_one_line_and_holds_the_exact_key(key: str, line: str) -> None:
    assert mark(key) == line
    assert marked_key(line) == key
    assert marked_key(f"{line}\nmore of a person's\nlines") == key


@pytest.mark.parametrize(
    ("doc", "key"),
    [
        (None, None),
        ("", None),
        ("a comment", None),
        ("a comment\nupsolver_evolved_from:size", None),
        ("from:size", None),
        ('upsolver_evolved_from:"no json', '"no json'),
    ],
)
def test_marked_key_of_other_docs(doc: str | None, key: str | None) -> None:
    assert marked_key(doc) == key


def test_another_prefix() -> None:
    assert mark("size", "from:") == "from:size"
    assert marked_key("from:size", "from:") == "size"
    assert marked_key("upsolver_evolved_from:size", "from:") is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("plain", "plain"),
        ("Two Words", "Two Words"),
        ("größe", "größe"),
        ("日本", "日本"),
        ("🙂", "🙂"),
        ("a-b/c", "a-b/c"),
        ("a.b", "a_b"),
        ("a`b", "a_b"),
        ("a\nb\tc\x00", "a_b_c_"),
        (" a ", "a"),
        ("  ", "_"),
        ("", "_"),
        ("_files", "_files"),
        ("_file", "_file_"),
        ("_FILE", "_FILE_"),
        ("_metadata", "_metadata_"),
        ("x" * 255, "x" * 255),
        ("x" * 256, "x" * 255),
        ("ä" * 128, "ä" * 127),
    ],
)
def test_safe(key: str, name: str) -> None:
    assert safe(key) == name


def test_no_metadata_name_is_safe() -> None:
    assert not METADATA_NAMES & {safe(name) for name in METADATA_NAMES}


def test_names_are_given_once_in_any_case() -> None:
    names = Names.of(schema("id: long, Size: long").struct)
    assert [names.free(n) for n in ("ID", "SIZE", "other")] == [False, False, True]
    assert [names.take(n) for n in ("Id", "iD", "other", "OTHER")] == ["Id_2", "iD_3", "other", "OTHER_2"]
    assert [names.take("size", "_long") for _ in range(3)] == ["size_long", "size_long_2", "size_long_3"]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("x" * 255, ["x" * 250 + "_long", "x" * 248 + "_long_2"]),
        ("ä" * 127, ["ä" * 125 + "_long", "ä" * 124 + "_long_2"]),
    ],
)
def test_a_long_name_is_cut_before_its_suffix(name: str, taken: list[str]) -> None:
    names = Names()
    assert [names.take(name, "_long") for _ in taken] == taken


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Size", "sIZE", True),
        ("SINIF", "s\u0131n\u0131f", True),  # dotless: its capital is I
        ("\u0130", "I", True),  # dotted: its small letter is i
        ("\u0130", "\u0131", True),
        ("\u0130d", "i\u0307d", True),  # Java's lower case of the text
        ("\u0130\u0307", "i", True),
        ("\u017f", "s", True),  # long s
        ("\u212a", "k", True),  # Kelvin
        ("\u212b", "\u00e5", True),  # Angstrom
        ("\u00b5", "\u03bc", True),  # micro, and mu
        ("\u03c2", "\u03a3", True),  # final sigma
        ("\u1e9e", "\u00df", True),
        ("\u00df", "SS", False),
        ("\ufb01", "FI", False),
        ("\u0149", "\u02bcN", False),
        ("\u1f80", "\u1f88", True),
        ("\u01c4", "\u01c5", True),
        ("\U00010400", "\U00010428", True),
        ("\u00e9", "e\u0301", False),
        ("i\u0308", "i", False),
    ],
)
def test_names_that_engines_take_for_one(one: str, other: str, same: bool) -> None:
    assert (caseless(one) == caseless(other)) is same
    assert Names({caseless(one)}).free(other) is not same


@given(st.text())
def test_a_name_without_case_is_one(name: str) -> None:
    assert caseless(caseless(name)) == caseless(name)
    assert caseless(name.lower()) == caseless(name)
