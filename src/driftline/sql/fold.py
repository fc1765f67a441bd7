"""SQL that folds a field's columns into one: each value from the column closest to the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from driftline.core.columns.folding import kind
from driftline.core.columns.siblings import FieldMerger, MergedField, families, most_exact
from driftline.core.planning.conversions import NUMBERS, ROUTES_TOO, fits
from driftline.core.schema.naming import MARK
from driftline.core.schema.types import (
    BINARY,
    DATE,
    DOUBLE,
    JSON,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    WIDER,
    Field,
    List,
    Map,
    Primitive,
    Struct,
    Type,
    peel,
)
from driftline.core.settings.csv import JSON_SIGNS
from driftline.core.values import EXACT
from driftline.sql.casts import as_json, convert, date_of, from_text
from driftline.sql.quoting import bind, each, first_of, literal, name, null, spark_type, variable

_WHOLE = r"\A(?:0|-?[1-9][0-9]*)\z"
_NUMBER = r"\A-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
_PLAIN = r"\A-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?\z"
_LIKE_DATES = {
    "date": (DATE,),
    "timestamp": (TIMESTAMP, DATE),
    "timestamp_ntz": (TIMESTAMP_NTZ, DATE),
}
# Those of Spark have milliseconds, and the session's time zone.
_MOMENTS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_SPELLED = ("timestamp", "timestamp_ntz", "binary", "fixed")
_INSIDE = r"(?s)\A.(.*).\z"
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
    if s == JSON:
        return exactly(x, STRING, t, unit) if t in (STRING, BINARY) else null(t)
    if s.name in WIDER:
        wider = WIDER[s.name]
        return exactly(f"cast({x} as {spark_type(wider)})", wider, t, unit)
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
    """Convert a value; null if it does not convert back to the same."""
    if t.name in ("timestamp", "timestamp_ntz"):
        integer = x if s == LONG else f"try_cast({x} as bigint)"
        return bind(
            convert(integer, LONG, t, unit),
            lambda m: f"if({convert(m, t, LONG, unit)} = {integer} and {integer} = {x}, {m}, null)",
        )
    if t == DATE:
        # Not a cast: that would go by the session's time zone.
        day = f"date_from_unix_date(cast(floor({convert(x, s, LONG, 'us')} / 86400000000BD) as int))"
        return bind(day, lambda d: f"if({convert(d, DATE, s, unit)} = {x}, {d}, null)")
    converted = f"try_cast({x} as {spark_type(t)})"
    # A double compares as the double that it is, and a decimal by its digits: 0.1 is 0.1.
    back = f"try_cast({converted} as {spark_type(s)})"
    in_range = ""
    if t.name in ("int", "long") and s.name in ("float", "double"):
        in_range = f" and abs({x}) <= {EXACT}"
    return f"if({back} = {x}{in_range}, {converted}, null)"


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
    # A text with any offset is an instant, whatever the setting has batches do with it.
    parts = [convert(from_text(x, base, "instant"), base, t, None) for base in _LIKE_DATES[t.name]]
    return f"coalesce({', '.join(parts)})"


def _double(x: str) -> str:
    """A number of up to 15 digits is always its double's own; of more, if the double prints as it."""
    digits = f"length(regexp_replace(regexp_replace({x}, '[eE].*', ''), '[-.]', ''))"

    def held(d: str) -> str:
        """SQL of the double ``d``, null where it is not the number that the text says."""
        few = f"{digits} <= 15 and (abs({d}) between 1e-300 and 1e300 or not {x} rlike '[1-9]')"
        printed = f"try_cast({x} as decimal(38,18)) = try_cast(cast({d} as string) as decimal(38,18))"
        short = f"not {x} rlike '[eE]' and length(regexp_extract({x}, '[.]([0-9]+)', 1)) <= 18"
        return f"if({few} or ({short} and {printed}), {d}, null)"

    number = f"if({x} rlike {literal(_NUMBER)}, try_cast({x} as double), null)"
    return bind(number, held)


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds columns into one, as SQL. ``near``: a value without an exact place in the wider type becomes the
    nearest, as is fine in a view; otherwise it becomes null. ``duckdb``: the SQL is for DuckDB, whose JSON
    spells moments and bytes otherwise. ``in_json``: so it has to spell them itself, here.
    """

    mark: str = MARK
    near: bool = False
    duckdb: bool = False
    in_json: bool = False

    def struct(self, columns: Sequence[tuple[Struct, str]], to: MergedField) -> list[str]:
        """One expression for each field of ``to``, from records with a prefix each (``""``, ``"x."``)."""
        assert to.fields is not None
        families_of = [{f.key: f.columns for f in families([struct], self.mark)} for struct, _ in columns]
        return [
            self.field(
                [
                    (column, prefix + name(column.name))
                    for by_key, (_, prefix) in zip(families_of, columns, strict=True)
                    for column in by_key.get(member.key, ())
                ],
                member.field,
            )
            for member in to.fields
        ]

    def field(self, columns: Sequence[tuple[Field, str]], to: MergedField) -> str:
        """A field's columns, each with its SQL, as one."""
        expressions = {id(column): _as_sent(column, x, columns) for column, x in columns}
        if to.signs != JSON_SIGNS:
            expressions |= {id(c): _as_written(x, columns) for c, x in columns if peel(c.type)[1] == STRING}
        order = most_exact([column for column, _ in columns], to.type)
        if to.text:
            return first_of(self._texts([(column.type, expressions[id(column)]) for column in order]), STRING)
        parts = [self.value(column.type, expressions[id(column)], to) for column in order]
        parts = [part for part in parts if part != null(to.type)]
        if to.dim and to.base is not None and len(parts) > 1:
            return _all_merged(parts, to.dim)
        if to.value is not None and not to.dim:
            return reduce(_joined, parts) if parts else null(to.type)
        return first_of(parts, to.type)

    def value(self, type_: Type, x: str, to: MergedField) -> str:
        """A value of one column as the single type; null if it has no place there."""
        dim, base = peel(type_)
        if to.text:
            return self._text(type_, x)
        if dim > to.dim or not _same_kind(base, to) or (to.as_is and kind(type_) != kind(to.type)):
            return null(to.type)
        return _wrapped(self._lists(base, x, dim, to), to.dim - dim)

    def _lists(self, base: Type, x: str, dim: int, to: MergedField) -> str:
        if dim:
            return each(x, lambda e: self._lists(base, e, dim - 1, to))
        match base:
            case Struct() if to.value is not None:
                return self._as_map(base, x, to.value)
            case Struct():
                assert to.fields is not None
                fields_sql = self.struct([(base, f"{x}.")], to)
                names = [m.name for m in to.fields]
                if names == [f.name for f in base.fields] and fields_sql == [f"{x}.{name(n)}" for n in names]:
                    return x
                listed = ", ".join(f"{sql} as {name(n)}" for sql, n in zip(fields_sql, names, strict=True))
                return f"if({x} is null, null, struct({listed}))"
            case Map(_, value):
                assert to.value is not None
                k, v = variable("k"), variable("v")
                value_sql = self.value(value, v, to.value)
                return x if value_sql == v else f"transform_values({x}, ({k}, {v}) -> {value_sql})"
            case Primitive():
                assert to.base is not None
                if self.in_json and base == to.base and base.name in _SPELLED:
                    return self._text(base, x)
                if base == STRING and to.pattern is not None:
                    return date_of(x, to.pattern, to.base)
                if base == STRING and to.base.name in NUMBERS:
                    x = as_json(x, to.signs)
                convert = nearly if self.near else exactly
                return convert(x, base, to.base, to.unit)
        raise AssertionError(base)

    def _as_map(self, struct: Struct, x: str, value: MergedField) -> str:
        """A struct as a map of the keys that have a value."""
        entries = [
            f"{literal(family.key)}, {self.field([(c, f'{x}.{name(c.name)}') for c in family.columns], value)}"
            for family in families([struct], self.mark)
        ]
        k, v = variable("k"), variable("v")
        return f"if({x} is null, null, map_filter(map({', '.join(entries)}), ({k}, {v}) -> {v} is not null))"

    def _texts(self, columns: Sequence[tuple[Type, str]]) -> list[str]:
        """The texts of columns that share no type. Lists of one depth are one text: each element from the
        first that has it, as a list's values may stand in several of them. Of a value that stands alone and
        in a list, the former was sent.
        """
        texts = []
        # The shallower one counts, because deeper columns have the same value wrapped.
        for dim in sorted({peel(type_)[0] for type_, _ in columns}):
            alike = [(type_, x) for type_, x in columns if peel(type_)[0] == dim]
            if dim and len(alike) > 1:
                elements = [self._elements(type_, x) for type_, x in alike]
                texts.append(_as_array(_all_merged(elements, dim), dim))
            else:
                texts += [self._text(type_, x) for type_, x in alike]
        return texts

    def _elements(self, type_: Type, x: str) -> str:
        """A list with the JSON of each element in its place."""
        if isinstance(type_, List):
            return each(x, lambda e: self._elements(type_.element, e))
        array = self._text(List(type_), f"array({x})")
        return f"if({x} is null, null, regexp_extract({array}, {literal(_INSIDE)}, 1))"

    def _text(self, type_: Type, x: str) -> str:
        """Return the text of a value that shares no type with its siblings.

        A nested value becomes JSON, with bytes as base64, as they are here.
        """
        if isinstance(type_, Primitive) and type_.name in ("binary", "fixed"):
            return f"translate(base64({x}), concat(chr(13), chr(10)), '')"  # Spark 3.5 breaks its lines
        if isinstance(type_, Primitive):
            return exactly(x, type_, STRING, None)
        settled = FieldMerger(self.mark).of([type_], (), ())
        options = ", ".join(f"{literal(key)}, {literal(value)}" for key, value in _MOMENTS.items())
        inside = replace(self, in_json=self.duckdb)
        return f"to_json({inside.value(type_, x, settled)}, map({options}))"


