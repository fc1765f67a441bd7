"""The folder of one capture: Spark's checkpoint, and beside it the capture's own state.

If the folder is in a store, both are worked on in a local copy, which `mirror` keeps in the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow.fs import LocalFileSystem

from driftline.capture.lease import Lease
from driftline.capture.mirror import Mirror
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.runtime.deleting import Bounds, delete_file
from driftline.runtime.stores import answer, filesystem, is_stored, put

_FILE = "capture.json"
_NAME = re.compile(r"[\w-][\w.-]*")


def check_name(name: str) -> None:
    """Raise UsageError for an invalid name of a capture."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid capture name", hint="use letters, digits, _, - and ., as in orders-2"
        )


def default_place(warehouse: str | None, table: str, name: str, *, named: bool = False) -> str:
    """Return the default folder of a capture's checkpoint: in the lake's warehouse, by table and name.

    ``named``: the caller has a folder, so the warehouse may be unknown, and only ``name`` is checked. Raises
    UsageError for an invalid name, or for an unknown warehouse.
    """
    check_name(name)
    if warehouse is None and not named:
        raise UsageError(
            f"capture {name}: the catalog names no warehouse to keep the checkpoint in",
            hint="set a durable folder for it: checkpoint=..., --checkpoint",
        )
    return f"{(warehouse or '').rstrip('/')}/_captures/{quote(table, safe='')}/{name}"


class Checkpoint:
    """The folder at ``place``, on this machine or by the URI of a store, of the capture ``name``.

    ``mirrored`` False: Spark keeps its own in the store itself, as it may be more than a mirror can hold.
    """

    def __init__(self, place: str, name: str, *, mirrored: bool = True) -> None:
        if not is_stored(place) and re.match(r"(?!file:)[\w.+-]+://", place):
            raise UsageError(
                f"{place}: a checkpoint cannot be kept there", "use a folder on disk or in a store: s3://…"
            )
        self.place = (
            place.rstrip("/") if is_stored(place) else str(Path(re.sub("^file:(//)?", "", place)).absolute())
        )
        self.name = name
        self._system, self._path = filesystem(place) if is_stored(place) else (LocalFileSystem(), self.place)
        self._mirror = Mirror(place) if is_stored(place) and mirrored else None
        self._lease = Lease(place, name) if is_stored(place) else None
        self._known: dict[str, Any] = {}

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
        self.hold()
        if self._mirror is not None:
            self._mirror.keep()

    @property
    def uuid(self) -> str | None:
        """The table's uuid, once there is one."""
        return self._known.get("uuid")

    @property
    def topics(self) -> Mapping[str, str]:
        """The known ids of Kafka's topics."""
        return dict(self._known.get("topics", {}))

    def remember_topics(self, ids: Mapping[str, str]) -> None:
        """Keep the ids of topics, which tell them from later topics of the same names."""
        self._write({"topics": {**self.topics, **ids}})

    def claim(self, table: str, source: str) -> None:
        """Make the folder this capture's, if it is not already. Raises UsageError if it is another's."""
        self._known = self._read()
        claim = {"capture": self.name, "table": table, "source": source}
        for key, value in claim.items():
            if self._known.get(key, value) != value:
                raise UsageError(
                    f"capture {self._known.get('capture')} reads {self._known.get('source')} into "
                    f"{self._known.get('table')} ({self.place}); this one is {self.name}, {source} into {table}",
                    hint="use another name and checkpoint, or the same source and table",
                )
        if not claim.items() <= self._known.items():
            self._write(claim)

    def remember(self, uuid: str | None) -> None:
        """Keep the table's uuid, which tells it from a later table of the same name."""
        if uuid is not None and self.uuid is None:
            self._write({"uuid": uuid})

    def read_spark(self, name: str) -> bytes:
        """The contents of a file of Spark's own checkpoint. Raises OSError if it does not exist."""
        if self.local is not None:
            return (self.local / "spark" / name).read_bytes()
        with self._system.open_input_file(f"{self._path}/spark/{name}") as file:
            content: bytes = file.read()
            return content

    def end_of(self, epoch: int) -> Any:
        """The end offset of a micro-batch, in the JSON of Spark's source. Raises SetupError."""
        return self.spark_offsets(f"offsets/{epoch}")

    def spark_offsets(self, name: str) -> Any:
        """The offset that a file of Spark's checkpoint records for its only source. Raises SetupError."""
        try:
            # The last line is the source's; at the beginning of a stream, a NUL precedes the first.
            return json.loads(self.read_spark(name).decode().strip().splitlines()[-1])
        except (OSError, ValueError, IndexError) as error:
            raise SetupError(f"{self.place}/spark/{name}: cannot be read: {error}") from error

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
            checksum = path.with_name(f".{name.rpartition('/')[2]}.crc")
            delete_file(checksum, Bounds((self.spark,)))  # of what was there
            draft = path.with_name(f"{path.name}.new")
            draft.write_text("\n".join([*before, json.dumps(offsets)]))
            draft.replace(path)
        except OSError as error:
            raise SetupError(f"{path}: cannot be written: {error.strerror}") from error

    def last(self, kind: str) -> int:
        """The highest number among Spark's files of a kind, on this machine; -1 if there is none."""
        files = Path(self.spark, kind).glob("[0-9]*")  # 19, or 19.compact
        return max((int(path.name.partition(".")[0]) for path in files), default=-1)

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
        except (OSError, ValueError) as error:
            unread = SetupError(f"{self.place}/{_FILE}: cannot be read: {error}")
            raise answer(self.place, error) or unread from error

    def _write(self, entries: Mapping[str, Any]) -> None:
        self._known = {**self._known, **entries}
        data = json.dumps(self._known).encode()
        if is_stored(self.place):
            put(f"{self.place}/{_FILE}", data)
            return
        path = f"{self._path}/{_FILE}"
        try:
            self._system.create_dir(self._path)
            with self._system.open_output_stream(f"{path}.new") as file:
                file.write(data)
            self._system.move(f"{path}.new", path)
        except OSError as error:
            raise SetupError(f"{path}: cannot be written: {error}") from error


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
