"""Types of CSV columns (every text must be written as a value of it: rules 2.3), date patterns, and names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, count, product
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.declared import OVERFLOW, VOID
from driftline.convert.kernels import dates_of
from driftline.convert.types import arrow_type
from driftline.core.changes import AddColumn, Change
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.date_pattern import DatePattern, hint_text
from driftline.core.schema.naming import caseless, in_case_of
from driftline.core.schema.text import counted
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Path,
    Primitive,
    Struct,
    dotted,
    peel,
)
from driftline.core.settings.csv import FOLD, JSON_SIGNS, POINT, Dialect, Signs, header_flags
from driftline.core.settings.fields import FieldSettings, toml_line
from driftline.core.settings.table import TableSettings
from driftline.core.values import EXACT, OFFSET, OFFSET_PATTERN, TIMESTAMP_PATTERN, base_of, is_single
from driftline.readers.columnar.rows import ColumnReader
from driftline.readers.columnar.split import SplitColumn, with_split_columns

Types = frozenset[Primitive]

_SIGNED_ZERO = r"^-0(?:\.0+)?(?:[eE].+)?$"
_NARROWEST_FIRST = (BOOLEAN, LONG, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ)
# Types that a column has only if somebody declared it, the narrowest first
NARROW = (
    "int",
    "decimal",
    "float",
)
ALL: Types = frozenset(_NARROWEST_FIRST)
_BOOLEAN, _LONG, _DOUBLE = (frozenset((type_,)) for type_ in (BOOLEAN, LONG, DOUBLE))
_NUMBERS: Types = _LONG | _DOUBLE
KINDS: Types = frozenset((BOOLEAN, LONG, DOUBLE))  # of a cell of a key, apart from text
_PLAIN_LONG = r"^(?:0|-?[1-9][0-9]{0,14})$"  # of a whole number, at a glance
_NO_TEXT = r"^-?[0-9]|^(?i:true|false)$"  # of what may be no text
_DATE_LENGTH = len("2024-02-29")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999
_DAY = 86_400_000_000  # microseconds
_PLAIN = (1e-3, 1e7)  # doubles between these print without an exponent, in Java
_PLAIN_IN_ARROW = (1e-3, 1e15)  # and in Arrow
_PAIRS = 4  # names of columns that are told of
# Texts that Python reads sooner than Arrow, whose every call takes as long as a few of them
FEW = 32
_WHOLE = re.compile(r"-?[1-9][0-9]{0,15}|0")
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_WITH_EXPONENT = re.compile(r"-?[1-9](?:\.[0-9]+)?[eE](?P<power>[+-]?[0-9]+)")
NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
CLOCK = r"^[0-9-]{10}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_MOMENT = CLOCK + r"(?:Z|\+00:00)?$"  # of texts that are moments
INSTANT = f"{CLOCK}{OFFSET}$"  # of those with any offset


def as_json(texts: pa.Array, signs: Signs) -> pa.Array:
    """Spell numbers of these signs as JSON does; another text that has one of them is not a number then.

    >>> as_json(pa.array(["1,5", "1.000,5"]), Signs(",")).to_pylist()
    ['1.5', '1_000.5']
    >>> as_json(pa.array(["1.234.567,50", "-1.234", "1.5", "0.123"]), Signs(",", ".")).to_pylist()
    ['1234567.50', '-1234', '1_5', '0_123']
    """
    decimal, thousands = signs
    if thousands:
        shortened = pc.replace_substring(texts, thousands, "")
        # 1.23 next to 1.234 is a mistake, or has another sign: the column becomes text.
        others = pc.replace_substring(texts, thousands, "_")
        texts = pc.if_else(pc.match_substring_regex(texts, f"^{signs.groups}$"), shortened, others)
    if decimal == POINT:
        return texts
    return pc.replace_substring(pc.replace_substring(texts, POINT, "_"), decimal, POINT)


def types_of(texts: pa.Array, among: Types = ALL, signs: Signs = JSON_SIGNS) -> Types:
    """The types ``among`` these by which every text that is not null is written; of no text, all of them.

    Args:
        signs: those in numbers.

    >>> sorted(type_.name for type_ in types_of(pa.array(["1", None, "-20"])))
    ['double', 'long']
    >>> [str(*types_of(pa.array([text]))) for text in ("19.90", "TRUE")]
    ['double', 'boolean']
    >>> types_of(pa.array(["1", "007"]))
    frozenset()
    """
    texts = texts.drop_null() if texts.null_count else texts
    if not len(texts):
        return among
    numbers = as_json(texts, signs)
    # The first text leaves one or two types to try, of six: Arrow's casts of all texts are what this costs.
    likely = _likely(texts[0].as_py())
    if numbers is not texts:
        likely = (likely - _NUMBERS) | (_likely(numbers[0].as_py()) & _NUMBERS)
    likely &= among
    if LONG in likely and (bounds := _bounds_of_longs(numbers)) is not None:
        least, most = bounds
        return likely if least >= -EXACT and most <= EXACT else _LONG
    shown = {type_: numbers if type_ == DOUBLE else texts for type_ in likely - {LONG}}
    return frozenset(type_ for type_, texts in shown.items() if _are(texts, type_))


def type_of(parts: Sequence[Types]) -> Primitive:
    """The type of a column from the possible types of each part.

    It is VOID if there is no text, and STRING if no type fits all.

    >>> str(type_of([frozenset({LONG, DOUBLE}), frozenset({DOUBLE})]))
    'double'
    """
    common = ALL.intersection(*parts)
    return VOID if common == ALL else next((t for t in _NARROWEST_FIRST if t in common), STRING)


def numbers_of(texts: pa.Array, among: Types, signs: Signs = JSON_SIGNS) -> Types:
    """The number types ``among`` these that hold every text exactly, read as a JSON number.

    Nulls do not count; of no text, all types.

    >>> from driftline.core.schema.types import INT, decimal
    >>> sorted(map(str, numbers_of(pa.array(["1.50", "2"]), frozenset({decimal(10, 2), decimal(4, 1), INT}))))
    ['decimal(10, 2)', 'decimal(4, 1)']
    """
    texts = texts.drop_null() if texts.null_count else texts
    if not (len(texts) and among):
        return among
    texts = as_json(texts, signs)
    # The first text alone settles most columns of text.
    numbers = all(_all(pc.match_substring_regex(sample, NUMBER)) for sample in (texts[:1], texts))
    return frozenset(type_ for type_ in among if numbers and _holds(texts, type_))


def declared_of(texts: pa.Array, among: Types, signs: Signs = JSON_SIGNS) -> Types:
    """The types ``among`` these that texts have where a table or a setting asks for them.

    They are narrow numbers, and timestamps with any offset (rules 2.2).

    >>> [str(t) for t in declared_of(pa.array(["2026-03-01T10:00:00+02:00"]), frozenset({TIMESTAMP}))]
    ['timestamp']
    >>> declared_of(pa.array(["2026-03-01T10:00:00"]), frozenset({TIMESTAMP}))
    frozenset()
    """
    numbers = numbers_of(texts, among - {TIMESTAMP}, signs)
    return numbers | {TIMESTAMP} if TIMESTAMP in among and _are_instants(texts.drop_null()) else numbers


def _are_instants(texts: pa.Array) -> bool:
    if not _all(pc.match_substring_regex(texts, INSTANT)):
        return False
    try:
        micros = texts.cast(arrow_type(TIMESTAMP)).cast(pa.int64())
    except pa.ArrowInvalid:  # no such day
        return False
    return _all(pc.and_(pc.greater_equal(micros, _FIRST_DAY * _DAY), pc.less(micros, (_LAST_DAY + 1) * _DAY)))


def not_met(texts: pa.Array, among: Types, signs: Signs) -> Types:
    """The types ``among`` these that no text has on its own.

    >>> [str(t) for t in not_met(pa.array(["1", "x", "true"]), KINDS, Signs())]
    ['double']
    """
    if not among:
        return among
    return among - {
        type_ for type_, values in values_of(texts, signs).items() if values.null_count < len(values)
    }


def in_order(types: Types) -> Sequence[Primitive]:
    """These types, and text, as the fields of a reader."""
    return [type_ for type_ in (LONG, DOUBLE, BOOLEAN, STRING) if type_ in types or type_ == STRING]


def values_of(texts: pa.Array, signs: Signs) -> dict[Primitive, pa.Array]:
    """The values of texts by type, each null where its text is of another.

    >>> by_type = values_of(pa.array(["7", "2.50", "007"]), Signs())
    >>> [by_type[type_].to_pylist() for type_ in (LONG, DOUBLE, STRING)]
    [[7, None, None], [None, 2.5, None], [None, None, '007']]
    """
    numbers = as_json(texts, signs)
    plain = pc.match_substring_regex(numbers, _PLAIN_LONG).fill_null(False)
    likely = pc.or_(pc.match_substring_regex(numbers, _NO_TEXT).fill_null(False), plain)
    # Neither plainly whole numbers nor plainly text: these alone are judged one by one, each text once.
    open_ = pc.and_(likely, pc.invert(plain))
    types = {
        text: type_of([types_of(pa.array([text]), KINDS, signs)])
        for text in pc.unique(texts.filter(open_)).to_pylist()
    }

    def of(type_: Primitive) -> pa.Array:
        """Flags the texts of a type."""
        chosen = pc.is_in(
            texts, value_set=pa.array([t for t, found in types.items() if found == type_], pa.string())
        )
        chosen = pc.and_(chosen, open_)
        if type_ == LONG:
            return pc.or_(chosen, plain)
        return pc.or_(chosen, pc.invert(likely)) if type_ == STRING else chosen

    none = pa.scalar(None, pa.string())
    longs, doubles = (pc.if_else(of(type_), numbers, none) for type_ in (LONG, DOUBLE))
    return {
        LONG: longs.cast(pa.int64()),
        DOUBLE: doubles.cast(pa.float64()),
        BOOLEAN: pc.equal(pc.ascii_lower(pc.if_else(of(BOOLEAN), texts, none)), "true"),
        STRING: pc.if_else(of(STRING), texts, none),
    }


def java_text(number: float) -> str:
    """A double as Java prints it.

    That is the shortest decimal that reads back as it, with at least one digit after the point.

    >>> java_text(100.0), java_text(12345678.9), java_text(0.0005), java_text(5e-324)
    ('100.0', '1.23456789E7', '5.0E-4', '4.9E-324')
    """
    if not math.isfinite(number):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(number), "NaN")
    if number == 0 or _PLAIN[0] <= abs(number) < _PLAIN[1]:
        return repr(number)
    mantissa, _, power = repr(number).partition("e")
    if not power or len(mantissa.lstrip("-")) == 1:
        digits = len(mantissa.replace(".", "").strip("-0"))
        mantissa, _, power = f"{number:.{max(1, digits - 1)}e}".partition("e")
    return f"{mantissa}E{int(power)}"


def _likely(text: str) -> Types:
    """The types that a column may have whose first text is this, at a glance."""
    if text.lower() in ("true", "false"):
        return _BOOLEAN
    if text[4:5] == "-" and text[:4].isdecimal():
        moment = TIMESTAMP if text.endswith(("Z", "+00:00")) else TIMESTAMP_NTZ
        return frozenset((DATE if len(text) == _DATE_LENGTH else moment,))
    if _FRACTION.fullmatch(text) or _WITH_EXPONENT.fullmatch(text):
        return _DOUBLE
    return _NUMBERS if text.removeprefix("-").isdecimal() else frozenset()


def _are(texts: pa.Array, type_: Primitive) -> bool:
    try:
        match type_:
            case Primitive("boolean"):
                words = pc.ascii_lower(texts)
                return _all(pc.or_(pc.equal(words, "true"), pc.equal(words, "false")))
            case Primitive("double"):
                return _are_doubles(texts)
            case Primitive("date"):
                return _are_dates(texts)
            case _:
                return _are_moments(texts, type_)
    except pa.ArrowInvalid:  # a text is not even read as the type
        return False


def _bounds_of_longs(texts: pa.Array) -> tuple[int, int] | None:
    """The least and the greatest of texts that are whole numbers of 64 bits; None if one prints otherwise, or
    is no such number.
    """
    try:
        if len(texts) <= FEW:
            written = texts.to_pylist()
            numbers = list(map(int, written))
            least, most = min(numbers), max(numbers)
            is_long = least >= -(2**63) and most < 2**63 and list(map(str, numbers)) == written
        else:
            longs = texts.cast(pa.int64())
            least, most = (bound.as_py() for bound in pc.min_max(longs).values())
            is_long = _all(pc.equal(longs.cast(pa.string()), texts))
    except ValueError:  # of Arrow's, too
        return None
    # A number counts only if it prints as it was written: 007 and +7 are texts.
    return (least, most) if is_long else None


def _holds(texts: pa.Array, type_: Primitive) -> bool:
    if type_ == FLOAT:
        return all(map(is_single, texts.to_pylist()))
    if pc.any(pc.match_substring_regex(texts, _SIGNED_ZERO)).as_py():
        return False  # a decimal and an int have no sign of zero
    try:
        texts.cast(arrow_type(type_))
    except pa.ArrowInvalid:  # not a whole number, or more digits than the type has
        return False
    return True


def _are_doubles(texts: pa.Array) -> bool:
    """True if all texts are doubles. Whole numbers count, as far as they are exact."""
    if len(texts) <= FEW:
        return all(map(_is_double, texts.to_pylist()))
    numbers = texts.cast(pa.float64())
    # Most texts are settled by whole columns: where Arrow prints the number without an exponent, as written.
    size, has_point = pc.abs(numbers), pc.match_substring(texts, POINT)
    plain = pc.and_(pc.greater_equal(size, _PLAIN_IN_ARROW[0]), pc.less(size, _PLAIN_IN_ARROW[1]))
    plain = pc.or_(plain, pc.and_(pc.equal(size, 0), has_point))
    # Zeros that end a fraction are spelling
    shortest = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), POINT)
    shortest = pc.if_else(pc.and_(has_point, pc.invert(pc.ends_with(texts, POINT))), shortest, texts)
    alike = pc.and_(plain, pc.equal(numbers.cast(pa.string()), shortest))
    return _all(alike) or all(map(_is_double, texts.filter(pc.invert(alike)).to_pylist()))


def _is_double(text: str) -> bool:
    if _WHOLE.fullmatch(text):
        return abs(int(text)) <= EXACT
    if _FRACTION.fullmatch(text):
        return base_of(text) == DOUBLE
    exponent = _WITH_EXPONENT.fullmatch(text)
    if exponent is None:
        return False
    number = float(text)
    # Programs print small numbers alike but for the spelling: 1.5e-05, 1.5e-5, 1.5E-5.
    if exponent["power"][0] == "-" and abs(number) < _PLAIN[0]:
        return base_of(text) == DOUBLE
    # A large number counts as Java or Python prints it: 1e5 in a list of codes is often no number.
    return text in (java_text(number), repr(number))


def _are_dates(texts: pa.Array) -> bool:
    days = texts.cast(pa.date32())
    printed = pc.equal(days.cast(pa.string()), texts)
    return _all(pc.greater_equal(days.cast(pa.int32()), _FIRST_DAY)) and _all(printed)


def _are_moments(texts: pa.Array, type_: Primitive) -> bool:
    micros = texts.cast(arrow_type(type_)).cast(pa.int64())
    return _all(pc.greater_equal(micros, _FIRST_DAY * _DAY)) and _all(
        pc.match_substring_regex(texts, _MOMENT)
    )


def _all(answers: pa.Array) -> bool:
    return pc.all(answers).as_py() is not False


_OTHER_OFFSET = re.compile(f"(?!{TIMESTAMP_PATTERN}$){OFFSET_PATTERN}").fullmatch


def offset_notes(shape: RecordShape, changes: Sequence[Change], dates: str) -> list[str]:
    """A note for a person on new columns of text that begin with a timestamp with an offset; at most one.

    ``changes``: those that a batch of this ``shape`` makes; ``dates``: the table's setting. Columns of typed
    sources have no such note: the setting is of texts.
    """
    if dates != "on":
        return []
    new = {c.reason.field for c in changes if isinstance(c, AddColumn) and peel(c.type)[1] == STRING}
    paths = [dotted(path) for path in _with_offsets(shape) if path in new] if new else []
    return [instant_line(f"as in {', '.join(paths)}")] if paths else []


def instant_line(where: str) -> str:
    """The setting to paste.

    Args:
        where: a phrase with the columns that have such timestamps.
    """
    why = f"reads timestamps with offsets, {where}; for a column that is there: resolve --as timestamptz"
    return toml_line("dates", (), "instant", why)


def _with_offsets(shape: RecordShape, above: Path = ()) -> Iterator[Path]:
    """The fields whose first text is a timestamp with another offset than UTC."""
    for key, field in shape.fields.items():
        for facet, profile in field.facets.items():
            path = (*above, key)
            if profile.record is not None:
                yield from _with_offsets(profile.record, (*path, *["element"] * facet.dim))
            elif facet.base == STRING and not profile.typed and _OTHER_OFFSET(profile.sample):
                yield path


Patterns: TypeAlias = Mapping[str, DatePattern]  # by the column's name
Cells: TypeAlias = Sequence[Sequence[bytes]]  # of rows

_INSTANTS = frozenset((TIMESTAMP,))

_LIKE_A_DATE = re.compile(
    rb"[0-9]{1,4}[ ./-](?:[0-9]{1,2}|[A-Z][a-z]{2,8})[ ./-][0-9]{1,4}(?:[ T][0-9]{1,2}:.*)?"
)
# Orders of day and month, each in spellings of which a text has one; where points stand, the day comes first.
_ORDERS = (
    ("dd.MM.yyyy", "d.M.yyyy", "dd/MM/yyyy", "d/M/yyyy", "dd-MM-yyyy", "d-M-yyyy"),
    ("MM/dd/yyyy", "M/d/yyyy", "MM-dd-yyyy", "M-d-yyyy"),
    ("yyyy/MM/dd", "yyyy/M/d", "yyyy.MM.dd", "yyyy-MM-dd"),
    ("dd-MMM-yyyy", "d-MMM-yyyy", "dd MMM yyyy", "d MMM yyyy", "dd MMMM yyyy", "d MMMM yyyy"),
)
_CLOCKS = ("HH:mm", "HH:mm:ss", "H:mm", "H:mm:ss", "HH:mm:ss.SSS", "hh:mm a", "h:mm a", "hh:mm:ss a", "h:mm:ss a")  # fmt: skip
# In place of a pattern: texts that the setting `dates` takes
_WITH_OFFSETS = "instant"
_ISO = ("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSS")  # which need no pattern


def null_notes(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the cells of each text that a person has called null.

    >>> list(null_notes({"NA": 4, "-": 1}))
    ['null: 4 cells NA, 1 cell - (--null)']
    """
    if counts:
        cells = (f"{counted(count, 'cell')} {text}" for text, count in counts.items())
        yield f"null: {', '.join(cells)} (--null)"


