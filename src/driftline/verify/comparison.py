"""Compares two sides that meet by key: records without a row, and rows without a record.

Everything runs in tasks, and knows no Spark; `job` runs it.
"""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.schema.schema_json import from_json
from driftline.runtime.daemon import lighten_worker
from driftline.verify.change_feeds import plain_value
from driftline.verify.csv import cells
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.match import Copies, ExtraRows, MissingRecords, apart, fewest, packed, unpacked
from driftline.verify.matching_key import Meeting, Slot, TableStruct, exactly, key, loosely
from driftline.verify.values import ValueSettings, is_nothing
from driftline.verify.verdict import RowDifference, shown

if TYPE_CHECKING:
    from pyspark import RDD

Path: TypeAlias = "tuple[str, ...]"  # keys, without steps into lists


@dataclass(frozen=True, slots=True)
class Listless:
    """Equal records at ``places``, of which ``held`` are accounted for; the others' rows lack lists."""

    places: tuple[SourcePlace, ...]
    held: int
    record: bytes
    differences: tuple[RowDifference, ...]

    @property
    def paths(self) -> set[Path]:
        """The paths of the lists that the rows lack."""
        return {d.keys for d in self.differences}

    def lost(self, first: Mapping[tuple[str, Path], SourcePlace] | None) -> Iterator[MissingRecords]:
        """The values for which the table had columns.

        Args:
            first: by file and path, the place of the first list with a value; None: a source's columns are
                the table's.
        """

        def had_column(place: SourcePlace) -> bool:
            """True if all lists at a place had columns by then; without knowledge of the files, too."""
            if first is None:
                return True
            starts = (first.get((place.file, path)) for path in self.paths)
            return any(start is not None and start <= place for start in starts)

        n = sum(map(had_column, self.places)) - self.held
        if n > 0:
            yield MissingRecords(min(self.places), n, self.record, "", self.differences)


def lost_lists(
    unproven: RDD[Listless], reads: RDD[Read], without: Callable[[Any], Any], *, typed: bool
) -> RDD[MissingRecords]:
    """The records whose lists had a column in the table.

    Args:
        typed: a source's columns are the table's.
    """
    if typed:
        return unproven.flatMap(lambda x: x.lost(None))
    paths: dict[str, set[Path]] = {}
    for file, path in unproven.flatMap(_wanted).distinct().collect():
        paths.setdefault(file, set()).add(path)
    # A file is in one batch, so a list with a value earlier in the same file shows that the column existed.
    first = reads.flatMap(lambda r: _lists(r, paths, without)).reduceByKey(min).collectAsMap()
    return unproven.flatMap(lambda x: x.lost(first))


def _wanted(x: Listless) -> Iterator[tuple[str, Path]]:
    for file in {place.file for place in x.places}:
        yield from ((file, path) for path in x.paths)


def _lists(
    read: Read, by_file: Mapping[str, set[Path]], without: Callable[[Any], Any]
) -> Iterator[tuple[tuple[str, Path], SourcePlace]]:
    """The paths at which the record has a list with a value."""
    paths = by_file.get(read.place.file)
    # A record that an expectation sets aside makes no column.
    if paths and read.record is not None and not read.unmet:
        record = without(read.record)
        yield from (((read.place.file, path), read.place) for path in paths if _has_list(record, path))


def _has_list(v: Any, path: Path) -> bool:
    """True if there is a list with a value at the path."""
    if isinstance(v, list):
        return not is_nothing(v) if not path else any(_has_list(x, path) for x in v)
    return bool(path) and isinstance(v, dict) and _has_list(v.get(path[0]), path[1:])


def pair(
    records: Sequence[int], rows: Sequence[int], holds: Callable[[int, int], int]
) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
    """Match records with rows, as many as possible.

    Args:
        records: counts of equal records.
        rows: counts of equal rows.
        holds: how well a row holds a record, by their positions: 0 not at all, 1 partly, so that another row
            is better, 2 wholly. It is called as ``holds(row, record)``, once for each pair.

    Returns how often each record has no row, how often each row has no record, and how often a record, by
    position, has a row.

    >>> pair([1, 1], [1, 1], lambda row, record: 2 * (row == 0 or record == 0))[:2]
    ([0, 0], [0, 0])
    """
    fits = cache(holds)
    free = list(rows)
    matched: dict[tuple[int, int], int] = {}

    def place(record: int, n: int, visited: set[int]) -> int:
        """Find rows for up to ``n`` of a record, where need be by moving another record to another row."""
        # Rows that hold the record wholly come first, so that a row that holds it partly is the last resort.
        for quality, row in product((2, 1), range(len(free))):
            if row in visited or fits(row, record) != quality:
                continue
            visited.add(row)
            got = min(n, free[row])
            free[row] -= got
            # An augmenting path: whoever has this row moves to another one. `visited` ends it.
            if not got:
                for holder in range(len(records)):
                    if count := matched.get((holder, row), 0):
                        got = place(holder, min(n, count), visited)
                        matched[holder, row] = count - got
                        if got:
                            break
            if got:
                matched[record, row] = matched.get((record, row), 0) + got
                return got
        return 0

    missing = []
    for record, n in enumerate(records):
        while n and (got := place(record, n, set())):
            n -= got
        missing.append(n)
    return missing, free, {indexes: n for indexes, n in matched.items() if n}


