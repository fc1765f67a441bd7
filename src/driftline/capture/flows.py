"""The streams that can be captured: files of a folder, or any streaming DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.capture.checkpoint import Checkpoint, broken
from driftline.capture.finding import ListedFile
from driftline.capture.folder import KNOWN_FOR, FileLog
from driftline.capture.kafka_client import LostOffsets
from driftline.capture.resuming import Resumption, named_files
from driftline.capture.seeking import Position, Sought, nanoseconds
from driftline.core.schema.text import counted
from driftline.core.schema.types import name_text
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.sources.opening import FileParts, of_frame, opened
from driftline.sources.spooled import leftovers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.sources.scan import Source

_LOG = logging.getLogger("driftline")
_A_DAY = 86_400.0  # seconds
_NAMED = 20  # files that an error names
_TOLD = 5  # files that a note names


@dataclass(slots=True)
class Files:
    """Files of a folder, or glob, each once. Each list of the log is a batch."""

    spark: SparkSession
    log: FileLog
    checkpoint: Checkpoint
    strings: bool = False
    _last: int = field(default=-1, init=False)  # list that was there when the stream began
    _streams: bool = field(default=False, init=False)
    _held: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def name(self) -> str:
        """The folder or glob, as messages name it."""
        return f"files of {self.log.finder.source}"

    def stream(self) -> DataFrame:
        """Stream the log of lists, and note the last list that exists now."""
        self._last, self._streams = self.log.next - 1, True
        return self.log.stream(self.spark)

    def batches(self, epoch: int) -> Iterator[int]:
        """Yield the lists of the micro-batch that are not in the table yet; then mark all of them as done."""
        # Not the number of the micro-batch: Spark may give two lists with one (see capture/folder.py).
        end = _lists_given(self.checkpoint, epoch)
        # Here Spark waits for the batch, so it neither reads nor writes its log.
        self.checkpoint.shorten_log(end, KNOWN_FOR)
        yield from self.log.waiting(end)
        self.log.finish(end)

    def source(self, frame: DataFrame, number: int) -> Source:
        """Open the files of list ``number``; only the session of ``frame`` is used."""
        files = FileParts(self.log.read(number), self.log.ranges(number))
        shared = str(self.log.folder)  # it is mounted on each worker, as the files are
        source = opened(
            frame.sparkSession, files, format=self.log.format, strings=self.strings, shared=shared
        )
        return self._held.enter_context(source)

    def check(self, number: int) -> None:
        """Raise DataError if a file of the list has changed since it was opened."""
        self.log.check(number)

    def close(self, number: int) -> int | None:
        """Mark the list as committed. The lag is in files."""
        self.log.finish(number)
        return self.log.lag()

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        """Nothing: a file that is gone is an error, and never skipped."""
        return ()

    def changed_files(self, number: int) -> dict[str, int]:
        """The number of files that had changed since they were taken, by their fate."""
        return self.log.changed(number)

    def notes(self, number: int) -> tuple[str, ...]:
        """Tell of files that came again, or in part, and may be renamed copies of files taken before."""
        return (*self._renamed(number), *self._changed(number))

    def _changed(self, number: int) -> Iterator[str]:
        parts = [entry for entry in self.log.lists[number] if entry.begin]
        again = self.log.repeated(number)
        for entry in parts[:_TOLD]:
            assert entry.portion is not None
            yield f"{name_text(entry.place)}: {counted(entry.portion.lines, 'line')} more"
        for entry in again[:_TOLD]:
            yield (
                f"{name_text(entry.place)} changed since it was ingested: all of it is ingested again, as new rows unless "
                "the table has a key"
            )
        if (others := len(parts[_TOLD:]) + len(again[_TOLD:])) > 0:
            yield f"{counted(others, 'other changed file')}"

    def _renamed(self, number: int) -> tuple[str, ...]:
        renamed = self.log.renamed(number)
        if not renamed:
            return ()
        (old, new), *others = renamed
        and_others = f", and so with {counted(len(others), 'other')}" if others else ""
        warning = (
            f"{new} has the size and the time of {old}, which was taken before and is gone{and_others}: if it was renamed, "
            "its records are in the table twice"
        )
        return (warning,)

    def release(self) -> None:
        """Close the source of the batch."""
        self._held.close()

    def contents(self, number: int) -> dict[str, Any]:
        """The digest of the list."""
        return {"files": self.log.digest(number)}

    def fingerprints(self, number: int) -> tuple[int, ...]:
        """The numbers by which the table remembers the files of the list."""
        files, name = self.log.lists[number], self.checkpoint.name
        parts = [entry for entry in files if entry.portion is not None and entry.portion.is_cut]
        return (
            *(entry.fingerprint(name) for entry in files),
            *(entry.part_fingerprint(name) for entry in parts),
        )

    def begin(self, resumption: Resumption) -> None:
        """Compare the log with the table, and give Spark what it is not to pass over.

        Raises DataError if the log, or the table, lacks what the other has, and nobody said how to go on.
        """
        _resume(self.log, resumption)
        log, checkpoint = self.log, self.checkpoint
        # Lists that Spark has not noted yet may still be merged.
        log.merge(checkpoint.last("sources/0"))
        epoch = checkpoint.last("commits")
        last_given = -1 if epoch < 0 else _lists_given(checkpoint, epoch)
        if log.lag(last_given):  # Spark is done with them, and gives them never again
            log.prompt()

    def seek(self, resumption: Resumption, to: Position, *, dry_run: bool) -> Sought:
        """Have the next start go on with the files modified since ``to``, as `Table.seek`."""
        log, since = self.log, nanoseconds(to)
        position, differs, may_lack = _compared(log, resumption)
        if differs or may_lack or position < log.done:
            raise resumption.unsettled()
        log.finish(position)
        again, passed = log.sought(since)
        if not dry_run:
            log.leave_out(passed)
            log.append_again(again)
            resumption.settle(log.done, {})
        return [entry.path for entry in again], [entry.path for entry in passed]

    def poll(self) -> None:
        """Add new files to the log.

        Raises DataError for files that have changed, once all new ones are in the table.
        """
        self.log.add()
        if self._streams and not self.log.lag() and (error := self._error()):
            raise error

    def left(self) -> DriftlineError | None:
        """The error for files that did not come, or have changed since they were taken; None without any."""
        if count := self.log.lag(self._last):
            return DataError(
                f"{self.name}: the stream ended, and {counted(count, 'file')} of its log did not come",
                hint="restart the capture: it resumes with them",
            )
        return self._error()

    def _error(self) -> DataError | None:
        """The error for files that have changed; None if they are passed over."""
        changed = list(self.log.changes.refused.values())
        if not changed or self.log.changes.choice == "skip":
            return None
        others = f"; and {counted(len(changed) - _NAMED, 'other')}" if len(changed) > _NAMED else ""
        choices = "again takes all of it once more, skip passes it over"
        if self.log.changes.choice == "fail":
            choices = f"append takes the lines behind those ingested, {choices}"
        sentence = f"{'; '.join(changed[:_NAMED])}{others}"
        return DataError(
            sentence,
            hint=f"move it out of the folder and add the new data under another name; or --changed-files {choices}",
        )

    def left_out(self) -> tuple[str, ...]:
        """Tell of changed files that are passed over, and of last lines that have no end yet."""
        notes, log = [], self.log
        if log.changes.choice == "skip" and log.changes.refused:
            notes.append(
                f"{counted(len(log.changes.refused), 'changed file')} passed over: {_short(log.changes.refused)}"
            )
        if log.changes.choice == "append" and log.changes.unended:
            paths = list(log.changes.unended.values())
            notes.append(f"a last line without its end waits in {_short(paths)}")
        return tuple(notes)

    def explain(self, error: str) -> DriftlineError | None:
        """None: no error of Spark's is specific to the log."""
        return None

    def end(self) -> None:
        """Delete messages about files that are in the table; a failure is only logged."""
        try:
            self.log.let_go()
        except DriftlineError as error:
            _LOG.warning("%s: %s", self.name, error)


