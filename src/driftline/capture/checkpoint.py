"""Checkpoints of captures: Spark's files and the capture's own state, mirrored if they are in a store.

A checkpoint in a store is worked on in a local copy, which `Mirror` keeps in the store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pyarrow.fs import FileSelector, FileType, LocalFileSystem

from driftline.capture.lease import Lease
from driftline.core.history.batch_properties import Captured
from driftline.core.schema.naming import is_pattern
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.runtime import temporary
from driftline.runtime.disk import Bounds, delete_file, on_disk, replace_file, sync
from driftline.runtime.stores import answer, at_once, explaining, filesystem, is_stored, put

_IDENTITY = "spark/metadata"
# What names others is written after them: a process may die between two.
_ORDER = ("files", _IDENTITY, "spark/sources", "spark/offsets", "spark/commits")
_LIST = re.compile(rb'("path":"file:/*(?=/))([^"]*)/files/(?=\d+\.json")')


class _Written(NamedTuple):
    """The file attributes that change whenever a file is rewritten."""

    inode: int
    changed: int
    size: int


class Mirror:
    """The files below ``uri``, and ``folder``, their local copy while somebody works on them."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._system, self._path = filesystem(uri)
        # A streaming DataFrame of a person's may keep much state, so Spark writes that one in the bucket
        # itself.
        self._temporary = TemporaryDirectory(prefix="checkpoint-", dir=temporary.folder())
        self.folder = Path(self._temporary.name)
        self._stored: dict[str, _Written] = {}

    def restore(self) -> None:
        """Copy the store's files into the folder."""
        with explaining(self._uri):
            selector = FileSelector(self._path, recursive=True, allow_not_found=True)
            infos = self._system.get_file_info(selector)
            names = [info.path[len(self._path) + 1 :] for info in infos if info.type == FileType.File]
            at_once(self._get, filter(_is_mirrored, names))
        self._stored = self._files()

    def keep(self) -> None:
        """Copy new files of the folder to the store, and delete there the files that are gone here.

        Raises SetupError if somebody else has emptied the folder, or if the store refuses.
        """
        now = self._files()
        # Someone cleaned the temporary folder. To go on would delete the capture's state from the store as
        # well.
        if _IDENTITY in self._stored and _IDENTITY not in now:
            raise SetupError(
                f"{self.folder}: files of the running capture were deleted",
                hint=f"restart the capture: it resumes from {self._uri}",
            )
        new = [name for name, written in now.items() if self._stored.get(name) != written]
        with explaining(self._uri):
            # Lists come first, then sources, offsets and commits. A crash in between only repeats work, as
            # the token in the table says what is in.
            for name in sorted(new, key=_rank):
                self._put(name)
                # Noted one by one: if the store fails in between, the next call goes on from there.
                self._stored[name] = now[name]
            # Deleted last, so the store never lacks a file that others there name.
            for name in self._stored.keys() - now.keys():
                delete_file(f"{self._uri}/{name}", Bounds((self._uri,)))
                del self._stored[name]

    def close(self) -> None:
        """Delete the folder."""
        self._temporary.cleanup()

    def _files(self) -> dict[str, _Written]:
        files = {}
        for path in self.folder.rglob("[!.]*"):
            name = path.relative_to(self.folder).as_posix()
            if _is_mirrored(name) and path.is_file():
                stat = path.stat()
                files[name] = _Written(stat.st_ino, stat.st_ctime_ns, stat.st_size)
        return files

    def _get(self, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._system.open_input_file(f"{self._path}/{name}") as file:
            data = file.read()
        if name.startswith("spark/sources/"):  # there Spark has the log's lists by their paths
            data = moved(data, self.folder)
        path.write_bytes(data)

    def _put(self, name: str) -> None:
        put(f"{self._uri}/{name}", (self.folder / name).read_bytes())


def moved(data: bytes, folder: Path) -> bytes:
    """A file of Spark's log of its sources, for a checkpoint that is in this folder now."""

    # Spark knows a file by its path as Java quotes it.
    quoted = "".join(c if ord(c) > 127 else quote(c, safe="/!$&'()*+,;=:@~") for c in str(folder))

    def here(match: re.Match[bytes]) -> bytes:
        """The beginning of a list's path."""
        if unquote(match[2].decode()) == str(folder):
            return match[0]
        return match[1] + quoted.encode() + b"/files/"

    return _LIST.sub(here, data)


def _is_mirrored(name: str) -> bool:
    return name.startswith(("files/", "spark/")) and not name.endswith(".new")


def _rank(name: str) -> tuple[int, str]:
    place = next((n for n, start in enumerate(_ORDER) if name.startswith(start)), len(_ORDER))
    return place, name


class TableEntry(NamedTuple):
    """A table of a pattern: its uuid, and the epoch of its last batch."""

    uuid: str | None
    epoch: int


_FILE = "capture.json"
_FILES = "files of "  # begins the source of a capture of files
_NAME = re.compile(r"[\w-][\w.-]*")


def check_name(name: str) -> None:
    """Raise UsageError for an invalid name of a capture."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid capture name", hint="use letters, digits, _, - and ., as in orders-2"
        )


def default_place(warehouse: str | None, table: str, name: str, *, named: bool = False) -> str:
    """Return the default folder of a capture's checkpoint: in the lake's warehouse, by table and name.

    Args:
        named: the caller has a folder, so the warehouse may be unknown, and only ``name`` is checked.

    Raises UsageError for an invalid name, or for an unknown warehouse.
    """
    check_name(name)
    if warehouse is None and not named:
        raise UsageError(
            f"capture {name}: the catalog names no warehouse to keep the checkpoint in",
            hint="set a durable folder for it: --checkpoint FOLDER",
        )
    return f"{(warehouse or '').rstrip('/')}/_captures/{quote(table, safe='')}/{name}"


def captures_of(warehouse: str | None, table: str) -> list[str]:
    """The names of the captures that keep their checkpoints of a table in a lake on this machine's disk."""
    folder = None if warehouse is None else on_disk(default_place(warehouse, table, "any"))
    if folder is None or not folder.parent.is_dir():
        return []
    return sorted(path.name for path in folder.parent.iterdir() if path.is_dir())


def captured_patterns(warehouse: str | None) -> list[str]:
    """The patterns of tables whose captures keep their checkpoints in a lake on this machine's disk."""
    folder = None if warehouse is None else on_disk(default_place(warehouse, "any", "any"))
    if folder is None or not folder.parent.parent.is_dir():
        return []
    names = (unquote(path.name) for path in folder.parent.parent.iterdir())
    return sorted(filter(is_pattern, names))


class Checkpoint:
    """The folder at ``place``, on this machine or by the URI of a store, of the capture ``name``.

    ``mirrored`` False: Spark keeps its own in the store itself, as it may be more than a mirror can hold.
    ``durable`` False: files on this machine are written without syncs.
    """

    def __init__(self, place: str, name: str, *, mirrored: bool = True, durable: bool = True) -> None:
        if not is_stored(place) and re.match(r"(?!file:)[\w.+-]+://", place):
            raise UsageError(
                f"{place}: a checkpoint cannot be kept there", "use a folder on disk or in a store: s3://…"
            )
        self.place = (
            place.rstrip("/") if is_stored(place) else str(Path(re.sub("^file:(//)?", "", place)).absolute())
        )
        self.name = name
        self._system, self._path = filesystem(place) if is_stored(place) else (LocalFileSystem(), self.place)
        # Spark's own way there would need hadoop-aws, 600 MB with its SDK.
        self._mirror = Mirror(place) if is_stored(place) and mirrored else None
        self._lease = Lease(place, name) if is_stored(place) else None
        self._known: dict[str, Any] = {}
        self._durable = durable and not is_stored(place)
        self._files = SparkFiles(Path(self.place, "spark")) if self._durable else None

    @property
    def spark(self) -> str:
        """The folder of Spark's own checkpoint."""
        return f"{self.local or self.place}/spark"

    @property
    def local(self) -> Path | None:
        """The folder of this machine, or mounted there, that is worked on."""
        if self._mirror is not None:
            return self._mirror.folder
        return None if is_stored(self.place) else Path(self.place)

    def keep(self) -> None:
        """Save everything written so far to where it outlives this machine. Raises as `hold`."""
        # Another process that holds the folder by now may have written newer files: these must not replace
        # them.
        self.hold()
        if self._mirror is not None:
            self._mirror.keep()
        if self._files is not None:
            # Before the table has the micro-batch: else a power cut could leave a table ahead of its
            # checkpoint.
            self._files.sync()

    @property
    def has_begun(self) -> bool:
        """True if a capture has claimed the folder. Raises SetupError."""
        return bool(self._read())

    @property
    def source(self) -> str:
        """The source of the capture that has claimed the folder; empty if none has. Raises SetupError."""
        return str(self._read().get("source", "")).removeprefix(_FILES)

    @property
    def uuid(self) -> str | None:
        """The table's uuid, once there is one."""
        return self._known.get("uuid")

    @property
    def topics(self) -> Mapping[str, str]:
        """The known ids of Kafka's topics."""
        return dict(self._known.get("topics", {}))

    @property
    def stream(self) -> str | None:
        """The id by which tables know this checkpoint; None before the first start. Raises SetupError."""
        # Asked before: Hadoop's library prints Java's traceback where there is nothing to open.
        if self.local is None and not self._system.get_file_info(f"{self._path}/spark/metadata").is_file:
            return None
        try:
            return str(json.loads(self.read_spark("metadata"))["id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise broken(f"{self.place}/spark/metadata") from error

    @property
    def since(self) -> int | None:
        """The first batch whose number the table is known to have, if it had a commit; None while unknown."""
        return self._known.get("since")

    @property
    def follows(self) -> str | None:
        """The other checkpoint that this one goes on from."""
        return self._known.get("follows")

    def epoch_of(self, number: int) -> int:
        """The epoch of a batch: its number, or a higher one behind a restore, as the table has it already."""
        shifts = [shift for first, shift in self._known.get("renumbered", []) if first <= number]
        return number + (shifts[-1] if shifts else 0)

    def renumber(self, number: int, epoch: int) -> None:
        """Give the batches from ``number`` on epochs from ``epoch`` on, or their own if those are higher."""
        # Spark's numbers go on as they are. With an epoch that the table has, a batch would count as in.
        earlier = [pair for pair in self._known.get("renumbered", []) if pair[0] < number]
        self._write({"renumbered": [*earlier, [number, max(epoch, self.epoch_of(number)) - number]]})

    @property
    def resumed(self) -> list[int]:
        """The first batches after table and checkpoint were found to differ, one for each time."""
        return [first for first, _ in self._known.get("renumbered", [])]

    def settled(self, last: Captured | None) -> Mapping[str, Any]:
        """The batches that are settled, with the table at ``last``, though no commit of it says so.

        They brought nothing, or a person goes on without them. ``number``: the last of them; ``contents``: of
        that. Empty if there are none.
        """
        note = dict(self._known.get("settled", {}))
        digest, number = note.pop("at", None), note.pop("of_number", None)
        if digest == (last.digest if last else None):
            return note
        if last is None or number != (by_number := last.number_alone.digest):
            return {}
        # One of the two does not know the contents, as the table could not be loaded.
        return note if digest == by_number or last == last.number_alone else {}

    def settle(self, last: Captured | None, number: int, contents: Mapping[str, Any]) -> None:
        """Note that batches up to this one are settled, as `settled` returns it."""
        noted: dict[str, Any] = {
            "at": last.digest if last else None,
            "number": number,
            "contents": dict(contents),
        }
        if last is not None:
            noted["of_number"] = last.number_alone.digest
        self._write({"settled": noted})

    def follow(self, last: Captured | None, uuid: str | None) -> None:
        """Go on with the table of this ``uuid``, behind ``last``, a batch of another checkpoint or table."""
        follows = None if last is None or last.stream == self.stream else last.stream
        self._write({"uuid": uuid, "follows": follows})

    def remember_topics(self, ids: Mapping[str, str]) -> None:
        """Keep the ids of topics, to distinguish them from later topics with the same names."""
        self._write({"topics": {**self.topics, **ids}})

    def claim(self, table: str, source: str) -> None:
        """Make the folder this capture's, if it is not already. Raises UsageError if it is another's."""
        self._known = self._read()
        if not self._known:
            # Spark's files without the capture's own: a part of the folder was lost, and a new start would
            # begin again.
            if self.stream is not None:
                raise broken(f"{self.place}/{_FILE}")
            self._known = {"since": 0}
        self.check()
        claim = {"capture": self.name, "table": table, "source": source}
        for key, value in claim.items():
            claimed = self._known.get(key, value)
            # Earlier versions kept the folder as it was spelled.
            if claimed != value and os.path.realpath(claimed.removeprefix(_FILES)) != value.removeprefix(
                _FILES
            ):
                raise UsageError(
                    f"capture {self._known.get('capture')} reads {self._known.get('source')} into "
                    f"{self._known.get('table')} ({self.place}); this one is {self.name}, {source} into {table}",
                    hint="use another name and checkpoint, or the same source and table",
                )
        if not claim.items() <= self._known.items():
            self._write(claim)

    def remember(self, uuid: str | None, number: int) -> None:
        """Keep what is known from the first commit on: the table's uuid, and the ``number`` of the batch.

        The uuid distinguishes the table from a later one with the same name.
        """
        entries = {"uuid": self.uuid or uuid, "since": number if self.since is None else self.since}
        if not entries.items() <= self._known.items():
            self._write(entries)

    @property
    def tables(self) -> Mapping[str, TableEntry]:
        """The tables of a pattern that have batches."""
        return {table: TableEntry(*entry) for table, entry in self._known.get("tables", {}).items()}

    def remember_tables(self, entries: Mapping[str, TableEntry]) -> None:
        """Keep what is known of tables of a pattern that got a batch."""
        self._write({"tables": {**self._known.get("tables", {}), **entries}})

    def forget_tables(self, names: Collection[str]) -> None:
        """Forget tables of a pattern, which get their next batch as if it were their first one."""
        known = self._known.get("tables", {})
        self._write({"tables": {table: entry for table, entry in known.items() if table not in names}})

    def assigned(self, epoch: int) -> list[tuple[list[str | None], str]] | None:
        """The tables of values that an attempt of a batch into a pattern has kept; None without one."""
        return dict(self._known.get("assigned", [])).get(epoch)

    @property
    def last_assigned(self) -> int:
        """The last batch whose tables are settled; -1 if there is none."""
        return max((epoch for epoch, _ in self._known.get("assigned", [])), default=-1)

    def assign(self, epoch: int, tables: Sequence[tuple[Sequence[str | None], str]]) -> None:
        """Keep the tables of the values of a batch, before the first of them has it."""
        # A power cut may take the note that a batch is done: the one before comes again, too.
        earlier = [pair for pair in self._known.get("assigned", []) if pair[0] == epoch - 1]
        self._write({"assigned": [*earlier, (epoch, tables)]})

    def read_spark(self, name: str) -> bytes:
        """The contents of a file of Spark's own checkpoint. Raises OSError if it does not exist."""
        if self.local is not None:
            return (self.local / "spark" / name).read_bytes()
        with self._system.open_input_file(f"{self._path}/spark/{name}") as file:
            content: bytes = file.read()
            return content

    def check(self) -> None:
        """Raise SetupError if a file of Spark's that its next start reads is damaged or gone."""
        spark = Path(self.spark)
        if self.local is None or not spark.is_dir():
            return
        planned, committed = self.last("offsets"), self.last("commits")
        for kind, last in (("offsets", planned), ("commits", committed)):
            # Spark does not write a file whose checksum is there.
            delete_file(spark / kind / f".{last + 1}.crc", Bounds((self.spark,)))
        needed = {f"offsets/{number}" for number in (planned, planned - 1) if number >= 0}
        if planned >= 0 or committed >= 0:
            needed.add("metadata")
        if committed >= 0 or planned > 0:
            needed |= {f"commits/{max(committed, planned - 1)}", f"offsets/{committed}"} - {"offsets/-1"}
        # Other sources have their own names for what they keep.
        if (self.local / "files").is_dir():
            compacted = sorted(spark.glob("sources/0/[0-9]*.compact"), key=_number)[-1:]
            first = _number(compacted[0]) + 1 if compacted else 0
            offset = self.end_of(planned)["logOffset"] if planned >= 0 else -1
            last = max(offset, self.last("sources/0"))
            needed |= {f"sources/0/{number}" for number in range(first, last + 1)}
            needed |= {f"sources/0/{path.name}" for path in compacted}
        for name in sorted(needed):
            _check_parsed(spark / name)

    def relocate(self) -> None:
        """Have Spark find the log of files where the checkpoint is now, if it was copied or moved."""
        assert self.local is not None
        paths = sorted(Path(self.spark).glob("sources/0/[0-9]*"), key=_number)
        # The newest goes last: it tells that all are done.
        if not paths or moved(paths[-1].read_bytes(), self.local) == paths[-1].read_bytes():
            return
        for path in paths:
            self._replace(path, moved(path.read_bytes(), self.local))

    def shorten_log(self, number: int, age: int) -> None:
        """Drop lists over ``age`` seconds older than the newest from Spark's log of them.

        That is due where Spark has compacted the log with list ``number``, as it does every few batches: it
        writes all of it anew. Lists of that age it takes for known. Raises SetupError.
        """
        log = Path(self.spark, f"sources/0/{number}.compact")
        if not log.exists():
            return
        version, *lines = log.read_bytes().split(b"\n")
        try:
            times = [json.loads(line)["timestamp"] for line in lines]
            oldest = max(times) - 1000 * age
        except (ValueError, KeyError, TypeError) as error:
            raise broken(str(log)) from error
        remaining = [line for line, time in zip(lines, times, strict=True) if time >= oldest]
        if len(remaining) < len(lines):
            self._replace(log, b"\n".join([version, *remaining]))

    def end_of(self, epoch: int) -> Any:
        """The end offset of a micro-batch, in the JSON of Spark's source. Raises SetupError."""
        return self.spark_offsets(f"offsets/{epoch}")

    def spark_offsets(self, name: str) -> Any:
        """The offset that a file of Spark's checkpoint records for its only source. Raises SetupError."""
        try:
            # The last line is the source's; at the beginning of a stream, a NUL precedes the first.
            return json.loads(self.read_spark(name).decode().strip().splitlines()[-1])
        except (OSError, ValueError, IndexError) as error:
            raise broken(f"{self.place}/spark/{name}") from error

    def offsets_in_use(self) -> list[str]:
        """Spark's files that say where its next micro-batch begins and ends; on this machine."""
        last = self.last("offsets")
        names = [f"offsets/{last}", f"offsets/{last - 1}", "sources/0/0"]
        return [name for name in names if Path(self.spark, name).is_file()]

    def replace_offsets(self, name: str, offsets: Any) -> None:
        """Replace the offset of the only source in a file of Spark's. Raises SetupError."""
        path = Path(self.spark, name)
        try:
            *before, _ = path.read_text().rstrip().split("\n")
            self._replace(path, "\n".join([*before, json.dumps(offsets)]).encode())
        except OSError as error:
            raise SetupError(f"{path}: cannot be written: {error.strerror}") from error

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace a file of Spark's."""
        delete_file(path.with_name(f".{path.name}.crc"), Bounds((self.spark,)))  # of what was there
        replace_file(path, data, durable=self._durable)

    def move_to(self, offsets: Any) -> None:
        """Have Spark's next micro-batch begin at these offsets of the only source. Raises SetupError."""
        last, planned = self.last("commits"), self.last("offsets")
        if planned > last:  # a batch that was planned, and is not to come
            folder = Path(self.spark, "offsets")
            for name in (f"{planned}", f".{planned}.crc"):
                delete_file(folder / name, Bounds((self.spark,)))
        self.replace_offsets("sources/0/0" if last < 0 else f"offsets/{last}", offsets)

    def last(self, kind: str) -> int:
        """The highest number among Spark's files of a kind, on this machine; -1 if there is none."""
        files = Path(self.spark, kind).glob("[0-9]*")
        return max(map(_number, files), default=-1)

    def hold(self) -> None:
        """Raise DataError if another process may hold the folder by now."""
        if self._lease is not None:
            self._lease.check()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Restore the folder, and lock it against other processes.

        Raises DataError if another process has it, SetupError if it cannot be used.
        """
        if self._lease is None:
            with _locked(Path(self.place), self.name):
                if self._files is not None:
                    # Later syncs end at this folder: its own name, and those above it, may be new.
                    sync([Path(self.place)])
                    self._files.drop_cut()
                yield
            return
        with self._lease.locked():
            if self._mirror is None:
                yield
                return
            try:
                self._mirror.restore()
                yield
            finally:
                with suppress(DriftlineError):  # what is not there is done again
                    self.keep()
                self._mirror.close()

    def _read(self) -> dict[str, Any]:
        path = f"{self._path}/{_FILE}"
        try:
            # Asked before: Hadoop's library prints Java's traceback where there is nothing to open.
            if not self._system.get_file_info(path).is_file:
                return {}
            with self._system.open_input_file(path) as file:
                return dict(json.loads(file.read()))
        except ValueError as error:
            raise broken(f"{self.place}/{_FILE}") from error
        except OSError as error:
            unread = SetupError(f"{self.place}/{_FILE}: cannot be read: {error}")
            raise answer(self.place, error) or unread from error

    def _write(self, entries: Mapping[str, Any]) -> None:
        self._known = {**self._known, **entries}
        data = json.dumps(self._known).encode()
        if is_stored(self.place):
            put(f"{self.place}/{_FILE}", data)
            return
        replace_file(Path(self.place, _FILE), data, durable=self._durable)


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])  # 19, or 19.compact


def _check_parsed(path: Path) -> None:
    """Raise SetupError if a file of Spark's is not there, or not to its end."""
    try:
        first, *others = path.read_text().strip("\0\n").split("\n")
        if path.name == "metadata":
            json.loads(first)["id"]
            return
        if not re.fullmatch(r"v\d+", first):
            raise ValueError(first)
        if others[-1:] != ["-"]:  # a source that has given nothing yet
            json.loads(others[-1])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise broken(str(path)) from error


def broken(path: str) -> SetupError:
    """The error for a file of a checkpoint that is not as it was written."""
    return SetupError(
        f"{path} is cut, empty or gone, or not as driftline has written it",
        hint="put the checkpoint back from a backup; or move its folder away, and start the capture with "
        "--resume-from table: it goes on with what the table does not have",
    )


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """A folder of this machine, held."""
    import fcntl  # late: Windows has none

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise SetupError(f"{folder}: cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(
                f"capture {name} is already running in another process", hint="wait for it to end, or stop it"
            ) from error
        yield


class SparkFiles:
    """Spark's own files, in the ``folder`` of its checkpoint on a disk.

    Spark syncs none of them, so a power cut may leave any of them cut, or take it. They are synced here
    before the table has the batch that they tell of: a micro-batch whose files are not whole is not in the
    table, and Spark can plan it again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._synced: set[tuple[Path, int]] = set()  # with the times of their last changes

    def sync(self) -> None:
        """Sync what Spark has written since the last time. Raises SetupError."""
        while True:
            files = set(self._with_times())
            written = [file for file, _ in files - self._synced]
            try:
                sync(written, self.folder.parent)
            except SetupError:
                if all(file.exists() for file in written):  # else Spark has let one go meanwhile
                    raise
            else:
                self._synced = files
                return

    def _with_times(self) -> Iterator[tuple[Path, int]]:
        """Yield all files with the times of their last changes."""
        for file in self._all():
            with suppress(FileNotFoundError):  # Spark lets go of the oldest batches in a thread of its own
                yield file, file.stat().st_mtime_ns

    def drop_cut(self) -> None:
        """Delete what a power cut has left of the last micro-batch, if it was not synced as a whole."""
        # Without its id nothing has reached a table yet, so the checkpoint begins again.
        if self._is_cut("metadata") and not self._numbers("commits"):
            for file in list(self._all()):
                self._delete(file)
        done = self._numbers("commits")
        if done and self._is_cut(f"commits/{done[-1]}"):  # Spark brings it again, and the table has it
            self._delete(self.folder / "commits" / str(done.pop()))
        planned = self._numbers("offsets")
        # Its files were synced before the table got the batch, so a batch with a cut file is in no table.
        if planned and planned[-1] not in done and not self._is_planned(planned[-1], done):
            self._delete(self.folder / "offsets" / str(planned[-1]))
        for source in self.folder.glob("sources/*"):
            logs = self._numbers(f"sources/{source.name}")
            if logs and self._is_cut(f"sources/{source.name}/{logs[-1]}"):
                self._delete(source / str(logs[-1]))
        for file in list(self._all()):
            name = file.name.removeprefix(".").removesuffix(".crc")
            if file.suffix == ".crc" and not file.with_name(name).exists():
                self._delete(file.with_name(name))  # Spark would not put its own there

    def _is_planned(self, number: int, done: list[int]) -> bool:
        """True if all files of a micro-batch that is not done are whole."""
        before = number == 0 or number - 1 in done
        if not before or self._is_cut(f"offsets/{number}"):
            return False
        last = (self.folder / "offsets" / str(number)).read_text().rstrip().split("\n")[-1]
        log = json.loads(last).get("logOffset") if last.startswith("{") else None
        return log is None or not self._is_cut(f"sources/0/{log}")

    def _numbers(self, kind: str) -> list[int]:
        """The numbers that files of a kind are named by, in order."""
        names = (path.name for path in self.folder.glob(f"{kind}/[0-9]*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _is_cut(self, name: str) -> bool:
        """True if a file is not there, or not to its end; one that is compacted counts as whole."""
        path = self.folder / name
        if path.with_name(f"{path.name}.compact").exists():
            return False
        try:
            version, *lines = path.read_text().strip("\0\n").split("\n")
            for line in [version, *lines] if name == "metadata" else lines:
                if line != "-":  # a source that has given nothing yet
                    json.loads(line)
        except (OSError, ValueError):
            return True
        return name != "metadata" and re.fullmatch(r"v\d+", version) is None

    def _delete(self, file: Path) -> None:
        for path in (file, file.with_name(f".{file.name}.crc")):
            delete_file(path, Bounds((str(self.folder),)))

    def _all(self) -> Iterator[Path]:
        """All files, but for those that go at once."""
        for place, _, names in os.walk(self.folder):
            yield from (Path(place, name) for name in names if not name.endswith(".tmp"))
