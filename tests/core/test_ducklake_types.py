"""The tables of types, as the docs print them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driftline.core.types import BOOLEAN, INT, LONG, STRING, TIME, UUID, VARIANT, Primitive, decimal, fixed
from driftline.errors import DataError
from driftline.formats.ducklake import types

PAGE = (Path(__file__).parents[2] / "docs" / "ducklake.md").read_text()


def rows(heading: str) -> dict[str, str]:
    """The rows of the table under this heading, without its signs of code."""
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return {
        cells[0].strip(" `"): cells[1].strip().replace("`", "")
        for line in table
        if len(cells := line.strip("|").split("|")) == 2
    }


def test_the_docs_have_the_tables() -> None:
    both = rows("| DuckLake | driftline |\n|---|---|\n| `boolean`")
    assert {k: v for k, v in both.items() if k in types.BOTH} == {k: str(v) for k, v in types.BOTH.items()}
    assert set(both) == {*types.BOTH, "decimal(p,s)", "struct`, `list`, `map"}
    assert rows("| DuckLake | Spark reads |") == types.READ
    assert rows("| DuckLake | why |") == types.REFUSED
    assert rows("| driftline | why |") == types.UNWRITTEN
    promoted = {k: tuple(re.split(", ", v)) for k, v in rows("| from | to |").items()}
    assert {k: v for k, v in promoted.items() if not k.startswith("decimal")} == types.PROMOTIONS


def test_a_type_is_itself_again() -> None:
    for name in (*types.BOTH, *types.READ, *types.REFUSED, "decimal(9,2)"):
        assert types.write_type(types.read_type(name), "t.a") == name
    assert types.read_type("timestamp_us") == types.read_type("TIMESTAMP")


@pytest.mark.parametrize("type_", [TIME, UUID, VARIANT, fixed(3), Primitive("enum")])
def test_what_ducklake_cannot_hold_is_refused(type_: Primitive) -> None:
    with pytest.raises(DataError, match=r"t\.a: a DuckLake table has no column of type"):
        types.write_type(type_, "t.a")


@pytest.mark.parametrize("name", types.REFUSED)
def test_what_spark_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"Spark cannot read DuckLake's {name}"):
        types.spark_name(types.read_type(name), "t.a")


def test_every_promotion_and_no_other() -> None:
    names = [*types.BOTH, *types.READ, "decimal(9,2)", "decimal(18,2)", "decimal(18,4)"]
    allowed = {(a, b) for a in names for b in names if a != b and types.promotes(a, b)}
    assert allowed == {(a, b) for a, many in types.PROMOTIONS.items() for b in many} | {
        ("decimal(9,2)", "decimal(18,2)")
    }


def test_names_for_spark() -> None:
    names = [types.spark_name(t, "a") for t in (BOOLEAN, INT, LONG, STRING, decimal(9, 2))]
    assert names == ["boolean", "int", "bigint", "string", "decimal(9,2)"]
