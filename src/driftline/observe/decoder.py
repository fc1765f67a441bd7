"""The adaptive decoder: a msgspec type tree, built from the facets known so far.

It takes a line only if walking it would add nothing to the shape; every other line fails, and is walked. If
msgspec has no type for the known facets of a field, the field is decoded plainly and passed to
`Walker.check`. `doubtful` finds, in bulk, lines whose numbers may lose precision as doubles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, TypeAlias

import numpy as np
from msgspec import Meta, MsgspecError, Raw, defstruct, json
from numpy.typing import NDArray

from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.types import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BOOLEAN,
    BOUNDS,
    DOUBLE,
    INT,
    LONG,
    STRING,
    Primitive,
)
from driftline.core.values import (
    DATELIKE,
    DECLARED,
    EXACT,
    Number,
    base_of,
    known_pattern,
    other_patterns,
    raw_members,
    simple_fractions,
)
from driftline.observe.expect import UNKNOWN, ExpectedField
from driftline.observe.walk import ShapeChanged, Walker

# From here on, doubles are judged by their text: so many digits may have no point
HUGE = 1e15
# Characters of a number that is looked at; the line of a longer one is doubtful
_LONGEST = 40
_PAD = b"\n" * (_LONGEST + 1)


def doubtful(lines: Sequence[bytes], *, strictly: bool = False) -> list[int]:
    """Find lines, by index, with a number that a double may not hold exactly.

    With ``strictly``, also those with a number that has more digits than are needed to tell its double.

    A number of at most 15 digits without a negative exponent is a double or beyond `HUGE`. Other numbers are
    judged by their text, as `driftline.core.values.base_of` does; so is what looks like one in a string.
    """
    # The padding lets positions before and behind a number be read without a check of bounds.
    text = b"\n".join((_PAD, *lines, _PAD))
    starts, ends = _suspects(np.frombuffer(text, np.uint8))
    if not len(starts):
        return []
    places = [
        start
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        # `_run` stops after this many characters, so the text of a longer number is cut.
        if end - start >= _LONGEST or not _sure(text[start:end], strictly=strictly)
    ]
    if not places:
        return []
    # One look for all lines together: called line by line, numpy costs more than the decoder.
    line_ends = len(_PAD) + np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
    return sorted(set(np.searchsorted(line_ends, places, side="right").tolist()))


def _sure(number: bytes, *, strictly: bool) -> bool:
    text = number.decode()
    try:
        return repr(float(text)) == text or (not strictly and base_of(text) == DOUBLE)
    except ValueError:
        # No number: it is in a string, or the line is malformed
        return True


def _table(chars: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(chars)] = True
    return table


_NUMBER = _table(b"0123456789.eE+-")
_BEFORE = _table(b"[,: \t\r\n")


def _digit(chars: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return chars - ord("0") < 10  # wraps below "0"


def _digits(chars: NDArray[np.uint8], positions: NDArray[Any], steps: Sequence[int]) -> NDArray[np.bool_]:
    """True for positions with digits at all these distances."""
    are_digits = _digit(chars[positions + steps[0]])
    for step in steps[1:]:
        are_digits &= _digit(chars[positions + step])
    return are_digits


def _suspects(chars: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first and last positions, exclusive, of possible numbers of this kind."""
    dots = np.flatnonzero(chars == ord("."))
    # Sixteen digits have eight behind the point, or nine before it.
    behind = _digits(chars, dots, (1, 4, 8))
    before = _digits(chars, dots, (-1, -5, -9))
    minus = np.flatnonzero(chars == ord("-"))
    # An exponent: a digit, `e` or `E`, then the minus. The bit 0x20 makes the letter small.
    tiny = _digit(chars[minus - 2]) & ((chars[minus - 1] | 0x20) == ord("e"))
    starts = _run(chars, np.concatenate((dots[behind | before], minus[tiny])), -1)
    # A number follows one of these; digits behind another character are part of a string. A string may still
    # begin like that, and is then only judged in vain.
    starts = np.unique(starts[_BEFORE[chars[starts - 1]]])
    return starts, _run(chars, starts, 1) + 1


def _run(chars: NDArray[np.uint8], positions: NDArray[Any], step: int) -> NDArray[Any]:
    """Return the extent of a number's characters in one direction."""
    positions, moving = positions.copy(), np.arange(len(positions))
    for _ in range(_LONGEST):
        moving = moving[_NUMBER[chars[positions[moving] + step]]]
        if not len(moving):
            break
        positions[moving] += step
    return positions


