"""Checks a table with a key: folds the source by key, and compares each key's result with its row.

Tasks sort changes and rows by key, and compare them as they come, so that memory holds one key at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import reduce
from hashlib import blake2b
from heapq import nsmallest
from itertools import groupby
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from driftline.core.schema.definition import POSITION, UNAVAILABLE
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.row_key import KEY_TEXT, RowKey
from driftline.errors import DataError
from driftline.verify.beside import ALWAYS, NEVER, Beside, Order, PlacedOrder, key_in, order_in
from driftline.verify.comparison import TEXTS, Comparison, begin_task
from driftline.verify.conditions import (
    MOMENT,
    NUMBER,
    NUMBERS,
    TEXT,
    ConditionReader,
    RowField,
    exactly_number,
    identity,
)
from driftline.verify.files import Read, SourcePlace
from driftline.verify.match import (
    Copies,
    ExtraRows,
    MissingRecords,
    apart,
    in_text,
    listed,
    order,
    packed,
    unpacked,
)
from driftline.verify.matching_key import TableStruct
from driftline.verify.moments import micros
from driftline.verify.values import ValueSettings, moment_of
from driftline.verify.verdict import LISTED, RowDifference, Steps, Verdict, shown

if TYPE_CHECKING:
    from pyspark import RDD

_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_KINDS = {"boolean": "boolean", "binary": "binary", "fixed": "binary", **dict.fromkeys(NUMBERS, NUMBER)}


class NoChange(Exception):
    """A record without a key or an order, which must be in quarantine; the message says why."""


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads keys, orders and deletes by the settings of a table.

    Attributes:
        kinds: of each field of the order, None where the table has no column of it.
    """

    row_key: RowKey
    settings: ValueSettings
    key: Sequence[RowField]
    order: Sequence[RowField]
    kinds: Sequence[str | None]
    deletes_when: ConditionReader | None

    @classmethod
    def of(cls, row_key: RowKey, record: TableStruct, settings: ValueSettings) -> ChangeReader:
        """The reader for a table with these columns."""
        key, order = (
            [RowField.of(record, path) for path in paths] for paths in (row_key.key, row_key.order_by)
        )
        kinds = [_order_kind(field.columns[0][1]) if field.columns else None for field in order]
        deletes = None
        if row_key.delete_when is not None:
            by_null = row_key.deletes_by_null
            deletes = ConditionReader.of(row_key.delete_when, record, settings, of_messages=by_null)
        return cls(row_key, settings, key, order, kinds, deletes)

    def key_of_record(self, record: Mapping[str, Any]) -> str:
        """The key of a source's record, as one text. Raises NoChange."""
        parts = [identity(field.of_record(record, self.settings)) for field in self.key]
        for key_field, part in zip(self.key, parts, strict=True):
            if part is None:
                raise NoChange(f"no key in {spelled_path(key_field.path)}")
        return json.dumps(parts)

    def key_of_row(self, row: Mapping[str, Any]) -> str:
        """The key of a table's row, as one text."""
        return json.dumps([identity(field.of_row(row)) for field in self.key])

    def order_of(self, record: Mapping[str, Any]) -> Order:
        """The order of a change, compared as tuples are. Raises NoChange."""
        return self._order([order_field.of_record(record, self.settings) for order_field in self.order])

    def order_of_row(self, row: Mapping[str, Any], column: str) -> PlacedOrder:
        """The order of the change that a table's row is of; `NEVER` for a row without one.

        Args:
            row: the row.
            column: has the order as a text, of which the epoch is read, if changes have more than one.
        """
        try:
            order = self._order([order_field.of_row(row) for order_field in self.order])
        except NoChange:
            return NEVER
        epoch = 0
        if self.row_key.epoch:
            placed = order_in(row.get(column) or "", self.kinds)
            epoch = -1 if placed is None else int(placed[0])
        return (epoch, order) if order else NEVER

    def earlier(self, row: Mapping[str, Any], column: str) -> tuple[str, PlacedOrder]:
        """The key of a change before the sources, and its order, a text in the ``column``.

        It is `ALWAYS` where changes have none, `NEVER` if the text is no order.
        """
        key = json.dumps(key_in(row[KEY_TEXT])) if KEY_TEXT in row else self.key_of_row(row)
        return key, (order_in(row.get(column) or "", self.kinds) or NEVER) if column else ALWAYS

    def _order(self, values: Sequence[Any]) -> Order:
        parts = []
        for order_field, kind, value in zip(self.order, self.kinds, values, strict=True):
            part = _ordered(value, kind, self.settings)
            if part is None:
                raise NoChange(
                    f"no order in {spelled_path(order_field.path)}" + (f" that is a {kind}" if kind else "")
                )
            parts.append(part)
        return tuple(parts)

    def deletes(self, read: Read) -> bool:
        """True if a record deletes its row. What SQL would not know is not true.

        Raises NoChange for a null value that deletes nothing.
        """
        when = self.deletes_when
        if when is not None and read.record is not None and when.holds(read.record, read.is_null) is True:
            return True
        if read.is_null:
            raise NoChange("a null value that deletes no row")
        return False


