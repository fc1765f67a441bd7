"""Holds records against a table's expectations, as they came, before a column is chosen (section 15)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from operator import length_hint
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, defstruct, json
from numpy.typing import NDArray

from driftline.convert.rest import row_texts
from driftline.core.schema.types import Path, SourceLocation, Struct
from driftline.core.settings.condition import (
    Condition,
    Expectation,
    Inequality,
    IsNull,
    Junction,
    KeyAlone,
    Like,
    Negation,
    OneOf,
    Operator,
    leaves_of,
    paths_of,
)
from driftline.core.support import gc_paused
from driftline.core.values import Malformed, Number, RefusedText, parse, reason
from driftline.keys.filling import Test, are_like, doubles_at, holds, record_test
from driftline.observe.decoder import REFUSED, UNSPEAKABLE, doubtful
from driftline.observe.observation import Violations, sample
from driftline.readers.deletes import fields_type

if TYPE_CHECKING:
    from driftline.observe.json_lines import LineNumbers, LineOutcome


_NumberedTest: TypeAlias = "tuple[int, Test]"


class ExpectationCheck:
    """Finds the records that do not meet expectations, and counts them.

    A record is set aside by the first expectation that says so, and counts there alone. Each expectation that
    sets none aside counts all. A condition that is unknown holds.
    """

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self.expectations = expectations
        self._tests = [(number, record_test(e.condition)) for number, e in enumerate(expectations)]
        self._aside = [e.action == "quarantine" for e in expectations]
        self._keys = [list(dict.fromkeys(path[0] for path in paths_of(e.condition))) for e in expectations]
        self._violations: dict[str, Violations] = {}

    @gc_paused()
    def lines(
        self, lines: Sequence[bytes], deletes: NDArray[np.bool_] | None, source: str, line: LineNumbers
    ) -> Sequence[bytes]:
        """Replace lines of JSON that are to be set aside by texts that are no records.

        Args:
            lines: the lines.
            deletes: flags of records that delete, of which nothing is expected.
            source: the name of their source.
            line: the number of the first, or of each.
        """
        texts = list(lines)
        for place, tests in self._suspects(lines):
            text = lines[place]
            if deletes is not None and deletes[place]:
                continue
            number = line + place if isinstance(line, int) else line[place]
            texts[place] = self._judged(text, tests, SourceLocation(source, number))
        return texts

    def line(self, text: bytes, location: SourceLocation) -> bytes:
        """Replace a line of JSON that is to be set aside by a text that is no record."""
        return self._judged(text, self._tests, location)

    def _judged(self, text: bytes, tests: Sequence[_NumberedTest], location: SourceLocation) -> bytes:
        record = self._read(text, all_fields=tests is self._tests)
        violated = [] if record is None else [n for n, test in tests if test(record) is False]
        # The decoder reads only what the conditions ask for, so the line may still be no record.
        if not violated or reason(text) is not None:
            return text
        aside = self._count(violated, record, location)
        return text if aside is None else RefusedText.of(text, self.expectations[aside].reason)

    def rows(
        self,
        batch: pa.RecordBatch,
        struct: Struct,
        deletes: pa.Array | None,
        place_of: Callable[[int], SourceLocation],
        fields_of: Callable[[int], Mapping[str, Any]] | None = None,
    ) -> NDArray[np.int64]:
        """Return for each row the number of the expectation that sets it aside; -1 if none does.

        Args:
            batch: the rows, as they came.
            struct: the types of the columns by key, which may have several.
            deletes: flags of rows that delete, or of others of which nothing is expected.
            place_of: returns the place of a row.
            fields_of: returns the fields of a row as they were written, if that was otherwise.
        """
        aside = np.full(len(batch), -1, np.int64)
        for number, expectation in enumerate(self.expectations):
            flags = pc.invert(holds(expectation.condition, batch, struct)).fill_null(False)
            if deletes is not None:
                flags = pc.and_not(flags, deletes)
            violates = flags.to_numpy(zero_copy_only=False)
            if self._aside[number]:
                violates = violates & (aside < 0)
                aside[violates] = number
            rows = np.flatnonzero(violates)
            if len(rows):
                location = place_of(int(rows[0]))
                fields: Mapping[str, Any] = {}
                if self._first(number, location):
                    row = int(rows[0])
                    fields = self._asked(batch, struct, row) if fields_of is None else fields_of(row)
                self._add(number, len(rows), fields, location)
        return aside

    def near(self, batch: pa.RecordBatch, struct: Struct) -> list[int]:
        """Return the rows with a double that is that of a literal it is compared with, other than zero."""
        flags = pa.repeat(False, len(batch))
        for expectation in self.expectations:
            for leaf in leaves_of(expectation.condition):
                numbers = [float(bound) for bound in _bounds(leaf) if bound]
                if numbers and not isinstance(leaf, KeyAlone):
                    for array in doubles_at(batch, struct, leaf.path):
                        flags = pc.or_(flags, pc.is_in(array, pa.array(numbers)))
        rows: list[int] = np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist()
        return rows

    def fields_of(self, line: bytes) -> Mapping[str, Any]:
        """Return the fields of a line of JSON that expectations ask for; none if it is no record."""
        return self._read(line, all_fields=True) or {}

    def whole(
        self, records: Sequence[bytes], deletes: NDArray[np.bool_] | None, location: SourceLocation
    ) -> Sequence[bytes]:
        """Return what `lines` does of the records of one message, and count them only if one is set aside."""
        before = dict(self._violations)
        texts = self.lines(records, deletes, location.source, [location.line] * len(records))
        if not any(isinstance(record, RefusedText) for record in texts):
            self._violations = before  # each record is looked at again
        return texts

    @property
    def violations(self) -> dict[str, Violations]:
        """The violations so far, by name."""
        return dict(self._violations)

    def drain(self) -> dict[str, Violations]:
        """Return the violations since the last call, by name."""
        violations, self._violations = self._violations, {}
        return violations

    def _suspects(self, lines: Sequence[bytes]) -> Iterable[tuple[int, Sequence[_NumberedTest]]]:
        """Yield the places of lines that may not meet an expectation, with the tests that tell."""
        certain, others = self._certain
        if certain is None:
            yield from ((place, self._tests) for place in range(len(lines)))
            return
        suspects = certain.suspects(lines)
        if others:
            yield from ((place, self._tests if place in suspects else others) for place in range(len(lines)))
        else:
            yield from ((place, self._tests) for place in sorted(suspects))

    def _read(self, text: bytes, *, all_fields: bool) -> Any:
        try:
            return (self._decode if all_fields else self._decode_others)(text)
        except REFUSED:
            try:
                return parse(text)
            except Malformed:
                return None

    def _count(
        self, violated: Sequence[int], fields: Mapping[str, Any], location: SourceLocation
    ) -> int | None:
        """Count a record's violations, and return the one that sets it aside, if any does."""
        aside = next((number for number in violated if self._aside[number]), None)
        for number in violated:
            if number == aside or not self._aside[number]:
                self._add(number, 1, fields, location)
        return aside

    def _first(self, number: int, location: SourceLocation) -> bool:
        """True if no violation of the expectation stands before the place."""
        before = self._violations.get(self.expectations[number].name)
        return before is None or location < before.location

    def _add(self, number: int, count: int, fields: Mapping[str, Any], location: SourceLocation) -> None:
        """Count violations, of which the first has the fields that conditions ask for."""
        name = self.expectations[number].name
        before = self._violations.get(name)
        # A sample is spelled for the first record alone
        if self._first(number, location):
            count += 0 if before is None else before.count
            sampled = {key: fields[key] for key in self._keys[number] if key in fields}
            self._violations[name] = Violations(location, sample(sampled), count)
        elif before is not None:
            self._violations[name] = replace(before, count=before.count + count)

    def _asked(self, batch: pa.RecordBatch, struct: Struct, row: int) -> Mapping[str, Any]:
        """Return the fields of a row that expectations ask for."""
        keys = {key for of_one in self._keys for key in of_one}
        places = [place for place, f in enumerate(struct.fields) if f.name in keys]
        if not places:
            return {}
        fields = Struct(tuple(struct.fields[place] for place in places))
        columns = [batch.column(place).slice(row, 1) for place in places]
        part = pa.RecordBatch.from_arrays(columns, [f.name for f in fields.fields])
        (text,) = row_texts(part, fields)
        record: Mapping[str, Any] = parse(text)
        return record

    @cached_property
    def _certain(self) -> tuple[_CertainLines | None, Sequence[_NumberedTest]]:
        """Return what lines meet expectations for certain, and the tests of all others."""
        certain, others = _CertainField(), list[_NumberedTest]()
        for numbered, expectation in zip(self._tests, self.expectations, strict=True):
            # Its own first: what it adds must not stay behind if types do not tell it.
            if _CertainField().require(expectation.condition) and certain.require(expectation.condition):
                continue
            others.append(numbered)
        type_ = certain.type() if len(others) < len(self._tests) else None
        return (None, ()) if type_ is None else (_CertainLines(type_, [*certain.patterns()]), others)

    @cached_property
    def _decode(self) -> Any:
        return _decoder(self.expectations)

    @cached_property
    def _decode_others(self) -> Any:
        return _decoder([self.expectations[number] for number, _ in self._certain[1]])


