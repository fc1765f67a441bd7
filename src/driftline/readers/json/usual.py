"""The usual type of each field in a JSON batch, which lets a parser read whole columns; and that parser.

For a drifted field it is the type that came first; records that hold another are read one by one. A field has
no usual type if the parser cannot read its values, or not with the text that a column needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from io import BytesIO
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, json

from driftline.convert import arrow_schema
from driftline.convert.json_values import TEXT
from driftline.core.planning.conversions import NARROW, fits
from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute
from driftline.core.planning.shape import RECORD, Base, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.types import (
    BOOLEAN,
    DOUBLE,
    JSON,
    LONG,
    STRING,
    VARIANT,
    Field,
    Map,
    Path,
    Primitive,
    Struct,
    Type,
    peel,
    wrap,
)
from driftline.core.settings.fields import FieldSettings
from driftline.core.support import lines_at
from driftline.core.values import DATELIKE, raw_members
from driftline.observe.decoder import REFUSED, FieldDecoders

DEEPEST = 60  # levels of lists and structs that Arrow hands over

# What the parser reads differently than one by one. It puts what it does not take into its message, and a
# NUL there ends the process. Of surrogates from U+20000 on it makes other characters. A long has no sign at
# zero, so that its text would have none; in quotes it is the number that a resolved field reads. Python
# finds a pattern that begins with fixed bytes ten times as fast: such a one is asked first, and the other
# only where that is found, as in "user-0".
_NUL, _BACKSLASH, _ESCAPE = b"\0", b"\\", rb"\u"
_MISREAD_ESCAPE = re.compile(rb"\0|\\u(?:0000|[dD](?:8[4-9a-fA-F]|[9abAB]))")
_ENDS_AS_ZERO, _NEGATIVE_ZERO = re.compile(rb'-0"?[,}\]\s]'), re.compile(rb'[:,\[\s](?:-0|"-0")[,}\]\s]')

# Keys under which values may come that are not of the usual type; with each, those of the records below it,
# or None where such a value is taken whole.
Drifting: TypeAlias = "Mapping[str, Drifting | None]"

# Keys that have no column, because they held null, `[]` and `{}` alone, as None; and for other keys those of
# the records below, lists removed.
ValuelessKeys: TypeAlias = "Mapping[str, ValuelessKeys | None]"

_NONE: ValuelessKeys = {}


def usual_struct(route: RecordRoute) -> Struct:
    """The fields that Arrow reads as whole columns, by key, with their types."""
    return _struct([route], 0)


def valueless_keys(routes: Sequence[RecordRoute]) -> ValuelessKeys:
    """The keys that hold no values: rows do not need them, so that a parser may skip them."""
    valueless: dict[str, ValuelessKeys | None] = {}
    for key, fields in _by_key(routes).items():
        columns = [column for field in fields for column in field.columns]
        if not columns and not any(f.shape.facets or f.to_rest or f.elsewhere for f in fields):
            valueless[key] = None
        elif inside := valueless_keys([column.record for column in columns if column.record is not None]):
            valueless[key] = inside
    return valueless


def spells_integers(routes: Sequence[RecordRoute]) -> bool:
    """True if a text column takes whole numbers, at any depth."""
    columns = [column for route in routes for field in route.fields for column in field.columns]
    while columns:
        if any(c.facet.base == STRING and any(f.base == LONG for f in c.takes) for c in columns):
            return True
        inside = [field for c in columns if c.record is not None for field in c.record.fields]
        inside += [c.value for c in columns if c.value is not None]
        columns = [column for field in inside for column in field.columns]
    return False


def _is_valueless(key: str, keys: ValuelessKeys) -> bool:
    return keys.get(key, _NONE) is None


def _struct(routes: Sequence[RecordRoute], depth: int) -> Struct:
    types = {key: _type(fields, depth + 1) for key, fields in _by_key(routes).items()}
    return Struct(tuple(Field(key, type_) for key, type_ in types.items() if type_ is not None))


def _by_key(routes: Sequence[RecordRoute]) -> dict[str, list[FieldRoute]]:
    """The fields of records; several for one key if several columns hold the records."""
    by_key: dict[str, list[FieldRoute]] = {}
    for route in routes:
        for field in route.fields:
            by_key.setdefault(field.key, []).append(field)
    return by_key


def _type(routes: Sequence[FieldRoute], depth: int) -> Type | None:
    """The usual type of one field.

    Args:
        routes: several if several columns hold the records around it.
    """
    if any(route.to_rest for route in routes):
        # What goes to the rest is text as it was written
        return None
    if any(route.texts is not None and route.texts.type in DATELIKE for route in routes):
        # The parser would take a date in its pattern for any text
        return None
    columns = [c for r in routes for c in r.columns]
    profiles = {facet: s for r in routes for facet, s in r.shape.facets.items()}
    facet = _first(profiles, routes)
    if (
        facet is None
        or depth + facet.dim > DEEPEST
        or any(peel(c.type)[1] in (JSON, VARIANT) for c in columns)
    ):
        return None
    if isinstance(facet.base, MapOf):
        value = _map_value([c.value for c in columns if c.value is not None], depth + facet.dim + 1)
        return None if value is None else wrap(Map(STRING, value), facet.dim)
    if facet.base == RECORD:
        struct = _struct([c.record for c in columns if c.record is not None], depth + facet.dim)
        return wrap(struct, facet.dim) if struct.fields else None
    base = _parsed_as(facet, profiles, columns)
    return None if base is None else wrap(base, facet.dim)


def _map_value(values: Sequence[FieldRoute], depth: int) -> Type | None:
    """The usual type of a map's values, if the map takes all keys."""
    # A parser takes a map with all of its keys.
    if any(value.left_out or value.no_words for value in values):
        return None
    return _type(values, depth + 1)


