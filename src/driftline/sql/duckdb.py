"""Translates the Spark SQL of a view into DuckDB's.

sqlglot knows what is the same in both; here is what DuckDB has no function for. DuckDB binds a view when it
is made, so a function that is missing here is an error, and never another value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp, parse_one

from driftline.core.settings.condition_sql import SparkTexts


def in_duckdb(select: str) -> str:
    """Translate a query that `driftline.sql.fold.Fold` has written.

    >>> in_duckdb("select zip_with(`a`, `b`, (x, y) -> coalesce(x, y))")
    'SELECT LIST_TRANSFORM(LIST_ZIP("a", "b"), LAMBDA x : COALESCE(x[1], x[2]))'
    """
    tree = parse_one(select, dialect=SparkTexts)
    for text in list(tree.find_all(exp.Format)):
        _checked_by_duckdb(text)
    for node in reversed(list(tree.walk())):  # what is inside comes first
        new = _translated(node)
        if new is not node:
            node.replace(new)
    return tree.sql(dialect="duckdb")


def _checked_by_duckdb(text: exp.Format) -> None:
    """Bytes are a text to DuckDB if it decodes them; Spark's SQL has to print a text to know."""
    body: Any = text.find_ancestor(exp.Lambda)
    (cast,) = body.parent.this.expressions
    cast.replace(_call("TRY", _call("DECODE", cast.this)))
    text.replace(text.expressions[0].copy())


def _translated(node: Any) -> Any:
    match node:
        case exp.Anonymous():
            translate = _FUNCTIONS.get(str(node.this).lower())
            return node if translate is None else translate(*node.expressions)
        case exp.Cast() if node.to.this == exp.DataType.Type.BINARY:
            return _call("ENCODE", node.this)
        case exp.JSONFormat():
            # Spark's JSON has no fields that are null, and a patch of an object deletes these.
            json = _call("JSON_MERGE_PATCH", exp.Literal.string("{}"), _call("TO_JSON", node.this))
            return exp.cast(json, "text")
        case exp.Floor() if isinstance(node.this, exp.Div):
            # DuckDB divides decimals as doubles, which are too coarse for microseconds.
            number, by = node.this.this, int(_digits(node.this.expression))
            whole = exp.IntDiv(this=exp.paren(number.copy()), expression=exp.Literal.number(by))
            below = exp.Mod(this=exp.paren(number.copy()), expression=exp.Literal.number(by)) < 0
            return exp.paren(whole - exp.case().when(below, "1").else_("0"))
        case exp.Add() if _is_interval(node.expression):
            return _call("MAKE_TIMESTAMP", node.expression.expressions[-1].this)
        case exp.SafeMultiply():
            wide = exp.cast(node.this, "decimal(38,0)") * node.expression
            return exp.TryCast(this=exp.paren(wide), to=exp.DataType.build("bigint"), safe=True)
    return node


def _call(function: str, *arguments: Any) -> Any:
    return exp.Anonymous(this=function, expressions=list(arguments))


def _is_interval(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "make_dt_interval"


def _digits(number: Any) -> str:
    literal = number.find(exp.Literal)
    return str(literal.this)


def _bound(function: Any, *values: Any) -> Any:
    """The body of a lambda with these values in place of its arguments."""
    names = {argument.name: value for argument, value in zip(function.expressions, values, strict=True)}

    def replaced(node: Any) -> Any:
        is_name = isinstance(node, exp.Identifier | exp.Column) and node.name in names
        in_column = isinstance(node, exp.Identifier) and isinstance(node.parent, exp.Column | exp.Dot)
        return names[node.name].copy() if is_name and not in_column else node

    return function.this.copy().transform(replaced)


def _each(items: Any, function: Any, body: Callable[[Any], Any], name: str = "LIST_TRANSFORM") -> Any:
    """A list function over ``items``, whose argument is named as the first of the lambda ``function``."""
    argument = exp.to_identifier(function.expressions[0].name)
    return _call(name, items, exp.Lambda(this=body(argument), expressions=[argument.copy()]))


def _at(item: Any, number: int) -> Any:
    """An item by its place from 0, which sqlglot writes as DuckDB counts."""
    return exp.Bracket(this=item.copy(), expressions=[exp.Literal.number(number)])


def _field(item: Any, name: str) -> Any:
    return exp.Dot(this=item.copy(), expression=exp.to_identifier(name))


def _pair(key: Any, value: Any) -> Any:
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name), expression=part)
            for name, part in (("key", key), ("value", value))
        ]
    )


def _zip_with(a: Any, b: Any, function: Any) -> Any:
    return _each(_call("LIST_ZIP", a, b), function, lambda p: _bound(function, _at(p, 0), _at(p, 1)))


def _transform_values(entries: Any, function: Any) -> Any:
    def pair(e: Any) -> Any:
        return _pair(_field(e, "key"), _bound(function, _field(e, "key"), _field(e, "value")))

    return _call("MAP_FROM_ENTRIES", _each(_call("MAP_ENTRIES", entries), function, pair))


def _map_filter(entries: Any, function: Any) -> Any:
    kept = _each(
        _call("MAP_ENTRIES", entries),
        function,
        lambda e: _bound(function, _field(e, "key"), _field(e, "value")),
        "LIST_FILTER",
    )
    return _call("MAP_FROM_ENTRIES", kept)


def _map_zip_with(a: Any, b: Any, function: Any) -> Any:
    def value(entries: Any, key: Any) -> Any:
        return _call("MAP_EXTRACT_VALUE", entries.copy(), key.copy())

    def pair(key: Any) -> Any:
        return _pair(key.copy(), _bound(function, key, value(a, key), value(b, key)))

    def is_new(key: Any) -> Any:
        return exp.not_(_call("MAP_CONTAINS", a.copy(), key.copy()))

    new = _each(_call("MAP_KEYS", b), function, is_new, "LIST_FILTER")
    keys = _call("LIST_CONCAT", _call("MAP_KEYS", a), new)
    return _call("MAP_FROM_ENTRIES", _each(keys, function, pair))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zip_with": _zip_with,
    "transform_values": _transform_values,
    "map_filter": _map_filter,
    "map_zip_with": _map_zip_with,
    "format_number": lambda number, _: exp.cast(number, "text"),
    "get": lambda items, number: _at(items, int(number.name)),
    "timestamp_micros": lambda micros: _call("MAKE_TIMESTAMPTZ", micros),
}