def _bounds(leaf: Condition) -> list[Decimal]:
    """Return the numbers with which a field is compared."""
    match leaf:
        case Inequality(_, _, Decimal() as bound):
            return [bound]
        case OneOf(_, values):
            return [value for value in values if type(value) is Decimal]
    return []


def _decoder(expectations: Sequence[Expectation]) -> Any:
    """Return a decoder of the fields that conditions ask for; it skips the others."""
    paths = dict.fromkeys(path for e in expectations for path in paths_of(e.condition))
    return json.Decoder(fields_type(list(paths)), float_hook=Number).decode


class _CertainLines:
    """The lines that a type of msgspec takes, and whose texts match patterns of LIKE.

    Args:
        patterns: each with the names that lead to its text in the type.
    """

    def __init__(self, type_: Any, patterns: Sequence[tuple[Sequence[str], str]]) -> None:
        self._decode = json.Decoder(type_).decode
        self._patterns = patterns

    def suspects(self, lines: Sequence[bytes]) -> set[int]:
        """Return the places of all other lines."""
        # Reading each line into Python would cost as much as ingesting it. This loop runs in C.
        todo, suspects = iter(lines), set[int]()
        records: list[Any] | deque[Any] = [] if self._patterns else deque(maxlen=0)
        while length_hint(todo):
            try:
                records.extend(map(self._decode, todo))
            except REFUSED:
                place = len(lines) - length_hint(todo) - 1
                suspects.add(place)
                if self._patterns:
                    suspects.update(range(len(records), place))
                    records.extend([None] * (place + 1 - len(records)))
        for names, pattern in self._patterns:
            # A call of Python's for each text, as msgspec makes it, would take four times as long.
            texts = pa.array(_inside(records, names), pa.large_string())
            suspects.update(np.flatnonzero(pc.invert(are_like(texts, pattern)).fill_null(False)).tolist())
        return suspects


