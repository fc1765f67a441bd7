"""Turns JSON lines into rows of a table, in tasks.

A task decodes its lines as observing does. Lines with only usual types are parsed as whole columns; so are
others, once their unusual values are taken out, at any depth.

The parser of columns accepts more than the rules allow, so it gets only lines that a decoder has found to
have the columns' types.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import accumulate, chain, compress, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import MsgspecError, Raw
from numpy.typing import NDArray

from driftline.convert import Converter, DriftedValues
from driftline.convert.types import DEEPEST
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.maps import folded
from driftline.core.planning.own_columns import asks_for_place
from driftline.core.planning.plan import Plan, lean
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Path, SourceLocation, Struct
from driftline.core.settings.condition import paths_of
from driftline.core.settings.fields import excluded_paths
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused, pickled
from driftline.core.values import Malformed, RefusedText, UnlistedDocument, parse, parse_values
from driftline.keys.patch_fields import PRESENCE, presence_of_lines
from driftline.observe.decoder import FieldDecoders, doubtful
from driftline.observe.expect import ExpectedField, foreseen
from driftline.observe.json_lines import (
    AdmissionByShape,
    JsonObserver,
    LineNumbers,
    LineOutcome,
    Why,
    rejected_of,
)
from driftline.observe.observation import Observation
from driftline.observe.walk import MANY_KEYS
from driftline.readers.deletes import DeleteFilter, flagged
from driftline.readers.envelopes.extended_json import plain_record
from driftline.readers.envelopes.messages import unavailable_in
from driftline.readers.envelopes.unwrap import Unwrapper, rejecting
from driftline.readers.excel import sheet_texts
from driftline.readers.expectations import ExpectationCheck, Kept, LinesInColumns
from driftline.readers.json.documents import ListedRecords
from driftline.readers.json.splits import ObservedSplits, Share, Split, blocks, together
from driftline.readers.json.usual import (
    Drifting,
    Unparsed,
    Unusual,
    ValuelessKeys,
    as_written,
    drifting_keys,
    limited,
    parsed,
    spells_integers,
    usual_struct,
    valueless_keys,
    without_unusual,
)
from driftline.readers.rejects import (
    ORIGIN,
    PART,
    Origin,
    Origins,
    Reject,
    origin_array,
    reject_batch,
)
from driftline.readers.task import AdmissionTerms, Diverged, TaskReader, group_parts

_FEW = 64  # lines that are no longer halved in search of one that the parser refuses

# Rows of the table, and the places of their lines
Rows = tuple["pa.RecordBatch", Sequence[int]]


@dataclass(frozen=True, slots=True)
class UsualRecords:
    """Records that hold only usual values.

    Attributes:
        texts: their JSON.
        places: the places of their lines.
        unusual: the values taken out of them, by record number.
    """

    texts: Sequence[bytes]
    places: Sequence[int]
    unusual: Mapping[int, Unusual]

    def part(self, start: int, stop: int) -> UsualRecords:
        """Return the records from ``start`` to ``stop``."""
        unusual = {
            number - start: values for number, values in self.unusual.items() if start <= number < stop
        }
        return UsualRecords(self.texts[start:stop], self.places[start:stop], unusual)

    def without(self, gaps: Sequence[int]) -> UsualRecords:
        """Return the records but those of these numbers, which rise."""
        kept = bytearray(b"\1") * len(self.places)
        for gap in gaps:
            kept[gap] = 0
        unusual = {n - bisect_left(gaps, n): values for n, values in self.unusual.items() if kept[n]}
        return UsualRecords(list(compress(self.texts, kept)), list(compress(self.places, kept)), unusual)

    @gc_paused()
    def apart(self) -> dict[Path, DriftedValues]:
        """Parse the unusual values, by path."""
        rows: dict[Path, list[int]] = {}
        texts: dict[Path, list[bytes | Raw]] = {}
        for row, unusual in self.unusual.items():
            for path, text in unusual:
                rows.setdefault(path, []).append(row)
                texts.setdefault(path, []).append(text)
        return {path: DriftedValues(rows[path], parse_values(texts[path])) for path in rows}


@gc_paused()
def taken_apart(
    lines: Sequence[bytes], outcomes: Sequence[LineOutcome], drifting: Drifting, takes: FieldDecoders
) -> tuple[UsualRecords, list[int]]:
    """Take the unusual values out of the lines' records.

    Args:
        lines: the lines.
        outcomes: the lines that the observer's decoder did not take.
        drifting: the paths of unusual values.
        takes: decoders of usual values alone, except numbers that a double cannot tell apart.

    Returns:
        The records without unusual values, and the places of lines to be read one by one.
    """
    if not outcomes:
        return UsualRecords(lines, range(len(lines)), {}), []
    drifted = [place for place, why in outcomes if why is None and lines[place].strip()]
    # The parser of columns forgets how a number was written.
    alone = {drifted[number] for number in doubtful([lines[place] for place in drifted])}
    passed_over = {place for place, _ in outcomes}.difference(drifted)
    texts, unusual = list(lines), dict[int, Unusual]()
    for place in drifted:
        if place not in alone:
            try:
                texts[place], unusual[place] = without_unusual(lines[place], drifting, takes)
            except MsgspecError:
                alone.add(place)
    missing = alone | passed_over
    records = UsualRecords(texts, range(len(lines)), unusual)
    return records.without(sorted(missing)) if missing else records, sorted(alone)


@dataclass(frozen=True, slots=True)
class JsonRows:
    """The conversion from lines to rows; it is sent to tasks.

    Attributes:
        usual: the types as which Arrow parses the fields.
        valueless: fields that Arrow skips.
        drifting: fields that also have values of other types.
        expected: the table's present or future columns.
        planned: the shape that the plan was made for.
        check: refuses records.
        before: the shape already observed, which need not be observed again.
        spells_integers: a text column takes whole numbers.
    """

    converter: Converter
    usual: Struct
    valueless: ValuelessKeys
    drifting: Drifting
    expected: ExpectedField
    planned: RecordShape
    settings: TableSettings
    check: AdmissionCheck | None = None
    before: RecordShape = field(default_factory=RecordShape)
    spells_integers: bool = False

    def __reduce__(self) -> Any:
        # As one text: Spark's own pickler asks Python about each object.
        return _restored, (pickled(tuple(getattr(self, f.name) for f in fields(self)), DEEPEST),)

    @classmethod
    @gc_paused()
    def of(cls, plan: Plan, struct: Struct, terms: AdmissionTerms, observation: Observation) -> JsonRows:
        """Build the conversion from a plan.

        Args:
            plan: the plan.
            struct: the columns that the plan fills.
            terms: the terms by which the table admits records.
            observation: the observation that the plan was made for.
        """
        route, planned, settings = lean(plan.route), _folded(observation.shape), terms.settings
        # A part of the batch may have too few keys of a map to show that it is a map.
        expected = terms.expected if terms.check is not None else foreseen(terms.expected, planned)
        usual, valueless = usual_struct(route), valueless_keys([route])
        drifting = drifting_keys(planned, usual, valueless, route, settings.fields)
        converter = Converter(struct, route, settings)
        return cls(
            converter, usual, valueless, drifting, expected, planned, settings, terms.check,
            spells_integers=spells_integers([route]),
        )  # fmt: skip

    def beginning_with(self, first: RecordShape) -> JsonRows:
        """Return a copy for lines of which the first have the shape ``first``."""
        # Whether the keys of an object are data is not known of the first lines alone.
        return replace(self, before=first.having(lambda key: not self.planned.fields[key].has_maps))

    def observer(self) -> JsonObserver:
        """Create an observer, which reports the lines that are not of the usual types."""
        # What the plan was made for had its keys apart, so that a part of it must not forget them sooner.
        many = MANY_KEYS if self.check is not None else max(MANY_KEYS, self.planned.most_keys + 1)
        return JsonObserver(self.expected, self.settings, self.check, self._usual, many, self.before)

    def of_lines(
        self,
        lines: Sequence[bytes],
        outcomes: Sequence[LineOutcome],
        fields: FieldDecoders,
        kept: Kept | None = None,
    ) -> Iterator[Rows]:
        """Yield the rows of the records among the lines.

        Args:
            lines: the lines.
            outcomes: the lines that the observer's decoder did not take.
            fields: the observer's decoders.
            kept: chooses rows by what was parsed; of records that are read one by one it gets None.
        """
        records, alone = taken_apart(lines, outcomes, self.drifting, fields)
        rows = chain(self._whole(lines, records, kept), self._single(lines, alone, kept))
        # Of changes of one row the later counts.
        return rows if self.settings.row_key is None else in_order(list(rows))

    def _usual(self, shape: RecordShape) -> RecordShape:
        return limited(shape, self.usual, self.valueless, self.settings.fields)

    def as_written(self, paths: Iterable[Path]) -> bool:
        """True if the fields' usual values are parsed as columns of their own, as records have them."""
        return all(as_written(self.usual, path, self.settings.fields) for path in paths)

    def _whole(self, lines: Sequence[bytes], records: UsualRecords, kept: Kept | None) -> Iterator[Rows]:
        """Convert records by whole columns, or one by one if the parser refuses them (a lone surrogate)."""
        count = len(records.places)
        if not count or not self.usual.fields:
            yield from self._single(lines, records.places, kept)
            return
        try:
            batch = parsed(records.texts, self.usual, spells_integers=self.spells_integers)
        except Unparsed as error:
            if error.misread:
                yield from self._single(lines, [records.places[number] for number in error.misread], kept)
                yield from self._whole(lines, records.without(error.misread), kept)
                return
            # By halves: the parser does not say which line it refuses, and most are refused for one.
            if count <= _FEW:
                yield from self._single(lines, records.places, kept)
                return
            yield from self._whole(lines, records.part(0, count // 2), kept)
            yield from self._whole(lines, records.part(count // 2, count), kept)
            return
        rows = self.converter.of_arrow(batch, self.usual, json=True, drifted=records.apart()), records.places
        yield rows if kept is None else _chosen(rows, kept(batch, records.places))

    def _single(self, lines: Sequence[bytes], places: Sequence[int], kept: Kept | None) -> Iterator[Rows]:
        if places:
            rows = self.converter.of_json([parse(lines[place]) for place in places]), places
            yield rows if kept is None else _chosen(rows, kept(None, places))


def _chosen(rows: Rows, flags: NDArray[np.bool_] | None) -> Rows:
    """Return the rows with a flag; None for all."""
    if flags is None:
        return rows
    batch, places = rows
    return batch.filter(pa.array(flags)), list(compress(places, flags))


def _folded(shape: RecordShape, batch_shape: RecordShape | None = None) -> RecordShape:
    # Without maps it would be built anew, with all that is in it, to be the same.
    return folded(shape, batch_shape) if (batch_shape or shape).has_maps else shape


def in_order(parts: Sequence[Rows]) -> Iterator[Rows]:
    """Return the rows as one batch, in the order of their lines."""
    if len(parts) < 2:
        yield from parts
        return
    places = np.concatenate([np.asarray(places) for _, places in parts])
    order = np.argsort(places, kind="stable")
    rows = pa.concat_batches([batch for batch, _ in parts]).take(pa.array(order))
    yield rows, places[order].tolist()


@gc_paused()
def _restored(values: bytes) -> JsonRows:
    return JsonRows(*pickle.loads(values))  # noqa: S301  our own bytes


class Run(NamedTuple):
    """Texts of one ``source``, in its order.

    Attributes:
        line: the number of the first text, or of each if they are not consecutive.
        reject: makes a reject of a text, given its place and the reason.
        nulls: in messages of a topic, the places of those with a null value, whose text has only the key;
            None for texts of another origin.
        origins: the origins that rows record.
    """

    lines: Sequence[bytes]
    source: str
    line: LineNumbers
    reject: Callable[[int, Why], Reject]
    nulls: Sequence[int] | None = None
    origins: Origins = Origins(Origin())

    def location(self, place: int) -> SourceLocation:
        """Return the place of a text in its source."""
        return SourceLocation(
            self.source, self.line + place if isinstance(self.line, int) else self.line[place]
        )

    def of_records(self, texts: Sequence[bytes], places: Sequence[int]) -> Run:
        """Return the run of the records in these messages.

        Args:
            places: by record, that of its message.
        """
        numbers = [self.line + place for place in places] if isinstance(self.line, int) else None
        line = numbers if numbers is not None else [self.line[place] for place in places]  # type: ignore[index]
        return Run(texts, self.source, line, rejecting(self.reject, places))


class AcceptedLines(NamedTuple):
    """Lines that were observed.

    Attributes:
        looked: the lines that are no usual records, by place.
        deletes: flags of the records that delete, if any may.
        origins: for records in envelopes, the places of their messages.
        runs: the runs of the lines, if rows record their origin.
        rows: the lines' rows, if these are made already.
        diverged: they could not be made, as a line has more than the plan was made for.
    """

    lines: Sequence[bytes]
    looked: Sequence[LineOutcome]
    deletes: pa.Array | None = None
    origins: Sequence[int] | None = None
    runs: Sequence[Run] = ()
    rows: Sequence[Rows] | None = None
    diverged: bool = False


class LineTask:
    """The work of a task: observes JSON lines and, with a ``make``, converts the records among them."""

    @classmethod
    def of(cls, terms: AdmissionTerms, make: JsonRows | None = None, many: int = MANY_KEYS) -> LineTask:
        """Create a task.

        Args:
            terms: the terms by which the table admits records.
            make: the conversion; None to only observe.
            many: without a plan, the number of an object's keys that are kept apart.
        """
        if make is not None:
            return cls(make.observer(), make, terms)
        return cls(JsonObserver(terms.expected, terms.settings, terms.check, many=many), None, terms)

    def __init__(self, observer: JsonObserver, make: JsonRows | None, terms: AdmissionTerms) -> None:
        self._observer, self._make, self._terms = observer, make, terms
        keyed = terms.settings.row_key is not None
        self._unwrapper = Unwrapper.of(terms.settings.row_key) if keyed else None
        self._deletes = DeleteFilter.of(terms) if keyed else None
        expected = terms.settings.expect
        self._expectations = ExpectationCheck(expected) if expected else None
        # Lines that the observer's decoder takes add nothing to the observation, so what is expected of them
        # can be asked of their columns. An envelope is refused whole, and excluded values count before.
        plain = self._unwrapper is None and not any(excluded_paths(terms.settings.fields))
        paths = [path for expectation in expected for path in paths_of(expectation.condition)]
        self._asks_columns = bool(paths) and plain and make is not None and make.as_written(paths)
        self._aside = 0  # records set aside by their columns
        self._admission: AdmissionByShape | None = None
        if self._unwrapper is not None and terms.check is not None:
            self._admission = AdmissionByShape(terms.check, terms.expected, terms.settings.dates)
        self._version = -1

    def observe(
        self, runs: Sequence[Run], everything: str | None = None
    ) -> tuple[AcceptedLines, pa.RecordBatch | None]:
        """Observe lines of several runs. Places count through all runs, which are converted together."""
        lines: list[bytes] = []
        outcomes: list[LineOutcome] = []
        rejects: list[Reject] = []
        flags: list[NDArray[np.bool_]] = []
        origins: list[int] | None = None if self._unwrapper is None else []
        begins = 0  # the place of the run's first text
        by_columns = self._asks_columns and everything is None
        for run in runs:
            if self._unwrapper is not None and origins is not None:
                # In this order: a message becomes records, records that delete are cut, and only what is left
                # of them is observed. So neither an envelope nor a deleted row's fields can drift the table.
                texts, places = self._whole_messages(run, *self._unwrapper.records(run.lines))
                origins += [begins + place for place in places]
                begins += len(run.lines)
                run = run.of_records(texts, places)
            run_lines, run_flags = self._without_deletes(run)
            if run_flags is not None:
                flags.append(run_flags)
            judge = None
            if self._expectations is not None and by_columns:
                judge = partial(self._judged, run, run_lines, run_flags)
            elif self._expectations is not None:
                run_lines = self._expectations.lines(run_lines, run_flags, run.source, run.line)
            looked = self._observer.feed(run_lines, run.source, run.line, judge)
            # From ``run.lines``, not the plain or cut ones: a reject is kept whole, as it came.
            rejects += [run.reject(place, why) for place, why in rejected_of(run.lines, looked, everything)]
            if self._make is not None:
                outcomes += [(len(lines) + place, why) for place, why in looked]
                lines += run_lines
        deletes = pa.array(np.concatenate(flags)) if flags else None
        names = self._terms.settings.metadata
        described = runs if names and asks_for_place(names) else ()
        accepted = AcceptedLines(lines, outcomes, deletes, origins, described)
        if by_columns:
            accepted, aside = self._with_rows(accepted, runs)
            rejects += aside
        return accepted, reject_batch(rejects) if rejects else None

    def _without_deletes(self, run: Run) -> tuple[Sequence[bytes], NDArray[np.bool_] | None]:
        """Return a run's lines, of those that delete the key alone, and flags of these, if any may."""
        lines = run.lines
        if self._terms.settings.extended_json:
            # Before deletes are told and keys compared, which ask for values.
            lines = list(map(plain_record, lines))
        if self._deletes is None:
            return lines, None
        return self._deletes.lines(lines) if run.nulls is None else self._deletes.messages(lines, run.nulls)

    def _judged(
        self, run: Run, lines: Sequence[bytes], deletes: NDArray[np.bool_] | None, place: int
    ) -> bytes:
        """Return a line of a run, or a refused text for a record that is to be set aside."""
        if self._expectations is None or (deletes is not None and deletes[place]):
            return lines[place]
        return self._expectations.line(lines[place], run.location(place))

    def _with_rows(self, accepted: AcceptedLines, runs: Sequence[Run]) -> tuple[AcceptedLines, list[Reject]]:
        """Make the rows of lines, but for those that their columns set aside; returns these as rejects."""
        assert self._expectations is not None
        assert self._make is not None
        lines = LinesInColumns(
            self._expectations, self._make.usual, accepted.lines, accepted.looked, accepted.deletes,
            partial(_location, runs),
        )  # fmt: skip
        try:
            accepted = accepted._replace(rows=list(self._rows(accepted, lines.kept)))
        except Diverged:
            self._asks_columns = False
            accepted = accepted._replace(diverged=True)
            lines.kept(None, range(len(accepted.lines)))
        self._aside += len(lines.aside)
        found = [(*_run_of(runs, place), why) for place, why in sorted(lines.aside.items())]
        return accepted, [run.reject(place, why) for run, place, why in found]

    def _whole_messages(
        self, run: Run, texts: list[bytes], places: list[int]
    ) -> tuple[list[bytes], list[int]]:
        """Return the records of messages, or one refused text for a message with a refused record.

        With its delete alone, an update that changes a key to none would remove a row and write nothing.
        """
        if self._admission is None and self._expectations is None:
            return texts, places
        if len(set(places)) == len(places):
            return texts, places
        kept_texts: list[bytes] = []
        kept_places: list[int] = []
        for place, numbered in groupby(zip(places, texts, strict=True), key=itemgetter(0)):
            records = [text for _, text in numbered]
            why = self._refusal(records, run.source, place) if len(records) > 1 else None
            records = records if why is None else [RefusedText.of(run.lines[place], why)]
            kept_texts += records
            kept_places += [place] * len(records)
        return kept_texts, kept_places

    def _refusal(self, records: Sequence[bytes], source: str, place: int) -> Why | None:
        """Return the reason to refuse one of a message's records; None if the table takes them all."""
        cut, deletes = (records, None) if self._deletes is None else self._deletes.lines(records)
        if self._expectations is not None:
            for record in self._expectations.whole(cut, deletes, SourceLocation(source, place)):
                if isinstance(record, RefusedText):
                    return str(record.why)
        if self._admission is None:
            return None
        for record in cut:
            try:
                conflict = self._admission.conflict(parse(record), source, place)
            except Malformed as error:
                return str(error)
            if conflict is not None:
                return conflict
        return None

    def convert(self, accepted: AcceptedLines) -> Iterator[Rows]:
        """Yield the rows of the lines. Raises Diverged if a line has more than the plan was made for."""
        if accepted.diverged:
            raise Diverged
        return self._rows(accepted) if accepted.rows is None else iter(accepted.rows)

    def _rows(self, accepted: AcceptedLines, kept: Kept | None = None) -> Iterator[Rows]:
        """Make the rows of the lines, but for those that are not ``kept``; raises as `convert`."""
        assert self._make is not None
        observer = self._observer
        # The shape is compared only when something was learnt, not for each group of lines.
        if observer.version != self._version:
            # The one place where a task of JSON finds that its plan does not hold (see `TaskReader.rows`).
            planned = self._make.planned
            if not planned.covers(_folded(observer.result().shape, planned)):
                raise Diverged
            self._version = observer.version
        parsed = self._make.of_lines(accepted.lines, accepted.looked, observer.fields, kept)
        row_key, deletes = self._make.settings.row_key, accepted.deletes
        runs = [(len(run.lines), run.origins) for run in accepted.runs]
        places_of_runs = origin_array(runs) if runs else None
        for rows, places in parsed:
            if deletes is not None:
                rows = flagged(rows, deletes.take(pa.array(places, pa.int64())))
            if row_key is not None and row_key.patch:
                present = presence_of_lines(accepted.lines[place] for place in places)
                rows = rows.append_column(PRESENCE, present)
            elif row_key is not None and row_key.keeps_fields:
                lacking = unavailable_in(accepted.lines[place] for place in places)
                rows = rows.append_column(PRESENCE, pa.array(lacking, pa.string()))
            places = places if accepted.origins is None else [accepted.origins[at] for at in places]
            if places_of_runs is not None:
                rows = rows.append_column(ORIGIN, places_of_runs.take(pa.array(places, pa.int64())))
            yield rows, places

    def observed(self) -> Observation:
        """Return the observation of the lines since the last call."""
        # What is known of lines to come was expected when these began.
        self._version = min(self._version, 0)
        observation = self._observer.drain()
        if self._expectations is not None:
            observation = observation.with_violations(self._expectations.drain(), self._aside)
            self._aside = 0
        return (
            observation
            if self._unwrapper is None
            else observation.with_control_messages(*self._unwrapper.drain())
        )


def _run_of(runs: Sequence[Run], place: int) -> tuple[Run, int]:
    """Return the run of a line, and the line's place in it."""
    begins = [0, *accumulate(len(run.lines) for run in runs)]
    number = bisect_right(begins, place) - 1
    return runs[number], place - begins[number]


def _location(runs: Sequence[Run], place: int) -> SourceLocation:
    run, place_in_run = _run_of(runs, place)
    return run.location(place_in_run)


_BEHIND_ALL = SourceLocation("\U0010ffff")


@dataclass(frozen=True, slots=True)
class SplitReader(TaskReader[int, "Sequence[Run]", AcceptedLines, "list[ObservedSplits]"]):
    """A reader of splits of JSON files.

    Attributes:
        shares: the splits of each task.
        numbered: the splits know the numbers of their first lines.
    """

    shares: Sequence[Share]
    terms: AdmissionTerms
    make: JsonRows | None = None
    numbered: bool = False

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.make is not None

    def open(self, share: int) -> OpenSplits:
        """Open the splits of one task."""
        return OpenSplits(self, self.shares[share])


class OpenSplits:
    """The splits of one task. They are observed in parts, each of which counts lines from 1."""

    def __init__(self, reader: SplitReader, share: Share) -> None:
        self._reader, self._share = reader, share
        self._lines = LineTask.of(reader.terms, reader.make)
        records = reader.terms.settings.records
        self._listed = ListedRecords(records) if records else None
        self._parts: list[ObservedSplits] = []
        self._part = 0  # the number of its first split
        self._notes: list[str] = []

    def groups(self) -> Iterator[Sequence[Run]]:
        """Yield the lines; at the end of a part, keep its observation."""
        for splits in together(self._share):
            self._part = splits[0][0]
            counts: dict[int, int] = {}
            yield from group_parts(self._runs(splits, counts), weight)
            observation = self._lines.observed()
            if self._listed is not None:
                observation = observation.with_excluded(self._listed.drain())
            if not self._parts and self._reader.make is None:
                # The first part itself tells where that was seen: its lines are yet to be numbered.
                terms = self._reader.terms
                before = _behind_all(observation)
                observer = JsonObserver(terms.expected, terms.settings, terms.check, before=before)
                self._lines = LineTask(observer, None, terms)
            self._parts.append(ObservedSplits(observation, counts, self._notes))
            self._notes = []

    def observe(
        self, group: Sequence[Run], everything: str | None
    ) -> tuple[AcceptedLines, pa.RecordBatch | None]:
        """Observe some lines; the rejects carry the number of the part that counts their lines."""
        accepted, rejects = self._lines.observe(group, everything)
        if rejects is None or self._reader.numbered:
            return accepted, rejects
        return accepted, rejects.append_column(PART, pa.array([self._part] * len(rejects), pa.int32()))

    def convert(self, accepted: AcceptedLines) -> Iterator[pa.RecordBatch]:
        """Convert the lines to rows."""
        return (rows for rows, _ in self._lines.convert(accepted))

    def observed(self) -> list[ObservedSplits]:
        """Return the observations of all parts."""
        return self._parts

    def _runs(self, splits: Share, counts: dict[int, int]) -> Iterator[Run]:
        """Yield the lines of the splits, counted by split number."""
        line, before = 1, None
        for number, split in splits:
            if self._reader.numbered:
                line = split.line
            elif before is None or not split.follows(before):
                line = 1
            first, before = line, split
            for lines in self._blocks(split):
                reject = partial(_reject, split.path, line, lines)
                # The lines before the split are known where rows tell them.
                origins = Origins(Origin(split.path), line - first + split.line)
                yield Run(lines, split.path, line, reject, None, origins)
                line += len(lines)
            counts[number] = line - first

    def _blocks(self, split: Split) -> Iterator[list[bytes]]:
        settings, keys = self._reader.terms.settings, self._reader.terms.expected.fields
        if split.sheet:
            return sheet_texts(split, settings.csv, settings.max_record_bytes, self._notes, keys)
        return blocks(split, settings.max_record_bytes, self._listed)


def _behind_all(observation: Observation) -> RecordShape:
    """Return the observed shape with places after all others, and without maps.

    One part alone does not show that the keys of an object are data.
    """
    fields = observation.placed(lambda _: _BEHIND_ALL).shape.fields
    return RecordShape({key: field for key, field in fields.items() if not field.has_maps})


def weight(run: Run) -> tuple[int, int]:
    """Return the number of lines in a run, and their bytes."""
    return len(run.lines), sum(map(len, run.lines))


def _reject(path: str, first: int, lines: Sequence[bytes], position: int, why: Why) -> Reject:
    line = lines[position]
    raw = line.document if isinstance(line, UnlistedDocument) else line
    return Reject(Origin(path, first + position), raw, why)
