"""Parses conditions from SQL with sqlglot.

Importing sqlglot takes a while, so only tables that have a condition import this module.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from driftline.core.schema.types import Path
from driftline.core.settings.condition import (
    ACTIONS,
    Bound,
    Condition,
    Expectation,
    Inequality,
    IsNull,
    Junction,
    Like,
    Literal,
    Negation,
    OneOf,
    Operator,
)

_FAR = 1000  # digits that a number may have before or behind its point
_GRAMMAR = "=, !=, <, <=, >, >=, BETWEEN, LIKE, IN, IS NULL, AND, OR, NOT and brackets are"
_VALUE = "a text in single quotes, a number, true or false"
_BOUND = "a number, a text in single quotes, date '2026-01-31' or timestamp '2026-01-31 12:00:00'"
_OPERATORS: dict[type[exp.Expr], Operator] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TIMESTAMPS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ELSE = re.compile(r"\s+else\s+(\w+)\s*$", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)


class SparkTexts(Spark):
    """Spark's SQL, in which two quotes in a text stand for one, as in other dialects."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012  as sqlglot reads it


def condition_of(text: str) -> Condition:
    """Read a condition: ``PATH = value``, ``<``, ``BETWEEN``, ``LIKE``, ``IN (…)``, ``IS NULL`` and the like.

    They are joined by AND, OR, NOT and brackets. Raises ValueError, which names the column of the fault.

    >>> condition_of("op = 'd' or value is null").any_of
    True
    """
    try:
        tree = parse_one(text, dialect=SparkTexts, into=exp.Condition)
    except SqlglotError as error:
        raise ValueError(f"{text!r} is not a condition: {_said(error, text)}") from error
    except RecursionError as error:
        raise ValueError("the condition is nested too deep") from error
    return _condition(tree)


def expectation_of(name: str, text: str) -> Expectation:
    """Read an expectation: a condition, and ``else`` with the action, which is ``warn`` without it.

    >>> expectation_of("price", "price is not null else quarantine").action
    'quarantine'

    Raises ValueError.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} does not name an expectation: a name has up to 64 letters, digits, - and _, and begins with a letter"
        )
    ending = _ELSE.search(text)
    if ending is None:
        return Expectation(name, condition_of(text), "warn")
    action = ending[1].lower()
    if action not in ACTIONS:
        raise ValueError(f"{ending[1]!r} does not follow else: {', '.join(ACTIONS)} do")
    return Expectation(name, condition_of(text[: ending.start()]), action)  # type: ignore[arg-type]


def without_action(text: str) -> str:
    """Return the condition of an expectation as it is written.

    >>> without_action("price >= 0 else fail"), without_action("name != ' else fail'")
    ('price >= 0', "name != ' else fail'")
    """
    return _ELSE.sub("", text)


def _said(error: SqlglotError, text: str) -> str:
    """Return the reason of an error, without the text that sqlglot underlines for a terminal."""
    if not isinstance(error, ParseError):
        blank = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
        begins = re.search("['\"`]", blank)
        return f"a quote or a backtick is open{_at(None if begins is None else begins.start())}"
    if not error.errors:
        return "it is empty"
    first = error.errors[0]
    # Of what is missing, it says which of its own classes needs it.
    reason = "something is missing" if "missing for" in first["description"] else first["description"]
    word = first["highlight"]
    # It counts to the end of the word, within its line.
    lines = text.split("\n")[: first["line"] - 1]
    start = sum(len(line) + 1 for line in lines) + first["col"] - len(word)
    quoted = f"{text[:start]}`{word}`{text[start + len(word) :]}"
    way_out = "; in backticks it is a field" if word.isidentifier() and _is_condition(quoted) else ""
    return f"{reason.rstrip('.').lower()} at {word!r}{_at(start)}{way_out}"


def _is_condition(text: str) -> bool:
    try:
        _condition(parse_one(text, dialect=SparkTexts, into=exp.Condition))
    except (SqlglotError, ValueError):
        return False
    return True


def _at(start: int | None) -> str:
    return "" if start is None else f" (column {start + 1})"


def _fault(node: exp.Expr, fault: str) -> ValueError:
    """Return the error of a part of a condition."""
    part, starts = node, _starts(node)
    # Of a word such as TRUE it keeps no place, but of what stands before it.
    while not starts and part.parent is not None:
        part = part.parent
        starts = _starts(part)
    place = _at(min(starts, default=None))
    return ValueError(f"{node.sql(dialect=Spark)} {fault}{place}")


def _starts(node: exp.Expr) -> list[int]:
    return [start for part in node.walk() if (start := part.meta.get("start")) is not None]


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
            return _equals(_path(node.this), [node.expression])
        case exp.NEQ():
            return Negation(_equals(_path(node.this), [node.expression]))
        case exp.In() if node.expressions:
            return _equals(_path(node.this), node.expressions)
        case _:
            return _ordered(node)


def _ordered(node: exp.Expr) -> Condition:
    match node:
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return Inequality(_path(node.this), _OPERATORS[type(node)], _bound(node.expression))
        case exp.Between() if not node.args.get("symmetric"):
            return _between(_path(node.this), _bound(node.args["low"]), _bound(node.args["high"]))
        case exp.Like(expression=exp.Literal(is_string=True) as pattern):
            like = Like(_path(node.this), str(pattern.this))
            # Some versions of sqlglot put a NOT around it instead.
            return Negation(like) if node.args.get("negate") else like
    raise _fault(node, f"is not understood in a condition: {_GRAMMAR}")


def _equals(path: Path, nodes: list[exp.Expr]) -> Condition:
    dates = [node for node in nodes if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)]
    moments = [_bound(node) for node in dates]
    literals = tuple(_value(node) for node in nodes if node not in dates)
    parts = [_between(path, moment, moment) for moment in moments]
    equal = [OneOf(path, literals)] if literals else []
    either: tuple[Condition, ...] = (*equal, *parts)
    return Junction(either, any_of=True) if len(either) > 1 else either[0]


def _between(path: Path, low: Bound, high: Bound) -> Junction:
    return Junction((Inequality(path, ">=", low), Inequality(path, "<=", high)), any_of=False)


def _path(node: exp.Expr) -> Path:
    parts = node.parts if isinstance(node, exp.Column | exp.Dot) else []
    if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
        raise _fault(node, "stands where a field should; in backticks it is one")
    return tuple(part.name for part in parts)


def _value(node: exp.Expr) -> Literal:
    match node:
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal():
            return _number(node, str(node.this))
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _number(node, f"-{number.this}")
    raise _fault(node, f"stands where a value should: {_VALUE}")


def _bound(node: exp.Expr) -> Bound:
    match node:
        case exp.Cast(this=exp.Literal(is_string=True) as text) if not isinstance(node, exp.TryCast):
            if (moment := _moment(node, str(text.this))) is not None:
                return moment
        case exp.Literal() | exp.Neg():
            value = _value(node)
            if not isinstance(value, bool):
                return value
    raise _fault(node, f"is nothing to compare with: {_BOUND}")


def _moment(node: exp.Cast, text: str) -> datetime | None:
    """Return the moment of a date or timestamp; None for a text that is none."""
    is_date = node.to.this == exp.DType.DATE
    if not (is_date or node.to.this in _TIMESTAMPS) or not _ISO.match(text) or is_date != (len(text) == 10):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _number(node: exp.Expr, text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _fault(node, "is not a number: write 12, -0.5 or 1e6") from None
    if abs(number.adjusted()) > _FAR:
        raise _fault(node, f"is beyond every number of a record: it has over {_FAR} digits")
    return number