def _inside(records: Iterable[Any], names: Sequence[str]) -> list[Any]:
    for name in names:
        records = [None if record is None else getattr(record, name) for record in records]
    return list(records)


_ANY = int | float | str | bool | list[Any] | dict[str, Any]
_FAR = 2**62


def _name(number: int) -> str:
    """Return the name in the type of the field of this number."""
    return f"f{number}"


@dataclass(slots=True)
class _CertainField:
    """The values of a field, or record, of which conditions are not false, as far as types of msgspec tell.

    Attributes:
        required: null does not meet them.
        low: doubles beyond it do, and integers from ``least`` on; ``high`` and ``most`` likewise.
        pattern: texts that match this one of LIKE do, which types do not tell.
        texts: these do.
    """

    fields: dict[str, _CertainField] = field(default_factory=dict)
    required: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    least: int | None = None
    most: int | None = None
    pattern: str | None = None
    texts: frozenset[str] | None = None

    def require(self, condition: Condition) -> bool:
        """Add a condition; False if types do not tell what meets it."""
        match condition:
            case Junction(parts, any_of=False):
                return all(map(self.require, parts))
            case Negation(IsNull(path)):
                node = self
                for key in path:
                    node = node.fields.setdefault(key, _CertainField())
                    node.required = True
                return True
            case Inequality(path, operator, Decimal() as bound):
                return self._at(path)._bounded(operator, bound)
            # msgspec refuses half of a surrogate pair, which is not printable.
            case OneOf(path, values) if all(type(value) is str and value.isprintable() for value in values):
                return self._at(path)._among(frozenset(map(str, values)))
            case Like(path, pattern):
                return self._at(path)._matching(pattern)
        return False

    def type(self) -> Any:
        """Return the type of the values; None if msgspec has none."""
        if not self.fields:
            return self._leaf()
        if self._of_values or any(map(UNSPEAKABLE.search, self.fields)):
            return None
        types = {key: inside.type() for key, inside in self.fields.items()}
        if None in types.values():
            return None
        names = {_name(number): key for number, key in enumerate(types)}
        fields: list[Any] = [
            (name, types[key]) if self.fields[key].required else (name, types[key] | None, None)
            for name, key in names.items()
        ]
        return defstruct("Certain", fields, rename=names, kw_only=True, gc=False)

    def patterns(self) -> Iterator[tuple[Sequence[str], str]]:
        """Yield the patterns, each with the names that lead to its text in the type."""
        if self.pattern is not None:
            yield (), self.pattern
        for number, inside in enumerate(self.fields.values()):
            yield from (((_name(number), *names), pattern) for names, pattern in inside.patterns())

    def _at(self, path: Path) -> _CertainField:
        node = self
        for key in path:
            node = node.fields.setdefault(key, _CertainField())
        return node

    def _bounded(self, operator: Operator, bound: Decimal) -> bool:
        if operator in (">", ">="):
            least = math.ceil(bound) if operator == ">=" else math.floor(bound) + 1
            self.low = bound if self.low is None else max(self.low, bound)
            self.least = least if self.least is None else max(self.least, least)
        else:
            most = math.floor(bound) if operator == "<=" else math.ceil(bound) - 1
            self.high = bound if self.high is None else min(self.high, bound)
            self.most = most if self.most is None else min(self.most, most)
        return abs(bound) < _FAR

    def _matching(self, pattern: str) -> bool:
        if self.pattern is not None or self.texts is not None:
            return False
        self.pattern = pattern
        return True

    def _among(self, texts: frozenset[str]) -> bool:
        both = texts if self.texts is None else self.texts & texts
        if self.pattern is not None or not both:
            return False
        self.texts = both
        return True

    @property
    def _of_values(self) -> bool:
        return (self.low, self.high, self.pattern, self.texts) != (None, None, None, None)

    def _leaf(self) -> Any:
        if self.low is None and self.high is None:
            # Looked up in a fraction of the time that a pattern takes
            if self.texts is not None:
                return Literal[*sorted(self.texts)]
            return _ANY if self.pattern is None else str
        if self.pattern is not None or self.texts is not None:
            return None
        # A double beyond the bound's own is a number beyond the bound. One that equals it is looked at.
        double = Meta(
            gt=None if self.low is None else float(self.low),
            lt=None if self.high is None else float(self.high),
        )
        # Texts are unknown, which holds.
        return Annotated[int, Meta(ge=self.least, le=self.most)] | Annotated[float, double] | str


