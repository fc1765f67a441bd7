"""Quotes names and literals in Spark SQL; names from data are quoted here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import count

from driftline.core.schema.types import READ_AS_TEXT, UNWRITABLE, List, Map, Path, Primitive, Struct, Type

_SPARK = {
    "long": "bigint",
    "uuid": "string",
    "unknown": "void",
    "fixed": "binary",
    "timestamp_ntz": "timestamp_ntz",
    # Types that only DuckDB makes.
    "int8": "tinyint",
    "int16": "smallint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "timestamp_s": "timestamp_ntz",
    "timestamp_ms": "timestamp_ntz",
    "duckdb_uuid": "string",
    **dict.fromkeys(READ_AS_TEXT, "string"),
}

_fresh = count()
_NAME = re.compile(r"[a-z]+[0-9]+|`[^`]+`")


def any_value(paths: Iterable[Path]) -> str:
    """SQL that is true if a row has anything in the topmost columns of these paths.

    >>> any_value([("a", "b"), ("c",), ("a", "d")])
    '`a` is not null or `c` is not null'
    """
    return " or ".join(f"{name(top)} is not null" for top in sorted({path[0] for path in paths})) or "false"


def name(text: str) -> str:
    """An identifier.

    >>> name("a`b")
    '`a``b`'
    """
    return "`" + text.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string literal; what SQL could read otherwise is escaped.

    >>> literal("it's")
    "'it\\\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def is_utf8(text: str) -> str:
    """SQL that is true if the bytes of a text are UTF-8: only then do they come back from Java's strings.

    Spark 3.5 has no function that says so.
    """
    return f"{text} = format_string('%s', {text})"


def spark_type(type_: Type) -> str:
    """The Spark type that holds the column, as DDL."""
    match type_:
        case Primitive("decimal", args):
            return f"decimal({args[0]},{args[1]})"
        case Primitive(base):
            return "void" if base.endswith(UNWRITABLE) else _SPARK.get(base, base)
        case List(element):
            return f"array<{spark_type(element)}>"
        case Map(key, value):
            return f"map<{spark_type(key)},{spark_type(value)}>"
        case Struct(fields):
            return f"struct<{','.join(f'{name(f.name)}:{spark_type(f.type)}' for f in fields)}>"


def null(type_: Type) -> str:
    """A null of the type."""
    return f"cast(null as {spark_type(type_)})"


def variable(stem: str = "x") -> str:
    """A name for a lambda's argument that stands nowhere else."""
    return f"{stem}{next(_fresh)}"


def bind(value: str, body: Callable[[str], str]) -> str:
    """``body`` of ``value``, which is written, and evaluated, once."""
    if _NAME.fullmatch(value):
        return body(value)
    x = variable()
    bound = body(x)
    return value if bound == x else f"transform(array({value}), {x} -> {bound})[0]"


def each(array: str, body: Callable[[str], str]) -> str:
    """``body`` of each element; the array itself where that changes nothing."""
    x = variable()
    mapped = body(x)
    return array if mapped == x else f"transform({array}, {x} -> {mapped})"


def first_of(parts: list[str], type_: Type) -> str:
    """The first that is not null."""
    return f"coalesce({', '.join(parts)})" if len(parts) > 1 else parts[0] if parts else null(type_)
