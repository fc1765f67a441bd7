"""Column statistics from the catalog: those of files, and the snapshots that added them.

No data is read. Inlined rows have no statistics: if there are any, values are unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from driftline.core.columns.statistics import (
    RECORDS,
    TREND,
    CommittedBatch,
    Count,
    Counts,
    KnownSnapshot,
    Numbers,
    TableStatistics,
    Value,
    shown,
)
from driftline.core.columns.timeline import periods
from driftline.core.history.entries import BATCH, MOVED, SEEN, Versions
from driftline.core.schema.text import quoted
from driftline.core.schema.types import Primitive, Schema
from driftline.errors import no_table
from driftline.formats.ducklake.catalog import NoLakeError
from driftline.formats.ducklake.files import BOUNDED, order_of
from driftline.formats.ducklake.inlined import inlined_rows
from driftline.formats.ducklake.layout import versions_of
from driftline.formats.ducklake.seen import brought, note_of, snapshot_properties
from driftline.formats.ducklake.sizes import sizes_of
from driftline.formats.ducklake.snapshot import DELETES_OF, LIVE, latest, live, load
from driftline.formats.ducklake.types import defaults_ever

if TYPE_CHECKING:
    from driftline.formats.base import State
    from driftline.formats.ducklake.catalog import CatalogDatabase, Connection

_FILES = f"(SELECT * FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE})"


def table_statistics(
    connection: Connection, name: str, schema: Schema, watched: frozenset[int] = frozenset()
) -> TableStatistics:
    """Read the statistics of the columns of ``schema``, those ``watched`` by period, too.

    Raises UsageError if there is no table.
    """
    state = load(connection, name)
    if state.table is None or state.snapshot is None:
        raise no_table(name)
    table, snapshot = state.table.id, state.snapshot
    note = note_of(connection, table)
    snapshots = tuple(_snapshots(connection, table, noted=note is not None))
    counts_of = _counts(connection, table, snapshot, snapshots)
    inlined = sum(rows.rows.num_rows for rows in inlined_rows(connection, table, snapshot))
    if inlined:
        counts_of[RECORDS][None] = Count(values=inlined, files=1, foreign=inlined, rewritten=inlined)
    files, size = connection.rows(
        f"SELECT count(*), sum(file_size_bytes) FROM {_FILES}", [table, snapshot, snapshot]
    )[0]
    plain = {f.id: f.type for _, f in schema.walk() if isinstance(f.type, Primitive)}
    defaulted = frozenset(f.id for _, f in schema.walk() if f.initial_default is not None)
    newest = connection.rows(
        "SELECT epoch_ms(CAST(snapshot_time AS TIMESTAMPTZ)) FROM meta.ducklake_snapshot WHERE snapshot_id = ?",
        [snapshot],
    )
    columns = {} if note is None else note.columns
    counts = Counts(snapshots, counts_of, _ids(connection, table), defaulted, noted=columns)
    deleted = _deleted(connection, table, snapshot)
    return TableStatistics(
        int(newest[0][0]),
        int(files),
        int(size or 0),
        deleted,
        counts,
        _bounds(connection, table, snapshot, plain, counts),
        _firsts(connection, table, snapshot, plain),
        counts.records - deleted,
        _periods(connection, table, snapshot, counts, watched) if watched else {},
        sizes_of(connection, state),
    )


def _snapshots(connection: Connection, table: int, *, noted: bool) -> Iterator[KnownSnapshot]:
    """The snapshots that brought files, oldest first; ``noted``: the table has a note of some."""
    snapshots = []
    for id_, time, changes_made, extra, added, version, rewritten in connection.rows(
        "SELECT s.snapshot_id, epoch_ms(CAST(s.snapshot_time AS TIMESTAMPTZ)), c.changes_made, c.commit_extra_info, f.n, "
        "(SELECT max(v.schema_version) FROM meta.ducklake_schema_versions v "
        "WHERE v.table_id = ? AND v.begin_snapshot <= s.snapshot_id), "
        "EXISTS (SELECT 1 FROM meta.ducklake_data_file o WHERE o.table_id = ? AND o.end_snapshot = s.snapshot_id) "
        "FROM meta.ducklake_snapshot s JOIN (SELECT begin_snapshot, sum(record_count) AS n FROM meta.ducklake_data_file "
        "WHERE table_id = ? AND partial_max IS NULL GROUP BY 1) f ON f.begin_snapshot = s.snapshot_id "
        "LEFT JOIN meta.ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id ORDER BY s.snapshot_id",
        [table, table, table],
    ):
        message = snapshot_properties(extra, table)
        author, own_rows = message.get(BATCH), int(added) - int(message.get(MOVED, 0))
        batch = CommittedBatch(int(time), None if author is None else str(author), own_rows)
        is_born = brought(table, str(changes_made), batch.id, rewritten=rewritten)
        snapshot = KnownSnapshot(int(id_), None if version is None else int(version), batch, is_born)
        snapshots.append(replace(snapshot, moved=MOVED in message, noted=noted and SEEN in message))
    last = [i for i, s in enumerate(snapshots) if s.born][-TREND:]
    for i, s in enumerate(snapshots):
        yield replace(s, slot=last.index(i)) if i in last else s


def _counts(
    connection: Connection, table: int, snapshot: int, snapshots: tuple[KnownSnapshot, ...]
) -> dict[int, dict[int | None, Count]]:
    places = {s.id: i for i, s in enumerate(snapshots)}
    versions = _versions(connection, table)
    out: dict[int, dict[int | None, Count]] = defaultdict(dict)
    parameters = [table, snapshot, snapshot]
    for column, begin, merged, values, files in connection.rows(
        f"SELECT {RECORDS}, begin_snapshot, partial_max IS NOT NULL, sum(record_count), count(*) FROM {_FILES} "
        f"GROUP BY ALL UNION ALL "
        "SELECT s.column_id, f.begin_snapshot, f.partial_max IS NOT NULL, sum(s.value_count), count(*) "
        f"FROM {_FILES} f JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id "
        "WHERE s.value_count IS NOT NULL GROUP BY ALL",
        [*parameters, *parameters],
    ):
        schema = _version(versions, int(begin))
        count = out[int(column)].setdefault(schema, Count())
        _add(count, int(values), int(files), None if merged else places.get(int(begin)), snapshots)
    return out


def _periods(
    connection: Connection, table: int, snapshot: int, counts: Counts, watched: frozenset[int]
) -> dict[int | None, Counts]:
    """The counts of some columns by period."""
    period_of = dict(zip((s.id for s in counts.snapshots), periods(counts.snapshots), strict=True))
    begins = [
        int(row[0])
        for row in connection.rows(
            f"SELECT DISTINCT begin_snapshot FROM {_FILES}", [table, snapshot, snapshot]
        )
    ]
    versions = _versions(connection, table)
    # Summed up in SQL: of 10,000 batches, the rows would be too many.
    groups = [(period_of.get(begin), _version(versions, begin)) for begin in begins]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    files = (
        f"(SELECT f.*, g.n FROM {_FILES} f JOIN (SELECT unnest(?::BIGINT[]) AS b, unnest(?::BIGINT[]) AS n) g "
        "ON g.b = f.begin_snapshot)"
    )
    parameters = [table, snapshot, snapshot, begins, [numbers[group] for group in groups]]
    by_period: dict[int | None, dict[int, dict[int | None, Count]]] = defaultdict(lambda: defaultdict(dict))
    for column, number, merged, values, count_of_files in connection.rows(
        f"SELECT {RECORDS}, n, partial_max IS NOT NULL, sum(record_count), count(*) FROM {files} GROUP BY ALL UNION ALL "
        f"SELECT s.column_id, f.n, f.partial_max IS NOT NULL, sum(s.value_count), count(*) FROM {files} f "
        "JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id "
        "WHERE s.value_count IS NOT NULL AND s.column_id IN (SELECT unnest(?::BIGINT[])) GROUP BY ALL",
        [*parameters, *parameters, sorted(watched)],
    ):
        period, version = list(numbers)[number]
        of_period = by_period[None if merged else period][int(column)]
        count = of_period.setdefault(version, Count())
        count.values += int(values)
        count.files += int(count_of_files)
        count.rewritten += int(values) if merged or period is None else 0
    return {period: replace(counts, by_column=by_column) for period, by_column in by_period.items()}


def _versions(connection: Connection, table: int) -> list[tuple[int, int]]:
    """The versions of the schema, each with the snapshot that began it."""
    statement = "SELECT begin_snapshot, schema_version FROM meta.ducklake_schema_versions WHERE table_id = ? ORDER BY 1"
    return [(int(begin), int(version)) for begin, version in connection.rows(statement, [table])]


def _version(versions: Sequence[tuple[int, int]], begin: int) -> int | None:
    """The version of the schema of files that a snapshot began."""
    return max((version for since, version in versions if since <= begin), default=None)


def _add(
    count: Count, values: int, files: int, place: int | None, snapshots: tuple[KnownSnapshot, ...]
) -> None:
    """Add files of one snapshot; ``place`` None: of one that is gone, or of several."""
    born = place is not None and snapshots[place].born
    accounted = place is not None and snapshots[place].accounted
    count.values += values
    count.files += files
    count.foreign += 0 if accounted else values
    count.rewritten += 0 if born else values
    if place is None:
        return
    if values:
        count.first = place if count.first is None else min(count.first, place)
        if born or not accounted:
            count.last = place if count.last is None else max(count.last, place)
        if born:
            count.last_born = place if count.last_born is None else max(count.last_born, place)
    slot = snapshots[place].slot
    if slot is not None:
        count.slots[slot] = count.slots.get(slot, 0) + values


def _ids(connection: Connection, table: int) -> dict[int, frozenset[int]]:
    """The columns of each version of the schema."""
    ids_of: dict[int, set[int]] = defaultdict(set)
    for version, column in connection.rows(
        "SELECT v.schema_version, c.column_id FROM meta.ducklake_schema_versions v JOIN meta.ducklake_column c "
        "ON c.table_id = v.table_id AND c.begin_snapshot <= v.begin_snapshot "
        "AND (c.end_snapshot IS NULL OR c.end_snapshot > v.begin_snapshot) WHERE v.table_id = ?",
        [table],
    ):
        ids_of[int(version)].add(int(column))
    return {version: frozenset(ids) for version, ids in ids_of.items()}


def _deleted(connection: Connection, table: int, snapshot: int) -> int:
    """Rows that are deleted, and that the files' statistics still count."""
    ((rows,),) = connection.rows(
        f"SELECT coalesce(sum(delete_count), 0) FROM meta.ducklake_delete_file WHERE table_id = ? AND {LIVE}",
        [table, snapshot, snapshot],
    )
    name = f"ducklake_inlined_delete_{table}"
    if name in connection.tables():
        # Those of a file that is gone stay in the catalog.
        rows += connection.rows(
            f"SELECT count(*) FROM meta.{quoted(name)} d JOIN {_FILES} f ON f.data_file_id = d.file_id "
            "WHERE d.begin_snapshot <= ?",
            [table, snapshot, snapshot, snapshot],
        )[0][0]
    return int(rows)


