"""`split`: a table for each value of a field, of the rows that a table has.

The table stays as it is. Each table that is made keeps, in the commit of its rows, of which table and
snapshot they are; so a split that was broken off is completed by the same call, and brings no row twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypedDict
from uuid import uuid4

from driftline.core.changes import AddColumn, apply
from driftline.core.history.batch_properties import REST_SINCE
from driftline.core.history.entries import BATCH, of_split
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Schema, Struct, dotted, leaves
from driftline.core.settings.declarations import PATH_SETTINGS, PREFIX, SETTINGS
from driftline.core.settings.properties import RESOLVED, from_properties
from driftline.core.settings.row_key import KEY_SETTINGS
from driftline.core.support import as_json
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.base import CatalogTable, CommitConflict, State, Transaction
from driftline.formats.commit import make_visible
from driftline.formats.lakes import Catalog
from driftline.ingest.assignment import Assignment
from driftline.ingest.fan_out import abandoned
from driftline.ingest.pattern import Pattern, Values, is_other
from driftline.ingest.rewrite import check_readable
from driftline.ingest.route import SPELLINGS, Route
from driftline.operations.replay import explaining
from driftline.operations.split_columns import (
    Counts,
    SplitRows,
    counted_values,
    cut_columns,
    filled,
    is_one_of,
    key_sql,
    values_of,
)
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import INTERPRETED, configured
from driftline.runtime.threads import at_once
from driftline.tasks.run import FrameTasks, numbered
from driftline.write import folder_of_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPLIT = (
    "driftline.split"  # the property of a table that a split made: of which table and snapshot its rows are
)
_TABLES_AT_ONCE = 4
_ROWS = 100_000  # of a file, about
_SMALL = 1_000_000  # rows of a table that one task reads fast enough
_KEYS = 10  # that name one table, on average: spellings of its value, and the types that it comes in
_LISTED = 5
_AGAIN = "the same command again brings what is missing"


class TableOfSplitJson(TypedDict):
    """A table of a split. ``columns``: leaves; ``values``: the first spellings of what names it."""

    table: str
    values: list[list[str]]
    rows: int
    columns: int
    snapshot: int | None


class TableSplitJson(TypedDict):
    """A split. ``stay``: the number of rows without a value that are only in the table, which is `_other`."""

    table: str
    pattern: str
    dry_run: bool
    rows: int
    tables: list[TableOfSplitJson]
    passed_over: list[str]
    stay: int


@dataclass(frozen=True, slots=True)
class TableOfSplit:
    """A table that a split made, or would make.

    Attributes:
        values: the first spellings of what names it; none of `_other`.
        columns: the number of its leaf columns.
    """

    table: str
    values: tuple[tuple[str, ...], ...]
    rows: int
    columns: int
    snapshot: int | None = None

    def to_dict(self) -> TableOfSplitJson:
        """The form that `--json` prints."""
        return as_json(TableOfSplitJson, self)


@dataclass(frozen=True, slots=True, repr=False)
class TableSplit(Shown):
    """The outcome of a split.

    Attributes:
        tables: those that got rows, or would.
        passed_over: tables that have their rows of this split already.
        stay: the number of rows without a value that are only in the table, as it is the one for such rows.
    """

    table: str
    pattern: str
    dry_run: bool
    tables: tuple[TableOfSplit, ...] = ()
    passed_over: tuple[str, ...] = ()
    stay: int = 0

    @property
    def rows(self) -> int:
        """The number of rows that the tables got, or would get."""
        return sum(of_split.rows for of_split in self.tables)

    def to_dict(self) -> TableSplitJson:
        """The form that `--json` prints."""
        return as_json(TableSplitJson, self, rows=self.rows)


@dataclass(slots=True)
class _RowsOfTable:
    """The rows of one table: their keys, the values that name it, and their number."""

    keys: list[str] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _WrittenTable:
    """The rows of a table that are written, and visible to nobody."""

    table: CatalogTable
    transaction: Transaction
    made: TableOfSplit

    def abandon(self) -> None:
        """Take back what is not visible."""
        self.transaction.abandon()


def split(
    catalog: Catalog,
    table: CatalogTable,
    pattern: Pattern,
    max_tables: int,
    *,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> TableSplit:
    """Make the tables of a pattern of the rows that a table has, which stay there.

    All are written, and their values counted, before the first one commits. Raises UsageError, DataError.
    """
    state = table.load()
    if not state.exists:
        raise no_table(table.name)
    with configured(table.spark, INTERPRETED), explaining(table.name):
        check_readable(table, state.schema)
        run = _SplitRun(catalog, table, pattern, state, progress)
        if dry_run:
            return run.run(table.read(), max_tables, dry_run=True)
        transaction = table.transaction(state)  # whose rows stay the same, whatever others do meanwhile
        try:
            return run.run(transaction.read(), max_tables, dry_run=False)
        finally:
            transaction.abandon()


@dataclass(slots=True)
class _SplitRun:
    """One split.

    Attributes:
        state: of the table whose rows are split.
        size: the number of its rows, once they are counted.
    """

    catalog: Catalog
    table: CatalogTable
    pattern: Pattern
    state: State
    progress: Callable[[str], None]
    size: int = 0

    def run(self, rows: DataFrame, max_tables: int, *, dry_run: bool) -> TableSplit:
        """Split the rows."""
        self.progress("looking")
        key = key_sql(self.pattern, self.state.schema.struct, from_properties(self.state.properties).mark)
        shares = self._shares(rows, key, max_tables)
        self.size = sum(share.rows for share in shares.values())
        stay = shares.pop(self.table.name).rows if self._stays(shares) else 0
        token, has = self._token_of(shares)
        missing = {name: share for name, share in shares.items() if name not in has}
        numbers = {k: number for number, share in enumerate(missing.values()) for k in share.keys}
        counts = counted_values(rows, self.state.schema.struct, key, numbers) if missing else []
        before = TableSplit(self.table.name, self.pattern.text, dry_run, (), tuple(has), stay)
        planned = [
            _PlannedTable(self, name, share, of_table)
            for (name, share), of_table in zip(missing.items(), counts, strict=True)
        ]
        if dry_run:
            return replace(before, tables=tuple(table.made for table in planned))
        self.progress("writing")
        written: list[_WrittenTable] = []

        def write(planned_table: _PlannedTable) -> None:
            """Write a table. After an error in another one, it is taken back."""
            written.append(planned_table.written(rows, key, token))

        with abandoned(written):
            at_once(self.table.spark, write, planned, _TABLES_AT_ONCE)
            self.progress("committing")
            written.sort(key=lambda ready: list(missing).index(ready.made.table))
            commits = [written] if self.catalog.commits_together else [[ready] for ready in written]
            tables = at_once(self.table.spark, self.committed, commits, self.catalog.commits_at_once)
        return replace(before, tables=tuple(chain.from_iterable(tables)))

    def committed(self, written: Sequence[_WrittenTable]) -> list[TableOfSplit]:
        """Make tables visible at once."""
        try:
            make_visible([ready.transaction for ready in written])
        except CommitConflict as conflict:
            name = (*conflict.tables, written[0].table.name)[0]
            raise DataError(f"{name} was made by another writer meanwhile", _AGAIN) from conflict
        self.progress("committed")
        for ready in written:
            ready.transaction.upkeep()
        return [replace(ready.made, snapshot=ready.transaction.snapshot) for ready in written]

    def _shares(self, rows: DataFrame, key: str, max_tables: int) -> dict[str, _RowsOfTable]:
        """The rows of each table, by its name. Raises UsageError if there are too many, DataError if none."""
        most = max_tables * _KEYS
        groups = rows.selectExpr(f"{key} as k").groupBy("k").count().limit(most + 1).collect()
        by_key = {row.k: (values_of(row.k), int(row["count"])) for row in groups}
        named = sorted({values for values, _ in by_key.values() if self.pattern.names(values)}, key=str)
        assigned = Assignment(self.pattern, room=len(named), ascii_only=self.catalog.ascii_names)
        assigned = assigned.with_new(named, lambda _: None)
        count = len(set(assigned.tables.values()))
        if count > max_tables or len(groups) > most:
            at_least = "more than " if len(groups) > most else ""
            raise UsageError(
                f"{self.pattern.text} would make {at_least}{counted(count, 'table')} of {self.table.name}, and at most {max_tables} are allowed",
                "pass --max-tables N for more, or split by another field",
            )
        if not named:
            raise DataError(
                f"{self.table.name}: no row has a value that names a table of {self.pattern.text}"
            )
        shares: dict[str, _RowsOfTable] = {}
        for text, (values, row_count) in sorted(by_key.items()):
            share = shares.setdefault(assigned.table(values), _RowsOfTable())
            share.keys.append(text)
            share.rows += row_count
            if self.pattern.names(values) and values not in share.values:
                share.values.append(values)
        return dict(
            sorted(shares.items(), key=lambda named_share: (is_other(named_share[0]), -named_share[1].rows))
        )

    def _stays(self, shares: Mapping[str, _RowsOfTable]) -> bool:
        """True if the table is the one for rows without a value, and has such rows."""
        share = shares.get(self.table.name)
        return share is not None and is_other(self.table.name) and not share.values

    def _token_of(self, shares: Mapping[str, _RowsOfTable]) -> tuple[str, list[str]]:
        """The property of this split, and the tables that have it already.

        Raises UsageError for tables that are there otherwise.
        """
        states = {name: self.catalog.table(name).load() for name in shares}
        tokens = {name: state.properties.get(SPLIT, "") for name, state in states.items() if state.exists}
        token = self._token(self.state.snapshot)
        for name, text in tokens.items():
            if not text or not self._is_same(text):
                raise UsageError(
                    f"{name} is there already, and its rows are not those of this split of {self.table.name}",
                    f"drop or rename {name}, or pass a pattern of other names; {self.table.name} still has all of its rows",
                )
            token = text
        return token, list(tokens)

    def _token(self, snapshot: int | None) -> str:
        of_table = {"table": self.state.uuid, "snapshot": snapshot, "pattern": self.pattern.text}
        return json.dumps(of_table, ensure_ascii=False)

    def _is_same(self, token: str) -> bool:
        """True if a table has rows of this split: the rows of the split table are as they were since."""
        snapshot = json.loads(token).get("snapshot")
        if token != self._token(snapshot):
            return False
        appended = self.table.appended(replace(self.state, snapshot=snapshot), self.state)
        return appended is not None and appended.isEmpty()


@dataclass(frozen=True, slots=True)
class _PlannedTable:
    """A table that is to get its share of the rows. ``counts``: of their values."""

    run: _SplitRun
    name: str
    share: _RowsOfTable
    counts: Counts

    @property
    def struct(self) -> Struct:
        """Its columns."""
        return filled(self.run.state.schema.struct, self.counts)

    @property
    def made(self) -> TableOfSplit:
        """The table as a report has it."""
        values = tuple(tuple(text or "" for text in values) for values in self.share.values[:SPELLINGS])
        return TableOfSplit(self.name, values, self.share.rows, leaves(self.struct))

    def written(self, rows: DataFrame, key: str, token: str) -> _WrittenTable:
        """Write its rows, and count them as they will be read.

        Raises DataError if that is not what the split table has.
        """
        table, before = self.run.catalog.table(self.name), self.run.state.schema.struct
        schema = apply(Schema(), [AddColumn((), column) for column in self.struct.fields])
        version = max(table.blank.format_version, self.run.table.definition().format_version)
        blank = replace(table.blank, format_version=version)
        definition = replace(blank, schema=schema, last_column=schema.highest_id())
        transaction = table.transaction(table.load(), definition)
        try:
            share = rows.where(is_one_of(key, self.share.keys)).selectExpr(*cut_columns(before, self.struct))
            tasks = FrameTasks([(self._in_files(numbered(share)), SplitRows(schema.struct))])
            batch = {BATCH: uuid4().hex}
            with folder_of_batch(table.spark, transaction) as folder:
                transaction.write(tasks, folder, batch)
            staged = counted_values(transaction.staged().frame, transaction.schema.struct)[0]
            _must_be_equal(self.name, self.counts, staged)
            transaction.set({**batch, **self._properties(token)})
        except BaseException:
            transaction.abandon()
            raise
        return _WrittenTable(table, transaction, self.made)

    def _in_files(self, rows: DataFrame) -> DataFrame:
        """The rows in as many tasks as they are to have files."""
        files = 1 + self.share.rows // _ROWS
        # A shuffle of these rows alone lets all tasks read a large table; a small one is read faster without.
        return rows.coalesce(files) if self.run.size <= _SMALL else rows.repartition(files)

    def _properties(self, token: str) -> dict[str, str]:
        """The properties of the new table: the settings of the split one, and where its rows are from."""
        run = self.run
        settings = {key: text for key, text in run.state.properties.items() if _is_kept(key)}
        route = Route(run.pattern.text, tuple(self.share.values)).as_property() if self.share.values else {}
        return {**settings, **route, SPLIT: token, **of_split(f"{run.table.name} into {run.pattern.text}")}


def _is_kept(key: str) -> bool:
    """True for a property that the tables of a split take over: settings, but those of rows by key."""
    if not key.startswith(PREFIX):
        return False
    setting, dot, _ = key.removeprefix(PREFIX).partition(".")
    setting = setting.replace("-", "_")
    is_setting = setting in (PATH_SETTINGS if dot else SETTINGS) and setting not in KEY_SETTINGS
    return is_setting or key.startswith((RESOLVED, REST_SINCE))


def _must_be_equal(table: str, before: Counts, written: Counts) -> None:
    """Raise DataError if there are other numbers of rows or values than before."""
    differing: list[Path] = sorted(
        path for path in {**before, **written} if before.get(path) != written.get(path)
    )
    if differing:
        named = [
            f"{dotted(path) or 'rows'}: {before.get(path, 0)} before, {written.get(path, 0)} written"
            for path in differing
        ]
        raise DataError(
            f"{table}: its values are not those of its rows: {'; '.join(named[:_LISTED])}",
            "nothing of it was committed; please report this bug in driftline",
        )