def _first(profiles: dict[Facet, Profile], routes: Sequence[FieldRoute]) -> Facet | None:
    """The facet that came first, if the parser takes no value of another one for it."""
    # A struct and a map beside each other divide an object's keys between them, as no parser does.
    if not profiles or (
        any(isinstance(f.base, MapOf) for f in profiles) and any(f.base == RECORD for f in profiles)
    ):
        return None
    # The first type rather than the most frequent: counts are no part of a shape.
    first = min(profiles, key=lambda f: (profiles[f].location, str(f)))
    # Arrow has no type for lists of unequal depth.
    if profiles[first].ragged:
        return None
    if isinstance(first.base, MapOf) and first.base.key != STRING:
        return None
    if not isinstance(first.base, Primitive):
        # The parser takes {} for any record; and records of several dimensions have a column each.
        hollow = first.dim and any(r.shape.empty_record for r in routes)
        several_dimensions = any(f.base == first.base and f.dim != first.dim for f in profiles)
        return None if hollow or several_dimensions else first
    return first


def _parsed_as(
    facet: Facet, profiles: dict[Facet, Profile], columns: Sequence[ColumnRoute]
) -> Primitive | None:
    base = facet.base
    if not isinstance(base, Primitive):
        return None
    if base.name in TEXT:
        return (
            None
            if any(s.digits for f, s in profiles.items() if f.base == STRING and f.dim == facet.dim)
            else STRING
        )
    numbers = {f.base for f in profiles if f.dim == facet.dim} & {LONG, DOUBLE}
    if numbers == {LONG, DOUBLE}:
        # One double column takes both; else the parser would take whole numbers for fractions.
        together = all(c.facet.base == DOUBLE for c in columns if c.takes)
        return DOUBLE if together else LONG if base == LONG else None
    as_text = any(c.facet.base == STRING and Facet(facet.dim, DOUBLE) in c.takes for c in columns)
    if base == DOUBLE and as_text:
        # A text column needs the number as it was written
        return None
    if any(facet in c.takes and _is_narrower(c.facet.base, base) for c in columns):
        return None  # whether it is exact there, its text says
    return base if base in (BOOLEAN, LONG, DOUBLE) else None


def _is_narrower(column: Base, base: Primitive) -> bool:
    return isinstance(column, Primitive) and column.name in NARROW and not fits(base, column)


def as_written(usual: Struct, path: Path, settings: FieldSettings) -> bool:
    """True if a field's usual values are in a column of their own, each as a record has it."""
    type_: Type = usual
    for key in path:
        settings, fields = settings.of(key), type_.fields if isinstance(type_, Struct) else ()
        found = next((f for f in fields if f.name == key), None)
        # A text that a person has declared to be a number is parsed as one.
        if found is None or settings.hint is not None or settings.texts is not None or settings.excluded:
            return False
        type_ = found.type
    return isinstance(type_, Primitive)


def limited(
    shape: RecordShape, usual: Struct, valueless: ValuelessKeys, field_settings: FieldSettings
) -> RecordShape:
    """A copy of the part of a shape that has the usual types.

    Excluded fields may have any, because the parser skips them; it also skips ``valueless`` ones.
    """
    types = {f.name: f.type for f in usual.fields}
    out = RecordShape()
    for key, field in shape.fields.items():
        child = field_settings.of(key)
        if key in types:
            out.fields[key] = _limited(field, types[key], valueless.get(key) or _NONE, child)
        elif child.excluded:
            out.fields[key] = deepcopy(field)
        elif _is_valueless(key, valueless) or not (field.facets or field.empty_lists or field.empty_record):
            # Nothing but null and empty values; what is learnt of the field later does not count as usual.
            out.fields[key] = replace(field, facets={})
    return out