def _bounds(
    connection: Connection, table: int, snapshot: int, plain: Mapping[int, Primitive], counts: Counts
) -> dict[int, Numbers]:
    """The bounds of whole columns.

    The catalog keeps them for columns, inlined rows included; of later columns it has none, and they come
    from all files.
    """
    stored = connection.rows(
        "SELECT column_id, min_value, max_value FROM meta.ducklake_table_column_stats WHERE table_id = ? "
        "AND min_value IS NOT NULL AND max_value IS NOT NULL",
        [table],
    )
    with_bounds = {int(column) for column, _, _ in stored}
    ranges: dict[int, list[tuple[str | None, str | None]]] = defaultdict(list)
    for column, low, high in connection.rows(
        "SELECT DISTINCT s.column_id, s.min_value, s.max_value FROM meta.ducklake_file_column_stats s "
        f"JOIN {_FILES} f ON f.data_file_id = s.data_file_id WHERE s.value_count > 0 AND s.column_id NOT IN "
        "(SELECT column_id FROM meta.ducklake_table_column_stats WHERE table_id = ? AND min_value IS NOT NULL)",
        [table, snapshot, snapshot, table],
    ):
        ranges[int(column)].append((low, high))
    for column, pairs in ranges.items():
        type_ = plain.get(column)
        is_told = type_ is not None and type_.name in BOUNDED and column not in with_bounds | counts.defaulted
        if type_ is not None and is_told and counts.numbers(column).values is not None:
            lows, highs = ([b for b in bounds if b is not None] for bounds in zip(*pairs, strict=True))
            if len(lows) == len(highs) == len(pairs):
                order = order_of(type_)
                stored.append((column, min(lows, key=order), max(highs, key=order)))
    return _numbers(stored, plain)