class CsvColumn(NamedTuple):
    """A column of a file. ``made``: the reason that its name is not from the file; empty if it is."""

    name: str
    made: str = ""


def named(cells: Sequence[str]) -> tuple[CsvColumn, ...]:
    """Name the columns of a header; nameless ones by position, repeated ones by number, all distinct.

    >>> [column.name for column in named(["", "price", "price", "price_2", ""])]
    ['column_1', 'price', 'price_3', 'price_2', 'column_5']
    """
    taken, columns = set(cells), []
    first: dict[str, int] = {}
    for place, cell in enumerate(cells, 1):
        if cell and cell not in first:
            first[cell] = place
            columns.append(CsvColumn(cell))
            continue
        # By its place, so that `verify`, the quarantine and later batches mean the same column.
        stem = cell or f"column_{place}"
        names = (f"{stem}_{number}" for number in count(2))
        name = next(name for name in (chain([stem], names) if not cell else names) if name not in taken)
        taken.add(name)
        reason = f"has the name of column {first[cell]}" if cell else "has no name"
        columns.append(CsvColumn(name, f"column {place} {reason}"))
    return tuple(columns)


def folded_names(
    names: Sequence[str], keys: Sequence[str], dialect: Dialect, notes: list[str]
) -> Sequence[str]:
    """The names of a file's columns, in the letter case of the table's ``keys`` if a person says so.

    Args:
        notes: gets the names that became others; or the flag, if all that the table does not have would.
    """
    spelled, flag = in_case_of(names, keys), Dialect(names=FOLD).flags
    changed = [(name, key) for name, key in zip(names, spelled, strict=True) if name != key]
    if dialect.names == FOLD:
        pairs = [f"{name} is {key}" for name, key in changed[:_PAIRS]]
        pairs += [f"and {len(changed) - _PAIRS} more"] if len(changed) > _PAIRS else []
        notes.extend([f"names: {', '.join(pairs)} ({flag})"] if pairs else [])
        return spelled
    if changed and not dialect.names and len(changed) == len({*names} - {*keys}):
        differ = counted(len(changed), "header differs", "headers differ")
        columns = "that column" if len(changed) == 1 else "those columns"
        notes.append(f"{differ} from the table's only in letter case: {flag} fills {columns}")
    return names


