"""Conditions in Spark's SQL as DuckDB's, as far as both engines find the same rows by them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from driftline.core.schema.types import BOOLEAN, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, Path, Primitive, Type
from driftline.runtime.duckdb import literal

# The SQL and the type of a column by its path as written; None if there is none.
Column = Callable[[Path], "tuple[str, Type] | None"]

_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {  # each with its mirror image
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
# Spark's texts have escapes, which depend on its version and its settings.
_ESCAPED = re.compile(r'["\\]')
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")
_EXACT = 15  # digits that a double holds
_LONG = range(-(2**63), 2**63)


class _OtherSQL(Exception):
    """A part that the engines may read differently, or that only one of them has."""


def duckdb_condition(text: str, column: Column) -> str | None:
    """DuckDB's SQL for a condition of Spark's.

    None where the two may differ: it has to be columns compared with values of their own type, ``IS NULL``,
    ``IN``, ``BETWEEN``, ``LIKE``, joined by ``AND``, ``OR`` and ``NOT``.

    >>> columns = {("id",): ("id", Primitive("long")), ("at",): ("at", Primitive("timestamp"))}
    >>> duckdb_condition("id > 5 AND NOT at IS NULL", columns.get)
    '((id > 5) AND (NOT (at IS NULL)))'
    >>> duckdb_condition("at >= '2026-03-01'", columns.get)
    "(at >= TIMESTAMPTZ '2026-03-01 00:00:00+00:00')"
    >>> duckdb_condition("id / 2 > 5", columns.get)
    """
    if _ESCAPED.search(text):
        return None
    try:
        return _Translation(column).of(parse_one(text, dialect=Spark, into=exp.Condition))
    except (SqlglotError, RecursionError, _OtherSQL):
        return None


class _Translation:
    """Takes a parsed condition apart."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def of(self, node: exp.Expr) -> str:
        """The SQL of a condition."""
        match node:
            case exp.Paren():
                return self.of(node.this)
            case exp.Not():
                return f"(NOT {self.of(node.this)})"
            case exp.And() | exp.Or():
                word = " AND " if isinstance(node, exp.And) else " OR "
                return f"({word.join(map(self.of, node.flatten()))})"
            case exp.Is(expression=exp.Null()):
                return f"({self.column(node.this)[0]} IS NULL)"
            case exp.In() if node.expressions and not node.args.get("query"):
                sql, type_ = self.column(node.this)
                return f"({sql} IN ({', '.join(_value(value, type_) for value in node.expressions)}))"
            case exp.Between():
                sql, type_ = self.column(node.this)
                low, high = (_value(node.args[bound], type_) for bound in ("low", "high"))
                return f"({sql} BETWEEN {low} AND {high})"
            case exp.Like(expression=exp.Literal(is_string=True)):
                sql, type_ = self.column(node.this)
                return f"({sql} LIKE {_value(node.expression, _checked(type_, STRING))})"
            case exp.Column() | exp.Dot():
                sql, type_ = self.column(node)
                _checked(type_, BOOLEAN)
                return sql
            case _ if type(node) in _COMPARISONS:
                return self.comparison(node)
        raise _OtherSQL

    def comparison(self, node: exp.Expr) -> str:
        """The SQL of a column compared with a value, on either side."""
        operator, mirrored = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        if not isinstance(left, exp.Column | exp.Dot):
            left, right, operator = right, left, mirrored
        sql, type_ = self.column(left)
        return f"({sql} {operator} {_value(right, type_)})"

    def column(self, node: exp.Expr) -> tuple[str, Type]:
        """The SQL of a column, and its type."""
        parts = node.parts if isinstance(node, exp.Column | exp.Dot) else []
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            raise _OtherSQL
        column = self._column(tuple(part.name for part in parts))
        if column is None:
            raise _OtherSQL
        return column


def _checked(type_: Type, expected: Primitive) -> Primitive:
    if type_ != expected:
        raise _OtherSQL
    return expected


def _value(node: exp.Expr, type_: Type) -> str:
    """The SQL of a constant of a column's type."""
    match node, type_:
        case exp.Boolean(), Primitive("boolean"):
            return "TRUE" if node.this else "FALSE"
        case exp.Literal(is_string=True), Primitive("string"):
            return literal(str(node.this))
        case exp.Literal(is_string=True), Primitive("date" | "timestamp" | "timestamp_ntz"):
            return _moment(str(node.this), type_)
        case exp.Cast(this=exp.Literal(is_string=True)), Primitive("date") if node.to.is_type("date"):
            return _moment(str(node.this.this), type_)
        case exp.Cast(this=exp.Literal(is_string=True)), Primitive("timestamp") if node.to.is_type(
            "timestamptz"
        ):
            return _moment(str(node.this.this), type_)
        case exp.Literal(is_string=False), Primitive():
            return _number(str(node.this), type_)
        case exp.Neg(this=exp.Literal(is_string=False)), Primitive():
            return _number(f"-{node.this.this}", type_)
    raise _OtherSQL


def _number(text: str, type_: Primitive) -> str:
    """A number that both engines compare with the column exactly."""
    if not re.fullmatch(r"-?\d*\.?\d+", text):
        raise _OtherSQL
    digits = Decimal(text).as_tuple()
    fraction = -int(digits.exponent)
    integers = len(digits.digits) - fraction
    match type_:
        case Primitive("int" | "long") if text.removeprefix("-").isdecimal() and int(text) in _LONG:
            return text
        # For 0, Spark leaves out Iceberg's files that have -0.0 at most.
        case Primitive("double") if len(digits.digits) <= _EXACT and any(digits.digits):
            return f"CAST({text} AS DOUBLE)"
        case Primitive("decimal", (precision, scale)) if fraction <= scale and integers <= precision - scale:
            return f"CAST({text} AS DECIMAL({precision}, {scale}))"
    raise _OtherSQL


def _moment(text: str, type_: Type) -> str:
    """A date or time; one without a zone is in UTC, where the column has one."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise _OtherSQL
    try:
        if type_ == DATE and match[1] is None:
            return f"DATE '{date.fromisoformat(text)}'"
        if type_ == TIMESTAMP_NTZ and match[4] is None:
            return f"TIMESTAMP '{datetime.fromisoformat(text)}'"
        if type_ == TIMESTAMP:
            moment = datetime.fromisoformat(text)
            return f"TIMESTAMPTZ '{moment if moment.tzinfo else moment.isoformat(' ') + '+00:00'}'"
    except ValueError as error:  # a day that no calendar has
        raise _OtherSQL from error
    raise _OtherSQL
