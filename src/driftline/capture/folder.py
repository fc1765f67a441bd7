"""Streams the files of a folder as lists of files, each file exactly once.

Spark's own file source misses files: those older than others, lines appended to a file that it has read, a
name that is used again, a file deleted before it was read. So the capture keeps a log of its own in the
checkpoint: file *n* of the log lists the files of batch *n*, and is written before Spark gets its number.
Spark streams this log. A micro-batch of Spark's has one list, or several: a process may die while Spark
writes down which it has. So the log also records which lists are in the table.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from driftline.capture.changed import ChangedFiles, FileChanges, moved_to
from driftline.capture.checkpoint import broken
from driftline.capture.finding import Finder, ListedFile, entry_of, listed
from driftline.capture.portions import Portion, is_begun_by
from driftline.errors import DataError, UsageError
from driftline.files.endings import format_by_name
from driftline.files.text import LineRange
from driftline.runtime.disk import Bounds, delete_file, replace_file
from driftline.runtime.spark_conf import literally
from driftline.runtime.stores import Uri, at_once, is_stored, mapped
from driftline.sources.files import format_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
MAX_FILES = 1000  # per micro-batch
_KEPT = 100  # finished lists that stay files of their own
# Seconds: a list is as old as its number says. Spark takes them in order, and may forget old ones.
KNOWN_FOR = 10 * _KEPT
_TAKEN = "_taken.json.gz"  # all earlier ones; Spark passes over names with _
_DONE = "_done"


@dataclass(slots=True)
class FileLog:
    """The log of the files of a folder or glob, taken or about to be; kept in ``folder``.

    ``format`` None: that of the first file, by its ending; all others must have the same. ``done``: the last
    list that is in the table, with all before it.
    """

    finder: Finder
    folder: Path
    format: str | None = None
    max_files: int = MAX_FILES
    durable: bool = True
    ingested: dict[str, ListedFile] = field(default_factory=dict)  # by `ListedFile.key`
    lists: dict[int, list[ListedFile]] = field(default_factory=dict)
    next: int = 0
    done: int = -1
    # The files, among these, that the table has though the log does not know them; None: they all are new.
    in_table: Callable[[Sequence[ListedFile]], set[ListedFile]] | None = None
    packed: int = 0  # the first list that may be a file of its own
    on_change: ChangedFiles = "fail"
    changes: FileChanges = field(init=False)
    _earlier: list[ListedFile] = field(
        default_factory=list
    )  # versions that no list has, and newer ones follow
    _first: str | None = None  # the format of what was taken first

    def __post_init__(self) -> None:
        self.changes = FileChanges(self._kind, self.on_change)

    def open(self, last_done: int | None = None) -> None:
        """Read the log.

        Args:
            last_done: the last list in the table, for old logs, which do not note it.

        Raises SetupError if a file of the log is damaged or gone.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files: list[ListedFile] = []
        if (packed := self.folder / _TAKEN).exists():
            self.next, files = _parsed(packed, _unpacked)
            self.packed = self.next
            self._take(files)
        for path in sorted(self.folder.glob("[0-9]*.json")):
            if (number := int(path.stem)) > self.next:
                raise broken(str(self._path(self.next)))
            # A copied checkpoint has new times, and Spark takes lists in the order of these.
            os.utime(path, (number + 1, number + 1))
            entries = _parsed(path, _listed)
            # A file is in two lists where `merge` did not come to its end.
            # A file that has changed is in several, each with another version.
            self.lists[number] = [entry for entry in entries if self.ingested.get(entry.key) != entry]
            self._take(self.lists[number])
            self.next = max(self.next, number + 1)
        self._earlier = [entry for entry in files if self.ingested[entry.key] != entry]
        self._open_done(last_done)
        # More lists in the table than the log has: lists were lost.
        if self.done >= self.next:
            raise broken(str(self._path(self.next)))

    def _open_done(self, last_done: int | None) -> None:
        if (path := self.folder / _DONE).exists():
            self.done = _parsed(path, int)
        elif last_done is None and self.lists:
            raise broken(str(path))
        else:
            self._keep_done(-1 if last_done is None else last_done)

    def add(self) -> None:
        """Look for files, and append lists of the new ones; note in ``changes`` those that are not taken.

        Raises SetupError if the folder is away.
        """
        entries = self.finder.entries(self.ingested, self.format)
        entries = _in_order([*entries, *self._left_by_links(entries)])
        pending = self._pending()
        found: dict[str, ListedFile] = {}
        for entry in entries:
            # A file that waits may still grow: it is read as it is by then (see `read`).
            is_known = entry.key in self.ingested
            if entry.key not in pending and (is_known or not self._is_old_link(entry)):
                # Of a file and the links to it, the file.
                found[entry.key] = found.get(entry.key, entry) if entry.real else entry
        new, renamed = self.changes.look(list(found.values()), self.ingested)
        self.changes.keep({entry.key for entry in entries})
        self.leave_out(renamed)
        self._add(new)

    def _left_by_links(self, entries: Sequence[ListedFile]) -> Iterator[ListedFile]:
        """Yield files that were taken through links which lead to others by now.

        Their last lines may have come after they were taken, and before the links moved.
        """
        links = {entry.path for entry in entries if entry.real}
        keys = {entry.key for entry in entries} if links else set()
        for taken in list(self.ingested.values()) if links else ():
            if taken.path in links and taken.key not in keys:
                with suppress(DataError):  # it is gone
                    yield entry_of(taken.key)._replace(path=taken.path, real=taken.real)

    def _add(self, new: list[ListedFile]) -> None:
        self._one_format(new)
        if new and self.in_table is not None:
            taken = self.in_table(new)
            self.leave_out(entry for entry in new if entry in taken)
            new = [entry for entry in new if entry not in taken]
        self.append(new)
        # Only after the lists are written: a crash before costs a message's second delivery, and no file.
        self.finder.logged()
        self.let_go()
        self._pack()

    def append(self, entries: Sequence[ListedFile]) -> None:
        """Append lists of these files."""
        for start in range(0, len(entries), self.max_files):
            self._append(list(entries[start : start + self.max_files]))

    def append_again(self, entries: Sequence[ListedFile]) -> None:
        """Append lists of files that were taken before, and take them out of where they stand.

        Of several parts of a file, the first one brings all that come behind it.
        """
        again: dict[str, ListedFile] = {}
        for entry in entries:
            first = again.get(entry.key, entry)
            again[entry.key] = entry if entry.begin <= first.begin else first

        def others(files: list[ListedFile]) -> list[ListedFile]:
            """The files that do not come again."""
            return [file for file in files if file.key not in again or file.begin < again[file.key].begin]

        before = list(self.lists.items())
        # Before they leave their old lists, so a crash in between repeats files and loses none.
        self.append(list(again.values()))
        self._earlier = others(self._earlier)
        for number, files in before:
            if len(remaining := others(files)) < len(files):
                self._write(number, remaining)
        self._take(again.values())
        if (self.folder / _TAKEN).exists():
            self._write_packed(self.packed)

    def leave_out(self, entries: Iterable[ListedFile]) -> None:
        """Take files as taken, though no list brings them, and out of the lists that wait."""
        left_out = {entry.key: entry for entry in entries}
        if not left_out:
            return
        self._take(left_out.values())
        changed = []
        for number in self.waiting(self.next):
            entries_left = [entry for entry in self.lists[number] if entry.key not in left_out]
            if len(entries_left) < len(self.lists[number]):
                self.lists[number] = entries_left
                changed.append(number)
        # Before the lists lose them: a crash in between leaves files in both, and none in neither.
        self._write_packed(self.packed)
        for number in changed:
            self._write(number, self.lists[number])

    def sought(self, since: int) -> tuple[list[ListedFile], list[ListedFile]]:
        """The files that a capture which goes on with those modified ``since`` takes again, and passes over.

        Args:
            since: nanoseconds since 1970.

        Raises SetupError if the folder is away.
        """
        waiting = {entry.key: entry for number in self.waiting(self.next) for entry in self.lists[number]}
        again, passed = {}, {key: entry for key, entry in waiting.items() if entry.modified < since}
        for entry in listed(self.finder.source, self.format, self.finder.lake):
            is_taken = entry.key in self.ingested or self._is_old_link(entry)
            if entry.modified < since and not is_taken:
                passed[entry.key] = entry
            elif entry.modified >= since and is_taken and entry.key not in waiting:
                again[entry.key] = entry
        return _in_order(again.values()), _in_order(passed.values())

    def digest(self, number: int) -> str:
        """A short text that only a list of the same files has."""
        return hashlib.blake2b(_text(self.lists[number]), digest_size=16).hexdigest()

    def behind(self, number: int) -> list[ListedFile]:
        """The files of the lists behind this one that are noted as in the table, and are not packed."""
        return [file for n in range(number + 1, self.done + 1) for file in self.lists.get(n, ())]

    def present(self, file: ListedFile) -> ListedFile:
        """A version of a file that was taken, under the name that the file has now."""
        other = moved_to(file, list(self.ingested.values()))
        return file if other is None else other._replace(portion=file.portion)

    def packed_files(self) -> list[ListedFile]:
        """The files of the lists before ``packed``, in the order in which they were taken."""
        unpacked = {entry.key for entries in self.lists.values() for entry in entries}
        return [*self._earlier, *(entry for key, entry in self.ingested.items() if key not in unpacked)]

    def merge(self, last_given: int) -> None:
        """Merge the lists behind ``last_given``, which Spark does not know, into as few as possible."""
        numbers = sorted(number for number in self.lists if number > last_given)
        entries = [entry for number in numbers for entry in self.lists[number]]
        merged = [entries[start : start + self.max_files] for start in range(0, len(entries), self.max_files)]
        if len(merged) >= len(numbers):
            return
        for number, merged_entries in zip(numbers, merged, strict=False):
            self._write(number, merged_entries)
        # The last first, so a crash leaves no gap in the numbers, which would count as a lost list.
        for number in reversed(numbers[len(merged) :]):
            self._unlink(number)
            self.next = number

    def prompt(self) -> None:
        """Append an empty list, so that Spark begins a micro-batch though there is nothing new."""
        self._append([])

    def finish(self, number: int) -> None:
        """Note that the lists up to this one are in the table. Raises SetupError if that is not writable."""
        if (last_done := min(number, self.next - 1)) > self.done:
            self._keep_done(last_done)

    def waiting(self, end: int) -> list[int]:
        """The lists up to ``end`` that are not in, and have files."""
        lists = list(self.lists.items())  # which another thread may add to
        return [number for number, entries in lists if self.done < number <= end and entries]

    def let_go(self) -> None:
        """Delete messages about files that are in the table. Raises SetupError."""
        # Those about a changed file stay, so that the next start says the same.
        changed = set() if self.changes.choice == "skip" else self.changes.refused.keys()
        self.finder.let_go(self._pending() | changed)

    def read(self, number: int) -> list[str]:
        """The files of a list, as they are now: one that waited may have changed since it was listed.

        Raises DataError for a file that is gone, or does not begin with what was taken of it before.
        """
        now = self._now(number)
        entries = at_once(
            lambda pair: self.changes.measured(*pair), zip(self.lists[number], now, strict=True)
        )
        # The list names the version that is read, so `check` finds a change during the read.
        if entries != self.lists[number]:
            self._write(number, entries)
        # That they are files is known: a store is not asked again.
        return [Uri(entry.path) if is_stored(entry.path) else entry.place for entry in entries]

    def check(self, number: int) -> None:
        """Raise DataError if a file has changed since `read`; one that is read in part may grow."""
        for before, now in zip(self.lists[number], self._now(number), strict=True):
            portion = before.portion
            is_same = before._replace(portion=None) == now
            grows = portion is not None and portion.is_cut and before.key == now.key
            if not (is_same or (portion is not None and grows and is_begun_by(now.place, portion))):
                raise DataError(
                    f"{now.place} changed while it was read",
                    hint="nothing of its batch was committed; restart the capture once the file is complete",
                )

    def ranges(self, number: int) -> dict[str, LineRange]:
        """The lines to read of the files of a list that are read in part, by path; after `read`."""
        return {
            entry.place: LineRange(entry.portion.start, entry.portion.end, entry.portion.first)
            for entry in self.lists[number]
            if entry.portion is not None and entry.portion.is_cut
        }

    def repeated(self, number: int) -> list[ListedFile]:
        """The files of a list that were taken before, and come again as a whole."""
        wholes = {entry.key: entry for entry in self.lists[number] if not entry.begin}
        lists = list(self.lists.items())  # which another thread may add to
        before = chain(self._earlier, *(entries for n, entries in lists if n < number))
        return [wholes[key] for key in dict.fromkeys(entry.key for entry in before) if key in wholes]

    def changed(self, number: int) -> dict[str, int]:
        """The number of files of a list that had changed since they were taken, by their fate, and of those
        that were passed over since the list before.
        """
        parts = sum(entry.begin > 0 for entry in self.lists[number])
        return {
            "append": parts,
            "again": len(self.repeated(number)),
            "skip": self.changes.newly_passed_over(),
        }

    def renamed(self, number: int) -> list[tuple[str, str]]:
        """Pairs (old, new) of files that look renamed: the old one was ingested and is gone."""
        # A store has no renames; and of its files there may be more taken than are listed each time.
        # Such a file is taken all the same, with a note: files unpacked from an archive may be alike and hold
        # different records.
        local = (entry for entry in self.lists[number] if entry.size and not is_stored(entry.path))
        entries = {entry.version: entry.path for entry in local}
        taken = list(self.ingested.values()) if entries else []  # a copy, as another thread may add to it
        return [
            (before.path, entries[before.version])
            for before in taken
            if before.version in entries and not is_stored(before.path) and not os.path.lexists(before.path)
        ]

    def _now(self, number: int) -> list[ListedFile]:
        """The files of a list. One whose link leads to another by now is the file that it led to."""
        files = self.lists[number]
        places = [file.place for file in files]
        return [
            now if place == file.path else now._replace(path=file.path, real=file.real)
            for file, place, now in zip(files, places, mapped(entry_of, places), strict=True)
        ]

    def _is_old_link(self, entry: ListedFile) -> bool:
        """True for a link that an earlier version took by its name."""
        taken = self.ingested.get(entry.path) if entry.real else None
        return taken is not None and taken.version == entry.version

    def lag(self, end: int | None = None) -> int:
        """The number of files in pending lists up to list ``end``; without it, in all."""
        return sum(len(self.lists[n]) for n in self.waiting(self.next if end is None else end))

    def stream(self, spark: SparkSession) -> DataFrame:
        """The log as Spark's stream: one row, the number of a list, a micro-batch."""
        return (
            # A data source in Python could not limit a micro-batch.
            spark.readStream.option("maxFilesPerTrigger", 1)
            .option("wholetext", True)
            .option("pathGlobFilter", "[0-9]*.json")
            .option("maxFileAge", f"{KNOWN_FOR}s")
            .text(f"file:{literally(str(self.folder.absolute()))}")
            .selectExpr("_metadata.file_name as list")
        )

    def _pending(self) -> set[str]:
        return {entry.key for number in self.waiting(self.next) for entry in self.lists[number]}

    def _take(self, entries: Iterable[ListedFile]) -> None:
        for entry in entries:
            self.ingested[entry.key] = entry
            self.changes.take(entry)

    def _keep_done(self, last_done: int) -> None:
        replace_file(self.folder / _DONE, str(last_done).encode(), durable=self.durable)
        self.done = last_done

    def _append(self, entries: list[ListedFile]) -> None:
        self._write(self.next, entries)
        self.next += 1

    def _write(self, number: int, entries: list[ListedFile]) -> None:
        replace_file(self._path(number), _text(entries), durable=self.durable, modified=number + 1)
        # A version that no list has would be forgotten, and a table that lacks it would get only what came
        # behind it.
        replaced = set(self.lists.get(number, ())).union(entries)
        versions = [self.ingested[entry.key] for entry in entries if entry.key in self.ingested]
        if earlier := [entry for entry in versions if entry not in replaced]:
            listed = set(chain(*list(self.lists.values())))
            self._earlier += [entry for entry in earlier if entry not in listed]
        self.lists[number] = entries
        self._take(entries)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012}.json"

    def _pack(self) -> None:
        """Finished lists as one file, when there are many."""
        old = [n for n in self.lists if n <= self.done - _KEPT]
        # The newest hundred stay, and fewer others are not worth rewriting all that is packed.
        if len(old) < _KEPT:
            return
        self._earlier += [e for n in old for e in self.lists[n] if self.ingested[e.key] != e]
        # Packed before the lists go: their files are never in neither.
        self._write_packed(max(old) + 1)
        for number in old:
            self._unlink(number)

    def _write_packed(self, end: int) -> None:
        """Write the files of the lists before ``end``, and those of none, into one."""
        waiting = {entry.key for n, entries in self.lists.items() if n >= end for entry in entries}
        # The newest version of a file is the last one.
        files = [*self._earlier, *(entry for key, entry in self.ingested.items() if key not in waiting)]
        content = json.dumps({"next": end, "files": list(map(_json, files))}).encode()
        replace_file(self.folder / _TAKEN, gzip.compress(content, compresslevel=1), durable=self.durable)
        self.packed = end

    def _unlink(self, number: int) -> None:
        delete_file(self._path(number), Bounds((str(self.folder),)))
        del self.lists[number]

    def _one_format(self, new: list[ListedFile]) -> None:
        if not new or self.format is not None:
            return
        # An archive that was taken may be gone by now: only its name is left to judge by.
        self._first = self._first or next(filter(None, map(format_by_name, self.ingested)), None)
        self._first = self._first or format_of(new[0].path)
        for entry in new:
            if format_of(entry.path) != self._first:
                raise UsageError(
                    f"{entry.path}: the capture takes {self._first} from this folder",
                    hint="use another folder for it, or a glob for each, as in 'in/*.json'",
                )

    def _kind(self, path: str) -> str:
        return self.format or format_by_name(path) or format_of(path)