def _firsts(
    connection: Connection, table: int, snapshot: int, plain: Mapping[int, Primitive]
) -> dict[int, Numbers]:
    """The bounds of each column in one file of the snapshot that brought its first value."""
    return _numbers(
        connection.rows(
            "SELECT s.column_id, arg_min(s.min_value, f.data_file_id), arg_min(s.max_value, f.data_file_id) "
            f"FROM {_FILES} f JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id "
            "WHERE s.value_count > 0 GROUP BY s.column_id",
            [table, snapshot, snapshot],
        ),
        plain,
    )


def _numbers(rows: list[tuple[Any, ...]], plain: Mapping[int, Primitive]) -> dict[int, Numbers]:
    out = {}
    for column, low, high in rows:
        type_ = plain.get(int(column))
        if type_ is not None and low is not None and high is not None:
            out[int(column)] = Numbers(low=_value(str(low), type_), high=_value(str(high), type_))
    return out


def _value(text: str, type_: Primitive) -> Value:
    """A bound, as the catalog prints it."""
    match type_.name:
        case "boolean":
            return text in ("1", "true")
        case "int" | "long":
            return int(text)
        case "float" | "double":
            return shown(float(text), type_)
        case "timestamp":
            return shown(text.removesuffix("+00"), type_)
        case "date":
            return shown(date.fromisoformat(text), type_) if len(text) == len("2026-01-02") else text
        case _:
            return shown(text, type_)