# Python's own limit is less than `files` lets through, times the functions of `match`
_DEEP = 4_000
# Rows of a group that a record is compared with, to say what is missing
_COMPARED = 100
TEXTS = ("json", "csv")
_RECORD, _ROW = 0, 1
TOTALS, LEFT, LISTLESS, EXTRA = range(4)  # kinds of what comparing finds
_Keyed = tuple[tuple[int, int], Any]  # by the key, and the side that it is of


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the comparison, the same for both sides.

    Attributes:
        schema: as JSON text.
        extended: records, and their copies in quarantine, may be MongoDB's Extended JSON.
    """

    schema: str
    mark: str
    floats: int
    settings: ValueSettings
    fmt: str
    ignore: tuple[str, ...]
    defaults: Mapping[int, Iterable[Any]]
    exactly: bool
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The work of tasks on the source's records, the table's rows and its quarantine."""

    meeting: Meeting
    left_out: Sequence[Sequence[str]]
    terms: Terms

    @classmethod
    def by(cls, terms: Terms) -> Comparison:
        """The comparison by these terms."""
        struct = from_json(json.loads(terms.schema)).struct
        record = TableStruct.of(struct, terms.mark, terms.defaults)
        meeting = Meeting(record, Slot.of(struct, record, terms.floats), terms.settings)
        return cls(meeting, [path.split(".") for path in terms.ignore], terms)

    def __reduce__(self) -> Any:
        # As text: a deep schema is too deep for pickle.
        return Comparison.by, (self.terms,)

    def keyed_records(self, reads: Iterable[Read]) -> Iterator[_Keyed]:
        """The source's records by the key under which they meet rows; rejects by their text."""
        begin_task()
        for r in reads:
            if r.record is None:
                yield (key([repr(r.raw)]), _RECORD), (r.place, r.raw, r.reason, None)
            else:
                record = self.without(r.record)
                yield (key(self.meeting.of_record(record)), _RECORD), (r.place, packed(record), None, r.unmet)

    def without(self, record: Any) -> Any:
        """The record without its excluded fields."""
        for path in self.left_out:
            _forget(record, path)
        return record

    def keyed_rows(self, stored: Iterable[dict[str, Any]]) -> Iterator[_Keyed]:
        """The table's rows by the same key."""
        begin_task()
        for row in stored:
            yield (key(self.meeting.of_row(row)), _ROW), packed(row)

    def compared(self, keyed: Iterable[_Keyed]) -> Iterator[tuple[int, Any]]:
        """The records without a row and the rows left over, by kind, group by group; then the totals."""
        begin_task()
        records, n = 0, Counter[int]()
        for _, group in groupby(keyed, key=lambda x: x[0][0]):
            places: dict[tuple[bytes, bool], list[SourcePlace]] = {}
            stored: Counter[bytes] = Counter()
            for (_, side), value in group:
                if side == _ROW:  # behind all records of the group
                    # A key with rows alone: rows from elsewhere are no fault unless `exactly` says so.
                    if not (places or self.terms.exactly):
                        break
                    stored[value] += 1
                    continue
                place, payload, reason, unmet = value
                records += 1
                if reason is None and not unmet:
                    places.setdefault((payload, unmet is not None), []).append(place)
                else:
                    n[LEFT] += 1
                    yield LEFT, self._set_aside(place, payload, reason, unmet)
            for kind, count, x in self.unmatched(places, stored):
                n[kind] += count
                yield kind, x
        yield TOTALS, (records, n[LEFT], n[EXTRA], n[LISTLESS])

    def _set_aside(
        self, place: SourcePlace, payload: bytes, reason: str | None, unmet: str | None
    ) -> tuple[bytes, MissingRecords]:
        """A text that is no record, or a record that does not meet an expectation, by its fingerprint."""
        if reason is not None:
            return self.fingerprint(payload), MissingRecords(
                place, 1, None, f"{reason}, and not in quarantine"
            )
        why = f"it does not meet the expectation {unmet}, and is not in quarantine"
        return self.fingerprint_of(unpacked(payload)), MissingRecords(place, 1, payload, why)

    def unmatched(
        self, places: dict[tuple[bytes, bool], list[SourcePlace]], stored: Counter[bytes]
    ) -> Iterator[tuple[int, int, Any]]:
        """Compare the records and rows that met under one key.

        Args:
            places: by record, and if it is known to meet all expectations.

        Yields the kind, the number and the content of records without a row, and of rows without a record.
        """
        payloads = [payload for payload, _ in places]
        records, rows_ = list(map(unpacked, payloads)), list(map(unpacked, stored))

        unproven: dict[tuple[int, int], list[RowDifference]] = {}

        def holds(row: int, record: int) -> int:
            """2 if the row holds the record, 1 if all differences are unproven, else 0."""
            differences = apart(self.meeting, rows_[row], records[record])
            if not all(d.unproven for d in differences):
                return 0
            if differences:
                unproven[record, row] = differences
            return 1 if differences else 2

        of_records = list(places.values())
        missing, free, matched = pair(list(map(len, of_records)), list(stored.values()), holds)
        # A difference counts only for the pairs that came together, not for those that were tried.
        for i, row in unproven.keys() & matched.keys():
            source_places = tuple(of_records[i])
            proven = len(source_places) - matched[i, row]
            yield LISTLESS, 1, Listless(source_places, proven, payloads[i], tuple(unproven[i, row]))
        near = [row for row, unused in zip(rows_, free, strict=True) if unused][:_COMPARED]
        for ((payload, meets), equal), record, n in zip(places.items(), records, missing, strict=True):
            times = len(equal)
            if n:
                # Equal records cannot be told apart, so the last ones in the source count as missing.
                place = sorted(equal)[-n]
                why = f"{times} times in the source, {times - n} in the table" if times > n else ""
                differences = () if why else fewest(apart(self.meeting, row, record) for row in near)
                lost = MissingRecords(place, n, payload, why, differences, meets)
                yield LEFT, n, (self.fingerprint_of(record), lost)
        if self.terms.exactly:
            for (payload, n), unused in zip(stored.items(), free, strict=True):
                if unused:
                    yield EXTRA, unused, ExtraRows(unused, shown(unpacked(payload)), "the table", n - unused)

    def fingerprint(self, raw: bytes) -> bytes:
        """The fingerprint of a quarantined text, or of a source's text that is no record."""
        try:
            # A row of a typed source may have text that is not UTF-8.
            errors = "strict" if self.terms.fmt in TEXTS else "surrogateescape"
            return self.fingerprint_of(self.without(parse(raw, errors)))
        except MalformedText:
            return (
                self.fingerprint_of(cells(raw))
                if self.terms.fmt == "csv"
                else raw.removeprefix(BOM_UTF8).strip()
            )

    def fingerprint_of(self, record: Any) -> bytes:
        """The fingerprint of a record that its copy in quarantine has, too.

        JSON is quarantined as it came, other formats perhaps not.
        """
        if self.terms.extended and isinstance(record, dict):
            record = {key: plain_value(value) for key, value in record.items()}
        text = exactly(record) if self.terms.fmt == "json" else "\n".join(loosely(record))
        return text.encode(errors="surrogateescape")

    def keyed_raw(self, quarantined: Iterable[tuple[bytes, bool]]) -> Iterator[tuple[bytes, Copies]]:
        """Quarantined texts by their fingerprint, to be counted; flagged are those of expectations."""
        begin_task()
        return ((self.fingerprint(raw), Copies(1, int(unmet))) for raw, unmet in quarantined)


def _forget(value: Any, path: Sequence[str]) -> None:
    """Remove the value at the path from a record."""
    if isinstance(value, list):
        for item in value:
            _forget(item, path)
    elif isinstance(value, dict) and len(path) == 1:
        value.pop(path[0], None)
    elif isinstance(value, dict):
        _forget(value.get(path[0]), path[1:])


def begin_task() -> None:
    """Raise Python's recursion limit to the depth of records, and have a worker's task end sooner."""
    lighten_worker()
    # In the driver `verify` has raised it, for as long as it takes.
    if sys.getrecursionlimit() < _DEEP:
        sys.setrecursionlimit(_DEEP)
