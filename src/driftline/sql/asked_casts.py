"""One value of one type as SQL of any other type that a person asks for: exact, or null.

Wider than routing, which goes by type alone: here the value decides, and it must read back as it was. A text
becomes a number only if it is the number as JSON writes it, a date only if it is strict ISO 8601.
"""

from __future__ import annotations

from driftline.core.planning.conversions import ROUTES_TOO, fits
from driftline.core.schema.types import (
    BINARY,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Primitive,
)
from driftline.core.values.numbers import EXACT
from driftline.sql.casts import convert, from_text
from driftline.sql.quoting import bind, literal, null, spark_type

_WHOLE = r"\A(?:0|-?[1-9][0-9]*)\z"
_NUMBER = r"\A-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
_PLAIN = r"\A-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?\z"
_LIKE_DATES = {
    "date": (DATE,),
    "timestamp": (TIMESTAMP, DATE),
    "timestamp_ntz": (TIMESTAMP_NTZ, DATE),
}
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}

# What has a value of the other type at all, beside what fits by type.
CONVERTS: dict[str, tuple[str, ...]] = {
    "string": (
        "boolean", "int", "long", "float", "double", "decimal", "date", "timestamp", "timestamp_ntz", "uuid", "binary",
    ),
    "int": ("float", "decimal", "timestamp", "timestamp_ntz"),
    "long": ("int", "float", "double", "decimal", "timestamp", "timestamp_ntz"),
    "float": ("int", "long", "decimal", "timestamp", "timestamp_ntz"),
    "double": ("int", "long", "float", "decimal", "timestamp", "timestamp_ntz"),
    "decimal": ("int", "long", "float", "double", "decimal", "timestamp", "timestamp_ntz"),
    "timestamp": ("date",),
    "timestamp_ntz": ("date",),
    "binary": ("string",),
}  # fmt: skip


def exactly(x: str, s: Primitive, t: Primitive, unit: str | None) -> str:
    """``x`` of type ``s`` as ``t``; null where ``t`` cannot hold it as it is.
    ``unit``: the epoch unit, None where not set.
    """
    if t.name == "variant":
        return x if s == t else f"try_cast({x} as variant)"
    if s == t:
        return x
    if fits(s, t):
        return convert(x, s, t, unit)
    if t.name not in CONVERTS.get(s.name, ()) + ROUTES_TOO.get(s.name, ()):
        return null(t)
    if s == STRING:
        return bind(x, lambda v: _parsed(v, t))
    if s.name == "binary":
        return convert(x, s, t, unit)
    return bind(x, lambda v: _reads_back(v, s, t, unit))


def nearly(x: str, s: Primitive, t: Primitive, unit: str | None) -> str:
    """A cast for reading only.

    A whole number beyond what a double holds is the nearest double, an instant between two units of an epoch
    the one before, and anything but bytes its text's bytes.
    """
    if t == BINARY and s.name not in ("binary", "fixed"):
        return f"cast({exactly(x, s, STRING, unit)} as binary)"
    if s.name in ("int", "long") and t == DOUBLE:
        return f"cast({x} as double)"
    per = _MICROS.get(unit or "ms")
    if s.name in ("timestamp", "timestamp_ntz") and t in (LONG, DOUBLE) and per is not None:
        return f"cast(floor({convert(x, s, LONG, 'us')} / {per}BD) as {spark_type(t)})"
    return exactly(x, s, t, unit)


def _reads_back(x: str, s: Primitive, t: Primitive, unit: str | None) -> str:
    """Converted there and back again, it must be the same."""
    if t.name in ("timestamp", "timestamp_ntz"):
        whole = x if s == LONG else f"try_cast({x} as bigint)"
        return bind(
            convert(whole, LONG, t, unit),
            lambda m: f"if({convert(m, t, LONG, unit)} = {whole} and {whole} = {x}, {m}, null)",
        )
    if t == DATE:
        # Not a cast: that would go by the session's time zone.
        day = f"date_from_unix_date(cast(floor({convert(x, s, LONG, 'us')} / 86400000000BD) as int))"
        return bind(day, lambda d: f"if({convert(d, DATE, s, unit)} = {x}, {d}, null)")
    converted = f"try_cast({x} as {spark_type(t)})"
    # A double compares as the double that it is, and a decimal by its digits: 0.1 is 0.1.
    back = f"try_cast({converted} as {spark_type(s)})"
    whole = ""
    if t.name in ("int", "long") and s.name in ("float", "double"):
        whole = f" and abs({x}) <= {EXACT}"
    return f"if({back} = {x}{whole}, {converted}, null)"


def _parsed(x: str, t: Primitive) -> str:
    """A text as what it spells."""
    match t.name:
        case "boolean":
            return f"if({x} in ('true', 'false'), {x} = 'true', null)"
        case "int" | "long":
            return f"if({x} rlike {literal(_WHOLE)}, try_cast({x} as {spark_type(t)}), null)"
        case "double":
            return _double(x)
        case "float":
            return bind(
                _double(x),
                lambda d: f"if(cast(cast({d} as float) as double) = {d}, cast({d} as float), null)",
            )
        case "decimal":
            fraction = f"length(regexp_replace(regexp_extract({x}, '[.]([0-9]+)', 1), '0+$', ''))"
            fitting = f"{x} rlike {literal(_PLAIN)} and {fraction} <= {t.args[1]}"
            return f"if({fitting}, try_cast({x} as {spark_type(t)}), null)"
        case "binary":
            return f"cast({x} as binary)"
        case "uuid":
            return from_text(x, t, "on")
    parts = [convert(from_text(x, base, "on"), base, t, None) for base in _LIKE_DATES[t.name]]
    return f"coalesce({', '.join(parts)})"


def _double(x: str) -> str:
    """A number of up to 15 digits is always its double's own; of more, if the double prints as it."""
    digits = f"length(regexp_replace(regexp_replace({x}, '[eE].*', ''), '[-.]', ''))"

    def held(d: str) -> str:
        few = f"{digits} <= 15 and (abs({d}) between 1e-300 and 1e300 or not {x} rlike '[1-9]')"
        printed = f"try_cast({x} as decimal(38,18)) = try_cast(cast({d} as string) as decimal(38,18))"
        short = f"not {x} rlike '[eE]' and length(regexp_extract({x}, '[.]([0-9]+)', 1)) <= 18"
        return f"if({few} or ({short} and {printed}), {d}, null)"

    number = f"if({x} rlike {literal(_NUMBER)}, try_cast({x} as double), null)"
    return bind(number, held)
