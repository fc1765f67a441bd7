"""Lists, exports, replays and discards the records in a table's quarantine, by Spark.

A replay has a number, which its rows in the quarantine carry; the table keeps the last number it has. So
each record is taken once, even if a replay dies, and waiting records can be distinguished from taken ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.history.batch_properties import BatchIsInError
from driftline.core.schema.types import name_text
from driftline.core.support import as_json
from driftline.errors import DataError, DriftlineError, UsageError, no_table
from driftline.formats.base import CatalogTable
from driftline.formats.commit import Retry, is_conflict
from driftline.ingest.attempts import Options, ingest
from driftline.ingest.result import Result, ResultJson
from driftline.operations.listing import Quarantine, by_spark
from driftline.quarantine import table as quarantine
from driftline.quarantine.pending import Pending, quarantined
from driftline.quarantine.replays import DISCARDED, IS_DISCARDED, REPLAY, is_replay, replay_token
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.shown import Shown
from driftline.sql.quoting import literal, name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def explaining(place: str) -> Iterator[None]:
    """Turn errors of Spark, Java and the disk, except for conflicts, into driftline's; ``place`` begins the
    message.
    """
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if is_conflict(error):
            raise
        message, hint = explained(error)
        raise java_ended(error) or DataError(f"{place}: {message}", hint) from error


class ReplayJson(TypedDict):
    """The outcome of a replay."""

    table: str
    rows_written: int
    rows_quarantined: int
    not_records: int
    held: int
    batches: list[ResultJson]


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Shown):
    """The outcome of a replay: a result for each run, including earlier ones that had not ended.

    ``stay``: texts that are no records, and are not tried; ``held``: records of a capture's unfinished batch.
    """

    table: str
    results: tuple[Result, ...] = ()
    stay: int = 0
    held: int = 0

    @property
    def written(self) -> int:
        """The number of records the table took."""
        return sum(result.rows_written for result in self.results)

    @property
    def back(self) -> int:
        """The number of records that came back, each with a row for its present reason."""
        return sum(result.rows_quarantined for result in self.results)

    def to_dict(self) -> ReplayJson:
        """The form that `--json` prints."""
        return as_json(
            ReplayJson,
            self,
            rows_written=self.written,
            rows_quarantined=self.back,
            not_records=self.stay,
            batches=self.results,
        )


def waiting(table: CatalogTable) -> DataFrame | None:
    """The rows of the quarantine that the table has not taken since, and that nobody discarded; None if there
    is no quarantine.
    """
    pending = Pending.of(table)
    return None if pending is None else pending.rows().where(pending.waits)


def kept(table: CatalogTable) -> DataFrame | None:
    """The rows that wait, and those that were discarded; None if none was."""
    pending = Pending.of(table)
    if pending is None or pending.rows().where(IS_DISCARDED).isEmpty():
        return None
    return pending.rows().where(f"{pending.waits} or {IS_DISCARDED}")


def pending_of(table: CatalogTable) -> Pending | None:
    """The quarantine, if the table has one. Raises UsageError if there is no such table."""
    pending = Pending.of(table)
    if pending is None and not table.load().exists:
        raise no_table(table.name)
    return pending


def listed(table: CatalogTable) -> Quarantine:
    """The records in the quarantine, by reason. Raises UsageError if there is no such table."""
    pending = pending_of(table)
    if pending is None:
        return Quarantine(table.name)
    return by_spark(table.name, pending.rows(), pending.reached)


def export(table: CatalogTable, file: Path) -> int:
    """Write the waiting records as JSON lines, each as it came and with the reason; returns their number."""
    pending = pending_of(table)
    rows: Iterator[Any] = iter(())
    if pending is not None:
        waiting_rows = pending.rows().where(pending.waits)
        columns = ", ".join(name(c) for c in waiting_rows.columns if c != REPLAY)
        rows = waiting_rows.selectExpr(f"to_json(struct({columns}))").toLocalIterator()
    count = 0
    try:
        with file.open("w", encoding="utf-8") as out:
            for row in rows:
                out.write(f"{row[0]}\n")
                count += 1
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    return count


def replay(
    table: CatalogTable,
    *,
    settings: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Replay:
    """Ingest the records of the quarantine again, each once. Raises DataError, UsageError.

    A record that is refused again returns to the quarantine with its present reason.
    """
    pending = None if pending_of(table) is None else _marked(table, progress)
    if pending is None:
        return Replay(table.name)
    results = []
    for number in pending.pending():
        # One after the other: the table knows no more than the last that it has.
        source = quarantined(pending.rows().where(f"{REPLAY} = {number}"))
        try:
            options = Options(settings, replay_token(pending.state, number), progress=progress)
            results.append(ingest(table, source, options))
        except BatchIsInError:  # another process was faster
            continue
    stay, held = pending.left()
    return Replay(table.name, tuple(results), stay, held)


def _marked(table: CatalogTable, progress: Callable[[str], None]) -> Pending | None:
    """Give the records that wait, and are in no replay yet, the number of the
    next one. Nothing is in the table by that.
    """

    def attempt() -> Pending | None:
        """Mark the ready records; None if there is no quarantine."""
        pending = Pending.of(table)
        if pending is None:
            return None
        with explaining(pending.table.name):
            pending.assign_replay(f"{REPLAY} is null and {pending.ready}", lambda last: f"{last + 1}L", retry)
        return Pending.of(table)

    retry = Retry(quarantine.of(table).name, progress)
    return retry.run(attempt)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that a table has and that is to be taken back, with those behind it, which brought no row."""

    pending: Pending
    number: int

    @classmethod
    def of(cls, table: CatalogTable, batch: str) -> Replayed | None:
        """The replay that made this batch; None if none did, or the quarantine is no longer the same."""
        if not is_replay(batch) or (pending := Pending.of(table)) is None:
            return None
        numbers = range(pending.reached, 0, -1)
        found = (number for number in numbers if replay_token(pending.state, number).batch == batch)
        return next((cls(pending, number) for number in found), None)

    @property
    def before(self) -> Mapping[str, str]:
        """The property of a table that has the replays before: by it the records of this one wait again."""
        return replay_token(self.pending.state, self.number - 1).properties

    def wait_once(self) -> None:
        """Have each record wait once, for a replay of another number, once the table has `before`.

        Until then, or where the process dies first, these replays are ones that died: the next one ends them.
        """
        quarantined, reached = self.pending.table, self.pending.reached
        with suppress(DriftlineError):
            # Those that were refused again, which wait as they came, too.
            for number in range(self.number, reached + 1):
                quarantined.delete("batch", replay_token(self.pending.state, number).batch)
            retry = Retry(quarantined.name)
            retry.run(lambda: self._renumber(f"{REPLAY} between {self.number} and {reached}", retry))

    def _renumber(self, chosen: str, retry: Retry) -> None:
        now = replace(self.pending, state=self.pending.table.load())
        now.assign_replay(chosen, lambda last: f"{last + 1}L", retry)


