"""Builds a table's statistics from its metadata, its history and a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes import AddColumn, ColumnChange, in_words, reportable
from driftline.core.columns.file_sizes import FileSizes
from driftline.core.columns.statistics import (
    CommittedBatch,
    CountedBatch,
    Counts,
    Numbers,
    SeenIn,
    TableStatistics,
    ViolationCounts,
    violations,
)
from driftline.core.history.batch_properties import FEED
from driftline.core.history.entries import Rule
from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.naming import MARK, QUARANTINE, is_metadata, marked_key
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import Field, Primitive, Schema, Struct, children, dotted, leaves
from driftline.core.settings.properties import EXPECTED, from_properties
from driftline.core.settings.row_key import parse_expectation
from driftline.errors import NeedsSpark
from driftline.formats.lakes import OfflineTable
from driftline.ingest.route import Route
from driftline.operations.history import History, history
from driftline.quarantine.replays import REPLAY, is_replay, last_replay
from driftline.sql.lost import WaitingValues as Rest
from driftline.stats.exact import Exact, Own, Siblings, by_bounds, drifted, own_values, rewritten_values
from driftline.stats.model import (
    ChangeText,
    ColumnStatistics,
    DriftedField,
    Event,
    ExpectationOverTime,
    Stats,
    TypeShare,
    WaitingSummary,
)

PLAIN = "first-sight"
WATCHED = 200  # drifted fields whose values are counted by period


def events(history: History, samples: Mapping[int, str]) -> Iterator[Event]:
    """The versions of the schema, oldest first.

    Args:
        samples: by column id, a value of the batch that brought the column.
    """
    for entry in history.entries:
        rules = {rule.path: rule for rule in entry.record.rules}
        plain: list[ChangeText] = []
        steps: list[ChangeText] = []
        for change in reportable(entry.changes):
            rule = rules.get(dotted(getattr(change, "path", ())))
            (plain if _is_plain(change, rule) else steps).append(_step(change, rule, samples))
        if plain or steps:
            who = entry.record.batch if entry.by == "batch" else entry.record.text
            version = entry.after.definition.schema.id
            yield Event(entry.at, version, entry.by, who, tuple(plain), tuple(steps), entry.makes_table)


def added(history: History) -> dict[int, tuple[SeenIn | None, Rule | None]]:
    """By column id: the batch that added the column, if one did, and the rule."""
    out: dict[int, tuple[SeenIn | None, Rule | None]] = {}
    for entry in history.entries:
        batch = SeenIn(entry.at, entry.record.batch) if entry.by == "batch" and entry.at is not None else None
        rules = {rule.path: rule for rule in entry.record.rules}
        for change in entry.changes:
            if isinstance(change, AddColumn):
                rule = rules.get(dotted(change.path))
                for path, f in Schema(Struct((change.column,))).walk():
                    out[f.id] = batch, rule if len(path) == 1 else None
    return out


def _step(change: ColumnChange, rule: Rule | None, samples: Mapping[int, str]) -> ChangeText:
    new = isinstance(change, AddColumn)
    return ChangeText(
        f"{dotted(change.path)} {outline(change.type)}"
        if isinstance(change, AddColumn)
        else in_words(change),
        change.action,
        dotted(getattr(change, "path", ())),
        (rule.field or None) if rule else None,
        rule.rule if rule else None,
        (rule.place or None) if rule else None,
        samples.get(change.column.id) if new and isinstance(change, AddColumn) else None,
    )


def _is_plain(change: ColumnChange, rule: Rule | None) -> bool:
    """True for a new column of a new field, under its own name, and for one of driftline's own."""
    if not isinstance(change, AddColumn):
        return False
    doc = change.column.doc
    return is_metadata(doc) or (not doc and (rule is None or rule.rule == PLAIN))


