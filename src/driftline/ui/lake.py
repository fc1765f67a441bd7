"""The lake as the pages read it: from metadata and by DuckDB where they tell, by Spark where only Spark can.

What was read of a table is remembered until the table commits again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from driftline.capture.checkpoint import Checkpoint, captured_patterns, captures_of, default_place
from driftline.capture.status import CaptureStatus
from driftline.config import redacted
from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.naming import QUARANTINE, caseless
from driftline.core.schema.types import Field, List, Map, Schema, Struct, Type
from driftline.core.schema.types import Path as ColumnPath
from driftline.errors import DriftlineError, UsageError, no_table
from driftline.formats.base import State
from driftline.operations.history import History
from driftline.operations.listing import Quarantine
from driftline.quarantine.replays import last_replay, waits
from driftline.report.lines import clean
from driftline.runtime.duckdb import identifier, literal
from driftline.stats import Stats, waiting_records
from driftline.stats.build import stats, waiting_alone
from driftline.ui.limited_query import LimitedQueries, QueryAnswer
from driftline.ui.served import LakeOfPages

T = TypeVar("T")

REMEMBERED = 30.0  # seconds, where a catalog does not tell that a table has changed
_BESIDE = 8  # columns of a row that stand beside the one that is looked at
_SOURCE = "_source"  # file and line of each row, where the table keeps them


@dataclass(frozen=True, slots=True)
class CaptureState:
    """A capture, as its checkpoint on this machine shows it; times in milliseconds.

    Attributes:
        runs: None where the system does not tell.
        number: of its last micro-batch, at ``at``; None before the first.
        begun: the time at which a micro-batch began that has not ended.
        status: as the capture has noted it; None if it has not.
    """

    table: str  # or the pattern of tables
    name: str
    source: str
    runs: bool | None
    number: int | None = None
    at: int | None = None
    begun: int | None = None
    status: CaptureStatus | None = None

    @property
    def word(self) -> str:
        """The state in a word."""
        if self.runs is None:
            return "?"
        if self.runs:
            return "runs"
        if self.status is None:
            return "ended"
        return "failed" if self.status.error else "ended" if self.status.has_ended else "died"

    @property
    def error(self) -> str:
        """The error that ended it; empty if it runs, or has ended without one."""
        return "" if self.runs or self.status is None else self.status.error

    @property
    def lag(self) -> int | None:
        """The files or offsets that were still to come after its last micro-batch; None if unknown."""
        return None if self.status is None else self.status.lag


@dataclass
class ServedLake:
    """A lake that pages are made of."""

    lake: LakeOfPages
    _known: dict[tuple[str, str], tuple[object, Any]] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        embedded = self.lake.embedded
        self._queries = None if embedded is None else LimitedQueries(embedded)

    def close(self) -> None:
        """End what waits for queries; the lake stays open."""
        if self._queries is not None:
            self._queries.close()

    @property
    def title(self) -> str:
        """The lake's folder, or its catalog, without a password."""
        return redacted(str(self.lake.warehouse or self.lake.catalog), *self.lake._configured)

    @property
    def has_queries(self) -> bool:
        """True if the query box reads the lake."""
        return self._queries is not None

    def forget(self) -> None:
        """Read everything anew: a table has been written to."""
        with self._lock:
            self._known.clear()

    def versions(self) -> Mapping[str, object]:
        """The tables and quarantines, each with what changes with its commits."""
        if self.lake.embedded is not None:
            self.lake.embedded.check_open(writes=False)
            return self.lake.embedded.versions()
        clock = int(monotonic() / REMEMBERED)
        return dict.fromkeys(self._remembered("", "tables", clock, self.lake._names), clock)

    def names(self) -> list[str]:
        """The tables, also those all of whose records wait."""
        return sorted({name.removesuffix(QUARANTINE) for name in self.versions()})

    def named(self, shown: str) -> str:
        """The table that pages show under this name. Raises UsageError if there is none."""
        for name in self.names():
            if clean(name) == shown:
                return name
        raise no_table(shown)

    def spelled(self, table: str) -> str:
        """The name, as pages have it, of a table that is named in any letter case.

        Raises UsageError if there is none.
        """
        for _ in range(2):
            names = self.names()
            if table in names:
                return table
            if alike := [name for name in names if caseless(name) == caseless(table)]:
                return alike[0]
            self.forget()  # the list of the tables of a catalog is remembered, and this one may be new
        raise no_table(table)

    def summaries(self, names: Sequence[str], seconds: float) -> dict[str, Stats | None]:
        """The statistics in short of these tables, as many as can be read in time; None: it takes Spark."""
        versions, end = self.versions(), monotonic() + seconds
        read: dict[str, Stats | None] = {}
        for name in names:
            version = (versions.get(name), versions.get(f"{name}{QUARANTINE}"))
            known = self._known.get((name, "short"))
            if monotonic() < end or (known is not None and known[0] == version):
                read[name] = self._remembered(name, "short", version, partial(self._in_short, name))
        return read

    def stats(self, name: str) -> Stats:
        """The statistics of a table."""
        return self._of_version(name, "stats", lambda: self._stats(name))

    def history(self, name: str) -> History:
        """The history of a table."""
        return self._of_version(name, "history", self.lake.table(name).history)

    def state(self, name: str) -> State:
        """The schema and properties of a table."""
        return self._of_version(name, "state", self.lake.table(name).state)

    def quarantine(self, name: str) -> Quarantine:
        """The records of a table that wait, by reason."""
        return self._of_version(name, "quarantine", self.lake.table(name).quarantine)

    def _of_version(self, name: str, kind: str, read: Callable[[], T]) -> T:
        versions = self.versions()
        return self._remembered(name, kind, (versions.get(name), versions.get(f"{name}{QUARANTINE}")), read)

    def _remembered(self, name: str, kind: str, version: object, read: Callable[[], T]) -> T:
        known = self._known.get((name, kind))
        if known is None or known[0] != version:
            known = (version, read())
            with self._lock:
                self._known[name, kind] = known
        value: T = known[1]
        return value

    def _in_short(self, name: str) -> Stats | None:
        embedded = self.lake.embedded
        if embedded is None:
            return self.lake.table(name).stats()
        if table := embedded.table(name):
            return stats(table, in_short=True, without_rows=True)
        quarantine = embedded.table(f"{name}{QUARANTINE}")
        return waiting_alone(name, quarantine) if quarantine else None

    def _stats(self, name: str) -> Stats:
        embedded = self.lake.embedded
        if embedded is None:
            return self.lake.table(name).stats()
        waiting = waiting_records.by_duckdb(embedded, name, over_time=True)
        if table := embedded.table(name):
            read = stats(table, without_rows=True, waiting=waiting)
        else:
            quarantine = embedded.table(f"{name}{QUARANTINE}")
            read = waiting_alone(name, quarantine, waiting) if quarantine else None
        return self.lake.table(name).stats() if read is None else read

    def has_rest(self, name: str) -> str | None:
        """The column with values that have none of their own; None if the table has no such column."""
        column = rest_column(self.state(name).schema.struct)
        return None if column is None else column.name

    def patterns(self) -> list[str]:
        """The patterns of tables that captures have in a lake on this machine."""
        return captured_patterns(self._local)

    @property
    def _local(self) -> str | None:
        return self.lake.warehouse if self.lake.embedded is not None else None

    def captures(self, name: str) -> list[CaptureState]:
        """The captures of a table, or pattern, that keep their checkpoints in a lake on this machine."""
        warehouse = self._local
        return [self._capture(str(warehouse), name, capture) for capture in captures_of(warehouse, name)]

    def _capture(self, warehouse: str, table: str, name: str) -> CaptureState:
        checkpoint = Checkpoint(default_place(warehouse, table, name), name, durable=False)
        spark, done, planned = Path(checkpoint.spark), checkpoint.last("commits"), checkpoint.last("offsets")
        return CaptureState(
            table, name, checkpoint.source, _is_locked(Path(checkpoint.place, "lock")),
            done if done >= 0 else None, _touched(spark / "commits" / str(done)),
            _touched(spark / "offsets" / str(planned)) if planned > done else None,
            CaptureStatus.of(Path(checkpoint.place)),
        )  # fmt: skip

    def ask(self, sql: str) -> QueryAnswer:
        """The first rows of a SELECT statement. Raises UsageError, DataError."""
        if self._queries is None:
            raise UsageError(
                "only the lake of a folder and a DuckLake can be queried here",
                "`driftline query` reads it by Spark",
            )
        return self._queries.ask(sql)

    def rows_with(self, name: str, path: ColumnPath) -> tuple[str, QueryAnswer]:
        """The first rows that have a value in a column, and the SQL that reads them."""
        schema = self.state(name).schema
        sql = _rows_sql(name, schema, path)
        return sql, self.ask(sql)

    def waiting_records(self, name: str, text: str) -> QueryAnswer:
        """The newest records in quarantine with a text in them, in their reason or their place."""
        quarantine = f"{name}{QUARANTINE}"
        state = self.state(quarantine)
        properties: Mapping[str, str] = {}
        with suppress(DriftlineError):
            properties = self.state(name).properties
        searched = "concat_ws(' ', r.raw, r.reason, r.path, r.source, r.topic)"
        condition = f"contains(lower({searched}), lower({literal(text)}))" if text else "true"
        return self.ask(
            "SELECT strftime(r.quarantined_at, '%Y-%m-%d %H:%M') AS \"time\", "
            'coalesce(r.source, r.topic) AS source, coalesce(r.line, r."offset") AS line, '
            f"r.reason, coalesce(r.raw, '(bytes that are no text)') AS record FROM {_sql_name(quarantine)} AS r "
            f"WHERE {waits(last_replay(state, properties))} AND {condition} "
            "ORDER BY r.quarantined_at DESC, source, line"
        )