def _in_order(entries: Iterable[ListedFile]) -> list[ListedFile]:
    """Files in the order in which they are taken."""
    return sorted(entries, key=lambda entry: (entry.modified, entry.path))


def _text(entries: Sequence[ListedFile]) -> bytes:
    return json.dumps(list(map(_json, entries))).encode()


def _json(entry: ListedFile) -> tuple[Any, ...]:
    if entry.portion is not None:
        return tuple(entry)
    return entry[:4] if entry.real else entry[:3]


def _entry(path: str, size: int, modified: int, real: str = "", portion: Any = None) -> ListedFile:
    """A file of the log as it was written by `_json`."""
    return ListedFile(path, size, modified, real, None if portion is None else Portion(*portion))


def _listed(data: bytes) -> list[ListedFile]:
    return _resolved(_entry(*entry) for entry in json.loads(data))


def _resolved(entries: Iterable[ListedFile]) -> list[ListedFile]:
    """Add the real paths of files in linked folders, which earlier versions did not note."""
    folders: dict[str, str] = {}
    resolved = []
    for entry in entries:
        parent, _, name = entry.path.rpartition("/")
        if not entry.real and not is_stored(entry.path):
            if parent not in folders:
                folders[parent] = os.path.realpath(parent)
            if folders[parent] != parent:
                entry = entry._replace(real=f"{folders[parent]}/{name}")
        resolved.append(entry)
    return resolved


def _unpacked(data: bytes) -> tuple[int, list[ListedFile]]:
    content = json.loads(gzip.decompress(data))
    return int(content["next"]), _resolved(_entry(*entry) for entry in content["files"])


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T:
    """The content of a file of the log. Raises SetupError if it is damaged."""
    try:
        return parse(path.read_bytes())
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise broken(str(path)) from error