@dataclass(slots=True)
class StatisticsInputs:
    """The known parts of the statistics; None: not requested, or not available in the format.

    ``properties``: of the table.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    metadata: TableStatistics | None = None
    history: History | None = None
    exact: Exact | None = None
    samples: Mapping[int, str] = field(default_factory=dict)
    waiting: WaitingSummary = field(default_factory=WaitingSummary)
    rest: tuple[Rest, ...] = ()


def build(
    name: str, schema: Schema, mark: str, fields: Sequence[Siblings], inputs: StatisticsInputs
) -> Stats:
    """The statistics of the table ``name``.

    Args:
        mark: the prefix of evolved columns' docs.
        fields: the drifted ones.
        inputs: metadata, history, scans.
    """
    metadata, scanned = inputs.metadata, inputs.exact
    origins = added(inputs.history) if inputs.history else {}
    numbers: dict[int, Numbers] = {}
    for f in schema.struct.fields:
        _number(f, inputs, origins, numbers)
    columns = tuple(
        ColumnStatistics(path, f.id, f.type, None if is_metadata(f.doc) else marked_key(f.doc, mark), numbers[f.id])
        for path, f in schema.walk()
    )  # fmt: skip
    drifted = tuple(_drifted(siblings, inputs, numbers, origins) for siblings in fields)
    measured = Stats(
        table=name,
        schema=schema.id,
        at=metadata.at if metadata else None,
        exact=scanned is not None,
        records=scanned.records if scanned else _records(metadata),
        leaves=leaves(schema.struct),
        batches=len(metadata.counts.batches) + metadata.counts.expired if metadata else 0,
        recent=metadata.counts.recent if metadata else (),
        columns=columns,
        drifted=drifted,
        events=tuple(events(inputs.history, _samples(fields, drifted, inputs))) if inputs.history else (),
        quarantined=inputs.waiting.records,
        waiting=inputs.waiting.reasons,
        rest=inputs.rest,
        files=metadata.files if metadata else None,
        bytes=metadata.bytes if metadata else None,
        sizes=metadata.sizes if metadata else FileSizes(),
        deleted=metadata.deleted if metadata and not scanned else 0,
        at_most=metadata is not None and not scanned and metadata.live is None,
        whole=inputs.history.whole if inputs.history else False,
    )
    return _with_batches(measured, inputs)


def _with_batches(stats: Stats, inputs: StatisticsInputs) -> Stats:
    """The statistics with what is known by batch."""
    counts = inputs.metadata.counts if inputs.metadata else None
    return replace(
        stats,
        known=counts.known if counts else (),
        before=counts.before if counts else None,
        refused=inputs.waiting.by_batch,
        route=Route.of(inputs.properties),
        expectations=expectations(inputs.properties, counts.recent if counts else ()),
    )


def expectations(
    properties: Mapping[str, str], recent: Sequence[CommittedBatch]
) -> tuple[ExpectationOverTime, ...]:
    """The expectations of a table, and those of before that are counted, by name.

    Args:
        properties: the table's.
        recent: its last batches.
    """
    texts = {
        key.removeprefix(EXPECTED): text
        for key, text in properties.items()
        if key.startswith(EXPECTED) and text
    }
    counts = violations(properties)
    return tuple(
        _expectation(name, texts.get(name), counts.get(name, ViolationCounts()), recent)
        for name in sorted({*texts, *counts})
    )


def _expectation(
    name: str, text: str | None, counts: ViolationCounts, recent: Sequence[CommittedBatch]
) -> ExpectationOverTime:
    condition = action = None
    if text is not None:
        from driftline.core.settings.condition_sql import without_action  # late: sqlglot is slow to import

        condition, action = without_action(text), parse_expectation(name, text).action
    batches = [*counts.batches, *_without_any(counts.batches, recent)]
    batches.sort(key=lambda batch: batch.at)
    return ExpectationOverTime(name, condition, action, counts.violations, counts.records, tuple(batches))


def _without_any(counted: Sequence[CountedBatch], recent: Sequence[CommittedBatch]) -> list[CountedBatch]:
    """The recent batches without a violation, since the first that is kept by itself."""
    known = {batch.batch for batch in counted}
    # Of batches before that, a violation may have been added to its day, or nobody asked.
    since = next((batch.at for batch in counted if batch.batch), None)
    return [
        CountedBatch(batch.at, batch.id, batch.records, 0)
        for batch in recent
        if since is not None and batch.at > since and batch.id and batch.id not in known
        if not is_replay(batch.id)
    ]


def _records(metadata: TableStatistics | None) -> int | None:
    if metadata is None:
        return None
    return metadata.counts.records if metadata.live is None else metadata.live


def _samples(
    fields: Sequence[Siblings], drifted: Sequence[DriftedField], inputs: StatisticsInputs
) -> dict[int, str]:
    """By column id: a value of the batch that brought the column, else any of its type."""
    samples = {}
    for siblings, drifted_field in zip(fields, drifted, strict=True):
        ids = dict(zip(siblings.places, (c.id for c in siblings.columns), strict=True))
        for part in drifted_field.parts:
            if part.sample is not None and len(part.columns) == 1:
                samples[ids[part.columns[0]]] = part.sample
    return samples | dict(inputs.samples)


Origins = Mapping[int, tuple[SeenIn | None, Rule | None]]


def _number(
    f: Field, inputs: StatisticsInputs, origins: Origins, out: dict[int, Numbers], *, rows: bool = True
) -> None:
    """Add the numbers of a column and of those inside it.

    Args:
        rows: it has one value a row, unlike in a list.
    """
    inside = children(f.type)
    single = rows and isinstance(f.type, Primitive | Struct)
    for child in inside:
        _number(child, inputs, origins, out, rows=single)
    metadata = inputs.metadata
    if metadata is None or not single:
        numbers = Numbers()
    elif isinstance(f.type, Primitive):
        bounds = metadata.bounds.get(f.id, Numbers())
        numbers = replace(
            metadata.counts.numbers(f.id),
            low=bounds.low, high=bounds.high, low_cut=bounds.low_cut, high_cut=bounds.high_cut,
        )  # fmt: skip
    else:
        numbers = _over([out[child.id] for child in inside], metadata.counts.records)
    origin = origins.get(f.id, (None, None))[0]
    # Without metrics, the batch that added the column is the one that brought its first value.
    if numbers.first is None and numbers.values != 0 and origin is not None:
        numbers = replace(numbers, first=origin)
    if inputs.exact is not None and f.id in inputs.exact.numbers:
        scanned = inputs.exact.numbers[f.id]
        # A scan counts values, but only metadata know the batches.
        numbers = replace(scanned, first=numbers.first, last=numbers.last, trend=numbers.trend)
    out[f.id] = numbers


def _over(inside: Sequence[Numbers], records: int) -> Numbers:
    """The numbers of a struct from the columns inside: it has a value wherever one of them has."""
    values = [n.values for n in inside if n.values is not None]
    if not values:
        return Numbers()
    firsts = [n.first for n in inside if n.first is not None]
    lasts = [n.last for n in inside if n.last is not None]
    complete = len(firsts) == len(lasts) == len([v for v in values if v]) and len(values) == len(inside)
    trends = [n.trend for n in inside if n.trend]
    return Numbers(
        max(values), records, max(values) < records,
        first=min(firsts, key=lambda s: s.at, default=None) if complete else None,
        last=max(lasts, key=lambda s: s.at, default=None) if complete else None,
        trend=tuple(max((v for v in slot if v is not None), default=None) for slot in zip(*trends, strict=True)),
    )  # fmt: skip


def _drifted(
    siblings: Siblings, inputs: StatisticsInputs, numbers: Mapping[int, Numbers], origins: Origins
) -> DriftedField:
    parts = tuple(_parts(siblings, inputs, numbers, origins))
    return DriftedField(siblings.path, parts, siblings.keys, _by_period(siblings, parts, inputs.metadata))


def _parts(
    siblings: Siblings, inputs: StatisticsInputs, numbers: Mapping[int, Numbers], origins: Origins
) -> list[TypeShare]:
    """The field's values by type, the one of most records first."""
    place = dict(zip((c.id for c in siblings.columns), siblings.places, strict=True))
    groups: Sequence[tuple[Own, str | None]]
    if inputs.exact is not None:
        groups = inputs.exact.own[siblings.path]
    else:
        counts = inputs.metadata.counts if inputs.metadata else None
        groups = [(group, None) for group in by_counts(siblings, counts)]
    parts = []
    for group, sample in groups:
        column = group.columns[0]
        batch, rule = origins.get(column.id, (None, None)) if len(group.columns) == 1 else (None, None)
        first = max(
            filter(None, (numbers[c.id].first for c in group.columns)), key=lambda s: s.at, default=batch
        )
        records, at_least = group.values, False
        if records is None and numbers[column.id].at_least and not siblings.below(column):
            records, at_least = numbers[column.id].values, True
        if sample is None and len(group.columns) == 1:
            sample = inputs.samples.get(column.id)
        parts.append(
            TypeShare(
                tuple(place[c.id] for c in group.columns), tuple(c.type for c in group.columns),
                records, group.about, at_least, None, sample, first,
                rule.rule if rule else None, (rule.place or None) if rule else None,
            )
        )  # fmt: skip
    total = sum(p.records or 0 for p in parts)
    # A share of a lower limit would be no share.
    if total and all(p.records is not None and not p.at_least for p in parts):
        parts = [replace(p, share=(p.records or 0) / total) for p in parts]
    return sorted(parts, key=lambda p: -(p.records or 0))


