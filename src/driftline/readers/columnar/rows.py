"""Observes rows of declared types in tasks, rejects faulty ones, and converts the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert import Converter, Lost
from driftline.convert.declared import Declared, entries_of
from driftline.convert.kernels import convert
from driftline.convert.rest import row_texts
from driftline.core.planning.own_columns import asks_for_place
from driftline.core.planning.plan import Conflict, facet_of
from driftline.core.planning.shape import Facet, FieldShape, RecordShape
from driftline.core.schema.types import (
    List,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    dotted,
    peel,
)
from driftline.core.settings.fields import excluded_paths
from driftline.errors import DataError
from driftline.keys.patch_fields import PRESENCE, presence_of_rows
from driftline.observe.arrow import ArrowObserver, shape_of
from driftline.observe.observation import (
    REASONS,
    SAMPLE,
    Observation,
    RejectSample,
    first_places,
    merge_observations,
    sample,
)
from driftline.readers.deletes import DeleteFilter, flagged
from driftline.readers.expectations import ExpectationCheck
from driftline.readers.rejects import ORIGIN, Origin, Origins, Reject, origin_array, reject_batch
from driftline.readers.task import AdmissionTerms, Diverged, group_parts

Flags: TypeAlias = NDArray[np.bool_]


def first_conflicts(
    batch: pa.RecordBatch, struct: Struct, conflicts: Sequence[Conflict]
) -> NDArray[np.int64]:
    """For each row the number of its first conflict; -1 if it has none."""
    numbers = np.full(batch.num_rows, -1, np.int64)
    rows = _Records(batch.columns, struct, batch.num_rows)
    # The last first, so that the first conflict of a row is written last and stays.
    for number in reversed(range(len(conflicts))):
        numbers[rows.at(conflicts[number].path, conflicts[number])] = number
    return numbers


def having(batch: pa.RecordBatch, struct: Struct, path: Path, conflict: Conflict | None = None) -> Flags:
    """Flag the rows with the conflict at a path of the data; without one, with any value there."""
    return _Records(batch.columns, struct, batch.num_rows).at(path, conflict)


class _Records:
    """Some records: an array for each field of their struct, in which a key may occur several times."""

    def __init__(self, arrays: Sequence[pa.Array], struct: Struct, count: int) -> None:
        self._arrays, self._struct, self._count = arrays, struct, count

    def at(self, path: Path, conflict: Conflict | None) -> Flags:
        """Flag the records with the ``conflict`` at the path; without one, with any value there."""
        key, *inside = path
        fields = [
            (f.type, array)
            for f, array in zip(self._struct.fields, self._arrays, strict=True)
            if f.name == key
        ]
        # Paths of JSON may have steps into lists that this data has not.
        if not fields and key == "element" and inside:
            return self.at(tuple(inside), conflict)
        missing = conflict is not None and conflict.facet is None
        if not fields:
            return np.full(self._count, missing)
        flags = [_at(array, type_, tuple(inside), conflict) for type_, array in fields]
        # Of the types that a key has, each record has one.
        joined: Flags = (
            np.logical_and.reduce(flags) if missing and not inside else np.logical_or.reduce(flags)
        )
        return joined


def _at(values: pa.Array, type_: Type, path: Path, conflict: Conflict | None) -> Flags:
    """Flag values in lists. Steps of lists count only where the data has a list."""
    if not path or (set(path) == {"element"} and not isinstance(type_, Struct)):
        return _leaf(values, type_, conflict)
    match type_:
        case List(element):
            inside = path[1:] if path[0] == "element" else path
            return _any(values, _at(values.flatten(), element, inside, conflict))
        case Map(_, value) if path[0] == "value":
            entries = entries_of(values)
            return _any(entries, _at(entries.flatten().field(1), value, path[1:], conflict))
        case Struct():
            valid = _valid(values)
            at_records = np.zeros(len(values), np.bool_)
            records = values.filter(pa.array(valid))
            arrays = [records.field(i) for i in range(len(type_.fields))]
            at_records[valid] = _Records(arrays, type_, len(records)).at(path, conflict)
            return at_records
        case _:
            return np.zeros(len(values), np.bool_)


def _leaf(values: pa.Array, type_: Type, conflict: Conflict | None) -> Flags:
    if conflict is not None and conflict.facet is None:
        nulls: Flags = values.is_null(nan_is_null=conflict.nan).to_numpy(zero_copy_only=False)
        return nulls
    dim, leaf_type = peel(type_)
    if isinstance(leaf_type, Primitive) and leaf_type.name == "void":
        return np.zeros(len(values), np.bool_)
    if conflict is not None and facet_of(type_) != conflict.facet:
        return np.zeros(len(values), np.bool_)
    return _any_leaf(values, dim, leaf_type, conflict)


def _any_leaf(values: pa.Array, dim: int, leaf_type: Type, conflict: Conflict | None) -> Flags:
    if dim:
        return _any(values, _any_leaf(values.flatten(), dim - 1, leaf_type, conflict))
    valid = _valid(values)
    if conflict is None or conflict.inexact is None or not isinstance(leaf_type, Primitive):
        return valid
    assert isinstance(conflict.inexact.base, Primitive)
    return valid & ~_valid(convert(values, leaf_type, conflict.inexact.base, conflict.unit))


def _any(lists: pa.Array, flags: Flags) -> Flags:
    """Flag the lists that hold a flagged element."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    any_inside = np.zeros(len(lists), np.bool_)
    any_inside[np.repeat(np.arange(len(lists)), lengths)[flags]] = True
    return any_inside