def _as_sent(column: Field, x: str, columns: Sequence[tuple[Field, str]]) -> str:
    """A column's value without the instants that routing made of numbers.

    Another column of the field has these as they were sent (seed rule 10).
    """
    # An instant of whole milliseconds in a long looks like its number, so it counts as the number, too.
    numbers = [(sibling.type, y) for sibling, y in columns if _routed(sibling.type, column.type)]
    if isinstance(column.type, Primitive):
        # Single numbers at once: Spark resolves so many expressions inside each other and no more.
        single = [y for number, y in numbers if isinstance(number, Primitive)]
        if single:
            x = f"if({' and '.join(f'{y} is null' for y in single)}, {x}, {null(column.type)})"
        numbers = [(number, y) for number, y in numbers if not isinstance(number, Primitive)]
    for number, y in numbers:
        x = _without(column.type, x, number, y)
    return x


def _as_written(x: str, columns: Sequence[tuple[Field, str]]) -> str:
    """Texts without those that numbers print as: their point is no sign between thousands."""
    # The text 1.125 beside a number may be that number as it prints, which is not 1125.
    numbers = [y for sibling, y in columns if getattr(peel(sibling.type)[1], "name", "") in NUMBERS]
    return f"if({' and '.join(f'{y} is null' for y in numbers)}, {x}, null)" if numbers else x


