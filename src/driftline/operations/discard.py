"""Ends the wait of records in quarantine that nobody will replay, and takes that back. None is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from driftline.errors import UsageError
from driftline.formats.base import CatalogTable
from driftline.formats.commit import Retry
from driftline.operations.explaining import explaining
from driftline.operations.replay import pending_of
from driftline.quarantine import table as quarantine
from driftline.quarantine.pending import IS_DISCARDED, Pending
from driftline.quarantine.replays import DISCARDED, REPLAY
from driftline.runtime.shown import Shown
from driftline.sql.quoting import literal

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
        return {
            "table": self.table,
            "discarded": 0 if self.restored else self.records,
            "restored": self.records if self.restored else 0,
            "held": self.held,
        }


def discard(
    table: CatalogTable,
    source: str | None = None,
    *,
    restore: bool = False,
) -> Discarded:
    """Mark the records that wait as discarded, or unmark those that are, in one commit.

    ``source``: only those of this file or topic. Raises UsageError if it has none, or there is no table.
    """

    def attempt() -> Discarded:
        """Mark the records in the quarantine as it is now."""
        pending = pending_of(table)
        if pending is None:
            return Discarded(table.name, restored=restore)
        chosen, held = _conditions(pending, source, restore=restore)
        value = "cast(null as bigint)" if restore else f"{DISCARDED}L"
        with explaining(pending.table.name):
            records = pending.mark(chosen, lambda _: value, retry)
            unfinished = 0 if restore else pending.rows().where(held).count()
        if source is not None and not records and not unfinished:
            raise _nothing_of(pending, source, restore=restore)
        return Discarded(table.name, records, restore, unfinished)

    retry = Retry(quarantine.of(table).name)
    return retry.run(attempt)


def _conditions(pending: Pending, source: str | None, *, restore: bool) -> tuple[str, str]:
    """SQL, whether a row is to be marked, and whether its batch or replay has not ended."""
    of_source = "true" if source is None else _is_of(source)
    if restore:
        return f"{IS_DISCARDED} and {of_source}", "false"
    free = f"{REPLAY} is null and {pending.settled}"
    return f"{free} and {of_source}", f"{pending.waits} and not ({free}) and {of_source}"


def _is_of(source: str) -> str:
    """SQL, whether a row is of the file or topic; of a path its end is enough, as reports shorten paths."""
    ending = literal("/" + source.removeprefix("./"))
    name = literal(source)
    return f"coalesce(source = {name} or endswith(source, {ending}), topic = {name}, false)"


def _nothing_of(pending: Pending, source: str, *, restore: bool) -> UsageError:
    rows = pending.rows().where(IS_DISCARDED if restore else pending.waits)
    found = rows.selectExpr("coalesce(topic, source) as place").where("place is not null").distinct()
    places = [row.place.removeprefix("file:") for row in found.orderBy("place").limit(_LISTED).collect()]
    state = "is discarded" if restore else "waits"
    return UsageError(
        f"{pending.table.name}: no record of {source} {state}",
        f"there are records of {', '.join(places)}" if places else None,
    )