# Returns flags of the records to keep, None for all, given what was parsed of them and their lines' places
Kept: TypeAlias = "Callable[[pa.RecordBatch | None, Sequence[int]], NDArray[np.bool_] | None]"


class LinesInColumns:
    """Holds lines that were parsed as columns against expectations.

    Attributes:
        aside: the expectation that sets a line aside, by its place.
    """

    def __init__(
        self,
        check: ExpectationCheck,
        usual: Struct,
        lines: Sequence[bytes],
        looked: Sequence[LineOutcome],
        deletes: pa.Array | None,
        location: Callable[[int], SourceLocation],
    ) -> None:
        """Begin with nothing set aside.

        Args:
            check: the expectations.
            usual: the types of the columns.
            lines: the lines of all runs.
            looked: those that were judged by themselves, before they were observed.
            deletes: flags of records that delete, of which nothing is expected.
            location: returns where a line stands, by its place.
        """
        self._check, self._usual, self._lines, self._location = check, usual, lines, location
        self._done = np.zeros(len(lines), np.bool_)
        self._done[[place for place, _ in looked]] = True
        if deletes is not None:
            self._done |= deletes.to_numpy(zero_copy_only=False)
        self.aside: dict[int, str] = {}

    def kept(self, batch: pa.RecordBatch | None, places: Sequence[int]) -> NDArray[np.bool_] | None:
        """Flag the records that stay; None for all. Without their columns they are read one by one."""
        before, where = len(self.aside), np.asarray(places)
        if batch is None:
            for place in places:
                self._judge(place)
        else:
            self._judge_columns(batch, places, where)
        return None if len(self.aside) == before else np.isin(where, [*self.aside], invert=True)

    def _judge(self, place: int) -> None:
        if not self._done[place]:
            text = self._check.line(self._lines[place], self._location(place))
            if isinstance(text, RefusedText):
                self.aside[place] = str(text.why)

    def _judge_columns(self, batch: pa.RecordBatch, places: Sequence[int], where: NDArray[np.int64]) -> None:
        def location(row: int) -> SourceLocation:
            return self._location(places[row])

        def fields(row: int) -> Mapping[str, Any]:
            return self._check.fields_of(self._lines[places[row]])

        # A text of more digits may be beside a literal whose double it has.
        near = [places[row] for row in self._check.near(batch, self._usual)]
        for number in doubtful([self._lines[place] for place in near], strictly=True) if near else ():
            self._judge(near[number])
            self._done[near[number]] = True
        done = pa.array(self._done[where]) if self._done.any() else None
        numbers = self._check.rows(batch, self._usual, done, location, fields)
        for row in np.flatnonzero(numbers >= 0).tolist():
            self.aside[places[row]] = self._check.expectations[numbers[row]].reason
