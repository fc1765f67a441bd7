"""Finds what to take of files that changed after a capture took them, and proves which lines are new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from driftline.capture.finding import ListedFile
from driftline.capture.portions import (
    TEXTS,
    NotProven,
    Portion,
    is_begun_by,
    lines_behind,
    measured,
    not_lines,
)
from driftline.core.schema.text import counted
from driftline.core.schema.types import name_text
from driftline.errors import DataError, SetupError
from driftline.files.endings import is_archive
from driftline.runtime.stores import is_stored

# The fate of a file that has changed since it was taken.
# An option of a run, and not kept: what was right for one changed file may lose the next. `fail` takes all
# other files first, so one bad file does not hold up the rest.
ChangedFiles: TypeAlias = Literal["fail", "skip", "append", "again"]
# Bytes of a file of lines up to which the hash of what is taken is kept in any case, so that lines can be
# appended later: this process reads the file once more for it.
_HASHED = 64 * 2**20
_LOG = logging.getLogger("driftline")


class _Whole(Exception):
    """The file is not lines, so all of it is taken."""


@dataclass(slots=True)
class FileChanges:
    """The changes of files that were taken, since then.

    Attributes:
        kind: the format of a file by its path.
        choice: the fate of a file that has changed.
        refused: why it is not taken, in a sentence, by path.
        unended: files with a last line that waits for its end, by key.
    """

    kind: Callable[[str], str]
    choice: ChangedFiles = "fail"
    refused: dict[str, str] = field(default_factory=dict)
    unended: dict[str, str] = field(default_factory=dict)
    _passed_over: int = 0
    _same: dict[str, tuple[int, int]] = field(default_factory=dict)  # versions that bring nothing new, by key

    def look(
        self, entries: Sequence[ListedFile], taken: Mapping[str, ListedFile]
    ) -> tuple[list[ListedFile], list[ListedFile]]:
        """Find what to take of files, and the files that were taken under another name, and bring nothing.

        Args:
            entries: files that are new, or were taken and may have changed since.
            taken: the newest version of each file that was taken, by key.
        """
        new, renamed, refused = list[ListedFile](), list[ListedFile](), dict[str, str]()
        news = [entry for entry in entries if self._differs(taken.get(entry.key), entry)]
        moved = self._moved(news, taken)
        for entry in news:
            before = taken.get(entry.key)
            if (again := moved.get(entry.key)) is not None:
                assert again.portion is not None
                (new if again.portion.lines else renamed).append(again)
            elif before is None or self._lives_on(before, moved, taken):
                new += self._begun(entry)
            else:
                again_or_why = self._more_of(before, entry)
                if isinstance(again_or_why, str):
                    refused[entry.place] = again_or_why
                elif again_or_why is not None:
                    new.append(again_or_why)
        paths = {entry.path for entry in entries}
        # Messages name some objects of a store; only a listing shows that others are as they were.
        stay = {path: why for path, why in self.refused.items() if is_stored(path) and path not in paths}
        if self.choice == "skip":
            self._passed_over += sum(self.refused.get(path) != why for path, why in refused.items())
        self.refused = stay | refused
        return new, renamed

    def newly_passed_over(self) -> int:
        """The number of changed files that were passed over since this was last asked."""
        count, self._passed_over = self._passed_over, 0
        return count

    def take(self, entry: ListedFile) -> None:
        """Note that a file was taken."""
        self.unended.pop(entry.key, None)
        if entry.portion is not None and entry.portion.waits:
            self.unended[entry.key] = entry.path

    def measured(self, before: ListedFile, now: ListedFile) -> ListedFile:
        """Return a file as it is now, with the bytes that are taken of it.

        Args:
            before: the file as it was listed.
            now: its present version.

        Raises DataError if it no longer begins with what was taken before.
        """
        path, portion = now.place, before.portion
        kind = "" if is_stored(path) or is_archive(before.path) or not now.size else self.kind(before.path)
        if kind not in TEXTS:
            return now
        is_known = now.version == before.version and portion is not None
        if is_known and portion is not None and (portion.is_cut or self.choice != "append"):
            return now._replace(portion=portion)
        try:
            if self.choice == "append" or before.begin:
                taken = portion.taken_before if portion is not None else None
                with suppress(_Whole):
                    return now._replace(portion=self._cut(now, kind, taken))
            return now._replace(portion=measured(path, now.size)) if now.size <= _HASHED else now
        except OSError as error:
            raise SetupError(f"{path}: cannot be read: {error.strerror}") from error

    def _cut(self, now: ListedFile, kind: str, taken: Portion | None) -> Portion:
        """The whole lines of a file behind those ``taken``.

        Raises _Whole if the file is to be taken as a whole, DataError if it no longer begins with them.
        """
        if taken is None and not_lines(now.place, kind):
            raise _Whole
        try:
            portion = lines_behind(now.place, now.size, kind, taken)
            if portion.end:
                return portion
            raise NotProven("it has no whole line any more")
        except NotProven as error:
            if self.choice == "again":
                raise _Whole from error
            raise DataError(
                f"{now.place} changed before the lines behind those ingested were read: {error}",
                hint="put the file back as it was, or take all of it: --changed-files again",
            ) from error

    def keep(self, keys: AbstractSet[str]) -> None:
        """Forget the last lines of files other than these: they are gone."""
        self.unended = {key: path for key, path in self.unended.items() if key in keys}

    def _differs(self, taken: ListedFile | None, entry: ListedFile) -> bool:
        """True if a file is new, or was taken and is another one now, or was not taken to its end."""
        if taken is None:
            return True
        if entry.version == taken.version:
            return taken.portion is not None and taken.portion.waits and self.choice != "append"
        return self._same.get(entry.key) != entry.version

    def _moved(self, entries: Sequence[ListedFile], taken: Mapping[str, ListedFile]) -> dict[str, ListedFile]:
        """The files that were taken under other names, by key, with the lines behind those that were taken.

        A log is renamed when the next one begins. It is known by its number on the disk and by all bytes
        that were taken: each alone could be that of another file.
        """
        if self.choice != "append" or not entries:
            return {}
        by_inode: dict[int, ListedFile] = {}
        for file in list(taken.values()):
            portion = file.portion
            if portion is not None and portion.end and portion.end >= _end(by_inode.get(portion.inode)):
                by_inode[portion.inode] = file
        moved = {}
        for entry in entries:
            inode = _inode(entry)
            before = by_inode.get(inode or 0)
            # Where the old name still leads to it, this one is a second name, as of a copy.
            if before is None or before.key == entry.key or _inode(before) == inode:
                continue
            with suppress(NotProven, OSError):
                portion = self._lines_behind(entry, before.portion)
                moved[entry.key] = entry._replace(portion=portion)
                lines = counted(portion.lines, "more line") if portion.lines else "nothing more"
                names = name_text(entry.path), name_text(before.path)
                _LOG.warning("%s is %s under another name: it brings %s", *names, lines)
        return moved

    def _lives_on(
        self, file: ListedFile, moved: Mapping[str, ListedFile], taken: Mapping[str, ListedFile]
    ) -> bool:
        """True if a file that was taken has another name by now, and its own is that of a new file."""
        return self.choice == "append" and moved_to(file, [*moved.values(), *taken.values()]) is not None

    def _more_of(self, taken: ListedFile, entry: ListedFile) -> ListedFile | str | None:
        """Return what to take of a file that has changed: None for nothing, or why it cannot be taken."""
        portion, why = taken.portion, ""
        try:
            is_whole = portion is not None and portion.end == portion.length == entry.size
            if portion is not None and is_whole and is_begun_by(entry.place, portion):
                _LOG.warning(
                    "%s has a new time, and the bytes that were taken: it is not taken again",
                    name_text(entry.place),
                )
                self._same[entry.key] = entry.version
                return None
            if self.choice == "again":
                return entry
            if self.choice == "append":
                portion = self._lines_behind(entry, portion)
                if portion.lines:
                    return entry._replace(portion=portion)
                self._wait(entry)
                return None
        except FileNotFoundError:  # it was deleted since it was listed
            return None
        except OSError as error:
            raise SetupError(f"{entry.place}: cannot be read: {error.strerror}") from error
        except NotProven as error:
            why = f": {error}"
        lengths = (
            f": {counted(taken.size, 'byte')} then, {entry.size} now" if taken.size != entry.size else ""
        )
        if entry.version == taken.version:
            why = ": its last line had no end and was not taken"
        return f"{name_text(entry.place)} changed since it was ingested{why or lengths}"

    def _lines_behind(self, entry: ListedFile, portion: Portion | None) -> Portion:
        """The lines behind those that were taken. Raises NotProven, OSError."""
        kind = self._lines_of(entry)
        if portion is None:
            raise NotProven("its hash was not kept when it was taken")
        return lines_behind(entry.place, entry.size, kind, portion)

    def _lines_of(self, entry: ListedFile) -> str:
        """The format of a file of lines. Raises NotProven if nothing can be appended to it, OSError."""
        path = entry.place
        if is_stored(path):
            raise NotProven("a store's object is written as a whole")
        if is_archive(path):
            raise NotProven("an archive is written as a whole")
        kind = self.kind(entry.path)
        if why := not_lines(path, kind):
            raise NotProven(why)
        return kind

    def _begun(self, entry: ListedFile) -> Iterator[ListedFile]:
        """Yield a new file, with its whole lines where lines may be appended; nothing if it has none yet."""
        if self.choice != "append" or not entry.size:
            yield entry
            return
        if self._same.get(entry.key) == entry.version:
            return
        try:
            portion = lines_behind(entry.place, entry.size, self._lines_of(entry))
        except (NotProven, OSError):  # it is taken as a whole, or tells of itself when it is read
            yield entry
            return
        if portion.end:
            yield entry._replace(portion=portion)
        else:
            self._wait(entry)

    def _wait(self, entry: ListedFile) -> None:
        """Note that a file has only a line more that has no end."""
        self._same[entry.key] = entry.version
        self.unended[entry.key] = entry.path


def moved_to(file: ListedFile, others: Iterable[ListedFile]) -> ListedFile | None:
    """Return the file, among others, that begins with what was taken of this one, under another name."""
    portion = file.portion
    if portion is None or not portion.end or _inode(file) == portion.inode:
        return None
    for other in others:
        is_same = other.portion is not None and other.portion.inode == portion.inode
        with suppress(OSError):
            if is_same and other.key != file.key and is_begun_by(other.place, portion):
                return other
    return None


def _end(file: ListedFile | None) -> int:
    return 0 if file is None or file.portion is None else file.portion.end


def _inode(file: ListedFile) -> int | None:
    """The number of the file on the disk that is at its path now; None if there is none."""
    with suppress(OSError):
        return None if is_stored(file.path) else Path(file.key).stat().st_ino
    return None