def _short(paths: Iterable[str]) -> str:
    names = [name_text(path.rpartition("/")[2]) for path in paths]
    others = f" and {counted(len(names) - _TOLD, 'other')}" if len(names) > _TOLD else ""
    return f"{', '.join(names[:_TOLD])}{others}"


def files(spark: SparkSession, log: FileLog, checkpoint: Checkpoint, *, strings: bool) -> Files:
    """The files of a log, which is in the ``checkpoint``. Raises SetupError."""
    # Earlier versions took list n with micro-batch n, whatever else Spark gave, and did not note it.
    log.open(checkpoint.last("commits") if checkpoint.since is None else None)
    if checkpoint.last("sources/0") >= log.next:
        raise broken(str(log.folder / f"{log.next:012}.json"))
    checkpoint.relocate()
    leftovers(str(log.folder), _A_DAY, dry_run=False)
    return Files(spark, log, checkpoint, strings)


def _resume(log: FileLog, resumption: Resumption) -> None:
    """Have the log go on where the table is."""
    checkpoint, choice = resumption.checkpoint, resumption.resume_from
    position, differs, may_lack = _compared(log, resumption)
    if (checkpoint.since is None or position >= log.done) and not (differs or may_lack):
        return  # the table has all lists that the log says it has
    lacking = log.behind(position)
    if position < log.packed - 1 or differs or may_lack:
        lacking = [*log.packed_files(), *log.behind(-1 if differs else position)]
    if choice != "checkpoint":
        taken, has_all = resumption.ingested(lacking), resumption.has_all()
        if differs:
            # It forgets the oldest first: what came after a file that it remembers, it remembers too.
            _leave_out(log, resumption, remembers=has_all or bool(taken))
        lacks_all = not log.packed and all(number > position for number in checkpoint.resumed)
        if may_lack and resumption.last is not None and not (has_all or lacks_all):
            raise resumption.unknown("files")
        lacking = _lacking(lacking, taken, has_all=has_all or may_lack)
        waiting = {file.key: file for number in log.waiting(log.next) for file in log.lists[number]}
        # A part that waits does not bring those before it.
        lacking = [
            file for file in lacking if file.key not in waiting or file.begin < waiting[file.key].begin
        ]
        if lacking and choice is None:
            raise resumption.behind(position + 1, log.done, named_files(lacking))
        log.append_again([log.present(file) for file in lacking])
    resumption.settle(log.done, {})


