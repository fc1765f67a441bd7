"""Observes JSON lines: every type at every path of every record, without sampling."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import length_hint
from typing import Any, NamedTuple, TypeAlias

from msgspec import DecodeError, json

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict
from driftline.core.planning.shape import Facet, FieldShape, RecordShape
from driftline.core.schema.types import Path, SourceLocation, dotted
from driftline.core.settings.condition import EXPECT
from driftline.core.settings.fields import excluded_paths
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused
from driftline.core.values import Malformed, RefusedText, parse, reason
from driftline.observe.decoder import NOTHING, REFUSED, Decoder, FieldDecoders, build, doubtful
from driftline.observe.expect import ExpectedField, steady
from driftline.observe.observation import (
    REASONS,
    SAMPLE,
    Observation,
    RejectSample,
    Tally,
    copied,
    first_places,
    merge_observations,
    sample,
)
from driftline.observe.walk import MANY_KEYS, Walker

# Shapes whose verdict is kept: most records that do not fit fail in one way
_REMEMBERED = 10_000


class AdmissionByShape:
    """Admits records by the check; records of one shape share a verdict."""

    def __init__(self, check: AdmissionCheck, expected: ExpectedField, dates: str) -> None:
        self._check, self._expected, self._dates = check, expected, dates
        self._verdicts: dict[object, Conflict | None] = {}

    def conflict(self, record: Mapping[str, object], source: str, line: int) -> Conflict | None:
        """Return the reason to refuse a record; None if it is accepted.

        Sample and place may be those of a record of the same shape.
        """
        # A walker for this record alone: what other records have must not decide if this one is accepted.
        walker = Walker(self._expected, self._dates)
        walker.walk(record, source, line)
        signature = _signature(walker.shape)
        if signature not in self._verdicts:
            # Memory stays bounded where each record has a shape of its own; a verdict is only asked for
            # again.
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[signature] = self._check.conflict(walker.shape)
        return self._verdicts[signature]


def _signature(shape: RecordShape) -> object:
    """Return a hashable form of a shape, without places and samples."""
    return tuple((key, _field(field)) for key, field in shape.fields.items())


def _field(field: FieldShape) -> object:
    facets: list[Any] = [
        (
            facet,
            (profile.wide, profile.fraction, profile.far, profile.ragged, profile.digits),
            None if profile.record is None else _signature(profile.record),
            None if profile.value is None else _field(profile.value),
        )
        for facet, profile in field.facets.items()
    ]
    return field.empty_lists, field.empty_record, field.missing, field.absent, tuple(facets)


__all__ = ["JsonObserver", "reason"]

_CHUNK = 2000  # lines that are screened at once
_CHUNK_BYTES = 16 * 2**20
# What a decoder costs, and what lines cost for want of it, both in keys of lines. A clock in their place
# would build other decoders in each run, at times twice as many. A key takes 0.7 to 3 µs to walk.
_TO_BUILD = 12  # for each thing that a decoder knows: 3 to 12 µs
_APART = 0.25  # for each key of a line that is decoded alone, not with the others
_AT_FIRST = 600  # of the first exact decoder: a few lines are not worth one

LineNumbers: TypeAlias = "int | Sequence[int]"  # of the first of some lines, or of each
Why: TypeAlias = "str | Conflict"  # a line is no record, or is refused
Judge: TypeAlias = "Callable[[int], bytes]"
# A line that was looked at, by its place, and why it is not taken
LineOutcome: TypeAlias = "tuple[int, Why | None]"


class JsonObserver:
    """Observes the lines it is fed, against the table's columns (``expected``).

    A decoder, typed by the lines so far, reads them. It takes only lines that would add nothing; any other is
    walked, and the decoder is rebuilt once the walks have cost as much as building it does.
    """

    def __init__(
        self,
        expected: ExpectedField,
        settings: TableSettings,
        check: AdmissionCheck | None = None,
        usual: Callable[[RecordShape], RecordShape] | None = None,
        many: int = MANY_KEYS,
        before: RecordShape | None = None,
    ) -> None:
        """Start without any lines.

        Args:
            expected: the table's columns.
            settings: the table's settings.
            check: records that it does not accept are counted as rejected, not observed.
            usual: returns the part of a shape that the decoder takes; lines with more are walked.
            many: the number of an object's keys that are kept apart before they are checked for data.
            before: the shape of earlier lines, or of the first of these; it counts as observed.
        """
        self._expected, self._settings = expected, settings
        self._folds_at = many if settings.fields.folds else None
        # Before a check nothing counts as seen: a record that the decoder takes would not be judged.
        self._before = RecordShape() if before is None or check is not None else before
        self._excluded = Excluded(list(excluded_paths(settings.fields)))
        self._admission = None if check is None else AdmissionByShape(check, expected, settings.dates)
        self._fast = _Adaptive(exact=False, part=usual)
        self._exact = _Adaptive(exact=True, at_first=_AT_FIRST)
        self._done = Observation()
        self._begin()

    def _begin(self) -> None:
        self._drained = False
        # What the table has, costs no look; but each record before the check is inspected.
        shape = steady(self._expected) if self._admission is None else RecordShape()
        shape.fields.update(copied(self._before).fields)
        self._walker = Walker(
            self._expected,
            self._settings.dates,
            shape,
            folds_at=self._folds_at,
            empty_names=self._settings.keep_empty_names,
        )
        self._fast.begin(self._walker)
        self._exact.begin(self._walker)
        self._lines = self._blank = self._malformed = 0
        self._bad: list[RejectSample] = []
        self._refused: dict[tuple[Path, Facet | None], tuple[SourceLocation, ...]] = {}
        self._next = SourceLocation()

    @gc_paused()
    def feed(
        self, lines: Sequence[bytes], source: str, line: LineNumbers, judge: Judge | None = None
    ) -> list[LineOutcome]:
        """Observe JSON lines of one record each; a blank one only counts as a line.

        Args:
            lines: the lines.
            source: the name of their source.
            line: the number of the first, or of each in rising order if they have gaps.
            judge: returns the line of a place, or a text in place of one that is to be refused; it is asked
                only about lines that the decoder does not take, as these alone add to the observation.

        Returns:
            The lines that the decoder did not take.
        """
        # Of Kafka's values each has its own offset.
        numbers = range(line, line + len(lines)) if isinstance(line, int) else line
        if not lines:
            return []
        if self._drained:
            self._begin()
        elif SourceLocation(source, numbers[0]) < self._next:
            # First places are minima: what was learnt further down may not hide what stands before.
            self._done = self.result()
            self._begin()
        self._next = SourceLocation(source, numbers[-1] + 1)
        self._lines += len(lines)
        self._excluded.feed(lines)
        position = 0
        outcomes: list[LineOutcome] = []
        while position < len(lines):
            chunk = lines[position : position + _CHUNK]
            # A chunk is joined into one text to be screened, so long lines go in smaller numbers.
            while len(chunk) > 1 and sum(map(len, chunk)) > _CHUNK_BYTES:
                chunk = chunk[: len(chunk) // 2]
            outcomes += [
                (position + place, why)
                for place, why in self._chunk(chunk, source, numbers[position:], position, judge)
            ]
            position += len(chunk)
        return outcomes

    @property
    def version(self) -> int:
        """A counter that rises with all that the lines add, and with rejected lines."""
        return self._walker.version + self._malformed

    @property
    def fields(self) -> FieldDecoders:
        """Decoders, by key, of values of the types that the line decoder takes."""
        return self._fast.decoder().fields

    def result(self) -> Observation:
        """Return the final observation; call it after the last line."""
        if self._drained:
            return self._done
        records = self._lines - self._blank - self._malformed
        dropped = Counter(self._walker.dropped)
        tally = Tally(records, self._malformed, dropped, tuple(self._bad), refused=dict(self._refused))
        # The walker begins with the table's steady shape, which no record has confirmed here.
        shape = self._walker.shape if records else RecordShape()
        merged = merge_observations([self._done, Observation(shape, tally, self._lines)])
        return replace(merged, tally=replace(merged.tally, excluded=Counter(self._excluded.counts)))

    def drain(self) -> Observation:
        """Return the observation so far; lines fed from now on are observed separately."""
        result, self._done = self.result(), Observation()
        self._excluded.counts.clear()
        # Only before further lines: to begin costs time with each column, and most tasks are at their end.
        self._drained = True
        return result

    def _chunk(
        self, lines: Sequence[bytes], source: str, numbers: Sequence[int], begin: int, judge: Judge | None
    ) -> Iterator[LineOutcome]:
        position, doubts = 0, None
        while position < len(lines):
            fast = self._fast.decoder()
            stop = len(lines)
            if fast.doubles:
                if doubts is None:
                    doubts = doubtful(lines)
                doubt = bisect_left(doubts, position)
                stop = doubts[doubt] if doubt < len(doubts) else stop
            todo = iter(lines[position:stop])
            try:
                # The loop runs in C. The line that failed has left the iterator, so what remains tells its
                # position.
                deque(map(fast.decode, todo), maxlen=0)
                position = stop
            except REFUSED:
                position = stop - length_hint(todo) - 1
            if position < len(lines):
                line = lines[position] if judge is None else judge(begin + position)
                yield position, self.inspect(line, source, numbers[position])
                position += 1

    def inspect(self, line: bytes, source: str, number: int) -> Why | None:
        """Walk a line that the fast decoder did not take, unless the exact one takes it.

        Returns:
            The reason that it is no record of the table; None if it is one.
        """
        if isinstance(line, RefusedText):
            return self._walk(line, source, number)  # no decoder would have taken it
        keys = line.count(b'":')
        try:
            self._exact.decoder().decode(line)
            # The exact decoder reads fractions by their text, so it takes what the fast one has to doubt.
            self._fast.missed(_APART * keys)
            return None
        except REFUSED:
            version_before = self._walker.version
            why = self._walk(line, source, number)
            self._fast.missed(keys)
            # The walk added nothing: the exact decoder only lacked what the walker knew by then.
            if version_before == self._walker.version:
                self._exact.missed(keys)
            return why

    def _walk(self, line: bytes, source: str, number: int) -> Why | None:
        if not line.strip():
            self._blank += 1
            return None
        why: Why | None = None
        try:
            record = parse(line)
            why = self._admission.conflict(record, source, number) if self._admission is not None else None
            if why is None:
                self._walker.walk(record, source, number)
        except Malformed as error:
            why = error.why
        if isinstance(why, Conflict):
            before = self._refused.get(why.refuses, ())
            self._refused[why.refuses] = first_places((*before, SourceLocation(source, number)))
        if why is not None:
            self._malformed += 1
            # An expectation has its own count and sample.
            if len(self._bad) < REASONS and not str(why).startswith(EXPECT):
                text = line[: 4 * SAMPLE].decode(errors="backslashreplace")
                self._bad.append(RejectSample(SourceLocation(source, number), str(why), sample(text)))
        return why


def rejected_of(
    lines: Sequence[bytes], outcomes: Sequence[LineOutcome], everything: str | None = None
) -> Iterator[tuple[int, Why]]:
    """Yield the rejected lines by place, with the reasons.

    With a reason for ``everything``, all lines but blank ones are rejected.
    """
    reasons = {place: why for place, why in outcomes if why is not None}
    for place in range(len(lines)) if everything is not None else reasons:
        why = reasons.get(place, everything)
        if why is not None and lines[place].strip():
            yield place, why


class _Adaptive:
    """A decoder that is rebuilt as the walker learns, for all it knows or for a ``part`` of it.

    It is rebuilt once walks that a better decoder would have saved have cost as much, counted in keys; first
    after ``at_first`` of them.
    """

    def __init__(
        self, *, exact: bool, at_first: int = 0, part: Callable[[RecordShape], RecordShape] | None = None
    ) -> None:
        self._exact, self._part, self._at_first = exact, part, at_first
        self._first: _Built | None = None  # of what each walker knows at first

    def begin(self, walker: Walker) -> None:
        """Start again, with a walker that knows what each previous walker knew at first."""
        self._walker, self._folded, self._missed = walker, walker.folded, 0.0
        # Each file begins with the same knowledge, so the first decoder is built once for all of them.
        self._built = self._first or _Built(NOTHING, None)
        self._knows = -1 if walker.shape.fields and self._first is None else 0

    def missed(self, keys: float) -> None:
        """Count the keys of a walk that a better decoder would have saved."""
        self._missed += keys

    def decoder(self) -> Decoder:
        """Return the decoder, rebuilt first if walks have become costly, or keys were folded into a map."""
        version = self._walker.version
        cost = _TO_BUILD * version if self._knows > 0 else self._at_first
        folded = self._walker.folded != self._folded  # then there is far less to know
        if folded or (version != self._knows and self._missed >= cost):
            self._folded = self._walker.folded
            self._knows, self._missed = version, 0.0
            self._build()
        return self._built.decoder

    def _build(self) -> None:
        walker, begins = self._walker, not self._walker.version
        if self._part is not None:
            # A copy: what is learnt later would pass as usual, and the column parser would skip it.
            to_decode = walker.beginning_with(self._part(walker.shape))
            # What was learnt is outside the usual part: another decoder would take the same lines.
            if to_decode.shape == self._built.takes:
                return
        else:
            # One that is used again may not know what the walker learns meanwhile.
            to_decode = walker.beginning_with(copied(walker.shape)) if begins else walker
        self._built = _Built(build(to_decode, exact=self._exact), to_decode.shape)
        if begins:
            self._first = self._built


class _Built(NamedTuple):
    """A decoder, and the shape that it takes."""

    decoder: Decoder
    takes: RecordShape | None


_record = json.Decoder(dict[str, object]).decode


class Excluded:
    """Counts, in ``counts``, the records with a value at each of the paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.counts: Counter[str] = Counter()

    def feed(self, lines: Iterable[bytes]) -> None:
        """Count in JSON lines; a line that is no object has no such value."""
        for line in lines if self.paths else ():
            try:
                record = _record(line)
            except (DecodeError, RecursionError, ValueError):
                continue
            for path in self.paths:
                if _has_value(record, path):
                    self.counts[dotted(path)] += 1


def _has_value(value: object, path: Path) -> bool:
    if isinstance(value, list):
        inside = path[1:] if path[:1] == ("element",) else path
        return any(_has_value(item, inside) for item in value)
    if not path:
        return value is not None
    if not isinstance(value, dict):
        return False
    if path[0] == "value" and "value" not in value:
        return any(_has_value(item, path[1:]) for item in value.values())
    return path[0] in value and _has_value(value[path[0]], path[1:])
