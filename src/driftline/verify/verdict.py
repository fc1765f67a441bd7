"""The verdict of the check, and differences between rows and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypeAlias, TypedDict

from driftline.core.support import as_json
from driftline.runtime.shown import Shown

LISTED = 20


class MismatchJson(TypedDict):
    """A value, or a whole record (``path`` empty), that is not in the table."""

    path: str
    place: str
    sample: str
    why: str


class VerdictJson(TypedDict):
    """The counts of the source's records, and the first missing ones.

    ``extra`` null: not checked. ``deleted``, ``overtaken``: of a table with a key; ``gone``: of topics.
    """

    ok: bool
    records: int
    found: int
    quarantined: int
    missing: int
    mismatches: list[MismatchJson]
    extra: int | None
    deleted: NotRequired[int | None]
    overtaken: NotRequired[int]
    gone: NotRequired[int]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A value, or a whole record (``path`` empty), that is not in the table: its place, and the reason.

    ``place`` empty: a row or a quarantined record too many.
    """

    path: str
    place: str
    sample: str
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Shown):
    """The counts of the source's records, and the first missing ones, at most `LISTED`.

    ``records`` = ``found`` in the table + ``quarantined`` + ``missing``. A record that occurs n times must be
    there n times. ``extra``: rows, and records in quarantine, beyond the records; None if that was not
    checked. Of a table with a key also ``deleted``: records that have deleted their rows, and ``overtaken``:
    those that a later one of their key has overtaken; None for other tables. ``gone``: offsets that the table
    has taken and Kafka no longer has, which were not compared; None for other sources.
    """

    records: int
    found: int
    quarantined: int
    missing: int
    mismatches: tuple[Mismatch, ...] = ()
    extra: int | None = None
    deleted: int | None = None
    overtaken: int | None = None
    gone: int | None = None

    @property
    def ok(self) -> bool:
        """True if nothing was missing, nor doubled if that was checked."""
        return not self.missing and not self.extra

    def with_discarded(self, again: Verdict) -> Verdict:
        """Return the verdict that counts discarded records, ``again``, if less is missing by it.

        They count where something is missing without them; else they are copies.
        """
        return replace(again, extra=self.extra) if again.missing < self.missing else self

    def with_others(self, others: Verdict) -> Verdict:
        """Return the verdict that counts ``others``: that on the missing records in another table."""
        places = {mismatch.place for mismatch in others.mismatches}
        still = tuple(mismatch for mismatch in self.mismatches if mismatch.place in places)
        missing = self.missing - others.records + others.missing
        return replace(
            self,
            found=self.found + others.found,
            quarantined=self.quarantined + others.quarantined,
            missing=missing,
            mismatches=(still or others.mismatches or self.mismatches) if missing else (),
        )

    def without(self, others: Verdict) -> Verdict:
        """Return the verdict without records on which there is a verdict of ``others`` in the same table."""
        places = {mismatch.place for mismatch in others.mismatches}
        return replace(
            self,
            records=self.records - others.records,
            found=self.found - others.found,
            quarantined=self.quarantined - others.quarantined,
            missing=self.missing - others.missing,
            mismatches=tuple(m for m in self.mismatches if not m.place or m.place not in places),
        )

    def named(self, names: Mapping[str, str]) -> Verdict:
        """Give the files in the verdict other ``names``, by path."""
        mismatches = self.mismatches
        for path, name in names.items():
            mismatches = tuple(replace(m, place=m.place.replace(path, name)) for m in mismatches)
        return replace(self, mismatches=mismatches)

    def to_dict(self) -> VerdictJson:
        """The form that `--json` prints."""
        mismatches = [as_json(MismatchJson, mismatch) for mismatch in self.mismatches]
        return as_json(VerdictJson, self, mismatches=mismatches)

    def to_dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `--json` prints."""
        yield self.to_dict()


class PatternVerdictJson(TypedDict):
    """The sums of a check of many tables. ``tables``: the number of those that were checked."""

    pattern: str
    ok: bool
    tables: int
    records: int
    found: int
    quarantined: int
    missing: int
    extra: int | None
    gone: NotRequired[int]


@dataclass(frozen=True, slots=True, repr=False)
class PatternVerdict(Shown):
    """The verdicts on the tables of a pattern, by name. Counts are records; ``gone``: as of `Verdict`."""

    pattern: str
    verdicts: Mapping[str, Verdict]
    gone: int | None = None

    @property
    def ok(self) -> bool:
        """True if nothing was missing in any table, nor doubled if that was checked."""
        return all(verdict.ok for verdict in self.verdicts.values())

    @property
    def records(self) -> int:
        """The number of records of the source."""
        return sum(verdict.records for verdict in self.verdicts.values())

    @property
    def found(self) -> int:
        """The number of records in tables."""
        return sum(verdict.found for verdict in self.verdicts.values())

    @property
    def quarantined(self) -> int:
        """The number of records in quarantines."""
        return sum(verdict.quarantined for verdict in self.verdicts.values())

    @property
    def missing(self) -> int:
        """The number of records that are in neither."""
        return sum(verdict.missing for verdict in self.verdicts.values())

    @property
    def extra(self) -> int | None:
        """The number of rows beyond the records; None if that was not checked."""
        counts = [verdict.extra for verdict in self.verdicts.values() if verdict.extra is not None]
        return sum(counts) if counts else None

    def to_dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `--json` prints: an object a table, then one with sums."""
        for table, verdict in self.verdicts.items():
            yield {**verdict.to_dict(), "table": table, "pattern": self.pattern}
        yield as_json(PatternVerdictJson, self, tables=len(self.verdicts))


Steps: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A difference between a row and a record.

    Attributes:
        steps: keys, and positions in lists.
        value: the record's.
        lost: no column holds it.
        invented: a column holds something that does not come from it.
        unproven: a list without a value is missing, which is lawful if its column is younger than the row
            (2.4).
    """

    steps: Steps
    value: Any
    why: str
    lost: bool = True
    invented: bool = False
    unproven: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The steps, without those into lists."""
        return tuple(step for step in self.steps if isinstance(step, str))

    @property
    def path(self) -> str:
        """The path, a list's element as ``element``.

        >>> RowDifference(("items", 3, "price"), 1, "").path
        'items.element.price'
        """
        return ".".join("element" if isinstance(step, int) else step for step in self.steps)


def shown(v: Any, limit: int = 80) -> str:
    """A value as people read it, cut to ``limit``."""
    match v:
        case None:
            text = "null"
        case bool():
            text = str(v).lower()
        case str():
            text = repr(str(v)) if len(v) <= limit else f"{str(v)[:limit]!r}"
        case dict():
            text = "{" + ", ".join(f"{k}: {shown(x, limit)}" for k, x in _first(v.items())) + "}"
        case list():
            text = "[" + ", ".join(shown(x, limit) for x in _first(v)) + "]"
        case _:
            text = str(v)
    return text if len(text) <= limit else text[:limit] + "…"


def _first(items: Iterable[Any], limit: int = 10) -> Iterable[Any]:
    return (x for x, _ in zip(items, range(limit), strict=False))