def _order_kind(type_: str) -> str:
    return MOMENT if type_ in _MOMENTS else _KINDS.get(type_, TEXT)


def _ordered(value: Any, kind: str | None, settings: ValueSettings) -> tuple[str, Any] | None:
    """A value in the form in which orders of a kind compare; None if it is of another kind."""
    moment = moment_of(value, settings)
    if moment is not None and kind in (MOMENT, None):
        return MOMENT, micros(moment)
    if isinstance(value, str) and kind in (TEXT, None):
        return TEXT, str(value)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and kind in (NUMBER, None):
        exact = exactly_number(value)
        return None if exact is None else (NUMBER, exact)
    return None


# The numbers are part of the keys that sort: rows come before the changes of their key, and what waits before
# what was read.
_ROW, _EARLIER, _CHANGE, _TALLY = range(4)
_WAITING, _READ = range(2)
# The first part sorts; its first number says which task
_Keyed: TypeAlias = "tuple[tuple[Any, ...], Any]"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A record of the source.

    Attributes:
        arrival: its place in the history.
        payload: the record, or a text that is none.
        key: empty if the record has to be in quarantine, with the reason ``why``.
        message: the message in whose envelope the record came; empty without one.
        meets: the record meets all expectations, so that a copy which waits for one is not its.
    """

    place: SourcePlace
    arrival: tuple[int, ...]
    payload: bytes
    key: str = ""
    order: Order = ()
    deletes: bool = False
    why: str = ""
    is_record: bool = True
    message: bytes = b""
    meets: bool = False

    def missing(self, why: str = "", differences: Iterable[Any] = ()) -> MissingRecords:
        """The record as one that the table does not show."""
        return MissingRecords(
            self.place, 1, self.payload if self.is_record else None, why, tuple(differences)
        )


@dataclass(slots=True)
class FoldTally:
    """The counts of the source's records, and of rows beyond them, with the first of each."""

    records: int = 0
    found: int = 0
    deleted: int = 0
    overtaken: int = 0
    quarantined: int = 0
    missing: int = 0
    extra: int = 0
    sample: list[MissingRecords] = field(default_factory=list)
    surplus: list[ExtraRows] = field(default_factory=list)

    def __add__(self, other: FoldTally) -> FoldTally:
        total = FoldTally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
        total.sample = nsmallest(LISTED, total.sample, order)
        total.surplus = nsmallest(LISTED, total.surplus, in_text)
        return total

    def misses(self, record: MissingRecords) -> None:
        """Count a record that the table does not show."""
        self.missing += 1
        self.sample.append(record)
        if len(self.sample) > 2 * LISTED:
            self.sample = nsmallest(LISTED, self.sample, order)

    def goes(self, change: SourceChange, rows: int, why: str) -> None:
        """Count a change after which the table has no row of its key; it has so many ``rows``."""
        if rows:
            self.misses(change.missing(f"{why}, and the table has one"))
        else:
            self.deleted += 1

    def has_too_many(self, rows: ExtraRows) -> None:
        """Count rows that the source does not have."""
        self.extra += rows.n
        self.surplus.append(rows)
        if len(self.surplus) > 2 * LISTED:
            self.surplus = nsmallest(LISTED, self.surplus, in_text)

    def verdict(self, *, exactly: bool) -> Verdict:
        """The verdict that these counts make."""
        mismatches = listed(self.sample)
        if exactly:
            mismatches += [rows.listed() for rows in self.surplus]
        return Verdict(
            self.records, self.found, self.quarantined, self.missing, tuple(mismatches[:LISTED]),
            self.extra if exactly else None, self.deleted, self.overtaken,
        )  # fmt: skip