_WIDEST = 2000  # keys of a record that msgspec looks up; more are looked up in Python
UNSPEAKABLE = re.compile(r'["\\\x00-\x1f]')  # msgspec has no struct fields of such names

_NO_INTEGER = Annotated[int, Meta(ge=1, le=0)]  # without it, `float` takes integers
_EXACT_INTEGER = Annotated[int, Meta(ge=-EXACT, le=EXACT)]
_INT = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_LONG = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_DOUBLE = Annotated[float, Meta(gt=-HUGE, lt=HUGE)]
# `{}` alone: an object with any key is new to a field without records.
_EMPTY = defstruct("Empty", [], forbid_unknown_fields=True)
_MAP = MapOf(STRING)
_STRINGS = (STRING, *DATELIKE, *DECLARED)

REFUSED = (MsgspecError, ValueError, RecursionError)
Decode: TypeAlias = "Callable[[bytes | Raw], object]"
_Rule = tuple[Mapping[type, Callable[[object], object]], object, FieldShape | None, ExpectedField]


class FieldDecoders(dict[str, Decode]):
    """Decoders by key, each built on first use; an unknown key has one that takes nothing.

    Args:
        types: of the values, by key.
        inside: the decoders for the records of a field, by its key.
    """

    def __init__(
        self,
        types: Callable[[], Mapping[str, Any]],
        decoder: Callable[[Any], Decode],
        inside: Callable[[str], FieldDecoders],
    ) -> None:
        super().__init__()
        self.types, self._decoder, self.below = cache(types), decoder, cache(inside)

    @classmethod
    def none(cls, _: str = "") -> FieldDecoders:
        """Create decoders for no keys."""
        return cls(dict, lambda _: _unknown, cls.none)

    def __missing__(self, key: str) -> Decode:
        types = self.types()
        if key not in types:
            return _unknown
        # A msgspec decoder costs more than the values of a few lines, and most keys never drift.
        self[key] = decode = self._decoder(types[key])
        return decode


