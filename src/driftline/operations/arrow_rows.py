"""Reads table rows into one Arrow table in this process, by DuckDB or by Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from driftline.core.schema.naming import caseless, nearest
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
)
from driftline.core.settings.fields import parse_path, spelled_path
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.formats.commit import is_conflict
from driftline.runtime.duckdb import literal
from driftline.runtime.failure import explained
from driftline.runtime.spark_version import as_arrow
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.formats.open import EmbeddedLake

_ROWS = 65_536  # of a batch
_UNRESOLVED = re.compile(r"\[UNRESOLVED_COLUMN\b.*? with name (\S+) cannot be resolved")
# Types whose values both engines hand over as the same, or as what can be cast to it.
_OF_BOTH = frozenset(
    [
        *("boolean", "int", "long", "float", "double", "decimal", "string", "uuid", "binary", "fixed"),
        *("date", "time", "timestamp", "timestamp_ntz"),
    ]
)


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Columns of a table, and a condition for its rows.

    ``table``: its name; ``struct``: all of its columns; ``fields``: those chosen, by their paths; ``where``:
    a condition in Spark's SQL.
    """

    table: str
    struct: Struct
    fields: tuple[tuple[Path, Field], ...]
    where: str | None

    @classmethod
    def of(
        cls, table: str, schema: Schema, columns: Sequence[str] | str | None, where: str | None
    ) -> ChosenRows:
        """Select columns by name or path; None: all of them. Raises UsageError for one that is not there."""
        struct = schema.struct
        if columns is None:
            return cls(table, struct, tuple(((f.name,), f) for f in struct.fields), where)
        chosen = [columns] if isinstance(columns, str) else columns
        if not chosen:
            raise UsageError(f"{table}: no column is chosen", "leave the columns out to read all of them")
        return cls(table, struct, tuple(_chosen(table, struct, column) for column in chosen), where)

    @property
    def names(self) -> list[str]:
        """The names of the chosen columns: their paths, as the table spells them."""
        # By its path: Spark would name both customer.zip and shop.zip just zip.
        return [dotted(path) for path, _ in self.fields]

    def schema(self) -> pa.Schema | None:
        """The Arrow types of the columns; None if they have one that is known to the engine alone."""
        from driftline.convert.types import arrow_schema  # late: Arrow

        fields = [Field(name, _as_read(f.type)) for name, (_, f) in zip(self.names, self.fields, strict=True)]
        return arrow_schema(Struct(tuple(fields))) if all(_of_both(f.type) for f in fields) else None


def by_duckdb(lake: EmbeddedLake, selection: ChosenRows) -> pa.Table | None:
    """Read the selection without Spark; None if it takes Spark, or if Spark knows better what is wrong."""
    import pyarrow as pa

    from driftline.operations.duckdb_query import query  # late: Spark's rows do without

    target, sql = selection.schema(), duckdb_sql(selection)
    if target is None or sql is None:
        return None
    try:
        with query(lake.in_duckdb(sql), sql, _ROWS) as batches:
            return pa.Table.from_batches((batch.cast(target) for batch in batches), target)
    except (DriftlineError, pa.ArrowException):
        return None


def duckdb_sql(selection: ChosenRows) -> str | None:
    """The selection in DuckDB's SQL; None if the condition may mean something else there."""
    from driftline.runtime.duckdb import identifier, literal  # late: Spark's rows do without

    rows = "t"
    while any(caseless(f.name) == rows for f in selection.struct.fields):
        rows += "_"

    def column(path: Path) -> str:
        """The SQL of a column; qualified, as a table may have the name of a column."""
        sql = f"{rows}.{identifier(path[0])}"
        for step in path[1:]:
            sql = f"struct_extract({sql}, {literal(step)})"
        return sql

    def found(written: Path) -> tuple[str, Type] | None:
        """The column that a condition names."""
        if len(written) > 1 and caseless(written[0]) in _qualifiers(selection.table):
            return None  # Spark takes it for the table
        match = _found(selection.struct, written)
        if match is None and len(written) == 1:
            _check_misspelled(selection, written[0])
        return match and (column(match[0]), match[1].type)

    listed = ", ".join(f"{column(path)} AS {identifier(dotted(path))}" for path, _ in selection.fields)
    table = ".".join(map(identifier, selection.table.split(".")))
    statement = f"SELECT {listed} FROM {table} AS {rows}"
    if selection.where is None:
        return statement

    condition = duckdb_condition(selection.where, found)
    return condition and f"{statement} WHERE {condition}"