def _valid(values: pa.Array) -> Flags:
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file.

    Attributes:
        batch: an array for each field of the reader's struct, in its order, each of the type that
            `driftline.convert.arrow_type` names.
        source: the file.
        rejects: texts among the rows that are no records.
        lines: the line of each row, or its number in the file, from 1, if these are known.
        aside: the number of the expectation that sets each row aside, -1 if none does; None if none sets any.
        origin: the origin of a row by its number, if file and line are not enough.
        whole: the rows as they came, if those that delete were cut.
    """

    batch: pa.RecordBatch
    source: str
    rejects: Sequence[Reject] = ()
    origin: Callable[[int], Origin] | None = None
    whole: pa.RecordBatch | None = None
    lines: NDArray[np.int64] | None = None
    aside: NDArray[np.int64] | None = None

    def origin_of(self, row: int) -> Origin:
        """The origin of a row."""
        if self.origin is not None:
            return self.origin(row)
        return Origin(self.source or None, None if self.lines is None else int(self.lines[row]))


class FedRows(NamedTuple):
    """Rows as they were observed.

    Attributes:
        accepted: those without a conflict.
        deletes: flags of these that delete, if some may.
    """

    rows: Rows
    accepted: pa.RecordBatch
    deletes: pa.Array | None = None


class ColumnReader(Protocol):
    """Files of one schema in parts, of which a task reads at least one. It is small, to be sent to tasks."""

    @property
    def struct(self) -> Struct:
        """The types of the columns, by key."""
        ...

    @property
    def label(self) -> str:
        """The name of the files in reports."""
        ...

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each part."""
        ...

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        ...

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a part, some at a time."""
        ...


def admitted(rows: Rows, struct: Struct, terms: AdmissionTerms) -> NDArray[np.bool_]:
    """Flags of the rows without a conflict."""
    flags: NDArray[np.bool_] = first_conflicts(rows.batch, struct, terms.conflicts) < 0
    return flags if rows.aside is None else flags & (rows.aside < 0)


class RowsObserver:
    """Observes the rows of one reader.

    Args:
        label: the name of its files in reports.
        null: the rows are messages of a topic, whose value is null or a record.
    """

    def __init__(
        self, struct: Struct, label: str, terms: AdmissionTerms, *, null: bool | None = None
    ) -> None:
        self.struct, self.terms = struct, terms
        self._in_files = null is None
        self._observer = ArrowObserver(
            struct, terms.expected, label, empty_names=terms.settings.keep_empty_names
        )
        deletes = DeleteFilter.of(terms)
        self._deletes = deletes if deletes is None or null is None else deletes.of_message(null=null)
        expected = terms.settings.expect
        self._expectations = ExpectationCheck(expected) if expected else None
        self._excluded = list(excluded_paths(terms.settings.fields))
        self._counts: Counter[str] = Counter()
        self._refused = self._deleted = 0
        self._bad: list[RejectSample] = []
        self._places: dict[tuple[Path, Facet | None], tuple[SourceLocation, ...]] = {}

    def feed(self, rows: Rows) -> FedRows:
        """Observe the accepted rows, and return them."""
        deletes: pa.Array | None = None
        if self._deletes is not None:
            batch, deletes = self._deletes.rows(rows.batch, self.struct)
            rows = replace(rows, batch=batch, whole=rows.batch)
        if self._expectations is not None:
            came = rows.batch if rows.whole is None else rows.whole
            aside = self._expectations.rows(
                came, self.struct, deletes, lambda row: rows.origin_of(row).location
            )
            rows = replace(rows, aside=aside if (aside >= 0).any() else None)
        batch, accepted = rows.batch, None
        if self.terms.conflicts or rows.aside is not None:
            accepted = admitted(rows, self.struct, self.terms)
            flags = pa.array(accepted)
            batch, deletes = batch.filter(flags), None if deletes is None else deletes.filter(flags)
        self._observer.feed(batch, partial(_place_of, rows, accepted) if self._in_files else None)
        self._deleted += 0 if deletes is None else deletes.true_count
        for path in self._excluded:
            if count := int(having(batch, self.struct, path).sum()):
                self._counts[dotted(path)] += count
        self._refused += rows.batch.num_rows - batch.num_rows
        self.refused(rows.rejects)
        return FedRows(rows, batch, deletes)

    def refused(self, rejects: Sequence[Reject]) -> None:
        """Count rejects as malformed."""
        self._refused += len(rejects)
        self._bad += [_bad(reject) for reject in rejects[: REASONS - len(self._bad)]]

    def rejects(self, rows: Rows, everything: str | None) -> Iterator[Reject]:
        """The rejected rows, each with its reason; all rows if there is a reason for ``everything``."""
        yield from rows.rejects
        conflicts, aside = self.terms.conflicts, rows.aside
        if everything is None and not conflicts and aside is None:
            return
        numbers = first_conflicts(rows.batch, self.struct, conflicts)
        chosen = numbers >= (0 if everything is None else -1)
        if aside is not None:
            chosen |= aside >= 0
        # A reject is kept whole, also of a record that was cut down to its key.
        complete = rows.batch if rows.whole is None else rows.whole
        texts = row_texts(complete.filter(pa.array(chosen)), self.struct)
        for row, text in zip(np.flatnonzero(chosen).tolist(), texts, strict=True):
            origin, why = rows.origin_of(row), everything or ""
            if aside is not None and aside[row] >= 0:
                yield Reject(origin, text, self.terms.settings.expect[aside[row]].reason)
                continue
            if numbers[row] < 0:
                yield Reject(origin, text, why)
                continue
            conflict = conflicts[numbers[row]]
            before = self._places.get(conflict.refuses, ())
            self._places[conflict.refuses] = first_places((*before, origin.location))
            yield Reject(origin, text, conflict)

    def result(self) -> Observation:
        """The observation so far."""
        observation = self._observer.result()
        tally = replace(
            observation.tally,
            rejected=self._refused,
            reasons=tuple(self._bad),
            excluded=Counter(self._counts),
            deletes=self._deleted,
            refused=dict(self._places),
            violations={} if self._expectations is None else self._expectations.violations,
        )
        return replace(observation, tally=tally)


def _place_of(rows: Rows, accepted: Flags | None, row: int) -> SourceLocation:
    """Return the place of a row, by its number among those that are accepted."""
    return rows.origin_of(row if accepted is None else int(np.flatnonzero(accepted)[row])).location


def _bad(reject: Reject) -> RejectSample:
    text = (reject.raw or b"")[: 4 * SAMPLE].decode(errors="backslashreplace")
    return RejectSample(reject.origin.location, str(reject.why), sample(text))


def has_required(schema: Schema) -> bool:
    """True if a table has required columns.

    Only once all rows are observed is it known if one lacks a value there, so such a table allows no guess.
    """
    # Declared types say nothing about nulls, so such a table gets no guess.
    return any(f.required for _, f in schema.walk())


class ColumnGroup(NamedTuple):
    """Some rows of one observer, all in batches of one schema."""

    observer: RowsObserver
    rows: Sequence[Rows]


class AcceptedRows(NamedTuple):
    """The rows of a group without a conflict, and the types of their columns."""

    struct: Struct
    parts: Sequence[FedRows]


class OpenRows:
    """In a task: observes rows of columns, and converts those that are accepted.

    Args:
        converter: made by the plan; None if the rows are only observed.
    """

    def __init__(self, terms: AdmissionTerms, converter: Converter | None) -> None:
        self._terms, self._converter = terms, converter

    def observe(
        self, group: ColumnGroup, everything: str | None
    ) -> tuple[AcceptedRows, pa.RecordBatch | None]:
        """Observe the rows of a group that are accepted."""
        struct = group.observer.struct
        fed = [group.observer.feed(rows) for rows in group.rows]
        rejects = [reject for part in fed for reject in group.observer.rejects(part.rows, everything)]
        parts = [part for part in fed if part.accepted.num_rows]
        return AcceptedRows(struct, parts), reject_batch(rejects) if rejects else None

    def convert(self, accepted: AcceptedRows) -> Iterator[pa.RecordBatch]:
        """Make rows of the table. Raises Diverged if its columns do not take a value."""
        if accepted.parts:
            assert self._converter is not None
            rows = table_rows(self._converter, accepted.parts, accepted.struct)
            if asks_for_place(self._terms.settings.metadata):
                origins = [self._origins(part, accepted.struct) for part in accepted.parts]
                rows = rows.append_column(ORIGIN, origin_array(origins))
            yield rows

    def _origins(self, part: FedRows, struct: Struct) -> tuple[int, Origins]:
        """The origins of the accepted rows of a part."""
        rows, lines = part.rows, part.rows.lines
        if lines is not None and (self._terms.conflicts or rows.aside is not None):
            lines = lines[admitted(rows, struct, self._terms)]
        return part.accepted.num_rows, Origins(Origin(rows.source or None), lines)


def table_rows(converter: Converter, parts: Sequence[FedRows], struct: Struct) -> pa.RecordBatch:
    """Convert the accepted rows. Raises Diverged if the table's columns do not take a value."""
    accepted = _joined([part.accepted for part in parts])
    try:
        rows = converter.of_arrow(accepted, struct, json=False)
    except Lost as error:
        raise Diverged from error
    flags = [part.deletes for part in parts if part.deletes is not None]
    rows, row_key = flagged(rows, pa.concat_arrays(flags) if flags else None), converter.settings.row_key
    if row_key is not None and row_key.patch:
        rows = rows.append_column(PRESENCE, presence_of_rows(accepted, struct))
    return rows


