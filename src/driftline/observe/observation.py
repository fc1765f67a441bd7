"""What observing a batch gives: its shape, and counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from driftline.core.shape import RecordShape

REASONS = 5  # malformed records that are kept as examples


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one part of a batch; parts add up. ``careful``: Spark's own reader would not read it right."""

    records: int = 0
    malformed: int = 0
    dropped_names: Counter[str] = field(default_factory=Counter)
    reasons: tuple[str, ...] = ()
    careful: bool = False

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.records + other.records,
            self.malformed + other.malformed,
            self.dropped_names + other.dropped_names,
            (self.reasons + other.reasons)[:REASONS],
            self.careful or other.careful,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """The shape and the tally of a batch, or of a part of it."""

    shape: RecordShape = field(default_factory=RecordShape)
    tally: Tally = field(default_factory=Tally)


def merge_observations(parts: Iterable[Observation]) -> Observation:
    """One observation of all parts."""
    shape, tally = RecordShape(), Tally()
    for part in parts:
        shape, tally = shape.merge(part.shape), tally + part.tally
    return Observation(shape, tally)