def _by_period(
    siblings: Siblings, parts: Sequence[TypeShare], metadata: TableStatistics | None
) -> dict[int | None, tuple[int | None, ...]]:
    """The values of each part by period; of a field that is not watched, or not counted, nothing."""
    if metadata is None or not any(
        c.id in counts.by_column for counts in metadata.periods.values() for c in siblings.columns
    ):
        return {}
    place = dict(zip((c.id for c in siblings.columns), siblings.places, strict=True))
    columns, values_of = {part.columns for part in parts}, {}
    for period, counts in metadata.periods.items():
        groups = by_counts(siblings, counts)
        values = {tuple(place[c.id] for c in group.columns): group.values for group in groups}
        counted = values.keys() <= columns and None not in values.values()
        values_of[period] = tuple(values.get(part.columns, 0) if counted else None for part in parts)
    return values_of if any(None not in values for values in values_of.values()) else {}


def watched(fields: Sequence[Siblings]) -> frozenset[int]:
    """The columns of drifted fields that are counted by period: of the first `WATCHED`."""
    return frozenset(column.id for siblings in fields[:WATCHED] for column in siblings.columns)


def by_counts(siblings: Siblings, counts: Counts | None) -> list[Own]:
    """Own values, added up over the files of each schema."""
    if counts is None:
        return [Own((c,), None) for c in siblings.columns]
    by_columns: dict[tuple[int, ...], Own] = {(c.id,): Own((c,), 0) for c in siblings.columns}
    for schema, files in counts.files.items():
        values_of = {
            c.id: counts.values(c.id, schema) for c in siblings.columns if counts.holds(c.id, schema)
        }
        # Schema by schema: files from before a column was added hold none of its values.
        divided = rewritten_values if files.rewritten else own_values
        for group in divided(siblings, values_of):
            key = tuple(c.id for c in group.columns)
            before = by_columns.get(key, Own(group.columns, 0))
            values = None if group.values is None or before.values is None else group.values + before.values
            by_columns[key] = Own(group.columns, values, group.about or before.about)
    return [group for group in by_columns.values() if group.values != 0 or len(group.columns) == 1]