def respelled(names: Sequence[str], keys: Collection[str], dialect: Dialect, above: int) -> Iterator[str]:
    """Yield the flags by which columns get the table's names, if a file spells all new ones otherwise.

    Letter case alone is for `folded_names`.

    Args:
        above: the lines above the first row.

    >>> next(respelled(["id", "unit_price"], ["id", "Unit Price"], Dialect(), 1)).split(": ")[1]
    "--header 'id,Unit Price' --skip-lines 1 --no-keep fills that column"
    """
    absent = [key for key in keys if key not in names]
    forms = Counter(map(_form, absent))
    key_of = {form: key for key in absent if forms[form := _form(key)] == 1}
    pairs = [(name, key_of.get(_form(name), "")) for name in names if name not in keys]
    if dialect.header or not all(key for _, key in pairs) or {*in_case_of(names, keys)} <= {*keys}:
        return
    if flags := header_flags([dict(pairs).get(name, name) for name in names], above):
        examples = ", ".join(f"{name} for {key}" for name, key in pairs[:_PAIRS])
        several = len(pairs) > 1
        spell = "headers spell the table's names" if several else "header spells the table's name"
        columns = "those columns" if several else "that column"
        yield f"{len(pairs)} {spell} otherwise, {examples}: {flags} --no-keep fills {columns}"


