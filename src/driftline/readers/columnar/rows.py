"""Rows of declared types in tasks: observed, accepted or set aside, converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert import Lost
from driftline.convert.rest import row_texts
from driftline.core.planning.own_columns import asks_for_place
from driftline.core.planning.shape import Facet, FieldShape, RecordShape
from driftline.core.schema.types import Path, Place, Schema, Struct, dotted
from driftline.core.settings.fields import excluded_paths
from driftline.keys.presence import PRESENCE, presence_of_rows
from driftline.observe.arrow import ArrowObserver, shape_of
from driftline.observe.observation import (
    REASONS,
    SAMPLE,
    MalformedRecord,
    Observation,
    merge_observations,
    sample,
)
from driftline.observe.refused import first_conflicts, having
from driftline.readers.deletes import DeleteFilter, flagged
from driftline.readers.origins import ORIGIN, Origins, origin_array
from driftline.readers.rejects import Origin, Reject, reject_batch
from driftline.readers.shares import gathered
from driftline.readers.task import Diverged
from driftline.readers.terms import AdmissionTerms

if TYPE_CHECKING:
    from driftline.convert import Converter


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file.

    ``batch``: an array for each field of the reader's struct, in its order, each of the type that
    `driftline.convert.arrow_type` names. ``source``: the file. ``rejects``: texts among the rows that are no
    records. ``lines``: the line of each row, or its number in the file, from 1, if these are known.
    ``origin``: the origin of a row by its number, if file and line are not enough. ``whole``: the rows as
    they came, if those that delete were cut.
    """

    batch: pa.RecordBatch
    source: str
    rejects: Sequence[Reject] = ()
    origin: Callable[[int], Origin] | None = None
    whole: pa.RecordBatch | None = None
    lines: NDArray[np.int64] | None = None

    def origin_of(self, row: int) -> Origin:
        """The origin of a row."""
        if self.origin is not None:
            return self.origin(row)
        return Origin(self.source or None, None if self.lines is None else int(self.lines[row]))


class FedRows(NamedTuple):
    """Rows as they were observed: ``accepted`` are those without a conflict. ``deletes``: flags of these that
    delete, if some may.
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
    return flags


def rejects_of(rows: Rows, struct: Struct, terms: AdmissionTerms, everything: str | None) -> Iterator[Reject]:
    """The rejected rows, each with its reason; all rows if there is a reason for ``everything``."""
    yield from rows.rejects
    conflicts = terms.conflicts
    if everything is None and not conflicts:
        return
    numbers = first_conflicts(rows.batch, struct, conflicts)
    chosen = numbers >= (0 if everything is None else -1)
    complete = rows.batch if rows.whole is None else rows.whole
    texts = row_texts(complete.filter(pa.array(chosen)), struct)
    for row, text in zip(np.flatnonzero(chosen).tolist(), texts, strict=True):
        why = conflicts[numbers[row]] if numbers[row] >= 0 else everything or ""
        yield Reject(rows.origin_of(row), text, why)


class RowsObserver:
    """Observes the rows of one reader.

    ``label``: the name of its files in reports; ``null``: the rows are messages of a topic, whose value is
    null or a record.
    """

    def __init__(
        self, struct: Struct, label: str, terms: AdmissionTerms, *, null: bool | None = None
    ) -> None:
        self.struct, self.terms = struct, terms
        self._observer = ArrowObserver(
            struct, terms.expected, label, empty_names=terms.settings.keep_empty_names
        )
        deletes = DeleteFilter.of(terms)
        self._deletes = deletes if deletes is None or null is None else deletes.of_message(null=null)
        self._excluded = list(excluded_paths(terms.settings.contract))
        self._counts: Counter[str] = Counter()
        self._refused = self._deleted = 0
        self._bad: list[MalformedRecord] = []

    def feed(self, rows: Rows) -> FedRows:
        """Observe the accepted rows, and return them."""
        deletes: pa.Array | None = None
        if self._deletes is not None:
            batch, deletes = self._deletes.rows(rows.batch, self.struct)
            rows = replace(rows, batch=batch, whole=rows.batch)
        batch = rows.batch
        if self.terms.conflicts:
            flags = pa.array(admitted(rows, self.struct, self.terms))
            batch, deletes = batch.filter(flags), None if deletes is None else deletes.filter(flags)
        self._observer.feed(batch)
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

    def result(self) -> Observation:
        """The observation so far."""
        observation = self._observer.result()
        tally = replace(
            observation.tally,
            malformed=self._refused,
            reasons=tuple(self._bad),
            excluded=Counter(self._counts),
            deletes=self._deleted,
        )
        return replace(observation, tally=tally)


def _bad(reject: Reject) -> MalformedRecord:
    text = (reject.raw or b"")[: 4 * SAMPLE].decode(errors="backslashreplace")
    return MalformedRecord(reject.origin.place, str(reject.why), sample(text))


def has_required(schema: Schema) -> bool:
    """True if a table has required columns.

    Only once all rows are observed is it known if one lacks a value there, so such a table allows no guess.
    """
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

    ``converter``: made by the plan; None if the rows are only observed.
    """

    def __init__(self, terms: AdmissionTerms, converter: Converter | None) -> None:
        self._terms, self._converter = terms, converter

    def observe(
        self, group: ColumnGroup, everything: str | None
    ) -> tuple[AcceptedRows, pa.RecordBatch | None]:
        """Observe the rows of a group that are accepted."""
        struct = group.observer.struct
        fed = [group.observer.feed(rows) for rows in group.rows]
        rejects = [
            reject for part in fed for reject in rejects_of(part.rows, struct, self._terms, everything)
        ]
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
        if lines is not None and self._terms.conflicts:
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
        yield from gathered(alike, lambda part: (part.batch.num_rows, part.batch.nbytes))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which copies


def together(parts: Iterable[Observation], struct: Struct, label: str, terms: AdmissionTerms) -> Observation:
    """Merge the observations of all parts of one reader.

    Declared columns count even without a part. Refused rows leave no trace: no types that only they had, and
    no columns if no row is left; nor do rows that delete, if there are no others.
    """
    declared = shape_of(struct, Place(label), empty_names=terms.settings.keep_empty_names)
    merged = merge_observations([Observation(declared), *parts])
    deletes = DeleteFilter.of(terms)
    if deletes is not None and 0 < merged.tally.deletes == merged.tally.records:
        merged = replace(merged, shape=deletes.shape(merged.shape))
    for conflict in terms.conflicts:
        if conflict.facet is not None and conflict.inexact is None:
            _forget(merged.shape.fields, conflict.path, conflict.facet)
    keys = {f.name for f in struct.fields}
    lacking = any(key not in keys for key in terms.expected.required_keys)
    if not merged.tally.records and (merged.tally.malformed or lacking):
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
