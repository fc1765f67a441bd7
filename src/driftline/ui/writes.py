"""Writes from a page: each is shown first, as its command and with what it changes, and is then done once.

A page names a write by an id that nobody can guess. A form that is sent twice does not write twice: the id
leads to the outcome from then on.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.definition import KEY_PROPERTY
from driftline.core.schema.text import counted
from driftline.core.schema.types import dotted
from driftline.core.settings.fields import parse_path, spelled_path
from driftline.core.settings.surfaces import in_flags, in_toml
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.operations.history import History
from driftline.operations.listing import Quarantine
from driftline.operations.undo import last_change
from driftline.report import drift, tables
from driftline.report.lines import clean
from driftline.runtime.shown import text_of
from driftline.stats import DriftedField
from driftline.ui.lake import ServedLake
from driftline.ui.served import TableOfPages

if TYPE_CHECKING:
    from rich.console import RenderableType

# Of a table, a callback for each step, and True for a dry run; returns the lines that the command prints.
Work: TypeAlias = Callable[[TableOfPages, Callable[[str], None], bool], Iterable["RenderableType"]]
Choices: TypeAlias = Mapping[str, Sequence[str]]  # the fields of a form, each as often as it came
Settings: TypeAlias = Callable[[str], Mapping[str, Any]]  # of a table, as `driftline.toml` has them

KEPT = 100  # writes whose pages are still there
_UNDO = "driftline undo takes it back."


@dataclass(frozen=True, slots=True)
class Write:
    """A write to a table, before it is done.

    Attributes:
        words: those of the command that does the same, without its name.
        changes: what it will change, in sentences.
        work: does it.
        has_dry_run: True if its dry run is shown first.
    """

    table: str
    verb: str
    words: tuple[str, ...]
    changes: tuple[str, ...]
    work: Work
    has_dry_run: bool = False

    @property
    def command(self) -> str:
        """The command that does the same."""
        return shlex.join(("driftline", *self.words))


def _resolve(name: str, field_: DriftedField, type_: str, *, drop_rest: bool) -> Write:
    """Fold the columns of a field into one. Raises UsageError for what is no type."""
    try:
        parse_hint(type_)
    except ValueError as error:
        raise UsageError(str(error)) from error
    path = spelled_path(field_.path)
    columns = dict.fromkeys(dotted(column) for part in field_.parts for column in part.columns)
    beside = "is dropped" if drop_rest else "stays in a column beside it"
    return Write(
        name, "resolve", ("resolve", name, path, "--as", type_, *["--drop-rest"] * drop_rest),
        (
            f"{', '.join(columns)} become one column of type {type_}; the rows are written anew, in one commit.",
            f"What does not convert {beside}.", _UNDO,
        ),
        lambda table, progress, dry_run: drift.resolved(
            table.resolve(path, type_, dry_run=dry_run, drop_rest=drop_rest, progress=progress)
        ),
        has_dry_run=True,
    )  # fmt: skip


def _promote(name: str, paths: Sequence[str]) -> Write:
    """Make columns of what waits in the rest at or below the paths; of all of it, if there are none.

    Raises UsageError for what is no path.
    """
    _check(paths)
    return Write(
        name, "promote", ("promote", name, *(paths or ("--all",))),
        ("Values that wait in the rest get columns, in old rows too, in one commit.", _UNDO),
        lambda table, progress, dry_run: drift.promoted(
            table.promote(*paths, everything=not paths, dry_run=dry_run, progress=progress)
        ),
        has_dry_run=True,
    )  # fmt: skip


def _replan(name: str, paths: Sequence[str]) -> Write:
    """Give fields the columns that one batch of all records would make; all fields, if there are no paths.

    Raises UsageError for what is no path.
    """
    _check(paths)
    return Write(
        name, "replan", ("replan", name, *paths, "--apply"),
        (
            "The columns are those that one batch of all records would make; the rows are written anew, in one commit.",
            "What waits in quarantine is replayed behind it.", _UNDO,
        ),
        lambda table, progress, dry_run: drift.replanned(
            table.replan(*paths, apply=not dry_run, progress=progress)
        ),
        has_dry_run=True,
    )  # fmt: skip


def _check(paths: Sequence[str]) -> None:
    """Raise UsageError for what is no path."""
    try:
        for path in paths:
            parse_path(path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _replay(waiting: Quarantine, settings: Settings) -> Write:
    """Ingest the waiting records of a quarantine again."""
    name = waiting.table
    words = in_toml if settings(name) else in_flags
    return Write(
        name, "replay", ("quarantine", name, "--replay"),
        (
            f"{counted(waiting.waiting, 'record')} in quarantine: each is ingested again, once, as the table is now.",
            "Those that fit become rows, and may add columns; the others come back with their present reason.",
        ),
        lambda table, progress, _: drift.replayed(table.replay(settings=settings(name), progress=progress), words),
    )  # fmt: skip


def _discard(
    waiting: Quarantine, sources: Sequence[str], settings: Settings, options: Sequence[str]
) -> Write:
    """End the wait of the records of a quarantine; of some files and topics, if ``sources`` are given.

    ``options``: those of each command.
    """
    name = waiting.table
    words = in_toml if settings(name) else in_flags
    records = f"The records of {', '.join(sources)}" if sources else counted(waiting.waiting, "record")
    chosen = [word for source in sources for word in ("--from", source)]
    restored = shlex.join(("driftline", "quarantine", name, "--restore", *chosen, *options))
    return Write(
        name, "discard", ("quarantine", name, "--discard", *chosen),
        (
            f"{records} in quarantine wait no longer: no replay takes them. They are kept.",
            f"`{restored}` takes it back.",
        ),
        lambda table, *_: drift.discarded(table.discard_quarantine(sources or None), words),
    )  # fmt: skip


def _undo(history: History, *, is_keyed: bool, yes: bool) -> Write:
    """Take back the last change of a table. Raises DataError if it has none."""
    change = last_change(history)
    if change is None and not is_keyed:
        raise DataError(f"{history.table} has not changed since it was created: nothing to undo")
    if is_keyed:
        change = "the last batch, with its rows, or what was changed since"
    limit = (
        "Values written since are hidden, if there are any."
        if yes
        else "It is refused if that would hide values or rows."
    )
    return Write(
        history.table, "undo", ("undo", history.table, *["--yes"] * yes),
        (f"Takes back {change}.", limit, "All values of the columns that come back are there again."),
        lambda table, *_: tables.undone(table.undo(yes=yes)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a write or its dry run: the text that the command prints, or an error."""

    text: str = ""
    error: DriftlineError | None = None