def _form(name: str) -> str:
    """A name without letter case, and with one sign for all that is no letter or digit."""
    return re.sub(r"[\W_]+", "_", caseless(name)).strip("_")


def folded_structs(
    structs: Iterable[tuple[Struct, int]], keys: Collection[str], dialect: Dialect, notes: list[str]
) -> Iterator[Struct]:
    """Yield the columns of files of one batch with the names that `folded_names` gives them.

    Later files take the names of earlier ones, too, so that it does not matter where one batch ends.

    Args:
        structs: those of the files, each with the number of lines above the first row.
    """
    taken = list(keys)
    for struct, above in structs:
        notes.extend(respelled([f.name for f in struct.fields], keys, dialect, above))
        names = folded_names([f.name for f in struct.fields], taken, dialect, notes)
        taken += names if dialect.names == FOLD else ()
        named = zip(struct.fields, names, strict=True)
        yield Struct(tuple(f if f.name == name else replace(f, name=name) for f, name in named))


def patterns_of(field_settings: FieldSettings) -> Patterns:
    """The patterns of the fields of a record."""
    return {key: field.pattern for key, field in field_settings.fields.items() if field.pattern is not None}


def date_hints(first: Cells, more: Callable[[], Cells]) -> Iterator[tuple[int, str]]:
    """Yield the columns whose texts are dates, and the hints that read them.

    The texts have one pattern, and no other order of day and month fits; or they are instants with offsets.

    Args:
        first: the cells of some rows, all as wide.
        more: returns those of more rows, for a column of which the first do not tell the order.

    >>> rows = [[b"01.03.2026", b"1/2/2026 9:30", b"2026-03-01"], [b"", b"1/31/2026 17:05", b""]]
    >>> list(date_hints(rows, lambda: rows))
    [(0, "date('dd.MM.yyyy')"), (1, "timestamp('M/d/yyyy H:mm')")]
    >>> list(date_hints([[b"2026-03-01 12:00:00+02"]], list))
    [(0, 'instant')]
    """
    for place in range(len(first[0]) if first else 0):
        texts = _texts(first, place)
        if not texts or not _LIKE_A_DATE.fullmatch(texts[0]):
            continue
        if declared_of(_strings(texts), _INSTANTS):
            yield place, _WITH_OFFSETS
            continue
        patterns = _patterns(texts)
        if len(patterns) > 1:
            patterns = _patterns(_texts(more(), place))
        if len(patterns) == 1:
            yield place, hint_text(patterns[0].type, patterns[0].text)


