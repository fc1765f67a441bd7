"""Decides if a row holds a record (sections 4 and 5), and how an unmatched record differs.

Nothing here knows how a value was routed. A field's columns are found by name and mark, and each value must
be in one of them, at its position; and everything in a column must come from the record.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.schema.types import Expression
from driftline.verify.files import Read, SourcePlace
from driftline.verify.matching_key import Meeting, RowRest, TableColumn, TableStruct, key
from driftline.verify.values import Cell, Pairs, ValueSettings, has_value, holds, is_nothing, routed
from driftline.verify.verdict import LISTED, Mismatch, RowDifference, Steps, shown

if TYPE_CHECKING:
    from pyspark import RDD


def weight(differences: Sequence[RowDifference]) -> tuple[int, int]:
    """A sort key for the amount of difference: losses first."""
    return sum(d.lost and not d.unproven for d in differences), len(differences)


def together(alternatives: Sequence[list[RowDifference]]) -> Iterator[RowDifference]:
    """The differences common to all columns: a value is lost if all of them lost it."""
    best = min(alternatives, key=weight)
    lost = [
        {steps for d in differences if d.lost and not d.unproven for steps in _places(d)}
        for differences in alternatives
    ]
    nowhere = set.intersection(*lost)
    for differences in alternatives:
        for d in differences:
            if not d.lost or d.unproven:
                if d.invented or differences is best:
                    yield d
            elif differences is best and not nowhere.isdisjoint(_places(d)):
                yield from _parts(d, nowhere)
            elif d.invented:
                yield replace(d, lost=False)


def _parts(d: RowDifference, nowhere: Collection[Steps]) -> Iterator[RowDifference]:
    """The lost parts of the difference's value: all of it, or each place of it that is ``nowhere``."""
    places = _places(d)
    if all(steps in nowhere for steps in places):
        yield d
        return
    for steps, x in places.items():
        if steps in nowhere:
            yield replace(d, steps=steps, value=x, why=f"{shown(x)} is in no column")


def _places(d: RowDifference) -> dict[Steps, Any]:
    """The scalars of a difference's value by their places; the value itself if it has none."""
    return dict(_scalars(d.value, d.steps)) or {d.steps: d.value}


def _scalars(v: Any, steps: Steps) -> Iterator[tuple[Steps, Any]]:
    if isinstance(v, dict):
        for key, x in v.items():
            yield from _scalars(x, (*steps, key_text(key)))
    elif isinstance(v, list):
        for i, x in enumerate(v):
            yield from _scalars(x, (*steps, i))
    elif v is not None:
        yield steps, v


def key_text(key: Any) -> str:
    """The key of a map, as the paths of differences have it."""
    return str(key).lower() if isinstance(key, bool) else str(key)


# A column of the field at hand, the lists still around its values, and what the row has in it.
_SiblingValue: TypeAlias = "tuple[TableColumn, int, Any]"


def differences(
    record: TableStruct,
    row: Mapping[str, Any],
    v: Mapping[str, Any],
    settings: ValueSettings | None = None,
) -> list[RowDifference]:
    """The values of the source's record ``v`` that ``row`` does not hold, or holds beyond it.

    ``row``: column name to plain value (struct: dict, map: Pairs). Empty if it matches.
    """
    check = _Check(settings or ValueSettings())
    check.record(record, row, v, ())
    if record.rest is None:
        return check.out
    return list(_beside_rest(check.out, RowRest(row.get(record.rest), check.settings), v))


def _beside_rest(
    differences: Iterable[RowDifference], row_rest: RowRest, v: Mapping[str, Any]
) -> Iterator[RowDifference]:
    """The differences that the row's rest does not account for, and what it has beyond the record."""
    for difference in differences:
        waits = (
            difference.lost and not difference.unproven and row_rest.holds(difference.value, difference.steps)
        )
        if not waits:
            yield difference
        elif difference.invented:
            yield replace(difference, lost=False)
    for steps, stored in row_rest.values.items():
        if steps not in row_rest.used and not row_rest.agrees(steps, v):
            why = f"the rest holds {shown(stored)}, the record does not"
            yield RowDifference(steps, stored, why, lost=False, invented=True)