def _routed(number: Type, instant: Type) -> bool:
    """True if numbers of the one column may be in the other one as instants."""
    match peel(number)[1], peel(instant)[1]:
        case Map(key, value), Map(other_key, other_value):
            return key == other_key and _routed(value, other_value)
        case Primitive(base), Primitive(other):
            return base in NUMBERS and other in ROUTES_TOO["long"]
    return False


def _without(instant: Type, x: str, number: Type, y: str) -> str:
    """The instants ``x``, null where ``y`` has a number. What has fewer lists around it is wrapped whole."""
    deeper = peel(number)[0] - peel(instant)[0]
    match instant, number:
        case _, List(element) if deeper > 0:
            return _without(instant, x, element, f"get({y}, 0)")
        case List(element), _ if deeper < 0:
            instants = _without(element, f"get({x}, 0)", number, y)
            return f"if({x} is null or {y} is null, {x}, array({instants}))"
        case List(element), List(other):
            e, n = variable("e"), variable("n")
            instants = f"zip_with({x}, {y}, ({e}, {n}) -> {_without(element, e, other, n)})"
            return f"if({y} is null or size({x}) != size({y}), {x}, {instants})"
        case Map(_, value), Map(_, other):
            k, v = variable("k"), variable("v")
            instants = f"transform_values({x}, ({k}, {v}) -> {_without(value, v, other, f'{y}[{k}]')})"
            return f"if({y} is null, {x}, {instants})"
    return f"if({y} is null, {x}, null)"


def _same_kind(base: Type, to: MergedField) -> bool:
    match base:
        case Struct():
            in_map = to.value is not None and to.key == STRING and not to.no_structs
            return to.fields is not None or in_map
        case Map(key):
            return to.value is not None and to.key == key
        case _:
            return to.base is not None


def _wrapped(x: str, lists: int) -> str:
    if not lists:
        return x
    return bind(x, lambda v: f"if({v} is null, null, {'array(' * lists}{v}{')' * lists})")


def _as_array(x: str, dim: int) -> str:
    """The JSON of a list whose elements are JSON; ``dim``: how many lists are around them."""
    inner = x if dim == 1 else each(x, lambda e: _as_array(e, dim - 1))
    return f"concat('[', array_join({inner}, ',', 'null'), ']')"


def _joined(a: str, b: str) -> str:
    """Two maps of one field: what the first has no value for, the second may have."""
    k, v, w = variable("k"), variable("v"), variable("w")

    def zipped(x: str, y: str) -> str:
        """SQL of the entries of two maps, or of the one that is not null."""
        return f"if({x} is null, {y}, if({y} is null, {x}, map_zip_with({x}, {y}, ({k}, {v}, {w}) -> coalesce({v}, {w}))))"

    return bind(a, lambda x: bind(b, lambda y: zipped(x, y)))


def _all_merged(parts: Sequence[str], dim: int) -> str:
    """Merge in pairs, and pairs of these: Spark resolves only so many nested functions."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _merged(_all_merged(parts[:half], dim), _all_merged(parts[half:], dim), dim)


def _merged(a: str, b: str, dim: int) -> str:
    """Two lists of one value, position by position: what one of them has no place for, the other may have."""

    def zipped(x: str, y: str) -> str:
        """SQL of two lists merged by element; if one is null, the other, and of different sizes the first."""
        e, f = variable(), variable()
        merged_item = f"coalesce({e}, {f})" if dim == 1 else _merged(e, f, dim - 1)
        same = f"size({x}) = size({y})"
        return f"if({x} is null, {y}, if({y} is null or not {same}, {x}, zip_with({x}, {y}, ({e}, {f}) -> {merged_item})))"

    return bind(a, lambda x: bind(b, lambda y: zipped(x, y)))