def hint_lines(dates: Sequence[tuple[int, str]], struct: Struct, settings: TableSettings) -> Iterator[str]:
    """The hints as settings to paste, of text columns for which nobody has declared a type."""
    instants = []
    for place, hint in dates:
        f = struct.fields[place]
        if f.type != STRING or settings.fields.of(f.name).hint is not None:
            continue
        if hint == _WITH_OFFSETS:
            instants.append(f.name)
        else:
            why = "its texts are dates; for a column that is there: resolve --as"
            yield toml_line("hints", (f.name,), hint, why)
    if instants and settings.dates == "on":
        yield instant_line(f"in {', '.join(instants)}")


def with_offsets(dates: Iterable[tuple[int, str]], struct: Struct) -> Iterator[str]:
    """The text columns whose texts are instants with offsets.

    Args:
        dates: as `date_hints` gives them.
    """
    for place, hint in dates:
        if hint == _WITH_OFFSETS and struct.fields[place].type == STRING:
            yield struct.fields[place].name


def _texts(rows: Cells, place: int) -> list[bytes]:
    return [row[place] for row in rows if len(row) > place and row[place]]


def _patterns(texts: Sequence[bytes]) -> list[DatePattern]:
    """The first pattern of each order by which all texts are dates."""
    array = _strings(texts)
    patterns = (_of_order(_candidates(days), array) for days in _ORDERS)
    return [pattern for pattern in patterns if pattern is not None]