@dataclass(slots=True)
class _Check:
    settings: ValueSettings
    out: list[RowDifference] = field(default_factory=list)

    def record(self, record: TableStruct, row: Mapping[str, Any], v: Mapping[str, Any], steps: Steps) -> None:
        columns: dict[str, list[_SiblingValue]] = {}
        for name, stored in row.items():
            if stored is not None and name in record.columns:
                key, column = record.columns[name]
                columns.setdefault(key, []).append((column, column.dim, stored))
        for key, x in v.items():
            if x is None or (key == "" and not self.settings.empty_names):
                continue
            siblings = columns.pop(key, ())
            # Most fields have one plain column, and it holds the value.
            if (
                self.settings.units
                or len(siblings) != 1
                or siblings[0][1]
                or not self.holds(siblings[0][0], siblings[0][2], x, ())
            ):
                self.value(siblings, x, (*steps, key))
                # An empty list leaves no trace in a row that is older than the list's column, so this is no
                # proof of a loss.
                if type(x) is list and key in record.lists and self.settings.is_nothing(x):
                    self.emptied(record.lists[key], siblings, x, (*steps, key), unproven=True)
        for key, siblings in columns.items():
            self.value(siblings, None, (*steps, key))

    def holds(self, column: TableColumn, x: Any, v: Any, steps: Steps) -> bool:
        return column.type is not None and x is not None and holds(column.type, x, v, self.settings_at(steps))

    def settings_at(self, steps: Steps) -> ValueSettings:
        return self.settings.at(_keys(steps)) if self.settings.of_paths else self.settings

    def value(self, siblings: Sequence[_SiblingValue], v: Any, steps: Steps) -> None:
        """One value of the record, against all columns of its field."""
        if self.settings.is_nothing(v) and not any(column.has_empty_key(v) for column, _, _ in siblings):
            self.nothing(siblings, v, steps)
            return
        siblings = [
            s
            for s in siblings
            if s[2].__class__ not in (list, dict, Pairs) or not is_nothing(s[2], empty_names=True)
        ]
        variants = [s for s in siblings if s[0].variant and not (s[1] and isinstance(v, list))]
        if variants:
            self.variants(siblings, variants, v, steps)
        elif isinstance(v, list):
            self.elements(siblings, v, steps)
        elif isinstance(v, dict):
            self.nested(siblings, v, steps)
        else:
            self.scalar(siblings, v, steps)

    def nothing(self, siblings: Sequence[_SiblingValue], v: Any, steps: Steps) -> None:
        """A value without content (2.4): its columns hold nothing more, and its lists unchanged."""
        for column, dim, stored in siblings:
            if column.variant and self.holds(column, _unwrapped(stored, dim), v, steps):
                continue
            # No default makes a struct, list or map of null
            by_default = v is not None or column.type is not None
            if isinstance(stored, list) and not column.defaults:
                by_default = v is not None and (
                    not isinstance(v, list) or _as_it_is(stored, dim, v, self.settings)
                )
            if not (by_default and _by_default(column, stored)) and not (
                isinstance(v, Cell) and stored == ""
            ):
                self.invented(column, stored, v, steps)
            elif column.record is not None and isinstance(stored, dict) and isinstance(v, dict):
                nested = _Check(self.settings)
                nested.record(column.record, stored, v, steps)
                self.out += [d for d in nested.out if d.unproven]

    def emptied(
        self,
        names: Iterable[str],
        siblings: Sequence[_SiblingValue],
        v: list[Any],
        steps: Steps,
        *,
        unproven: bool = False,
    ) -> None:
        """A list without a value is in one of the field's list columns."""
        if not any(dim for _, dim, _ in siblings):
            why = f"{', '.join(names)} holds null, the record has {shown(v)}"
            self.out.append(RowDifference(steps, v, why, unproven=unproven))

    def scalar(self, siblings: Sequence[_SiblingValue], v: Any, steps: Steps) -> None:
        is_held, strange = False, []
        for column, dim, stored in siblings:
            x = _unwrapped(stored, dim)
            if self.holds(column, x, v, steps):
                is_held = True
            elif column.type is None or x is None or not routed(column.type, x, v, self.settings_at(steps)):
                strange.append((column, stored))
        if is_held:
            for column, stored in strange:
                self.invented(column, stored, v, steps)
        else:
            self.lost(strange, v, steps)

    def elements(self, siblings: Sequence[_SiblingValue], v: list[Any], steps: Steps) -> None:
        """Position by position, each element against all columns that have the list (section 5)."""
        views, strange = [], []
        for column, dim, stored in siblings:
            view = _aligned(stored, dim, v, self.settings)
            if view is None:
                strange.append((column, stored))
            else:
                views.append((column, *view))
        if not views:
            self.lost(strange, v, steps)
            return
        for column, stored in strange:
            self.invented(column, stored, v, steps)
        for i, x in enumerate(v):
            element_siblings = [
                (column, dim, stored[i]) for column, dim, stored in views if stored[i] is not None
            ]
            self.value(element_siblings, x, (*steps, i))
            if (
                isinstance(x, list)
                and self.settings.is_nothing(x)
                and (deep := [c.name for c, dim, _ in views if dim])
            ):
                self.emptied(deep, element_siblings, x, (*steps, i))

    def nested(self, siblings: Sequence[_SiblingValue], v: dict[Any, Any], steps: Steps) -> None:
        """One record column holds what the map columns together do not."""
        records: list[list[RowDifference]] = []
        maps, strange = [], []
        for column, dim, stored in siblings:
            x = _unwrapped(stored, dim)
            if column.record is not None and isinstance(x, dict):
                checked = _Check(self.settings)
                checked.record(column.record, x, v, steps)
                records.append(checked.out)
            elif column.value is not None and isinstance(x, dict):
                maps.append((column.value, x))
            else:
                strange.append((column, stored))
        alternatives = [min(records, key=weight)] if records else []
        if maps:
            checked = _Check(self.settings)
            checked.maps(maps, v, steps)
            alternatives.append(checked.out)
        if not alternatives:
            self.lost(strange, v, steps)
            return
        self.out += together(alternatives)
        self.out += [d for out in records if out is not alternatives[0] for d in out if d.invented]
        for column, stored in strange:
            self.invented(column, stored, v, steps)

    def maps(
        self, maps: Sequence[tuple[TableColumn, dict[Any, Any]]], v: dict[Any, Any], steps: Steps
    ) -> None:
        """Each key's value is held by some of the maps.

        In a typed map a key must be there even without a value.
        """
        remaining = [dict(x) for _, x in maps]
        for member, x in v.items():
            text = key_text(member)
            name = member if any(member in m for m in remaining) else text
            siblings = [
                (c, c.dim, m.pop(name)) for (c, _), m in zip(maps, remaining, strict=True) if name in m
            ]
            if isinstance(v, Pairs) and not siblings:
                self.lost([], x, (*steps, text))
            else:
                self.value([s for s in siblings if s[2] is not None], x, (*steps, text))
        for (column, _), m in zip(maps, remaining, strict=True):
            for member, stored in m.items():
                if has_value(stored):
                    self.invented(column, stored, None, (*steps, key_text(member)))

    def variants(
        self, siblings: Sequence[_SiblingValue], variants: Sequence[_SiblingValue], v: Any, steps: Steps
    ) -> None:
        """A variant holds any value, whole."""
        is_held = False
        for column, dim, stored in variants:
            if self.holds(column, _unwrapped(stored, dim), v, steps):
                is_held = True
            else:
                self.invented(column, stored, v, steps)
        others = _Check(self.settings)
        others.value([s for s in siblings if s not in variants], v, steps)
        # The variant holds the value whole, so others may lack it; what they have beyond it still counts.
        self.out += [d for d in others.out if d.invented or not is_held]

    def lost(self, strange: Sequence[tuple[TableColumn, Any]], v: Any, steps: Steps) -> None:
        others = "; ".join(f"column {column.name} holds {shown(stored)}" for column, stored in strange)
        why = f"{shown(v)} is in no column" + (f"; {others}" if others else "")
        self.out.append(RowDifference(steps, v, why, invented=bool(strange)))

    def invented(self, column: TableColumn, stored: Any, v: Any, steps: Steps) -> None:
        has = "the record has no value there" if self.settings.is_nothing(v) else f"the record has {shown(v)}"
        self.out.append(
            RowDifference(steps, v, f"{column.name} holds {shown(stored)}, {has}", lost=False, invented=True)
        )