def small_together(rows: Iterable[Rows]) -> Iterator[Sequence[Rows]]:
    """Group rows in small batches of one schema."""
    for _, alike in groupby(rows, lambda part: part.batch.schema):
        yield from group_parts(alike, lambda part: (part.batch.num_rows, part.batch.nbytes))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which copies


def declared(struct: Struct, label: str, terms: AdmissionTerms) -> Observation:
    """The observation of no row of a reader: its declared columns."""
    return Observation(shape_of(struct, SourceLocation(label), empty_names=terms.settings.keep_empty_names))


def together(parts: Sequence[Observation], struct: Struct, label: str, terms: AdmissionTerms) -> Observation:
    """Merge the observations of all parts of one reader, each of which has the declared columns.

    These count even without a part. Refused rows leave no trace: no types that only they had, and
    no columns if no row is left; nor do rows that delete, if there are no others.
    """
    merged = merge_observations(parts or [declared(struct, label, terms)])
    deletes = DeleteFilter.of(terms)
    # Records that delete alone must not make the columns that their files declare.
    if deletes is not None and 0 < merged.tally.deletes == merged.tally.records:
        merged = replace(merged, shape=deletes.shape(merged.shape))
    for conflict in terms.conflicts:
        if conflict.facet is not None and conflict.inexact is None:
            _forget(merged.shape.fields, conflict.path, conflict.facet)
    keys = {f.name for f in struct.fields}
    lacking = any(key not in keys for key in terms.expected.required_keys)
    if not merged.tally.records and (merged.tally.rejected or lacking):
        return replace(merged, shape=RecordShape())
    return merged