def drifting_keys(
    shape: RecordShape,
    usual: Struct,
    valueless: ValuelessKeys,
    route: RecordRoute,
    field_settings: FieldSettings,
) -> Drifting:
    """The keys under which records of this shape have values of another than their ``usual`` type.

    Args:
        route: how the records become rows.
    """
    return _drifting(shape, limited(shape, usual, valueless, field_settings), usual, valueless, [route])


def _drifting(
    shape: RecordShape,
    same: RecordShape,
    usual: Struct,
    valueless: ValuelessKeys,
    routes: Sequence[RecordRoute],
) -> Drifting:
    """Implement `drifting_keys`; ``same``: the part of the shape that has the usual types."""
    types = {f.name: f.type for f in usual.fields}
    drifting: dict[str, Drifting | None] = {}
    for key, fields in _by_key(routes).items():
        field = shape.fields.get(key)
        if _is_valueless(key, valueless):
            continue
        if key not in types:
            drifting[key] = None
        elif field is not None and same.fields.get(key) != field:
            drifting[key] = _drifting_inside(
                field, same.fields.get(key), types[key], valueless.get(key) or _NONE, fields
            )
    return drifting


def _drifting_inside(
    field: FieldShape,
    same: FieldShape | None,
    usual: Type,
    valueless: ValuelessKeys,
    routes: Sequence[FieldRoute],
) -> Drifting | None:
    """The drifting keys in the records of a field.

    None if its values cannot be cut apart, as they go to columns other than structs.
    """
    record = Facet(0, RECORD)
    profile, same_profile = field.facets.get(record), None if same is None else same.facets.get(record)
    columns = [column for route in routes for column in route.columns if record in column.takes]
    if profile is None or same_profile is None or not isinstance(usual, Struct):
        return None
    if profile.record is None or same_profile.record is None:
        return None
    if not all(isinstance(column.type, Struct) and column.record is not None for column in columns):
        return None
    record_routes = [column.record for column in columns if column.record is not None]
    return _drifting(profile.record, same_profile.record, usual, valueless, record_routes)


def _limited(
    field: FieldShape, type_: Type, valueless: ValuelessKeys, field_settings: FieldSettings
) -> FieldShape:
    dim, base = peel(type_)
    facets = {
        facet: _limited_inside(profile, base, valueless, field_settings.inside(dim))
        for facet, profile in field.facets.items()
        if facet.dim == dim and not profile.ragged and _fits(facet.base, base)
    }
    return FieldShape(
        field.location,
        facets,
        empty_lists=min(field.empty_lists, dim),
        empty_record=field.empty_record and isinstance(base, Struct | Map) and not dim,
        missing=field.missing,
        absent=field.absent,
        comment=field.comment,
    )


def _limited_inside(
    profile: Profile, usual: Type, valueless: ValuelessKeys, field_settings: FieldSettings
) -> Profile:
    """The part of an object that has the usual types.

    A map may still be known by its keys, or by its values.
    """
    match usual:
        case Struct() if profile.record is not None:
            return replace(profile, record=limited(profile.record, usual, valueless, field_settings))
        case Map(value=value) if profile.record is not None:
            value_settings = field_settings.of("value")
            fields = {
                key: _limited(field, value, _NONE, value_settings)
                for key, field in profile.record.fields.items()
            }
            return replace(profile, record=RecordShape(fields))
        case Map(value=value) if profile.value is not None:
            return replace(profile, value=_limited(profile.value, value, _NONE, field_settings.of("value")))
    return replace(profile)


def _fits(base: Base, usual: Type) -> bool:
    if isinstance(usual, Struct):
        return base == RECORD
    if isinstance(usual, Map):
        return base in (RECORD, MapOf(STRING))
    if usual == STRING:
        return isinstance(base, Primitive) and base.name in TEXT
    return base == usual or (usual == DOUBLE and base == LONG)


class Unparsed(Exception):
    """The parser refuses the lines, or would read them differently than one by one.

    Attributes:
        misread: the places of the lines that it would read differently.
    """

    def __init__(self, misread: Sequence[int] = ()) -> None:
        super().__init__()
        self.misread = misread