@dataclass(slots=True)
class PlannedWrite:
    """A write that a page shows, its dry run, and then its outcome. ``phase``: its present step."""

    id: str
    write: Write
    look: Future[Outcome] | None = None
    done: Future[Outcome] | None = None
    phase: str = ""

    def tell(self, phase: str) -> None:
        """Note the present step."""
        self.phase = phase

    def wait(self, seconds: float) -> None:
        """Wait for what is under way, but no longer than this."""
        wait([work for work in (self.look, self.done) if work is not None], seconds)

    @property
    def looked(self) -> Outcome | None:
        """The dry run, once it has ended."""
        return self.look.result() if self.look is not None and self.look.done() else None

    @property
    def outcome(self) -> Outcome | None:
        """The end of the write, once it is there."""
        return self.done.result() if self.done is not None and self.done.done() else None

    @property
    def is_under_way(self) -> bool:
        """True while it writes."""
        return self.done is not None and not self.done.done()

    @property
    def is_ready(self) -> bool:
        """True if it may be done: a dry run, if it has one, has ended well."""
        looked = self.looked
        return self.done is None and (self.look is None or (looked is not None and looked.error is None))

    @property
    def would_hide(self) -> bool:
        """True for an undo that was refused as it would hide values or rows."""
        error = self.outcome.error if self.outcome is not None else None
        return self.write.verb == "undo" and error is not None and "--yes" in (error.hint or "")


