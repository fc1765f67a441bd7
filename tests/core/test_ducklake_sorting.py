"""Sort expressions of a DuckLake: the columns that they name, through DuckDB's own parser."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from driftline.core.schema.definition import SortExpression, SortField
from driftline.core.schema.types import LONG, STRING, Field, Schema, Struct
from driftline.errors import DriftlineError
from driftline.formats.ducklake.layout import expression_of, key_of, parts_of

SCHEMA = Schema(Struct((Field("a", LONG, 1), Field('Näme "x"', STRING, 2), Field("s", Struct(()), 3))))
RENAMED = Schema(Struct((Field("order", LONG, 1), Field("$1$", STRING, 2), Field("s", Struct(()), 3))))


@pytest.mark.parametrize(
    ("text", "parts", "renamed"),
    [
        ("A", (1,), '"order"'),
        ('lower("näme ""x""")', ("lower(", 2, ")"), 'lower("$1$")'),
        ("a -- b", (1,), '"order"'),
        ("a % 2 + A", ("((", 1, " % 2) + ", 1, ")"), '(("order" % 2) + "order")'),
        (
            """'"$1$' || "a" || '$a'""",
            ("""(('"$1$' || """, 1, ") || '$a')"),
            """(('"$1$' || "order") || '$a')""",
        ),
    ],
)
def test_a_name_is_its_columns_id(text: str, parts: tuple[str | int, ...], renamed: str) -> None:
    assert parts_of(text, SCHEMA) == parts
    key = key_of(text, True, False, SCHEMA)
    assert key == (
        SortField(1, descending=True, nulls_first=False)
        if parts == (1,)
        else SortExpression(parts, True, False)
    )
    assert expression_of(key, RENAMED, "t") == renamed
    assert key_of(renamed, True, False, RENAMED) == key


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """Python's own limit: a test before this one may have raised it, as a worker of verify does."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("usual_recursion")
def test_long_expressions() -> None:
    assert parts_of(" + ".join(["a"] * 100), SCHEMA).count(1) == 100
    deep = " + ".join(["a"] * 1_200)
    assert key_of(deep, False, True, SCHEMA) == SortExpression((deep,))
    with pytest.raises(DriftlineError, match="expression depth"):
        parts_of(deep, SCHEMA)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("nowhere + 1", "(nowhere + 1)"),
        ("lower(", "lower("),
        ("sum(a)", 'sum("a")'),
        ("(SELECT a)", '(SELECT "a")'),
    ],
)
def test_a_key_of_others_stays(text: str, expression: str) -> None:
    key = key_of(text, False, True, SCHEMA)
    assert isinstance(key, SortExpression)
    assert expression_of(key, SCHEMA, "t") == expression
    with pytest.raises(DriftlineError):
        parts_of(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a, a", "is not one expression"),
        ("a FROM t", "is not one expression"),
        ("a WHERE a > 1", "is not one expression"),
        ("DISTINCT a", "is not one expression"),
        ("a UNION SELECT a", "is not one expression"),
        ("a; SELECT a", "is not one expression"),
        ("a b", "is not one expression"),
        ("", "cannot read"),
        ("a; DROP TABLE t", "cannot read"),
        ("*", "has a star in it"),
        ("$1 + a", "has a parameter in it"),
        ("list_transform([a], lambda x: x + a)", "has a lambda in it"),
        ("count(*)", "has the aggregate function count_star in it"),
        ("a + max(a) OVER ()", "has a window function in it"),
        ("a IN (SELECT 1)", "has a subquery in it"),
        ("s.x", "s.x is not one"),
        ("b.x", "there is no column b.x"),
        ("1", "names no column"),
    ],
)
def test_what_is_no_sort_expression(text: str, why: str) -> None:
    with pytest.raises(DriftlineError, match=why):
        parts_of(text, SCHEMA)
