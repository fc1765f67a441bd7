"""A folder of files as a stream of lists of files, each file once.

Spark's own file source forgets: files that are older than others, lines appended to a file that it
has seen, a name made again, a file deleted before it was read. So the capture keeps its own log,
in the checkpoint: file *n* of the log lists the files of micro-batch *n*, written before Spark
hears of it. What Spark streams is this log.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.capture.finding import Finder
from driftline.capture.listing import Entry, entry_of
from driftline.errors import DataError, SetupError, UsageError
from driftline.observe.endings import format_by_name
from driftline.runtime.spark_conf import literally
from driftline.runtime.stores import Uri, is_stored, mapped
from driftline.source.files import format_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_FILES = 1000  # of one micro-batch
_KEPT = 100  # finished lists that stay files of their own
_TAKEN = "_taken.json.gz"  # all earlier ones; Spark passes over names with _


@dataclass(slots=True)
class FileLog:
    """The files of a folder, or glob, that were taken or are about to be; kept in ``folder``.

    ``format`` None: that of the first, as its ending tells it; the others have to have the same.
    """

    finder: Finder
    folder: Path
    format: str | None = None
    max_files: int = MAX_FILES
    taken: dict[str, Entry] = field(default_factory=dict)
    lists: dict[int, list[Entry]] = field(default_factory=dict)
    next: int = 0
    _first: str | None = None  # the format of what was taken first

    def open(self) -> None:
        """Reads the log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (packed := self.folder / _TAKEN).exists():
            with gzip.open(packed, "rt") as file:
                checkpoint = json.load(file)
            self.next = checkpoint["next"]
            self._take(map(Entry._make, checkpoint["files"]))
        for path in sorted(self.folder.glob("[0-9]*.json")):
            number = int(path.stem)
            os.utime(path, (number + 1, number + 1))
            self.lists[number] = [Entry._make(entry) for entry in json.loads(path.read_text())]
            self._take(self.lists[number])
            self.next = max(self.next, number + 1)

    def add(self, done: int) -> None:
        """Looks for files; what is new becomes further lists. ``done``: the
        last micro-batch that is in.

        Raises DataError where a file that was taken has changed; SetupError where the folder is away.
        """
        entries = sorted(self.finder.entries(self.taken, self.format), key=lambda e: (e.modified, e.path))
        pending = self._pending(done)
        new = []
        for entry in entries:
            known = self.taken.get(entry.path)
            if known is None:
                new.append(entry)
            elif known != entry and entry.path not in pending:
                raise _changed(known, entry)
        self._one_format(new)
        for start in range(0, len(new), self.max_files):
            self._write(self.next, new[start : start + self.max_files])
            self.next += 1
        self.finder.logged()
        self.let_go(done)
        self._pack(done)

    def let_go(self, done: int) -> None:
        """Lets go of messages about files that are in. Raises SetupError."""
        self.finder.let_go(self._pending(done))

    def read(self, number: int) -> list[str]:
        """The files of a micro-batch, as they are now: one that was not read
        yet may have changed since it was listed.

        Raises DataError for a file that is gone.
        """
        entries = self._now(number)
        if entries != self.lists[number]:
            self._write(number, entries)
        # That they are files is known: a store is not asked again.
        return [Uri(entry.path) if is_stored(entry.path) else entry.path for entry in entries]

    def check(self, number: int) -> None:
        """Raises DataError for a file that has changed since `read`."""
        for before, now in zip(self.lists[number], self._now(number), strict=True):
            if before != now:
                raise DataError(
                    f"{now.path} changed while it was read",
                    hint="nothing of its batch was taken; start the capture again once the file is whole",
                )

    def _now(self, number: int) -> list[Entry]:
        return mapped(entry_of, [entry.path for entry in self.lists[number]])

    def lag(self, done: int) -> int:
        """How many listed files come after the micro-batch ``done``."""
        return sum(len(entries) for n, entries in list(self.lists.items()) if n > done)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The log as Spark's stream: one row, the number of a list, a micro-batch."""
        return (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .option("wholetext", True)
            .option("pathGlobFilter", "[0-9]*.json")
            # A list is as many seconds old as its number says: Spark takes
            # them in order, and may forget old ones.
            .option("maxFileAge", f"{10 * _KEPT}s")
            .text(f"file:{literally(str(self.folder.absolute()))}")
            .selectExpr("_metadata.file_name as list")
        )

    def _pending(self, done: int) -> set[str]:
        return {entry.path for n, entries in self.lists.items() if n > done for entry in entries}

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.taken[entry.path] = entry

    def _write(self, number: int, entries: list[Entry]) -> None:
        path = self.folder / f"{number:012}.json"
        draft = path.with_name(f".{path.name}")
        try:
            draft.write_text(json.dumps(entries))
            os.utime(draft, (number + 1, number + 1))
            draft.replace(path)
        except OSError as error:
            raise SetupError(f"{path}: cannot be written: {error.strerror}") from error
        self.lists[number] = entries
        self._take(entries)

    def _pack(self, done: int) -> None:
        """Finished lists as one file, when there are many."""
        old = [n for n in self.lists if n <= done - _KEPT]
        if len(old) < _KEPT:
            return
        waiting = {entry.path for n, entries in self.lists.items() if n not in old for entry in entries}
        packed = self.folder / _TAKEN
        draft = packed.with_name(f".{packed.name}")
        with gzip.open(draft, "wt", compresslevel=1) as file:
            files = [entry for path, entry in self.taken.items() if path not in waiting]
            json.dump({"next": max(old) + 1, "files": files}, file)
        draft.replace(packed)
        for number in old:
            (self.folder / f"{number:012}.json").unlink()
            del self.lists[number]

    def _one_format(self, new: list[Entry]) -> None:
        if not new or self.format is not None:
            return
        # An archive that was taken may be gone by now: its name alone tells.
        self._first = self._first or next(filter(None, map(format_by_name, self.taken)), None)
        self._first = self._first or format_of(new[0].path)
        for entry in new:
            if format_of(entry.path) != self._first:
                raise UsageError(
                    f"{entry.path}: the capture takes {self._first} from this folder",
                    hint="name another folder for it, or a glob for each, as in 'in/*.json'",
                )


def _changed(before: Entry, now: Entry) -> DataError:
    lengths = f"had {before.size} bytes when it was taken, and now {now.size}"
    return DataError(
        f"{now.path} {lengths if before.size != now.size else 'was written again after it was taken'}",
        hint="a file is taken once: move this one out of the folder, and put what is new there under another name",
    )