def _forget(fields: dict[str, FieldShape], path: Path, facet: Facet) -> None:
    key, *tail = path
    field = fields.get(key)
    if field is None:
        return
    inside = tuple(tail)
    while inside[:1] == ("element",):
        inside = inside[1:]
    if not inside:
        field.facets.pop(facet, None)
        return
    for profile in field.facets.values():
        if profile.record is not None:
            _forget(profile.record.fields, inside, facet)
        if profile.value is not None and inside[0] == "value":
            _forget({"value": profile.value}, inside, facet)


# A prefix for the reason of a row, by its number
PlaceOf: TypeAlias = Callable[[int], str]
# What Arrow says of values, and why their rows are set aside; the others have a place in a table.
_FAULTS = (
    ("Invalid UTF8", "text that is not UTF-8"),
    ("does not fit in precision", "a decimal with more digits than its type has"),
)


def read_checked(
    declared: Declared,
    columns: Sequence[pa.Array],
    source: str,
    place: PlaceOf = lambda _: "",
    first: int | None = None,
) -> Rows:
    """Read the columns of an Arrow schema as those of a table, and check their rows, as `checked` does.

    Raises DataError for values that cannot be read, with their column.
    """
    try:
        return checked(declared.read(columns), declared.struct, source, place, first)
    except DataError:
        # A table's decimal has no room for some digits: the source's own columns tell which rows have them.
        reasons = _reasons(columns, declared.schema.names, place)
        if not reasons:
            raise
    # The rejects' texts need all digits, so they are read with more room than a table has.
    wide = Declared(pa.schema([f.with_type(_widest(f.type)) for f in declared.schema]), declared.leaves)
    faulty = pa.array(sorted(reasons))
    widened = [c.take(faulty).cast(f.type) for c, f in zip(columns, wide.schema, strict=True)]
    sound = pa.array(_sound(len(columns[0]), reasons))
    batch = declared.read([column.filter(sound) for column in columns])
    return _without(batch, source, first, reasons, row_texts(wide.read(widened), wide.struct))