_LISTED = 5  # sources


class DiscardedJson(TypedDict):
    """The numbers of records that were discarded, or wait again."""

    table: str
    discarded: int
    restored: int
    held: int


@dataclass(frozen=True, slots=True, repr=False)
class Discarded(Shown):
    """The outcome of a discard: the number of ``records``; ``restored``: they wait again.

    ``held``: records of a capture's unfinished batch, or of an unfinished replay, which go on waiting.
    """

    table: str
    records: int = 0
    restored: bool = False
    held: int = 0

    def to_dict(self) -> DiscardedJson:
        """The form that `--json` prints."""
        discarded, restored = (0, self.records) if self.restored else (self.records, 0)
        return as_json(DiscardedJson, self, discarded=discarded, restored=restored)


def discard(
    table: CatalogTable,
    source: str | Sequence[str] | None = None,
    *,
    restore: bool = False,
) -> Discarded:
    """Mark the records that wait as discarded, or unmark those that are, in one commit.

    ``source``: only those of this file or topic, or of several. Raises UsageError if one of them has none, or
    there is no table.
    """
    sources = None if source is None else _names(source)

    def attempt() -> Discarded:
        """Mark the records in the quarantine as it is now."""
        pending = pending_of(table)
        if pending is None:
            return Discarded(table.name, restored=restore)
        chosen, held = _conditions(pending, sources, restore=restore)
        value = "cast(null as bigint)" if restore else f"{DISCARDED}L"
        with explaining(pending.table.name):
            if sources is not None:
                _check_sources(pending, sources, restore=restore)
            records = pending.assign_replay(chosen, lambda _: value, retry)
            unfinished = 0 if restore else pending.rows().where(held).count()
        return Discarded(table.name, records, restore, unfinished)

    retry = Retry(quarantine.of(table).name)
    return retry.run(attempt)


def _names(source: str | Sequence[str]) -> Sequence[str]:
    """The files and topics as the quarantine has them. Raises UsageError if there are none."""
    names = [name_text(each) for each in ([source] if isinstance(source, str) else source)]
    if not names:  # a list that came out empty does not mean all records
        raise UsageError("source names no file and no topic", "leave it out for all records")
    return names


def _conditions(pending: Pending, sources: Sequence[str] | None, *, restore: bool) -> tuple[str, str]:
    """SQL, whether a row is to be marked, and whether its batch or replay has not ended."""
    of_source = "true" if sources is None else f"({' or '.join(map(_is_of, sources))})"
    if restore:
        return f"{IS_DISCARDED} and {of_source}", "false"
    free = f"{REPLAY} is null and {pending.settled}"
    return f"{free} and {of_source}", f"{pending.waits} and not ({free}) and {of_source}"


def _is_of(source: str) -> str:
    """SQL, whether a row is of the file or topic; of a path its end is enough, as reports shorten paths."""
    ending = literal("/" + source.removeprefix("./"))
    name = literal(source)
    return f"coalesce(source = {name} or endswith(source, {ending}), topic = {name}, false)"


def _check_sources(pending: Pending, sources: Sequence[str], *, restore: bool) -> None:
    """Raise UsageError for the first file or topic without a record to be marked."""
    rows = pending.rows().where(IS_DISCARDED if restore else pending.waits)
    present = rows.selectExpr(*(f"bool_or({_is_of(each)})" for each in sources)).collect()[0]
    for each, is_present in zip(sources, present, strict=True):
        if not is_present:
            raise _nothing_of(pending, rows, each, restore=restore)


def _nothing_of(pending: Pending, rows: DataFrame, source: str, *, restore: bool) -> UsageError:
    found = rows.selectExpr("coalesce(topic, source) as place").where("place is not null").distinct()
    places = [row.place.removeprefix("file:") for row in found.orderBy("place").limit(_LISTED).collect()]
    state = "is discarded" if restore else "waits"
    return UsageError(
        f"{pending.table.name}: no record of {source} {state}",
        f"there are records of {', '.join(places)}" if places else None,
    )
