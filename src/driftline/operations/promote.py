"""`promote`: columns for values in the rest, in old rows too, in one commit.

The rows are rewritten with the new columns, the rest as it was, and a rest without the promoted values. The
old rest is dropped in the same commit, so `undo` restores it like any dropped column.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa

from driftline.convert.promoter import Chosen, Plans, Promoter, Selection, parts_of, typed_batches
from driftline.convert.spark import from_spark
from driftline.core.changes import AddColumn, Change, ChangeJson, diff, to_dict
from driftline.core.history.entries import of_promote
from driftline.core.planning.limits import without_limits
from driftline.core.planning.own_columns import REST, keys_of, rest_column, spelled_field, steps
from driftline.core.planning.plan import Plan
from driftline.core.planning.planner import plan
from driftline.core.schema.naming import Names
from driftline.core.schema.types import Field, Path, Schema, Struct, all_optional, dotted
from driftline.core.settings.fields import excluded_paths
from driftline.core.settings.properties import from_properties
from driftline.core.settings.table import TableSettings
from driftline.core.support import as_json
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.base import CatalogTable, Moved, State
from driftline.formats.commit import Retry, Rewrite, rewriting
from driftline.ingest.rewrite import check_readable
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Walker
from driftline.operations.keyed import check_promoted
from driftline.operations.replay import explaining
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.lost import waiting
from driftline.sql.quoting import any_value, name
from driftline.tasks.run import converted, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 5  # paths in an error


class PromotedJson(TypedDict):
    """The paths that got columns, or would, each with the number of its values."""

    table: str
    dry_run: bool
    values: dict[str, int]
    changes: list[ChangeJson]
    snapshot: int | None
    notes: list[str]


@dataclass(frozen=True, slots=True, repr=False)
class Promoted(Shown):
    """The paths that got columns, or would.

    ``values``: the number for each path; ``changes``: to the table's columns.
    """

    table: str
    dry_run: bool
    values: dict[str, int]
    changes: tuple[Change, ...]
    snapshot: int | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> PromotedJson:
        """The form that `--json` prints."""
        return as_json(PromotedJson, self, changes=[to_dict(change) for change in self.changes])


def promote(
    table: CatalogTable,
    paths: Sequence[str] = (),
    *,
    everything: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Promoted:
    """Make columns of the values at or below the ``paths``, or of ``everything``, by the rules.

    The limits of the table do not count here. If others change the table, it is planned again. Raises
    UsageError, DataError; the table is then as it was.
    """
    if everything is bool(paths):
        raise UsageError("no path given", "pass paths, or --all")
    try:
        selected = tuple(keys_of(steps(path)) for path in paths)
    except ValueError as error:
        raise UsageError(str(error), "driftline stats shows what is in the rest, by path") from error

    def attempt() -> Promoted:
        """Promote in the table as it is now."""
        state = table.load()
        if not state.exists:
            raise no_table(table.name)
        with explaining(table.name):
            return _promote(table, state, selected, retry, dry_run=dry_run)

    retry = Retry(table.name, progress)
    with configured(table.spark, PLAIN):
        return retry.run(attempt)


def _promote(
    table: CatalogTable, state: State, paths: tuple[Path, ...], retry: Retry, *, dry_run: bool
) -> Promoted:
    settings = from_properties(state.properties)
    rest_field = rest_column(state.schema.struct)
    if rest_field is None:
        raise DataError(f"{table.name}: nothing to promote: the table has no rest")
    check_readable(table, state.schema)
    excluded = () if paths else tuple(keys_of(path) for path in excluded_paths(settings.fields))
    request = _PromoteRequest(rest_field, Selection(paths, excluded), settings)
    free = unlimited(settings)
    if dry_run:
        retry.progress("looking")
        selected, planned = _selected(table, state.schema, request, table.read())
        notes = (table.new_row_ids,) if table.new_row_ids else ()
        return Promoted(table.name, True, _counted(selected), planned.changes, notes=notes)
    with rewriting(table, state, retry) as rewrite:
        retry.progress("looking")
        rows = rewrite.rows
        selected, planned = _selected(table, state.schema, request, rows)
        retry.progress("writing")

        def check(appended: DataFrame) -> None:
            """Take in rows that others appended meanwhile. Raises Moved if they need other columns."""
            nonlocal selected, rows
            look = partial(_look, state.schema, request)
            selected = SelectedValues.merged([selected, look(appended, state.schema)])
            rows = rows.unionByName(appended)
            now = plans(state.schema, selected, partial(look, rows), free)
            if (now.schema, now.routes) != (planned.schema, planned.routes):
                raise Moved("what others have put into the rest meanwhile needs other columns")

        _write(rewrite, planned, replace(request, settings=free), check)
        rewrite.transaction.set(of_promote(" ".join(_counted(selected))))
        retry.progress("committing")
    return Promoted(table.name, False, _counted(selected), planned.changes, rewrite.transaction.snapshot)


@dataclass(frozen=True, slots=True)
class _PromoteRequest:
    """A request for the column ``rest``, and the way it is read."""

    rest: Field
    selection: Selection
    settings: TableSettings


@dataclass(slots=True)
class SelectedValues:
    """The selection: JSON values and typed ones, the number of values by field, and the paths that matched
    some.
    """

    of_json: Observation
    of_typed: Observation
    counts: Counter[Path]
    met: set[Path]

    @classmethod
    def merged(cls, parts: Sequence[SelectedValues]) -> SelectedValues:
        """Merge the selected values of several tasks."""
        return cls(
            merge_observations([part.of_json for part in parts]),
            merge_observations([part.of_typed for part in parts]),
            sum((part.counts for part in parts), Counter()),
            {path for part in parts for path in part.met},
        )


def unlimited(settings: TableSettings) -> TableSettings:
    """The settings for values that a person wants in columns. What gets none stays in the rest."""
    field_settings = settings.fields.taking_everything()
    roomy = without_limits(settings)
    return replace(roomy, max_key=sys.maxsize, keep_empty_names=True, fields=field_settings)


def plans(
    schema: Schema,
    selected: SelectedValues,
    look: Callable[[Schema], SelectedValues],
    settings: TableSettings,
) -> Plans:
    """Plan columns for the selection. ``look``: observes it again for a table with other columns.

    Raises DataError if the policy refuses some values.
    """
    # Parts of records do not show that a record has no value in a required column.
    before = replace(schema, struct=all_optional(schema.struct), identifiers=frozenset())
    # Planned twice: one plan could not tell objects of JSON from typed maps and structs.
    of_typed = _planned(before, selected.of_typed, settings)
    if of_typed.changes and selected.of_json.shape.fields:
        # What JSON's values are depends on the columns that there are
        selected = look(of_typed.schema)
    return Plans(of_typed, _planned(of_typed.schema, selected.of_json, settings))


def _planned(schema: Schema, selected: Observation, settings: TableSettings) -> Plan:
    planned = plan(schema, selected.shape, settings)
    if planned.conflicts:
        raise DataError(str(planned.conflicts[0]), "promote it under the policy preserve")
    if planned.rewrites:
        path = dotted(planned.rewrites[0].path)
        raise DataError(f"{path} would be rewritten", "promote it under the policy preserve")
    return planned


def _write(
    rewrite: Rewrite, planned: Plans, request: _PromoteRequest, check: Callable[[DataFrame], None]
) -> None:
    """Write the rows, with a new rest in place of the old one.

    ``check``: raises Moved if rows that others append in the meantime need another plan.
    """
    rest_field, transaction = request.rest, rewrite.transaction
    # The rest is a new column, and the old one is dropped, so that `undo` restores it. A delta would be
    # smaller, but lose values then.
    new = Names.of(planned.schema.struct).take(rest_field.name)
    transaction.evolve([*planned.changes, AddColumn((), replace(REST, name=new, doc=rest_field.doc))])
    between = transaction.schema
    promoter = Promoter.of(planned, between.struct, request.settings, request.selection, rest_field.name, new)
    ids = rewrite.table.row_ids(any_value([(rest_field.name,)]))

    def anew(rows: DataFrame) -> DataFrame:
        """The rows with the new columns; their ids stay."""
        return converted(rows.selectExpr("*", *ids), promoter.before, promoter.rows, between.struct)

    rewrite.replace(anew, {"driftline.promote": "true"}, check)
    fields = tuple(
        replace(f, name=rest_field.name) if f.name == new else f
        for f in between.struct.fields
        if f.name != rest_field.name
    )
    transaction.evolve(diff(between, replace(between, struct=Struct(fields))))  # type: ignore[arg-type]


def _selected(
    table: CatalogTable, schema: Schema, request: _PromoteRequest, rows: DataFrame
) -> tuple[SelectedValues, Plans]:
    """Select values from the rows of the table, and plan columns for them.

    Raises DataError if there are none at one of the paths, or if the policy refuses some.
    """
    look = partial(_look, schema, request)
    selected = look(rows, schema)
    check_promoted(table.name, request.settings.row_key, selected.counts)
    missing = [path for path in request.selection.paths if path not in selected.met]
    _check_found(table, schema, selected.counts, missing, request.settings.mark)
    return selected, plans(schema, selected, partial(look, rows), unlimited(request.settings))


def _counted(selected: SelectedValues) -> dict[str, int]:
    """The number of values by field, in words."""
    return {spelled_field(path): count for path, count in sorted(selected.counts.items())}


def _look(schema: Schema, request: _PromoteRequest, rows: DataFrame, with_columns: Schema) -> SelectedValues:
    """Select from the rows, for a table with the columns in ``with_columns``."""
    rest_field, selection, settings = request.rest, request.selection, request.settings
    rows = rows.where(f"{name(rest_field.name)} is not null")
    parts = partial(_parts, schema.struct, rest_field.name, selection, settings.mark)
    observe = partial(_observed, parts, expect(with_columns, settings), settings.dates)
    collected = numbered(rows).mapInArrow(observe, "observed binary").collect()  # one row a task
    return SelectedValues.merged([pickle.loads(row.observed) for row in collected])  # noqa: S301  our own bytes


def _parts(
    struct: Struct, rest_name: str, selection: Selection, mark: str, batch: pa.RecordBatch
) -> list[Chosen]:
    return parts_of(from_spark(batch, struct), struct, rest_name, selection, mark)


def _observed(
    parts_of_batch: Callable[[pa.RecordBatch], list[Chosen]],
    expected: ExpectedField,
    dates: str,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    selected = seen_in(map(parts_of_batch, batches), expected, dates)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(selected)], pa.binary())], ["observed"])


def seen_in(batches: Iterable[Sequence[Chosen]], expected: ExpectedField, dates: str) -> SelectedValues:
    """Observe the selection in batches of rows, against the table's ``expected`` columns."""
    walker = Walker(expected, dates)
    counts, met = Counter[Path](), set[Path]()
    typed: list[Observation] = []
    number = 0
    for parts in batches:
        for part in parts:
            number += 1
            counts.update(part.counts)
            met |= part.met
            if part.record:
                walker.walk(part.record, "", number)
        for struct, (_, values) in typed_batches(parts).items():
            observer = ArrowObserver(struct, expected, "", empty_names=True)
            observer.feed(values)
            typed.append(observer.result())
    return SelectedValues(Observation(walker.shape), merge_observations(typed), counts, met)


def _check_found(
    table: CatalogTable, schema: Schema, counts: Counter[Path], missing: Sequence[Path], mark: str
) -> None:
    """Raise DataError for a path below which nothing waits; it names the paths that have values."""
    if missing:
        if "" in missing[0]:
            raise DataError(f"{table.name}: {spelled_field(missing[0])}: an empty key gets no column")
        paths = [waiting_path.path for waiting_path in waiting(table.read(), schema, mark)]
        shown = ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
        hint = f"there is {shown}; driftline stats shows all" if paths else None
        raise DataError(f"{table.name}: nothing in the rest at or below {spelled_field(missing[0])}", hint)
    if not counts:
        raise DataError(f"{table.name}: nothing to promote")