def _unknown(_: bytes | Raw) -> object:
    raise ShapeChanged


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder of lines; ``decode`` raises one of `REFUSED` for a line that may add to the shape.

    Attributes:
        doubles: it drops the text of doubles, so `doubtful` lines must not go to it.
        fields: decoders of single values, by the key of a record.
    """

    decode: Decode
    doubles: bool
    fields: FieldDecoders


NOTHING = Decoder(_unknown, False, FieldDecoders.none())  # takes no line


def build(walker: Walker, *, exact: bool) -> Decoder:
    """Build a decoder of what the walker knows.

    Args:
        exact: fractions are judged by their text, slowly.
    """
    builder = _DecoderBuilder(walker, exact)
    rules, fallback = builder.rules, walker.check

    def check(kind: type, value: object) -> object:
        """The hook for values without a type: by a pattern if it is certain, else as they would be walked."""
        # msgspec calls a hook for types it does not know. Each such field has a class of its own, so that the
        # hook can tell by it which field a value is of.
        sure, checked, field_shape, expected = rules[kind]
        match = sure.get(type(value))
        if match is not None and match(value):
            return checked
        if value is None or field_shape is None:
            raise ShapeChanged
        # The walker raises ShapeChanged if the value adds anything, and learns nothing: the line may fail
        # later.
        fallback(value, field_shape, expected)
        return checked

    def decoder(type_: Any) -> Decode:
        return json.Decoder(type_, dec_hook=check, float_hook=Number).decode

    def fields_of(shape: RecordShape, expected: ExpectedField) -> FieldDecoders:
        def types() -> Mapping[str, Any]:
            return {key: type_ for key, type_, _ in builder.keys(shape, expected)}

        def below(key: str) -> FieldDecoders:
            field = shape.fields.get(key)
            profile = None if field is None else field.facets.get(Facet(0, RECORD))
            if profile is None or profile.record is None:
                return FieldDecoders.none()
            return fields_of(profile.record, expected.fields.get(key, UNKNOWN))

        return FieldDecoders(types, decoder, below)

    fields = fields_of(walker.shape, walker.expected)
    names = (*walker.shape.fields, *walker.expected.required_keys)
    if len(walker.shape.fields) > _WIDEST and not any(map(UNSPEAKABLE.search, names)):
        fields.types()  # before it is asked for doubles among them
        missing = {key for key, field_shape in walker.shape.fields.items() if field_shape.missing}
        must = [key for key in walker.expected.required_keys if key not in missing]
        return Decoder(_wide(fields, must), builder.doubles, fields)
    decode_record = decoder(builder.field(walker.root, walker.expected))
    return Decoder(decode_record, builder.doubles, fields)


def _wide(fields: FieldDecoders, required: Sequence[str]) -> Decode:
    """Build a decoder of records with very many keys, since msgspec looks up keys one by one."""

    def decode(line: bytes | Raw) -> object:
        # Cut into keys and raw values in one pass; each key then has a dictionary's look-up.
        record = raw_members(line)
        for key, value in record.items():
            fields[key](value)
        for key in required:
            if key not in record:
                raise ShapeChanged
        return None

    return decode


class _DecoderBuilder:
    def __init__(self, walker: Walker, exact: bool) -> None:
        self.walker, self.exact = walker, exact
        self.doubles = False
        self.rules: dict[type, _Rule] = {}

    def record(self, shape: RecordShape, expected: ExpectedField) -> Any:
        fields: list[Any] = []
        names: dict[str, str] = {}
        for key, type_, must in self.keys(shape, expected):
            name = f"f{len(fields)}"
            names[name] = key
            fields.append((name, type_) if must else (name, type_, None))
        # Keys are no Python names, so fields are numbered and renamed. `gc=False`: these objects hold no
        # cycles, and without it Python's collector would look at each of them.
        return defstruct("Record", fields, rename=names, kw_only=True, forbid_unknown_fields=True, gc=False)

    def keys(self, shape: RecordShape, expected: ExpectedField) -> Iterator[tuple[str, Any, bool]]:
        """Yield the keys of a record, their types, and True for a key that must have a value."""
        for key, field_shape in shape.fields.items():
            # The first record that has a key is walked; and where empty ones are counted, each that has one.
            if field_shape.absent or not (key or self.walker.empty_names):
                continue
            expected_field = expected.fields.get(key, UNKNOWN)
            type_ = self.field(field_shape, expected_field)
            if expected_field.required and not field_shape.missing:
                yield key, _NO_INTEGER if type_ is None else type_, True
            else:
                yield key, _or_null(type_), False
        # No record has had these yet: whether one has them or lacks them, it is walked.
        for key in expected.required_keys:
            if key not in shape.fields:
                yield key, _NO_INTEGER, True

    def field(self, field_shape: FieldShape, expected: ExpectedField) -> Any:
        """Return the type of a field's values except null; None if there are none, or they must be walked."""
        dims = {facet.dim for facet in field_shape.facets if facet.dim}
        deepest = max(*dims, field_shape.empty_lists, 0)
        # Lists of several depths: msgspec knows one type of list in a union.
        if len(dims) > 1 or self.untypable(field_shape, expected):
            return self.checked(field_shape, expected)
        type_: Any = None
        # From the innermost values outwards: each level wraps the type of the one below in a list.
        for level in range(deepest, -1, -1):
            parts, pattern = self.level(field_shape, expected, level)
            if level < deepest:
                parts.append(list[_or_null(type_)])  # type: ignore[misc]
            if pattern is not None and (parts or not level):
                return self.checked(field_shape, expected, None if level else pattern)
            if pattern is not None:
                parts = [self.checked(None, expected, pattern)]
            type_ = reduce(or_, parts) if parts else None
        return type_

    def checked(
        self, field_shape: FieldShape | None, expected: ExpectedField, pattern: str | None = None
    ) -> Any:
        """Return a type that checks its values: strings by the pattern, others by the field's known shape."""
        sure: dict[type, Any] = {str: re.compile(pattern).match} if pattern else {}
        fractions, simple = simple_fractions(expected.types)
        if field_shape is not None and Facet(0, fractions) in field_shape.facets:
            sure[Number] = re.compile(simple).match
        kind = type("Checked", (), {})
        self.rules[kind] = (sure, kind(), field_shape, expected)
        return kind

    def untypable(self, field_shape: FieldShape, expected: ExpectedField) -> bool:
        """True if msgspec's types cannot express, or not with certainty, what is known of the field."""
        bases = {facet.base for facet in field_shape.facets}
        # msgspec takes an object as a struct or as a dict; here its keys decide between both.
        if expected.beside is not None or bases >= {RECORD, _MAP}:
            return True
        if any(s.ragged for s in field_shape.facets.values()) or BIG_INTEGER in bases:
            return True
        if expected.texts is not None and not bases.isdisjoint(_STRINGS):
            return True  # a text may be a number, too
        if not expected.plain_fractions and bases & {DOUBLE, BIG_DECIMAL}:
            return True
        if any(
            isinstance(b, Primitive) and b.name in ("float", "decimal") and b != BIG_DECIMAL for b in bases
        ):
            return True
        for facet in field_shape.facets:
            # Where there is an int column, a long is one that is too large for it.
            small = expected.small_integers and (
                facet.base == INT or Facet(facet.dim, INT) in field_shape.facets
            )
            if facet.base in (INT, LONG) and not (expected.plain_integers or small):
                return True
        for record in (s.record.fields for s in field_shape.facets.values() if s.record is not None):
            if len(record) > _WIDEST or any(map(UNSPEAKABLE.search, (*record, *expected.required_keys))):
                return True
        return self.exact and bool(bases & {DOUBLE, BIG_DECIMAL, NUMBER_TEXT})

    def level(
        self, field_shape: FieldShape, expected: ExpectedField, level: int
    ) -> tuple[list[Any], str | None]:
        """Return the types of values inside ``level`` lists, and a pattern if only some strings may occur."""
        facets = {facet.base: s for facet, s in field_shape.facets.items() if facet.dim == level}
        parts: list[Any] = [bool] if BOOLEAN in facets else []
        if LONG in facets:
            parts.append(_integers(facets[LONG], expected))
        elif INT in facets:
            parts.append(_INT)
        if DOUBLE in facets:
            self.doubles = True
            # `_NO_INTEGER` takes the integers away from `float`, which would read `7` as a fraction.
            parts += [_DOUBLE] if facets.keys() & {LONG, INT} else [_NO_INTEGER, _DOUBLE]
        pattern = self.pattern({base: s for base, s in facets.items() if base in _STRINGS}, expected)
        if STRING in facets and pattern is None:
            parts.append(str)
        for base, s in facets.items():
            if base == RECORD and s.record is not None:
                parts.append(self.record(s.record, expected))
            elif isinstance(base, MapOf) and s.value is not None:
                parts.append(dict[str, _or_null(self.field(s.value, expected.value or UNKNOWN))])  # type: ignore[misc]
        # Where objects are known, their own type takes `{}` as well.
        if field_shape.empty_record and not facets.keys() & {RECORD, _MAP}:
            parts.append(_EMPTY)
        return parts, pattern

    def pattern(self, strings: Mapping[Any, Profile], expected: ExpectedField) -> str | None:
        """Return the pattern of strings of these types, with no more range or digits than ``strings``.

        None for all or none.
        """
        if not strings:
            return None
        mode = self.walker.dates
        typed_patterns = other_patterns(
            expected.types, mode if expected.dated or STRING not in strings else "off"
        )
        if STRING in strings and not typed_patterns:
            return None
        kinds = [
            known_pattern(base, s.fraction, s.far, mode) for base, s in strings.items() if base != STRING
        ]
        # A text is known if it is of a kind seen before or, where strings were seen, of none that would count
        # as something else.
        ways = [f"(?:{'|'.join(kinds)})\\Z"] if kinds else []
        return "|".join([*ways, f"(?!(?:{'|'.join(typed_patterns)})\\Z)"] if STRING in strings else ways)


def _integers(profile: Profile, expected: ExpectedField) -> Any:
    """Return the type of whole numbers that add nothing to the profile."""
    within = expected.bounded - profile.outside
    if not within:
        # Until an integer beyond 2**53 was seen, one is news: other columns may not hold it exactly.
        return _LONG if profile.wide else _EXACT_INTEGER
    lows, highs = zip(*(BOUNDS[name] for name in within), strict=True)
    most = 2**63 - 1 if profile.wide else EXACT
    return Annotated[int, Meta(ge=max(-most, *lows), le=min(most, *highs))]


def _or_null(type_: Any) -> Any:
    return None if type_ is None else type_ | None