class _KeyRows(NamedTuple):
    """The rows that the table has of a key.

    Attributes:
        rows: the first of them.
        n: their number.
        before: the order of the last change of the key that came before the sources, as far as it is known.
        is_new: nothing in them is from before the sources.
    """

    rows: Sequence[Mapping[str, Any]]
    n: int
    before: PlacedOrder
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class KeyedFold:
    """The fold of a source by the key of a table.

    Attributes:
        files: the source's, in the order of their ingest.
        truncate: the position of the last truncate in it, empty without one.
        beside: the table has other changes, too, one of which may count for a key instead.
    """

    comparison: Comparison
    row_key: RowKey
    files: Mapping[str, int]
    truncate: str = ""
    beside: Beside | None = None

    def verdict(
        self,
        reads: RDD[Read],
        stored: RDD[dict[str, Any]],
        quarantined: RDD[tuple[bytes, bool]] | None,
        before: RDD[dict[str, Any]] | None = None,
    ) -> Verdict:
        """Compare the latest change of each key with the table's rows.

        ``before``: keys with changes that came before the sources.

        Raises DataError for a format of which nulls are not read, where these tell what a patch empties.
        """
        if self.row_key.patch and self.comparison.terms.fmt not in TEXTS:
            raise DataError(
                "records of a table with merge = patch are checked from JSON and CSV alone: of other sources "
                "nulls are not read apart from absent fields",
                "verify the table from its JSON or CSV files",
            )
        tasks = max(1, reads.getNumPartitions(), stored.getNumPartitions())
        changes = reads.mapPartitions(self.changes)
        if quarantined is None:
            keyed = changes.mapPartitions(self.by_key)
        else:
            # A record that waits in quarantine is no change, so these are taken out before anything is
            # folded.
            texts = changes.mapPartitions(self.by_text).union(quarantined.mapPartitions(self.waiting))
            keyed = _sorted(texts, tasks).mapPartitions(self.not_waiting)
        # Rows stand next to the changes, so a task holds one key at a time.
        both = keyed.union(stored.mapPartitions(self.rows))
        both = both if before is None else both.union(before.mapPartitions(self.earlier))
        tallies = _sorted(both, tasks).mapPartitions(self.folded).collect()
        return reduce(add, tallies, FoldTally()).verdict(exactly=self.comparison.terms.exactly)

    def changes(self, reads: Iterable[Read]) -> Iterator[SourceChange]:
        """The source's records as changes, in the order in which they come."""
        begin_task()
        reader = self._reader()
        message, first = None, 0
        for number, read in enumerate(reads):
            place = read.place
            # The records of one message come one after the other, and share it. Their place alone does not
            # tell messages apart: all records of a typed file may have the same.
            if read.message is None or read.message is not message:
                message, first = read.message, number
            arrival = (self.files.get(place.file, len(self.files)), place.start, place.line, first, number)
            if read.record is None:
                yield SourceChange(place, arrival, read.raw, why=read.reason, is_record=False)
                continue
            around = b"" if read.message is None else packed(self.comparison.without(read.message))
            if read.reason:
                payload = packed(self.comparison.without(read.record))
                yield SourceChange(place, arrival, payload, why=read.reason, message=around)
                continue
            try:
                key, when = reader.key_of_record(read.record), reader.order_of(read.record)
                deletes = reader.deletes(read)
                # Of a delete nothing is expected.
                if read.unmet and not deletes:
                    raise NoChange(f"it does not meet the expectation {read.unmet}")
                payload, meets = packed(self.comparison.without(read.record)), read.unmet is not None
                yield SourceChange(place, arrival, payload, key, when, deletes, message=around, meets=meets)
            except NoChange as error:
                if read.is_null:  # in quarantine it has no value
                    yield SourceChange(place, arrival, b"", why=str(error), is_record=False)
                    continue
                payload = packed(self.comparison.without(read.record))
                yield SourceChange(place, arrival, payload, why=str(error), message=around)

    def by_text(self, changes: Iterable[SourceChange]) -> Iterator[_Keyed]:
        """Changes by the text that their copies in quarantine have, too; those of one message together."""
        for change in changes:
            text = (
                self.comparison.fingerprint_of(unpacked(change.message or change.payload))
                if change.is_record
                else self.comparison.fingerprint(change.payload)
            )
            yield (_number(text), text, _READ, change.arrival), change

    def waiting(self, quarantined: Iterable[tuple[bytes, bool]]) -> Iterator[_Keyed]:
        """The records in quarantine by the same text."""
        for text, copies in self.comparison.keyed_raw(quarantined):
            yield (_number(text), text, _WAITING, ()), copies

    def not_waiting(self, texts: Iterable[_Keyed]) -> Iterator[_Keyed]:
        """The changes that are not in quarantine, by key.

        Of equal ones the first to come is there; a message is there with all its changes.
        """
        tally = FoldTally()

        def others() -> Iterator[SourceChange]:
            for (_, text), group in groupby(texts, lambda x: x[0][:2]):
                held, copies = 0, Copies()
                for (kind, *_), of_one in groupby(group, _record_of):
                    of_text = [value for _, value in of_one]
                    if kind == _WAITING:
                        copies = reduce(add, of_text)
                    elif held < copies.of(meets=all(change.meets for change in of_text)):
                        held += 1
                    else:
                        yield from of_text
                tally.records += held
                tally.quarantined += held
                if copies.n > held:
                    raw = shown(text.decode(errors="replace"))
                    tally.has_too_many(ExtraRows(copies.n - held, raw, "quarantine", held))

        yield from self.by_key(others())
        yield (0, "", _TALLY), tally

    def by_key(self, changes: Iterable[SourceChange]) -> Iterator[_Keyed]:
        """The changes by key, and the count of those that have none."""
        tally = FoldTally()
        for change in changes:
            if change.key:
                yield (_number(change.key), change.key, _CHANGE, change.order, change.arrival), change
            else:
                tally.records += 1
                tally.misses(change.missing(f"{change.why}, and not in quarantine"))
        yield (0, "", _TALLY), tally

    def rows(self, stored: Iterable[dict[str, Any]]) -> Iterator[_Keyed]:
        """The table's rows by key."""
        begin_task()
        reader = self._reader()
        for row in stored:
            key = reader.key_of_row(row)
            yield (_number(key), key, _ROW), packed(row)

    def earlier(self, before: Iterable[dict[str, Any]]) -> Iterator[_Keyed]:
        """The orders of changes before the sources, by key."""
        begin_task()
        reader, column = self._reader(), "" if self.beside is None else self.beside.order
        for row in before:
            key, when = reader.earlier(row, column)
            yield (_number(key), key, _EARLIER), when

    def columns_of_keys(self) -> set[str]:
        """The columns of rows that `earlier` reads."""
        columns = {names[0] for key_field in self._reader().key for names, _ in key_field.columns}
        return columns | {KEY_TEXT} | ({self.beside.order} if self.beside is not None else set())

    def folded(self, keyed: Iterable[_Keyed]) -> Iterator[FoldTally]:
        """Compare the latest change of each key with the key's rows."""
        begin_task()
        tally, floor = FoldTally(), self._floor()
        for _, group in groupby(keyed, lambda x: x[0][:2]):
            stored: list[bytes] = []
            latest: SourceChange | None = None
            cut: SourceChange | None = None
            record: Any = None
            is_new = self.beside is None
            n, before = 0, NEVER
            for key, value in group:
                if key[2] == _TALLY:
                    tally += value
                elif key[2] == _ROW:
                    n += 1
                    stored = stored or [value]
                elif key[2] == _EARLIER:
                    before = max(before, value)
                else:
                    tally.records += 1
                    # Changes of a key come in their order, so each one overtakes the one before it.
                    tally.overtaken += latest is not None or cut is not None
                    if self.row_key.keep and latest is not None:
                        continue
                    if self._placed(value) < floor:
                        cut = value
                        continue
                    latest, record = value, self._after(record, value)
                    # A patch behind a delete begins from nothing; with an order, another change of before the
                    # sources may stand between them.
                    is_new = is_new or (value.deletes and not self.row_key.order_by)
            key_rows = _KeyRows([unpacked(row) for row in stored], n, before)
            if latest is not None:
                record = record if self._keeps else unpacked(latest.payload)
                self._compare(latest, record, key_rows._replace(is_new=is_new), tally)
            elif cut is not None and self._counts_instead(cut, key_rows):
                tally.overtaken += 1
            elif cut is not None:
                tally.goes(cut, n, "a truncate removes its row")
            elif key_rows.rows and self.comparison.terms.exactly:
                tally.has_too_many(ExtraRows(n, shown(key_rows.rows[0]), "the table", 0))
        yield tally

    def _after(self, record: Any, change: SourceChange) -> Any:
        """The record of a key after a change, which was ``record``, where it keeps what a change lacks."""
        if change.deletes or not self._keeps:
            return None
        sent = unpacked(change.payload)
        return _patched(record, sent) if self.row_key.patch else _filled(record, sent)

    @property
    def _keeps(self) -> bool:
        return self.row_key.patch or self.row_key.keeps_fields

    def _compare(self, latest: SourceChange, record: Any, key_rows: _KeyRows, tally: FoldTally) -> None:
        """Count a key's latest change, after which its row has to hold the ``record``."""
        n = key_rows.n
        if n == 1 and not latest.deletes:
            differences = self._apart(key_rows, record, latest)
            # A list without a value leaves nothing in a row that is older than the list's column.
            if all(d.unproven for d in differences):
                tally.found += 1
                return
            lost = latest.missing(differences=differences)
        else:
            lost = latest.missing(f"the table has {n} rows of its key" if n else "its key has no row")
        if (n or not latest.deletes) and self._counts_instead(latest, key_rows):
            tally.overtaken += 1
        elif latest.deletes:
            tally.goes(latest, n, "it deletes its row")
        else:
            tally.misses(lost)

    def _apart(self, key_rows: _KeyRows, record: Any, latest: SourceChange) -> list[RowDifference]:
        """The differences of a key's row from the record that it has to hold."""
        differences = apart(self.comparison.meeting, key_rows.rows[0], record)
        if key_rows.is_new or not (differences and self._keeps):
            return differences
        # What the changes do not have, the row has from before the sources.
        if self.row_key.patch:
            return [d for d in differences if d.lost or _is_sent(record, d.steps)]
        lacking = _lacking(unpacked(latest.payload))
        return [d for d in differences if d.steps[0] not in lacking]

    def _counts_instead(self, change: SourceChange, key_rows: _KeyRows) -> bool:
        """True if a change that the table has beside those of the sources counts for a key, not this one."""
        if self.beside is None or key_rows.n > 1:
            return False
        when, keeps_first = self._placed(change), self.row_key.keep
        if not key_rows.n:
            return key_rows.before > when and not keeps_first
        if not self.row_key.order_by:
            return keeps_first and key_rows.before == ALWAYS
        order_ = self._reader().order_of_row(key_rows.rows[0], self.beside.order)
        # Of equal orders the later arrival counts, or, where the first record of a key stays, the row's.
        return NEVER < order_ <= when if keeps_first else order_ > when and order_ >= self._floor()

    def _placed(self, change: SourceChange) -> PlacedOrder:
        return self.row_key.epoch, change.order

    def _floor(self) -> PlacedOrder:
        """The order below which changes do not count."""
        before = (0, "") if self.beside is None else self.beside.truncate
        epoch, position = max(before, (self.row_key.epoch, self.truncate))
        if not position:
            return NEVER
        return epoch, self._reader().order_of({POSITION[0]: {POSITION[1]: position}})

    def _reader(self) -> ChangeReader:
        meeting = self.comparison.meeting
        return ChangeReader.of(self.row_key, meeting.record, meeting.settings)


