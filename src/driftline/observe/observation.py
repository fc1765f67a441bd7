"""The observation of a batch: its shape, its counts, and samples of its values."""

from __future__ import annotations

import json
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driftline.core.planning.shape import Facet, FieldShape, Profile, RecordShape
from driftline.core.schema.types import Path, SourceLocation
from driftline.core.support import gc_paused
from driftline.core.values import Number

REASONS = 5  # malformed records that are kept as examples
FILES = 4  # places that are kept of the records that are refused alike, in a file each


@dataclass(frozen=True, slots=True, order=True)
class RejectSample:
    """A malformed record: its place, the reason, and its beginning."""

    location: SourceLocation
    reason: str
    sample: str

    def __str__(self) -> str:
        place = str(self.location)  # rows in memory have none
        return f"{place}: {self.reason}: {self.sample}" if place else f"{self.reason}: {self.sample}"


@dataclass(frozen=True, slots=True)
class Violations:
    """The records that do not meet an expectation: their number, and the first one's place and ``sample``."""

    location: SourceLocation
    sample: str
    count: int

    def __add__(self, other: Violations) -> Violations:
        first = min(self, other, key=lambda part: (part.location, part.sample))
        return replace(first, count=self.count + other.count)


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of one part of a batch; parts add up.

    Attributes:
        rejected: lines that are no records, or are refused.
        tombstones: null values of a topic, which are no records either.
        excluded: records with a value at an excluded path.
        dropped_names: the number of empty keys, by the path of their record.
        deletes: rows of columns that delete.
        control_messages: envelope messages that change no row, by kind.
        truncated: the position of the last truncate among them.
        refused: the places of refused records, by what is refused (`Conflict.refuses`): as `first_places`.
        violations: of expectations, by name.
    """

    records: int = 0
    rejected: int = 0
    dropped_names: Counter[Path] = field(default_factory=Counter)
    reasons: tuple[RejectSample, ...] = ()
    excluded: Counter[str] = field(default_factory=Counter)
    tombstones: int = 0
    deletes: int = 0
    control_messages: Counter[str] = field(default_factory=Counter)
    truncated: str = ""
    refused: Mapping[tuple[Path, Facet | None], tuple[SourceLocation, ...]] = field(default_factory=dict)
    violations: Mapping[str, Violations] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.records + other.records,
            self.rejected + other.rejected,
            self.dropped_names + other.dropped_names,
            # The first places in order, not the first to arrive, so a report does not depend on how tasks
            # were cut.
            tuple(sorted({*self.reasons, *other.reasons})[:REASONS]),
            self.excluded + other.excluded,
            self.tombstones + other.tombstones,
            self.deletes + other.deletes,
            self.control_messages + other.control_messages,
            # A position is a text that sorts by its bytes (keys/identity.py): the last is the greatest.
            max(self.truncated, other.truncated),
            {
                refuses: first_places((*self.refused.get(refuses, ()), *other.refused.get(refuses, ())))
                for refuses in (*self.refused, *other.refused)
            },
            {
                name: self.violations[name] + other.violations[name]
                if name in self.violations and name in other.violations
                else self.violations.get(name) or other.violations[name]
                for name in (*self.violations, *other.violations)
            },
        )


def first_places(places: Iterable[SourceLocation]) -> tuple[SourceLocation, ...]:
    """Return the first place in each file, of so many files as reports name, in order."""
    firsts: dict[str, SourceLocation] = {}
    for location in sorted(places):
        firsts.setdefault(location.source, location)
    return tuple(firsts.values())[:FILES]


@dataclass(frozen=True, slots=True)
class Observation:
    """The shape and the tally of a batch, or of a part of it; ``lines`` includes blank ones."""

    shape: RecordShape = field(default_factory=RecordShape)
    tally: Tally = field(default_factory=Tally)
    lines: int = 0

    def shifted(self, lines: int) -> Observation:
        """Move the places of the observation down by ``lines``."""

        def below(location: SourceLocation) -> SourceLocation:
            """The place, ``lines`` further down in its file."""
            return SourceLocation(location.source, location.line + lines, location.position)

        return self.placed(below) if lines else self

    def with_tombstones(self, count: int) -> Observation:
        """Add a number of tombstones."""
        return replace(self, tally=self.tally + Tally(tombstones=count)) if count else self

    def with_excluded(self, counts: Counter[str]) -> Observation:
        """Add records with a value at excluded paths."""
        return replace(self, tally=self.tally + Tally(excluded=counts)) if counts else self

    def with_violations(self, violations: Mapping[str, Violations], aside: int = 0) -> Observation:
        """Add violations of expectations; records that were set ``aside`` no longer count as records."""
        beside = Tally(-aside, aside, violations=violations)
        return replace(self, tally=self.tally + beside) if violations else self

    def with_control_messages(self, counts: Counter[str], truncated: str = "") -> Observation:
        """Add envelope messages that change no row, and the position of the last truncate among them."""
        return (
            replace(self, tally=self.tally + Tally(control_messages=counts, truncated=truncated))
            if counts
            else self
        )

    @gc_paused()
    def placed(self, new_place: Callable[[SourceLocation], SourceLocation]) -> Observation:
        """Replace each place of the observation by ``new_place`` of it."""
        reasons = tuple(replace(r, location=new_place(r.location)) for r in self.tally.reasons)
        refused = {refuses: tuple(map(new_place, places)) for refuses, places in self.tally.refused.items()}
        # The packed entries are copies (`bare`), so the places of this observation stay as they are.
        entries = _packed(self.shape)
        for _, _, item in entries:
            item.location = new_place(item.location)
            if isinstance(item, Profile) and item.sampled is not None:
                item.sampled = new_place(item.sampled)
        violations = {
            name: replace(part, location=new_place(part.location))
            for name, part in self.tally.violations.items()
        }
        tally = replace(self.tally, reasons=reasons, refused=refused, violations=violations)
        return Observation(_unpacked(entries), tally, self.lines)

    def __reduce__(self) -> Any:
        # Flat, because pickle would recurse: a shape of 65 levels is too deep for it. As one text, which is
        # read without a search for cycles.
        return _restored, (pickle.dumps((_packed(self.shape), self.tally, self.lines)),)


@gc_paused()
def merge_observations(parts: Iterable[Observation]) -> Observation:
    """Merge all parts into one observation."""
    shape, tally, lines = RecordShape(), Tally(), 0
    for part in parts:
        shape, tally, lines = shape.merge(part.shape), tally + part.tally, lines + part.lines
    return Observation(shape, tally, lines)


def copied(shape: RecordShape) -> RecordShape:
    """Copy a shape, so that it can be added to."""
    return _unpacked(_packed(shape))


# A shape without its nesting: each entry with the number of the entry that it belongs to, owners first.
_Entry = tuple[int, Any, Any]


def _packed(shape: RecordShape) -> list[_Entry]:
    out: list[_Entry] = []
    # Breadth first, without recursion: a shape may be deeper than Python's stack.
    todo: deque[_Entry] = deque((0, key, item) for key, item in shape.fields.items())
    while todo:
        owner, key, item = todo.popleft()
        out.append((owner, key, item.bare()))
        number = len(out)
        if isinstance(item, FieldShape):
            todo += [(number, facet, profile) for facet, profile in item.facets.items()]
            continue
        todo += (
            [(number, name, f) for name, f in item.record.fields.items()] if item.record is not None else []
        )
        todo += [(number, None, item.value)] if item.value is not None else []
    return out


def _unpacked(entries: Iterable[_Entry]) -> RecordShape:
    top = RecordShape()
    items: list[Any] = [Profile(SourceLocation(), record=top)]
    for owner, key, item in entries:
        parent = items[owner]
        if isinstance(item, Profile):
            parent.facets[key] = item
        elif key is None:
            parent.value = item
        else:
            parent.record.fields[key] = item
        items.append(item)
    return top


@gc_paused()
def _restored(values: bytes) -> Observation:
    entries, tally, lines = pickle.loads(values)  # noqa: S301  our own bytes
    return Observation(_unpacked(entries), tally, lines)


SAMPLE = 80  # characters of a sample


def sample(value: object) -> str:
    """Return the JSON text of a value, truncated if it is long; a string without its quotes.

    >>> sample([Number("1.50"), "x", None])
    '[1.50, "x", null]'
    """
    text = ""
    # Piece by piece, so a record of many megabytes is not printed for a sample of 80 characters.
    for piece in [value[: SAMPLE + 1]] if isinstance(value, str) else _pieces(value):
        text += piece
        if len(text) > SAMPLE:
            return text[: SAMPLE - 1] + "…"
    return text


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for i, (key, item) in enumerate(value.items()):
            yield f"{', ' if i else ''}{json.dumps(key[:SAMPLE], ensure_ascii=False)}: "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for i, item in enumerate(value):
            yield ", " if i else ""
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, str) and not isinstance(value, Number):
        yield json.dumps(value[:SAMPLE], ensure_ascii=False)
    elif isinstance(value, bool) or value is None:
        yield {True: "true", False: "false", None: "null"}[value]
    else:
        yield str(value)