def by_spark(frame: DataFrame, selection: ChosenRows) -> pa.Table:
    """Collect the selection of the table's rows, which are ``frame``.

    Raises UsageError if the condition is no SQL, DataError if Arrow has no type for a column.
    """
    from pyspark.sql import functions as F

    with explaining_condition(selection.table, selection.struct):
        rows = frame if selection.where is None else frame.where(selection.where)
        columns = []
        for path, _ in selection.fields:
            column = F.col(quoted(path[0]))
            for step in path[1:]:
                column = column.getField(step)
            columns.append(column.alias(dotted(path)))
        table, target = _with_offsets(as_arrow(rows.select(columns))), selection.schema()
        return table if target is None else table.cast(target)


@contextmanager
def explaining_condition(table: str, struct: Struct) -> Iterator[None]:
    """Turn errors of Spark, except for conflicts, into driftline's.

    A condition on the rows of ``table``, with the columns of ``struct``, may be no SQL, or name no column.

    Raises UsageError, DataError.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        if is_conflict(error):
            raise
        if unresolved := _UNRESOLVED.search(str(error)):
            raise _no_column(table, struct, unresolved[1].replace("`", "")) from error
        message, hint = explained(error)
        raise UsageError(f"{table}: {message}", hint) from error
    except (PySparkException, Py4JError) as error:
        if is_conflict(error):
            raise
        message, hint = explained(error)
        raise DataError(f"{table}: {message}", hint) from error


def _with_offsets(table: pa.Table) -> pa.Table:
    """The table, with Arrow's first offset where all lists or maps are empty: Spark leaves it out, and Polars
    does not read that.
    """
    import pyarrow as pa

    if not any(pa.types.is_nested(f.type) for f in table.schema):
        return table
    return pa.concat_tables([table, table.slice(0, 0)]).combine_chunks()


def _qualifiers(table: str) -> set[str]:
    from driftline.formats.open import CATALOG  # late: only conditions need it

    return {caseless(part) for part in (CATALOG, *table.split("."))}


def _chosen(table: str, struct: Struct, written: str) -> tuple[Path, Field]:
    """The column of this name, or at this path. Raises UsageError if there is none."""
    if (plain := _found(struct, (written,))) is not None:  # a name may hold dots
        return plain
    try:
        path = parse_path(written)
    except ValueError as error:
        raise UsageError(f"{table}: {error}", "a name with dots or blanks stands in backticks") from error
    if (nested := _found(struct, path)) is not None:
        return nested
    for length in range(len(path) - 1, 0, -1):
        inside = _found(struct, path[:length])
        if inside is not None and not isinstance(inside[1].type, Struct):
            kind = f"{spelled_path(inside[0])} is a {inside[1].type}"
            raise UsageError(f"{table} has no column {written}: {kind}", f"choose {spelled_path(inside[0])}")
    raise _no_column(table, struct, written)


def _no_column(table: str, struct: Struct, written: str) -> UsageError:
    first = [f.name for f in struct.fields[:8]] + ["…"] * (len(struct.fields) > 8)
    hint = _near(struct, written) or f"it has {', '.join(first)}"
    return UsageError(f"{table} has no column {written}", hint)


def _near(struct: Struct, written: str) -> str | None:
    return nearest(written, [spelled_path(path) for path in _paths(struct, ())])


def _check_misspelled(selection: ChosenRows, written: str) -> None:
    """Raise UsageError for the name of a condition that is no column, where one is much like it: without
    Spark, which knows other names.
    """
    if not written.startswith("_") and _near(selection.struct, written):
        raise _no_column(selection.table, selection.struct, written)


def _found(struct: Struct, written: Path) -> tuple[Path, Field] | None:
    """The field at a path, in whatever case it is written; None if there is none, or several."""
    inside: Struct = struct
    path: Path = ()
    for number, step in enumerate(written):
        fields = [f for f in inside.fields if caseless(f.name) == caseless(step)]
        exact = [f for f in fields if f.name == step] or fields
        if len(exact) != 1:
            return None
        field, path = exact[0], (*path, exact[0].name)
        if number == len(written) - 1:
            return path, field
        if not isinstance(field.type, Struct):
            return None
        inside = field.type
    return None


def _paths(struct: Struct, above: Path) -> Iterator[Path]:
    for f in struct.fields:
        yield (*above, f.name)
        if isinstance(f.type, Struct):
            yield from _paths(f.type, (*above, f.name))


def _as_read(type_: Type) -> Type:
    """The type in which the engines hand values over: uuids as text, nothing required, without ids."""
    match type_:
        case Struct(fields):
            return Struct(tuple(Field(f.name, _as_read(f.type)) for f in fields))
        case List(element):
            return List(_as_read(element))
        case Map(key, value):
            return Map(_as_read(key), _as_read(value))
        case Primitive("fixed"):
            return BINARY
        case _:
            return STRING if type_ == UUID else type_


def _of_both(type_: Type) -> bool:
    match type_:
        case Struct(fields):
            return all(_of_both(f.type) for f in fields)
        case List(element):
            return _of_both(element)
        case Map(key, value):
            return _of_both(key) and _of_both(value)
        case Primitive(name):
            return name in _OF_BOTH


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
