"""Parses conditions from SQL with sqlglot.

Importing sqlglot takes a while, so only tables that have a condition import this module.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from driftline.core.schema.types import Path
from driftline.core.settings.condition import Condition, IsNull, Junction, Literal, Negation, OneOf

_FAR = 1000  # digits that a number may have before or behind its point
_GRAMMAR = "=, !=, IN, IS NULL, AND, OR, NOT and brackets are"


class SparkTexts(Spark):
    """Spark's SQL, in which two quotes in a text stand for one, as in other dialects."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012  as sqlglot reads it


def condition_of(text: str) -> Condition:
    """Read a condition: ``PATH = value``, ``!=``, ``IN (…)``, ``IS NULL``, with AND, OR, NOT and brackets.

    Values are texts in single quotes, numbers, true and false. Raises ValueError.

    >>> condition_of("op = 'd' or value is null").any_of
    True
    """
    try:
        tree = parse_one(text, dialect=SparkTexts, into=exp.Condition)
    except SqlglotError as error:
        raise ValueError(f"{text!r} is not a condition: {_said(error)}") from error
    except RecursionError as error:
        raise ValueError("the condition is nested too deep") from error
    return _condition(tree)


def _said(error: SqlglotError) -> str:
    """Return the reason of an error, without the text that sqlglot underlines for a terminal."""
    if not isinstance(error, ParseError):
        return "a quote or a backtick is open"
    if not error.errors:
        return "it is empty"
    first = error.errors[0]
    # Of what is missing, it says which of its own classes needs it.
    reason = "something is missing" if "missing for" in first["description"] else first["description"]
    return f"{reason.rstrip('.').lower()} at {first['highlight']!r}"


def _condition(node: exp.Expr) -> Condition:
    match node:
        case exp.Paren():
            return _condition(node.this)
        case exp.Not():
            return Negation(_condition(node.this))
        case exp.And() | exp.Or():
            return Junction(tuple(map(_condition, node.flatten())), any_of=isinstance(node, exp.Or))
        case exp.Is(expression=exp.Null()):
            return IsNull(_path(node.this))
        case exp.EQ():
            return OneOf(_path(node.this), (_value(node.expression),))
        case exp.NEQ():
            return Negation(OneOf(_path(node.this), (_value(node.expression),)))
        case exp.In() if node.expressions:
            return OneOf(_path(node.this), tuple(map(_value, node.expressions)))
    raise ValueError(f"{_spelled(node)} is not understood in a condition: {_GRAMMAR}")


def _path(node: exp.Expr) -> Path:
    parts = node.parts if isinstance(node, exp.Column | exp.Dot) else []
    if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
        raise ValueError(f"{_spelled(node)} stands where a field should; in backticks it is one")
    return tuple(part.name for part in parts)


def _value(node: exp.Expr) -> Literal:
    match node:
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _number(f"-{number.this}")
    raise ValueError(
        f"{_spelled(node)} stands where a value should: a text in single quotes, a number, true or false"
    )


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text} is not a number") from None
    if abs(number.adjusted()) > _FAR:
        raise ValueError(f"{text} is beyond every number of a record")
    return number


def _spelled(node: exp.Expr) -> str:
    return node.sql(dialect=Spark)