def checked(
    batch: pa.RecordBatch,
    struct: Struct,
    source: str,
    place: PlaceOf = lambda _: "",
    first: int | None = None,
) -> Rows:
    """Check the rows by the types of ``struct``; those with a faulty value become rejects.

    Args:
        first: the number of the first row in its file, if that is known.
    """
    reasons = _reasons(batch.columns, [f.name for f in struct.fields], place)
    if not reasons:
        lines = None if first is None else np.arange(first, first + batch.num_rows)
        return Rows(batch, source, lines=lines)
    texts = row_texts(batch.take(pa.array(sorted(reasons))), struct)
    sound = batch.filter(pa.array(_sound(batch.num_rows, reasons)))
    return _without(sound, source, first, reasons, texts)


def _without(
    sound: pa.RecordBatch,
    source: str,
    first: int | None,
    reasons: Mapping[int, str],
    texts: Sequence[bytes],
) -> Rows:
    """The ``sound`` rows, and those between them as rejects."""
    count = sound.num_rows + len(reasons)
    lines = None if first is None else np.arange(first, first + count)
    rows = Rows(sound, source, lines=lines)
    rejects = [
        Reject(rows.origin_of(number), text, reasons[number])
        for number, text in zip(sorted(reasons), texts, strict=True)
    ]
    return Rows(sound, source, rejects, lines=None if lines is None else lines[_sound(count, reasons)])


def _sound(count: int, reasons: Mapping[int, str]) -> NDArray[np.bool_]:
    """Flags of the rows that have no reason to be set aside."""
    flags = np.ones(count, np.bool_)
    flags[list(reasons)] = False
    return flags


def _reasons(columns: Sequence[pa.Array], names: Sequence[str], place: PlaceOf) -> dict[int, str]:
    """The first fault of each row that has one."""
    reasons: dict[int, str] = {}
    for name, column in zip(names, columns, strict=True):
        for row, fault in _faulty(column, range(len(column))):
            reasons.setdefault(row, f"{place(row)}{name}: {fault}")
    return reasons


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type with decimals, at any depth, that have room for more digits than they say."""
    if pa.types.is_decimal(type_):
        return pa.decimal256(76, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_widest(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_widest(type_.value_type))
    if pa.types.is_large_list(type_):
        return pa.large_list(_widest(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_widest(type_.key_type), _widest(type_.item_type))
    return type_


def _faulty(column: pa.Array, rows: range) -> Iterator[tuple[int, str]]:
    """Find the rows with a faulty value, and the faults, by halves."""
    # A slice of lists would have the values of all.
    part = np.arange(rows.start, rows.stop) if len(rows) < len(column) else None
    fault = _fault(column if part is None else column.take(pa.array(part)))
    if fault and len(rows) == 1:
        yield rows.start, fault
    elif fault:
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from _faulty(column, half)


def _fault(column: pa.Array) -> str | None:
    try:
        # Checks UTF-8 and the digits of decimals of all values in one call.
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return next((fault for message, fault in _FAULTS if message in str(error)), None)
    return None