def _compared(log: FileLog, resumption: Resumption) -> tuple[int, bool, bool]:
    """The last list that the table has; if it has others than this log; if it may lack files of no list."""
    position, differs = _position(log, resumption)
    # What was left out since this batch is in no list: a table that ends with the batch may lack it.
    is_settled = differs or resumption.checkpoint.settled(resumption.last)
    resumed = [] if is_settled else resumption.checkpoint.resumed
    return position, differs, any(number > position for number in resumed)


def _position(log: FileLog, resumption: Resumption) -> tuple[int, bool]:
    """The last list that the table has; and whether it has others than this log."""
    last, checkpoint = resumption.last, resumption.checkpoint
    if note := checkpoint.settled(last):
        return int(note["number"]), False
    if last is None or resumption.is_adopted:
        return -1, last is not None
    number = log.next - 1
    while number >= 0 and checkpoint.epoch_of(number) > last.epoch:
        number -= 1
    differs = number < 0 or checkpoint.epoch_of(number) < last.epoch
    if number in log.lists and "files" in last.contents:
        differs = differs or log.digest(number) != last.contents["files"]
    return number, differs


def _leave_out(log: FileLog, resumption: Resumption, *, remembers: bool) -> None:
    """Leave out the files that the table has, and the log not.

    Args:
        remembers: the table knows all of them.
    """
    if not remembers:
        raise resumption.unknown("files")

    def in_table(files: Sequence[ListedFile]) -> set[ListedFile]:
        """The files that the table has."""
        taken = resumption.ingested(files)
        # A file that has grown since: nobody knows how much of it the table has.
        if resumption.has_parts([file for file in files if file not in taken]):
            raise resumption.unknown("lines")
        if taken:
            _LOG.warning(
                "%s: its checkpoint is older than %s, which has these already: %s",
                resumption.name,
                resumption.table.name,
                named_files([file for file in files if file in taken]),
            )
        return taken

    waiting = [file for number in log.waiting(log.next) for file in log.lists[number]]
    taken = in_table(waiting)
    log.leave_out(file for file in waiting if file in taken)
    log.finder.list_all()
    # Files that turn up later are asked for too: the older checkpoint lists them as new.
    log.in_table = in_table