def _by_default(column: TableColumn, stored: Any) -> bool:
    """True if a column's value consists of nulls and defaults."""
    match stored:
        case list():
            return all(_by_default(column, x) for x in stored)
        case dict() if column.record is not None:
            return all(_by_default(column.record.columns[name][1], x) for name, x in stored.items())
        case dict() if column.value is not None:
            return all(_by_default(column.value, x) for x in stored.values())
    # Any default that the column has had counts. What an expression gave cannot be known, so any value does.
    type_ = column.type
    return stored is None or (
        type_ is not None
        and any(
            isinstance(x, Expression) or holds(type_, stored, x, ValueSettings()) for x in column.defaults
        )
    )


def _keys(steps: Steps) -> str:
    return ".".join(step for step in steps if isinstance(step, str))


def _unwrapped(stored: Any, dim: int) -> Any:
    """The one value inside ``dim`` lists; None where that is not what it is."""
    for _ in range(dim):
        if not isinstance(stored, list) or len(stored) != 1:
            return None
        stored = stored[0]
    return stored


def _aligned(stored: Any, dim: int, v: list[Any], settings: ValueSettings) -> tuple[int, list[Any]] | None:
    """Return the column's list that aligns with ``v`` by position, and the dimension of its elements.

    A value of a smaller dimension is wrapped whole. Lists of nothing may or may not count as a dimension.
    """
    # `[[], 1]` may count as a list of lists or of numbers, by whether the empty list is passed over.
    for depth in (_depth(v, settings.is_nothing), _depth(v, lambda _: False)):
        x = _unwrapped(stored, max(dim - depth, 0))
        if isinstance(x, list) and len(x) == len(v) and dim:
            return min(dim, depth) - 1, x
    return None