class Writes:
    """The writes of a lake's pages: one at a time, in a thread of their own.

    ``options``: those by which a command finds the lake.
    """

    def __init__(self, lake: ServedLake, settings: Settings, options: Sequence[str] = ()) -> None:
        self.settings = settings
        self._lake, self._options = lake, tuple(options)
        self._worker = ThreadPoolExecutor(1, "driftline-writes")
        self._planned: dict[str, PlannedWrite] = {}
        self._lock = Lock()

    def close(self) -> None:
        """Wait for the write that is under way; none begins any more."""
        self._worker.shutdown(cancel_futures=True)

    def plan(self, verb: str, table: str, choices: Choices) -> PlannedWrite:
        """Give the write that a form asks for its id, and begin its dry run. Raises UsageError, DataError."""
        chosen = self._chosen(verb, table, choices)
        write = replace(chosen, words=(*chosen.words, *self._options))
        planned = PlannedWrite(secrets.token_urlsafe(16), write)
        if write.has_dry_run:
            planned.look = self._worker.submit(self._outcome, planned, dry_run=True)
        with self._lock:
            self._planned[planned.id] = planned
            ended = [each.id for each in self._planned.values() if not each.is_under_way]
            for id_ in ended[:-KEPT]:
                del self._planned[id_]
        return planned

    def planned(self, id_: str) -> PlannedWrite:
        """The write with this id. Raises UsageError if it is not known any more."""
        if (planned := self._planned.get(id_)) is None:
            raise UsageError("this write is not known any more", "choose it again on the page of its table")
        return planned

    def begin(self, id_: str) -> None:
        """Do a write, unless it has begun before. Raises UsageError if it cannot begin."""
        with self._lock:
            planned = self.planned(id_)
            if planned.done is not None:
                return
            for each in self._planned.values():
                if each.is_under_way:
                    under_way = f"{each.write.verb} of {each.write.table} is under way"
                    raise UsageError(
                        f"{under_way}, and one write is done at a time", "go back, and press again"
                    )
            if not planned.is_ready:
                raise UsageError("its dry run has not ended well", "go back, and look at it")
            planned.done = self._worker.submit(self._outcome, planned, dry_run=False)

    def _chosen(self, verb: str, table: str, choices: Choices) -> Write:
        paths = list(dict.fromkeys(path.strip() for path in _lines(choices, "path")))
        match verb:
            case "resolve":
                return _resolve(
                    table,
                    self._drifted(table, paths[-1] if paths else ""),
                    "".join(choices.get("type", ())[-1:]).strip(),
                    drop_rest="drop_rest" in choices,
                )
            case "promote":
                return _promote(table, paths)
            case "replan":
                return _replan(table, paths)
            case "replay":
                return _replay(self._lake.quarantine(table), self.settings)
            case "discard":
                sources = _lines(choices, "source")
                return _discard(self._lake.quarantine(table), sources, self.settings, self._options)
            case "undo":
                is_keyed = bool(self._lake.state(table).properties.get(KEY_PROPERTY))
                return _undo(self._lake.history(table), is_keyed=is_keyed, yes="yes" in choices)
        raise UsageError(f"there is no write {verb!r}", "choose one on the page of a table")

    def _drifted(self, table: str, shown: str) -> DriftedField:
        for each in self._lake.stats(table).drifted:
            if clean(dotted(each.path)) == shown:
                return each
        raise UsageError(f"{table} has no drifted field {shown}", "the page of the table lists them")

    def _outcome(self, planned: PlannedWrite, *, dry_run: bool) -> Outcome:
        table = planned.write.table
        planned.tell("starting")
        try:
            if (embedded := self._lake.lake.embedded) is not None:
                embedded.check_open(writes=not dry_run)
            lines = planned.write.work(self._lake.lake.table(table), planned.tell, dry_run)
            return Outcome(text_of(lines))
        except DriftlineError as error:
            error.spell(in_toml if self.settings(table) else in_flags)
            return Outcome(error=error)
        except Exception as error:  # a thread has nobody else to tell it to
            looking = shlex.join(("driftline", "history", table, *self._options))
            hint = f"`{looking}` tells if the change took place" if not dry_run else None
            return Outcome(
                error=DataError(f"{planned.write.verb} failed: {type(error).__name__}: {error}", hint)
            )
        finally:
            if not dry_run:
                self._lake.forget()


def _lines(choices: Choices, name: str) -> list[str]:
    """The texts of a field that may come several times, and has one on each line; each once."""
    lines = [line for text in choices.get(name, ()) for line in text.replace("\r\n", "\n").split("\n")]
    return list(dict.fromkeys(line for line in lines if line.strip()))