def _lacking(
    files: Sequence[ListedFile], taken: AbstractSet[ListedFile], *, has_all: bool
) -> list[ListedFile]:
    """The files, in the order in which they were taken, that the table lacks; all if it remembers none.

    Args:
        has_all: it has forgotten none; else those before the first that it remembers may be in.
    """
    first = 0 if has_all else next((number for number, file in enumerate(files) if file in taken), 0)
    return [file for file in files[first:] if file.size and file not in taken and not _is_empty(file)]


def _is_empty(file: ListedFile) -> bool:
    """True if nothing was taken of a file, as of one that was renamed."""
    return file.portion is not None and file.portion.start == file.portion.end


def _lists_given(checkpoint: Checkpoint, epoch: int) -> int:
    """The last list that Spark has given with a micro-batch, and those before it."""
    return int(checkpoint.end_of(epoch)["logOffset"])


@dataclass(slots=True)
class Frames:
    """Any streaming DataFrame; ``json_column`` holds JSON text whose records are the rows."""

    frame: DataFrame
    json_column: str | None = None
    name: str = "a DataFrame"
    _batch: DataFrame | None = field(default=None, init=False)

    def stream(self) -> DataFrame:
        """The DataFrame itself."""
        return self.frame

    def batches(self, epoch: int) -> Iterable[int]:
        """The micro-batch as the only batch."""
        return (epoch,)

    def source(self, frame: DataFrame, number: int) -> Source:
        """Persist the micro-batch, which is read twice, and open it."""
        # Observed and written: computed again, it could be another one.
        self._batch = frame.persist()
        return of_frame(self._batch, self.json_column)

    def check(self, number: int) -> None:
        """Nothing to check: the batch is persisted."""

    def close(self, number: int) -> None:
        """Nothing to finish; the lag is unknown."""

    def left_out(self) -> tuple[str, ...]:
        """Nothing: only the source knows."""
        return ()

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        """Nothing: any loss is the source's to report."""
        return ()

    def changed_files(self, number: int) -> dict[str, int]:
        """None: rows have no files."""
        return {}

    def notes(self, number: int) -> tuple[str, ...]:
        """No notes."""
        return ()

    def release(self) -> None:
        """Unpersist the micro-batch."""
        if self._batch is not None:
            self._batch.unpersist()
            self._batch = None

    def contents(self, number: int) -> dict[str, Any]:
        """Nothing: only the source knows."""
        return {}

    def fingerprints(self, number: int) -> tuple[int, ...]:
        """None: there are no files."""
        return ()

    def begin(self, resumption: Resumption) -> None:
        """Compare the numbers of the checkpoint's batches with the table's.

        Raises DataError if they differ, unless a person said that the checkpoint counts.
        """
        compare_numbers(resumption)

    def poll(self) -> None:
        """Nothing to look for: Spark polls the source."""

    def end(self) -> None:
        """Nothing to close."""

    def left(self) -> DriftlineError | None:
        """None: only the source knows what it has not delivered."""
        return None

    def explain(self, error: str) -> DriftlineError | None:
        """None: the source is unknown."""
        return None


def compare_numbers(resumption: Resumption) -> None:
    """Compare a stream of which only the numbers of batches are known with the table, as `Frames.begin`."""
    last, checkpoint, choice = resumption.last, resumption.checkpoint, resumption.resume_from
    if checkpoint.local is None:
        return
    committed, newest = checkpoint.last("commits"), checkpoint.last("offsets")
    note, adopted = checkpoint.settled(last), resumption.is_adopted
    lacks = [] if checkpoint.since is None else [*range(checkpoint.since, committed + 1)]
    if note:
        lacks = [number for number in lacks if number > note["number"]]
    elif last is not None and not adopted:
        lacks = [number for number in lacks if checkpoint.epoch_of(number) > last.epoch]
    is_older = last is not None and not note and checkpoint.epoch_of(newest) < last.epoch
    if not (lacks or is_older or adopted):
        return
    if choice is None:
        raise (
            resumption.behind(lacks[0], lacks[-1], "of a stream") if lacks else resumption.unknown("records")
        )
    if choice == "table":
        raise UsageError(
            "a stream does not know what its earlier batches were made of, and cannot go on from the table",
            hint="--resume-from checkpoint goes on without them",
        )
    resumption.settle(committed, {})