def _strings(texts: Sequence[bytes]) -> pa.Array:
    return pa.array([text.decode(errors="replace") for text in texts], pa.string())


def _of_order(order: Sequence[DatePattern], texts: pa.Array) -> DatePattern | None:
    first = texts[0].as_py()
    likely = (pattern for pattern in order if re.fullmatch(pattern.regex(), first))
    return next((pattern for pattern in likely if not dates_of(texts, pattern).null_count), None)


@cache
def _candidates(days: tuple[str, ...]) -> list[DatePattern]:
    moments = (f"{day} {clock}" for day, clock in product(days, _CLOCKS))
    dates = [DatePattern.of(day, DATE) for day in days if day not in _ISO]
    return dates + [DatePattern.of(moment, TIMESTAMP_NTZ) for moment in moments if moment not in _ISO]


def dated(reader: ColumnReader, patterns: Patterns) -> ColumnReader:
    """Read the dates of text columns that have a pattern; other texts become a second field."""
    return with_split_columns(
        reader,
        {
            f.name: SplitColumn(
                (replace(f, type=patterns[f.name].type), Field(f.name, STRING, doc=OVERFLOW)),
                partial(_by_pattern, patterns[f.name]),
            )
            for f in reader.struct.fields
            if f.type == STRING and f.name in patterns
        },
    )


def by_kinds(reader: ColumnReader, types: Mapping[str, Sequence[Primitive]], signs: Signs) -> ColumnReader:
    """Read the cells of some text columns by their own types.

    Args:
        reader: the reader.
        types: the types of each column, by name.
        signs: the signs in numbers.
    """
    return with_split_columns(
        reader,
        {
            f.name: SplitColumn(
                tuple(replace(f, type=type_) for type_ in types[f.name]),
                partial(_by_type, types[f.name], signs),
            )
            for f in reader.struct.fields
            if f.name in types
        },
    )


def _by_pattern(pattern: DatePattern, texts: pa.Array) -> Sequence[pa.Array]:
    dates = dates_of(texts, pattern)
    return dates, pc.if_else(dates.is_valid(), pa.scalar(None, pa.string()), texts)


def _by_type(types: Sequence[Primitive], signs: Signs, texts: pa.Array) -> Sequence[pa.Array]:
    values = values_of(texts, signs)
    return [values[type_] for type_ in types]