def _as_it_is(stored: list[Any], dim: int, v: list[Any], settings: ValueSettings) -> bool:
    return len(stored) == len(v) or _aligned(stored, dim, v, settings) is not None


def _depth(v: Any, passes_over: Callable[[Any], bool]) -> int:
    """The dimension of a value: that of its deepest element, except those passed over."""
    if not isinstance(v, list):
        return 0
    return 1 + max((_depth(x, passes_over) for x in v if not passes_over(x)), default=0)


_NEAREST = 3  # rows of each task that are looked at for one record

packed = partial(pickle.dumps, protocol=5)


def unpacked(payload: bytes) -> Any:
    """Unpickle a payload that another task has pickled."""
    return pickle.loads(payload)  # noqa: S301  our own, from another task


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """``n`` equal records that no row holds, the first at ``place``; ``record`` None for other texts.

    Attributes:
        differences: from the nearest row, if one is known.
        meets: they meet all expectations, so that a copy which waits for one is not theirs.
    """

    place: SourcePlace
    n: int
    record: bytes | None
    why: str = ""
    differences: tuple[RowDifference, ...] = ()
    meets: bool = False

    def __add__(self, other: MissingRecords) -> MissingRecords:
        first = min(self, other, key=order)
        return replace(first, n=self.n + other.n, meets=self.meets and other.meets)


@dataclass(frozen=True, slots=True)
class Copies:
    """``n`` equal records in quarantine, of which so many wait for an expectation that is ``unmet``."""

    n: int = 0
    unmet: int = 0

    def __add__(self, other: Copies) -> Copies:
        return Copies(self.n + other.n, self.unmet + other.unmet)

    def of(self, *, meets: bool) -> int:
        """The number of copies that may be of records that meet all expectations, or else of any."""
        return self.n - self.unmet if meets else self.n


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """``n`` equal rows, or quarantined records, without a record, next to ``held`` ones that have one."""

    n: int
    text: str
    where: str
    held: int

    def listed(self) -> Mismatch:
        """The rows as an item of the report."""
        times = f"{self.n + self.held} times in {self.where}, {self.held} in the source"
        return Mismatch("", "", self.text, times if self.held else f"in {self.where}, not in the source")


def order(x: MissingRecords) -> Any:
    """A sort key: the order in the source; of records without a line, by their text."""
    return x.place.file, x.place.start, x.place.line, x.record or b""


def in_text(x: ExtraRows) -> Any:
    """A sort key for rows beyond the source's: those of the table first, by their text."""
    return x.where != "the table", x.text


def not_quarantined(x: tuple[bytes, tuple[MissingRecords, Copies | None]]) -> list[MissingRecords]:
    """The left-over records, without as many as are in quarantine."""
    unmatched, copies = x[1][0], x[1][1] or Copies()
    n = unmatched.n - copies.of(meets=unmatched.meets)
    why = "it waits for an expectation that it meets" if unmatched.meets and copies.unmet else unmatched.why
    return [replace(unmatched, n=n, why=why)] if n > 0 else []