@dataclass(frozen=True, slots=True)
class OfflineDuckLakeTable:
    """A table by its name, ``namespace.table``. Each read is a transaction of its own."""

    catalog: CatalogDatabase
    name: str

    @classmethod
    def of(cls, catalog: CatalogDatabase, name: str) -> OfflineDuckLakeTable | None:
        """The table; None if it does not exist."""
        table = cls(catalog, name)
        return table if catalog.exists() and table.load().exists else None

    def load(self) -> State:
        """The table's state."""
        return self.catalog.read(lambda connection: load(connection, self.name))

    def versions(self) -> Versions:
        """The known past of the table."""
        return self.catalog.read(lambda connection: versions_of(connection, self.name))

    def defaults(self) -> dict[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""

        def look(connection: Connection) -> dict[int, frozenset[Any]]:
            """Read the defaults; none of a table that does not exist."""
            table = load(connection, self.name).table
            return {} if table is None else defaults_ever(connection, table.id)

        return self.catalog.read(look)

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics:
        """The catalog's statistics for the columns of ``schema``, those ``watched`` by period, too."""
        return self.catalog.read(lambda connection: table_statistics(connection, self.name, schema, watched))

    def beside(self, name: str) -> OfflineDuckLakeTable | None:
        """Another table of this lake; None if it does not exist."""
        return OfflineDuckLakeTable.of(self.catalog, name)


def tables(catalog: CatalogDatabase, *, views: bool = False) -> list[tuple[str, str]]:
    """The tables of the lake, each with its namespace before it, without those of remembered deletes.

    ``views``: its views, too.
    """
    if not catalog.exists():
        return []
    try:
        now = catalog.read(latest)
    except NoLakeError:
        if catalog.kind != "postgres":
            raise
        return []  # as of a server's database before its first commit
    statement = (
        "SELECT s.schema_name, t.table_name FROM meta.ducklake_table t JOIN meta.ducklake_schema s "
        f"ON s.schema_id = t.schema_id WHERE {live('t')} AND {live('s')} AND t.table_id NOT IN "
        f"(SELECT object_id FROM meta.ducklake_tag WHERE key = ? AND {LIVE})"
    )
    parameters: list[Any] = [now, now, now, now, DELETES_OF, now, now]
    if views:
        statement += (
            " UNION ALL SELECT s.schema_name, v.view_name FROM meta.ducklake_view v JOIN meta.ducklake_schema s "
            f"ON s.schema_id = v.schema_id WHERE {live('v')} AND {live('s')}"
        )
        parameters += [now, now, now, now]
    rows = catalog.read(lambda c: c.rows(f"{statement} ORDER BY 1, 2", parameters))
    return [(str(namespace), str(name)) for namespace, name in rows]