def stats(
    table: OfflineTable,
    *,
    in_short: bool = False,
    over_time: bool = True,
    without_rows: bool = False,
    waiting: WaitingSummary | None = None,
) -> Stats | None:
    """The statistics as `driftline.stats.stats` gives them.

    Args:
        in_short: without samples of values, reasons of records in quarantine, and anything over time.
        over_time: with the values of drifted fields by period.
        without_rows: without what only rows tell: the values in the rest, and some samples of values.
        waiting: the records that wait in quarantine, if they are known already.

    Returns:
        None if Spark is needed for one of these.
    """
    state = table.load()
    schema, mark = state.schema, from_properties(state.properties).mark
    fields = list(drifted(schema, mark))
    statistics = table.statistics(schema, watched(fields) if over_time and not in_short else frozenset())
    if statistics is None or (rest_column(state.schema.struct) and not without_rows):
        return None
    try:
        counted = waiting or _counted_alone(table, state.properties)
    except NeedsSpark:
        return None
    samples, missing = by_bounds(fields, statistics)
    if not in_short and ((missing and not without_rows) or (counted.records and not counted.reasons)):
        return None
    inputs = StatisticsInputs(state.properties, statistics, history(table), samples=samples, waiting=counted)
    return build(table.name, schema, mark, fields, inputs)


def _counted_alone(table: OfflineTable, properties: Mapping[str, str]) -> WaitingSummary:
    """The number of records that wait in quarantine, by metadata. Raises NeedsSpark if these do not tell."""
    quarantine = table.beside(table.name + QUARANTINE)
    return WaitingSummary(0 if quarantine is None else _waiting(quarantine, properties))


def waiting_alone(name: str, quarantine: OfflineTable, waiting: WaitingSummary | None = None) -> Stats | None:
    """The statistics of a table all of whose records wait in quarantine. Such a table does not exist yet.

    ``waiting``: its records, if they are known already; else they are in short, and None if Spark is needed.
    """
    try:
        feed = json.loads(quarantine.load().properties.get(FEED, "{}"))
        inputs = StatisticsInputs(feed, waiting=waiting or WaitingSummary(_waiting(quarantine, feed)))
    except NeedsSpark:
        return None
    return replace(build(name, Schema(), MARK, [], inputs), records=0)


def _waiting(quarantine: OfflineTable, properties: Mapping[str, str]) -> int:
    """The number of records in quarantine that the table with these properties has not taken since.

    Raises NeedsSpark if metadata do not tell.
    """
    state = quarantine.load()
    statistics, column = quarantine.statistics(state.schema), state.schema.find((REPLAY,))
    if statistics is None or statistics.live is None or statistics.deleted:
        raise NeedsSpark("the rows of the quarantine are to be counted")
    replayed = 0 if column is None else statistics.counts.numbers(column.id).values
    if column is None or not replayed:
        if replayed is None:
            raise NeedsSpark("the files of the quarantine do not tell which of their rows were replayed")
        return statistics.live
    last = statistics.bounds[column.id].high if column.id in statistics.bounds else None
    # The quarantine names a replay that the table does not have yet: it runs, or died halfway.
    if not isinstance(last, int) or last > last_replay(state, properties):
        raise NeedsSpark("a replay is under way")
    return statistics.live - replayed