def quarantined_again(x: tuple[bytes, tuple[Copies, MissingRecords | None]]) -> list[ExtraRows]:
    """The records that are in quarantine more often than they are left over."""
    text, (copies, unmatched) = x
    matched = min(copies.of(meets=unmatched.meets), unmatched.n) if unmatched else 0
    return (
        [ExtraRows(copies.n - matched, shown(text.decode(errors="replace")), "quarantine", matched)]
        if copies.n > matched
        else []
    )


def apart(meeting: Meeting, row: Mapping[str, Any], record: Mapping[str, Any]) -> list[RowDifference]:
    """The differences where the row does not hold the record."""
    return differences(meeting.record, row, record, meeting.settings)


def fewest(differences: Iterable[list[RowDifference]]) -> tuple[RowDifference, ...]:
    """The shortest of the lists."""
    ranked = sorted(differences, key=len)
    return tuple(ranked[0]) if ranked else ()


def nearest(
    meeting: Meeting, sample: Sequence[MissingRecords], reads: RDD[Read], stored: RDD[dict[str, Any]]
) -> Iterator[MissingRecords]:
    """Add to each record of the sample its differences from the nearest row.

    That is the one with most of the record's values, at least half of them, that no other record of the
    source matches. ``reads``: the source's records; ``stored``: the table's rows.
    """
    records = {
        i: unpacked(x.record) for i, x in enumerate(sample) if x.record and not x.why and not x.differences
    }
    scalars = {i: meeting.of_record(record) for i, record in records.items()}
    near = stored.mapPartitions(lambda rows: _near(meeting, scalars, rows)).collect() if scalars else []
    near.sort(reverse=True)  # however the rows were dealt to tasks
    # A row that has met a record is that record's, most likely.
    met = _met(meeting, reads, {k for _, _, k, _ in near})
    for i, x in enumerate(sample):
        rows = [unpacked(row) for j, _, k, row in near if j == i and k not in met]
        yield replace(x, differences=fewest(apart(meeting, row, records[i]) for row in rows)) if rows else x


def _met(meeting: Meeting, reads: RDD[Read], keys: set[int]) -> set[int]:
    if not keys:
        return set()
    met = reads.map(lambda r: key(meeting.of_record(r.record or {}))).filter(lambda k: k in keys)
    return set(met.distinct().collect())


def _near(
    meeting: Meeting, scalars_of: Mapping[int, set[str]], stored: Iterable[dict[str, Any]]
) -> Iterator[tuple[int, int, int, bytes]]:
    """For each of ``scalars_of``, by its key, the rows that share most with it: (key, number of values that
    they share, row's key, row).
    """
    owners: dict[str, list[int]] = {}
    for i, scalars in scalars_of.items():
        for text in scalars:
            owners.setdefault(text, []).append(i)
    tops: dict[int, list[tuple[int, int, bytes]]] = {i: [] for i in scalars_of}
    for row in stored:
        scalars = meeting.of_row(row)
        for i, n in Counter(i for text in scalars for i in owners.get(text, ())).items():
            top = tops[i]
            # With less than half of the values in common, what a row has instead says nothing about the
            # record.
            if 2 * n >= len(scalars_of[i]) and (len(top) < _NEAREST or n > top[-1][0]):
                tops[i] = sorted([*top, (n, key(scalars), packed(row))], reverse=True)[:_NEAREST]
    for i, top in tops.items():
        for n, k, row_ in top:
            yield i, n, k, row_


def listed(sample: Iterable[MissingRecords]) -> list[Mismatch]:
    """The reported items, at most `LISTED`: each path once before any a second time."""
    out: list[tuple[int, Mismatch]] = []
    counts: Counter[str] = Counter()
    for x in sample:
        place = str(x.place)
        mismatches = [Mismatch(d.path, place, shown(d.value), d.why) for d in x.differences]
        if not mismatches:
            text = shown(unpacked(x.record)) if x.record else ""
            mismatches = [Mismatch("", place, text, x.why or "the record is not in the table")]
        for mismatch in mismatches:
            out.append((counts[mismatch.path], mismatch))
            counts[mismatch.path] += 1
    return [mismatch for _, mismatch in sorted(out, key=itemgetter(0))][:LISTED]