def _sql_name(table: str) -> str:
    return ".".join(map(identifier, table.split(".")))


def _rows_sql(table: str, schema: Schema, path: ColumnPath) -> str:
    """SQL of the rows with a value in a column: the column, where each row came from, and the first others.

    Raises UsageError if there is no such column.
    """
    columns = {f.name: f for f in schema.struct.fields}
    if not path or path[0] not in columns:
        raise UsageError(f"{table} has no column {'.'.join(path)}")
    beside = [name for name in columns if name not in (_SOURCE, path[0])][:_BESIDE]
    listed = [*([_SOURCE] if _SOURCE in columns else []), path[0], *beside]
    rows = "t"
    while rows in columns:
        rows += "_"
    condition = _has_value(f"{rows}.{identifier(path[0])}", columns[path[0]].type, path[1:], 0)
    selected = ", ".join(f"{rows}.{identifier(name)}" for name in dict.fromkeys(listed))
    return f"SELECT {selected} FROM {_sql_name(table)} AS {rows} WHERE {condition}"


def _has_value(sql: str, type_: Type, path: ColumnPath, depth: int) -> str:
    """SQL that is true where a value has another at a path inside it."""
    if not path:
        return f"{sql} IS NOT NULL"
    step, steps = path[0], path[1:]
    match type_:
        case Struct(fields):
            inside: Field | None = next((f for f in fields if f.name == step), None)
            if inside is not None:
                return _has_value(f"struct_extract({sql}, {literal(step)})", inside.type, steps, depth)
        case List(element) if step == "element":
            each = f"e{depth}"
            return (
                f"len(list_filter({sql}, lambda {each}: {_has_value(each, element, steps, depth + 1)})) > 0"
            )
        case Map(key, value) if step in ("key", "value"):
            each, part = f"e{depth}", value if step == "value" else key
            within = _has_value(each, part, steps, depth + 1)
            return f"len(list_filter(map_{step}s({sql}), lambda {each}: {within})) > 0"
    raise UsageError(f"there is no column {step} inside")


def _touched(path: Path) -> int | None:
    """The time of a file's last change in milliseconds; None if it is not there."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _is_locked(path: Path) -> bool | None:
    """True if a process holds the lock of a file; None where the system does not tell.

    The kernel's list is read: to try the lock would stop a capture that starts at that moment.
    """
    try:
        stat = path.stat()
        locks = Path("/proc/locks").read_text().splitlines()
    except FileNotFoundError as error:
        return None if error.filename == "/proc/locks" else False
    except OSError:
        return None
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    return any(place in line.split() for line in locks)
