"""Cells of CSV columns, judged one by one (rules 2.3): counts by type, and the columns that they make."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.types import arrow_type
from driftline.core.schema.text import counted
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Primitive,
    SourceLocation,
)
from driftline.core.settings.csv import Dialect, Signs
from driftline.core.settings.fields import toml_line
from driftline.readers.csv.cells import cast
from driftline.readers.csv.types import (
    ALL,
    CLOCK,
    FEW,
    INSTANT,
    NARROW,
    NUMBER,
    Types,
    as_json,
    declared_of,
    type_of,
    types_of,
)

Place: TypeAlias = Callable[[int], SourceLocation]  # of a text, by its number

# Different words beside values, at most, in a column that is typed by half of its cells
WORDS = 20
_NULL_WORDS = 10  # of which a hint may ask if they are null
_HALF, _MOST = 0.5, 0.95  # of the cells
_NULLS = frozenset({
    "na", "n/a", "n.a.", "#n/a", "<na>", "null", "none", "nil", "nan", "-", "--", "---", ".", "..", "?", "missing", "unknown",
    "void", "\\n", "#null!", "#value!", "#div/0!",
})  # fmt: skip
_NUMBERS: Types = frozenset((LONG, DOUBLE))
_DATES: Types = frozenset((DATE, TIMESTAMP, TIMESTAMP_NTZ))
# Characters with which values begin, and numbers in any spelling; both are ASCII.
_VALUE_BEGINS, _SPELLING_BEGINS = frozenset("-0123456789tTfF"), frozenset(" \t+-.,0123456789")
_VALUES, _SPELLINGS = (
    np.isin(np.arange(256), list(map(ord, begins))) for begins in (_VALUE_BEGINS, _SPELLING_BEGINS)
)
_DIGIT = "[0-9]"
# Of numbers, as people write them. No \s, which Arrow and Python understand differently.
_SPELLING = (
    r"^[\t\n\f\r ]*[-+]?(?:[0-9][0-9.,' _]*|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?[\t\n\f\r ]*%?[\t\n\f\r ]*$"
)
_DIGIT_OF_TEXT, _SPELLING_OF_TEXT = re.compile(_DIGIT), re.compile(_SPELLING)
_WHOLE, _DATE, _BOOLEAN = "^-?[0-9]+$", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "^(?i:true|false)$"
_SHAPES = {
    BOOLEAN: _BOOLEAN,
    INT: _WHOLE,
    LONG: _WHOLE,
    DATE: _DATE,
    TIMESTAMP: INSTANT,
    TIMESTAMP_NTZ: CLOCK + "$",
}
_IN_ORDER = (INT.name, LONG.name, "decimal", FLOAT.name, DOUBLE.name, BOOLEAN.name, DATE.name, TIMESTAMP.name, TIMESTAMP_NTZ.name)  # fmt: skip
_BLOCK = 1024  # texts that are judged at once, where not all of them are of the type


class OddWord(NamedTuple):
    """A text without a digit: the number of its ``cells``, and the place of the first."""

    cells: int
    location: SourceLocation


@dataclass(frozen=True, slots=True)
class ColumnTally:
    """Counts of a column's texts.

    Attributes:
        types: those by which every text is written; all of them where there is none.
        count: the texts.
        written: the texts that are written as each type.
        numbers: the texts that are long or double.
        words: texts without a digit that are no values.
        many: there are more words than `WORDS`, and ``words`` has none.
        spelling: the first number in another spelling, such as 007, and its place.
    """

    types: Types = ALL
    count: int = 0
    written: Mapping[Primitive, int] = field(default_factory=dict)
    numbers: int = 0
    words: Mapping[str, OddWord] = field(default_factory=dict)
    many: bool = False
    spelling: tuple[str, SourceLocation] | None = None

    @property
    def type(self) -> Primitive:
        """The type of all texts; VOID if there is none, STRING if no type fits all."""
        return type_of([self.types])

    @property
    def most(self) -> Primitive | None:
        """The type that most texts have, the narrowest of several; None if none has one."""
        counts = {type_: count for type_, count in self.written.items() if count}
        return min(counts, key=lambda type_: (-counts[type_], _rank(type_))) if counts else None

    @property
    def is_typed(self) -> bool:
        """True if the column has a type at first sight, but for numbers in another spelling."""
        if (most := self.most) is None or (most in _NUMBERS and self.numbers > self.written[most]):
            return False
        return self.is_of_words(WORDS) or self.written[most] >= _MOST * self.count

    def is_of_words(self, limit: int) -> bool:
        """True if texts of one type stand beside few words.

        They are at least half of all, unless all words mean null.
        """
        values = self.written[self.most] if self.most else 0
        others = sum(word.cells for word in self.words.values())
        is_all = not self.many and values + others == self.count
        is_enough = values >= _HALF * self.count or (values > 0 and all(map(_is_null, self.words)))
        return is_all and len(self.words) <= limit and is_enough

    def merge(self, later: ColumnTally) -> ColumnTally:
        """Join the tally with that of texts behind these."""
        if not self.count:
            return later
        words = dict(self.words)
        for text, word in later.words.items():
            words[text] = (
                OddWord(words[text].cells + word.cells, words[text].location) if text in words else word
            )
        many = self.many or later.many or len(words) > WORDS
        return ColumnTally(
            self.types & later.types,
            self.count + later.count,
            Counter(self.written) + Counter(later.written),
            self.numbers + later.numbers,
            {} if many else words,
            many,
            self.spelling or later.spelling,
        )

    def below(self, lines: int) -> ColumnTally:
        """Move all places down by ``lines``."""
        if not (lines and (self.words or self.spelling)):
            return self

        def moved(place: SourceLocation) -> SourceLocation:
            return replace(place, line=(place.line or 0) + lines)

        words = {text: OddWord(word.cells, moved(word.location)) for text, word in self.words.items()}
        spelling = None if self.spelling is None else (self.spelling[0], moved(self.spelling[1]))
        return replace(self, words=words, spelling=spelling)


def tallied(texts: pa.Array, before: ColumnTally, signs: Signs, place: Place) -> ColumnTally:
    """Add texts to a tally.

    >>> at = lambda row: SourceLocation("a.csv", row + 2)
    >>> tally = tallied(pa.array(["39.1", "NA", None, "46.1", "007"]), ColumnTally(), Signs(), at)
    >>> tally.count, tally.written[DOUBLE], list(tally.words), tally.spelling[0]
    (4, 2, ['NA'], '007')
    """
    filled = texts.drop_null() if texts.null_count else texts
    if not len(filled):
        return before
    fitting = types_of(filled, before.types, signs) if before.types else before.types
    # A column that is mixed has other pieces of one type
    if not fitting and before.types != ALL:
        fitting = types_of(filled, ALL, signs)
    if fitting:
        written = {type_: len(filled) for type_ in fitting}
        numbers = len(filled) if fitting & _NUMBERS else 0
        return before.merge(ColumnTally(fitting, len(filled), written, numbers))
    judge = _of_few if len(texts) <= FEW else _of_mixed
    return before.merge(judge(texts, signs, place, before))


def _of_few(texts: pa.Array, signs: Signs, place: Place, before: ColumnTally) -> ColumnTally:
    """The tally that `_of_mixed` makes, of few texts: a file of few rows may have 100,000 columns."""
    written, numbers = Counter[Primitive](), 0
    words: dict[str, list[int]] = {}  # the rows of each
    spelling = before.spelling
    for row, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        # The first character settles most texts, without a call of Arrow's.
        types = types_of(pa.array([text]), ALL, signs) if text[:1] in _VALUE_BEGINS else ()
        written.update(types)
        numbers += any(type_ in _NUMBERS for type_ in types)
        if not types:
            if spelling is None and text[:1] in _SPELLING_BEGINS and _SPELLING_OF_TEXT.search(text):
                spelling = text, place(row)
            if _DIGIT_OF_TEXT.search(text) is None:
                words.setdefault(text, []).append(row)
    many = len(words) > WORDS
    known = {} if many or before.many else words
    odd = {word: OddWord(len(rows), place(rows[0])) for word, rows in known.items()}
    return ColumnTally(frozenset(), len(texts) - texts.null_count, written, numbers, odd, many, spelling)


def _of_mixed(texts: pa.Array, signs: Signs, place: Place, before: ColumnTally) -> ColumnTally:
    """The tally of texts of which not all have one type."""
    likely = np.flatnonzero(_begin_with(texts, _VALUES))
    likely_texts = texts.take(pa.array(likely))
    flags = {type_: flags_of(likely_texts, type_, signs) for type_ in ALL} if len(likely_texts) else {}
    is_value = np.zeros(len(texts), np.bool_)
    if flags:
        is_value[likely] = np.logical_or.reduce(list(flags.values()))
    others = np.flatnonzero(~is_value & texts.is_valid().to_numpy(zero_copy_only=False))
    numbers = int((flags[LONG] | flags[DOUBLE]).sum()) if flags else 0
    written = {type_: int(chosen.sum()) for type_, chosen in flags.items() if chosen.any()}
    leftover = texts.take(pa.array(others))
    count = len(texts) - texts.null_count
    tally = ColumnTally(frozenset(), count, written, numbers, spelling=before.spelling)
    if before.spelling is None:
        tally = replace(tally, spelling=_first_spelling(leftover, others, place))
    return tally if before.many else _with_words(tally, leftover, others, place, before)


def _first_spelling(
    leftover: pa.Array, rows: NDArray[np.int64], place: Place
) -> tuple[str, SourceLocation] | None:
    """The first text that is a number in another spelling, and its place."""
    begin = np.flatnonzero(_begin_with(leftover, _SPELLINGS))
    matches = pc.match_substring_regex(leftover.take(pa.array(begin)), _SPELLING)
    first = pc.index(matches, True).as_py()
    return None if first < 0 else (leftover[begin[first]].as_py(), place(int(rows[begin[first]])))


def _with_words(
    tally: ColumnTally, leftover: pa.Array, rows: NDArray[np.int64], place: Place, before: ColumnTally
) -> ColumnTally:
    """Count the texts without a digit, unless the beginning has too many."""
    for texts in (leftover[:_BLOCK], leftover):
        words = texts.filter(pc.invert(pc.match_substring_regex(texts, _DIGIT)))
        counts = {count["values"]: count["counts"] for count in pc.value_counts(words).to_pylist()}
        if len(counts) > WORDS:
            return replace(tally, many=True)
    locations = {
        word: before.words[word].location
        if word in before.words
        else place(int(rows[pc.index(leftover, word).as_py()]))
        for word in counts
    }
    return replace(tally, words={word: OddWord(count, locations[word]) for word, count in counts.items()})


def _begin_with(texts: pa.Array, codes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Flag the texts that begin with one of these bytes."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"\0", np.uint8)
    begins = np.minimum(offsets[:-1], len(data) - 1)
    flags: NDArray[np.bool_] = (offsets[1:] > offsets[:-1]) & codes[data[begins]]
    return flags


def flags_of(texts: pa.Array, type_: Primitive, signs: Signs, *, instants: bool = False) -> NDArray[np.bool_]:
    """Flag the texts that are written as values of a type; ``instants``: with any offset.

    >>> flags_of(pa.array(["1.50", "x", None, "007", "2"]), DOUBLE, Signs()).tolist()
    [True, False, False, False, True]
    """
    numbers = as_json(texts, signs) if type_ not in _SHAPES or _SHAPES[type_] == _WHOLE else texts
    likely = pc.match_substring_regex(numbers, _SHAPES.get(type_, NUMBER)).fill_null(False)
    flags: NDArray[np.bool_] = likely.to_numpy(zero_copy_only=False).copy()
    likely_texts = texts.filter(likely)
    # Only types that somebody asks for are tested by `declared_of`.
    is_declared = type_.name in NARROW or (type_ == TIMESTAMP and instants)
    test = partial(declared_of if is_declared else types_of, among=frozenset((type_,)), signs=signs)
    if len(likely_texts) and not test(likely_texts):
        blocks = (likely_texts[begin : begin + _BLOCK] for begin in range(0, len(likely_texts), _BLOCK))
        flags[flags] = np.concatenate([_block_flags(block, test) for block in blocks])
    return flags


def _block_flags(texts: pa.Array, test: Callable[[pa.Array], Types]) -> NDArray[np.bool_]:
    """Judge texts one by one, each once, unless all of them pass."""
    if test(texts):
        return np.ones(len(texts), np.bool_)
    different = pc.unique(texts)
    values = different.filter(pa.array([bool(test(different[i : i + 1])) for i in range(len(different))]))
    flags: NDArray[np.bool_] = pc.is_in(texts, value_set=values).to_numpy(zero_copy_only=False)
    return flags


def by_cells(
    types: Sequence[Primitive], signs: Signs, texts: pa.Array, *, instants: bool = False
) -> list[pa.Array]:
    """Read each text as the first of these types as which it is written, of which the last is text.

    >>> [column.to_pylist() for column in by_cells([LONG, STRING], Signs(), pa.array(["7", "NA", "007"]))]
    [[7, None, None], [None, 'NA', '007']]
    """
    free = texts.is_valid().to_numpy(zero_copy_only=False)
    none = pa.scalar(None, pa.string())
    columns = []
    for type_ in types[:-1]:
        flags = flags_of(texts, type_, signs, instants=instants) & free
        free = free & ~flags
        columns.append(cast(pc.if_else(pa.array(flags), texts, none), arrow_type(type_), signs))
    return [*columns, pc.if_else(pa.array(free), texts, none)]


def cell_types(type_: Primitive, tally: ColumnTally, table_types: Types, dates: str) -> Sequence[Primitive]:
    """Return the types by which the cells of a column are judged one by one, text the last.

    Args:
        type_: the type of the whole column.
        tally: its texts.
        table_types: the types of the table's columns for the field.
        dates: the setting.

    Returns:
        No type where the whole column has one.

    >>> table_types = frozenset({DOUBLE, STRING})
    >>> [[str(t) for t in cell_types(t, ColumnTally(), table_types, "on")] for t in (STRING, LONG)]
    [['double', 'long', 'string'], []]
    """
    typed = sorted((t for t in table_types if t.name in _IN_ORDER), key=_rank)
    typed = [t for t in typed if dates != "off" or t not in _DATES]
    if typed:
        is_narrow = any(t.name in NARROW for t in typed)
        if type_ in typed or not (type_ == STRING or (type_ in _NUMBERS and is_narrow)):
            return ()
        # A number that the field's columns do not hold is none the less a number.
        numbers = (LONG, DOUBLE) if any(_rank(t) <= _rank(DOUBLE) for t in typed) else ()
        return (*dict.fromkeys((*typed, *numbers)), STRING)
    is_first = not table_types and type_ == STRING and tally.is_typed and tally.spelling is None
    is_off = dates == "off" and tally.most in _DATES
    return (tally.most, STRING) if is_first and tally.most and not is_off else ()


def _is_null(word: str) -> bool:
    """True for a word that people write for null."""
    return word.lower() in _NULLS


def _rank(type_: Primitive) -> tuple[int, tuple[object, ...]]:
    return _IN_ORDER.index(type_.name), type_.args


def word_hints(columns: Mapping[str, ColumnTally], dialect: Dialect) -> Iterator[str]:
    """Yield hints at the words that stand among the values of columns; ``dialect``: that of the table."""
    numeric: dict[str, str] = {}
    places: dict[str, str] = {}
    for name, tally in columns.items():
        if tally.spelling is not None or not tally.is_of_words(_NULL_WORDS) or not tally.words:
            continue
        nulls = [word for word in tally.words if _is_null(word)]
        for word in nulls:
            count, first = tally.words[word]
            places.setdefault(word, f"{word} stands in {count} of {counted(tally.count, 'cell')} ({first})")
        if len(nulls) == len(tally.words):
            numeric[name] = f"{name} {tally.most}"
        else:
            others = [(word, entry) for word, entry in tally.words.items() if word not in nulls]
            count = sum(entry.cells for _, entry in others)
            shown = ", ".join(f"{word} ({entry.location})" for word, entry in others)
            yield f"{name}: {counted(count, 'cell is', 'cells are')} text: {shown}"
    if numeric:
        texts = ",".join(dict.fromkeys((*dialect.null_texts, *places)))
        yield f"{Dialect(nulls=texts).flags} would make {', '.join(numeric.values())}: {', '.join(places.values())}"


def spelling_hints(columns: Mapping[str, ColumnTally]) -> Iterator[str]:
    """Yield the hints that make numbers of new columns, which are text for a number in another spelling."""
    for name, tally in columns.items():
        if tally.spelling is not None and tally.most in _NUMBERS and tally.numbers >= _HALF * tally.count:
            text, first = tally.spelling
            why = f"it is text for {text} ({first}), which then stays text beside the numbers"
            yield toml_line("hints", (name,), str(tally.most), why)
