"""Ends older snapshots of a table, and deletes the files that only they had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypedDict

from driftline.core.columns.statistics import iso
from driftline.core.history.retention import Expirable, RetentionLimit
from driftline.core.schema.definition import KEY_PROPERTY
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.text import counted
from driftline.core.support import as_json
from driftline.errors import UsageError, no_table
from driftline.formats.commit import Retry
from driftline.formats.lakes import Catalog, EndedSnapshots, Expiry
from driftline.runtime.shown import Shown

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable


class ExpiredJson(TypedDict):
    """An `Expired`, in JSON."""

    table: str
    snapshots: int
    snapshots_of_lake: bool
    remaining: int
    since: str | None
    files: int
    keeps: list[str]
    loses: list[str]
    not_reached: list[str]
    done: bool


@dataclass(frozen=True, slots=True, repr=False)
class Expired(Shown):
    """The snapshots that ended, or would.

    Attributes:
        snapshots: their number, those of the quarantine included; ``of_lake``: they are those of all tables.
        remaining: the number of the table's snapshots that stay.
        since: the time from which on all of them stay.
        files: the number of files that were deleted.
        keeps: what stays beside these, and why.
        loses: what is no longer possible.
        not_reached: where the rows of older snapshots may be, too.
        is_done: False of a dry run.
    """

    table: str
    snapshots: int
    of_lake: bool
    remaining: int
    since: str | None
    keeps: tuple[str, ...]
    loses: tuple[str, ...]
    not_reached: tuple[str, ...]
    files: int = 0
    is_done: bool = False

    def to_dict(self) -> ExpiredJson:
        """The form that JSON output has."""
        return as_json(ExpiredJson, self, snapshots_of_lake=self.of_lake, done=self.is_done)


def limit_of(older_than: timedelta | datetime, retain_last: int) -> RetentionLimit:
    """The limit by a time, or an age. A time without a zone is in UTC. Raises UsageError."""
    if retain_last < 1:
        raise UsageError(
            f"retain_last is {retain_last}, and the present snapshot always stays", "use 1 or more"
        )
    since = datetime.now(UTC) - older_than if isinstance(older_than, timedelta) else older_than
    since = since if since.tzinfo else since.replace(tzinfo=UTC)
    return RetentionLimit(int(since.timestamp() * 1000), retain_last)


def expire(
    catalog: Catalog,
    table: CatalogTable,
    limit: RetentionLimit,
    captures: Sequence[str],
    *,
    dry_run: bool,
    progress: Callable[[str], None],
) -> Expired:
    """End the snapshots of a table and its quarantine beyond the limit, with the files that only they had.

    Args:
        catalog: the lake.
        table: its table.
        limit: what stays.
        captures: those that write to the table.
        dry_run: only count.
        progress: called with the name of each step.

    Raises:
        UsageError: there is no such table, or its files are not to be deleted.
    """
    if not table.load().exists:
        raise no_table(table.name)
    expiries = _expiries(catalog, table.name)
    of_lake = expiries[table.name].of_lake
    for expiry in expiries.values():
        expiry.check()
    progress("counting")
    expirable = {name: expiry.expirable(limit) for name, expiry in expiries.items()}
    of_table = expirable[table.name]
    loses = tuple(_loses(table, of_table, of_lake=of_lake))
    ended = EndedSnapshots(sum(len(each.ids) for each in expirable.values()))
    if not dry_run:
        progress("deleting")
        retry = Retry(table.name, progress)
        runs = (retry.run(partial(expiry.run, limit)) for expiry in expiries.values())
        ended = sum(runs, EndedSnapshots())
    return Expired(
        table.name,
        ended.snapshots,
        of_lake,
        of_table.remaining,
        None if of_table.since is None else iso(of_table.since),
        tuple(_keeps(expirable, captures)),
        loses,
        tuple(_not_reached(ended)),
        ended.files,
        is_done=not dry_run,
    )


def _expiries(catalog: Catalog, name: str) -> dict[str, Expiry]:
    """The expiry of a table, and of its quarantine if that has snapshots of its own, by name."""
    expiries = {name: catalog.expiry(name)}
    rejects = name + QUARANTINE
    if not expiries[name].of_lake and catalog.table(rejects).load().exists:
        expiries[rejects] = catalog.expiry(rejects)
    return expiries


def _keeps(expirable: Mapping[str, Expirable], captures: Sequence[str]) -> Iterator[str]:
    """Yield the reasons for which more stays than the limit asks for."""
    for name, each in expirable.items():
        for ref, count in each.held.items():
            yield f"{counted(count, 'older snapshot')} of {name}, which the {ref} needs"
    for name in captures:
        yield f"what capture {name} has taken: a property of the table, so it goes on where it was"


def _loses(table: CatalogTable, expirable: Expirable, *, of_lake: bool) -> Iterator[str]:
    """Yield all that is no longer possible once these snapshots have ended."""
    if not expirable.ids or expirable.since is None:
        return
    since = iso(expirable.since)
    tables = " of all tables of the lake" if of_lake else ""
    yield f"time travel{tables} to before {since}"
    yield f"stats: which batch before {since} brought a field first or last"
    if of_lake:
        yield f"history and undo{tables}: changes before {since}"
    last = table.last_batch() if KEY_PROPERTY in table.load().properties else None
    if last is not None:
        before = next(islice(table.snapshots(last.snapshot), 1, None), None)
        if before is not None and before.id in expirable.ids:
            yield f"undo of batch {last.id}, which needs the snapshot before it"


def _not_reached(ended: EndedSnapshots) -> Iterator[str]:
    """Yield the places of rows of these snapshots that an expiry does not reach."""
    yield "copies and backups of the lake, and older versions of objects that a store keeps"
    yield "readers that are reading an older snapshot: they find a file missing"
    for path in ended.outside:
        yield f"{path}: it lies where driftline deletes nothing"