def parsed(lines: Sequence[bytes], struct: Struct, *, spells_integers: bool = False) -> pa.RecordBatch:
    """Parse the records among the lines into the fields of ``struct``. Raises Unparsed.

    If a record repeats a key, the last value counts.

    Args:
        lines: JSON objects.
        struct: the fields, with their types.
        spells_integers: the text of whole numbers is kept, too. That of -0 is no text of a long.
    """
    # arrow-rs' reader takes two thirds of pyarrow's CPU on narrow records, and a third to a quarter on 3,000
    # to 10,000 columns. It alters some escaped surrogates, and a NUL crashes the process.
    # By itself the parser takes 0.10000000000000001 for 0.1, and "7" for a number. So it sees accepted lines
    # only, and an explicit schema.
    from arro3.io import read_json

    text = b"\n".join(lines)
    if misread := _misread(text, lines, spells_integers):
        raise Unparsed(misread)
    try:
        batches = [
            *map(pa.record_batch, read_json(BytesIO(text), arrow_schema(struct), batch_size=len(lines)))
        ]
    except Exception as error:  # the parser has no error of its own
        raise Unparsed from error
    # The parser keeps both entries of a key that a map has twice; the rules keep the last.
    if len(batches) != 1 or batches[0].num_rows != len(lines) or any(map(_repeats, batches[0].columns)):
        raise Unparsed
    return batches[0]


def _misread(text: bytes, lines: Sequence[bytes], spells_integers: bool) -> list[int]:
    """Return the places of the lines, joined to ``text``, that the parser would read differently."""
    found: list[int] = []
    # Python finds one byte ten times as fast as two.
    if _NUL in text or (_BACKSLASH in text and _ESCAPE in text):
        found = [match.start() for match in _MISREAD_ESCAPE.finditer(text)]
    zeros = [match.start() for match in _ENDS_AS_ZERO.finditer(text)] if spells_integers else []
    negative_zeros = (place for place in lines_at(lines, zeros) if _has_negative_zero(lines[place]))
    return sorted(lines_at(lines, found).union(negative_zeros))


def _has_negative_zero(line: bytes) -> bool:
    """True if a value of the record is -0, or its text; `@@ -0,0 +1 @@` is in a text."""
    quotes = begin = 0
    for match in _ENDS_AS_ZERO.finditer(line):
        if zero := _NEGATIVE_ZERO.search(line, max(match.start() - 2, 0), match.end()):
            # Between an even number of quotes before it, those behind a backslash aside, is no text.
            before, begin = line[begin : zero.start()], zero.start()
            quotes += before.replace(rb"\\", b"").replace(rb"\"", b"").count(b'"')
            if quotes % 2 == 0:
                return True
    return False


def _repeats(array: pa.Array) -> bool:
    """True if a map in the array has a key twice, at any depth."""
    if isinstance(array, pa.StructArray):
        return any(_repeats(array.field(i)) for i in range(array.type.num_fields))
    if isinstance(array, pa.MapArray):
        return _key_twice(array) or _repeats(array.items)
    if isinstance(array, pa.ListArray):
        return _repeats(array.values)
    return False


def _key_twice(maps: pa.MapArray) -> bool:
    keys = maps.keys.dictionary_encode()
    distinct = len(keys.dictionary)
    if distinct == len(keys):
        return False
    owners = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
    pairs = owners * distinct + keys.indices.to_numpy()
    return bool(pc.count_distinct(pa.array(pairs)).as_py() < len(pairs))


# Values as text, each with the path that it stands at
Unusual: TypeAlias = "list[tuple[Path, bytes | Raw]]"
_OBJECT, _NULL = b"{n"


def without_unusual(line: bytes, drifting: Drifting, takes: FieldDecoders) -> tuple[bytes, Unusual]:
    """Split a record into the usual part and its unusual values. Of a repeated key, the last value counts."""
    unusual: Unusual = []
    return _without(line, drifting, takes, (), unusual), unusual


def _without(
    text: bytes | Raw, drifting: Drifting, takes: FieldDecoders, path: Path, unusual: Unusual
) -> bytes:
    """Return a record's text without its unusual values, and add these to ``unusual``."""
    record = raw_members(text)
    for key in [key for key in record if key in drifting]:
        value = record[key]
        try:
            takes[key](value)
        except REFUSED:
            begins, inside = memoryview(value)[0], drifting[key]
            if begins == _OBJECT and inside is not None:
                record[key] = Raw(_without(value, inside, takes.below(key), (*path, key), unusual))
            # A null is usual in any column, though the field's own decoder may not take it.
            elif begins != _NULL:
                del record[key]
                unusual.append(((*path, key), value))
    return json.encode(record)