# The records themselves are merged, and the result is compared with the row: no presence, no ranks, nothing
# that the road has.
def _patched(value: Any, patch: Any) -> Any:
    """A value that a patch changes: objects key by key, all else is replaced.

    >>> _patched({"a": 1, "b": {"c": 1, "d": [1]}}, {"a": None, "b": {"d": [2]}})
    {'a': None, 'b': {'c': 1, 'd': [2]}}
    """
    if not isinstance(patch, dict):
        return patch
    before = value if isinstance(value, dict) else {}
    return {**before, **{key: _patched(before.get(key), inner) for key, inner in patch.items()}}


def _is_sent(record: Any, steps: Steps) -> bool:
    """True if merged patches say what is at a path, if only that it is null.

    >>> [_is_sent({"a": None, "b": {"c": [1]}}, steps) for steps in (("a", "x"), ("b", "d"), ("b", "c", 1))]
    [True, False, True]
    """
    value = record
    for step in steps:
        if not isinstance(value, dict):
            return True
        if step not in value:
            return False
        value = value[step]
    return True


def _filled(before: Any, record: Any) -> Any:
    """A record with the fields that it does not have the values of, as they were before."""
    names = _lacking(record)
    return {**record, **{name: before[name] for name in names if before is not None and name in before}}


def _lacking(record: Any) -> Sequence[str]:
    """The fields that a record does not have the values of, as its message lacks them."""
    change = record.get(UNAVAILABLE[0])
    names = change.get(UNAVAILABLE[1]) if isinstance(change, dict) else None
    return () if names is None else list(json.loads(names))


def _sorted(keyed: RDD[_Keyed], tasks: int) -> RDD[_Keyed]:
    return keyed.repartitionAndSortWithinPartitions(tasks, itemgetter(0), keyfunc=_whole)


def _record_of(keyed: _Keyed) -> tuple[Any, ...]:
    """The kind of a text, in the source or in quarantine, and the arrival of its record or message."""
    _, _, kind, arrival = keyed[0]
    return kind, *arrival[:-1]


def _whole(key: Any) -> Any:
    return key


def _number(text: str | bytes) -> int:
    # Python's own hash of a text may differ from process to process.
    raw = text if isinstance(text, bytes) else text.encode()
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big")
