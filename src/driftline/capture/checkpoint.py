"""The folder of one capture: Spark's checkpoint, and beside it what the capture itself has to remember."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from driftline.errors import DataError, SetupError, UsageError

_FILE = "capture.json"
_NAME = re.compile(r"[\w-][\w.-]*")


def default_place(warehouse: str | None, table: str, name: str, *, named: bool = False) -> str:
    """Where a capture has its checkpoint if nobody says otherwise:
    with the lake. ``named``: somebody does.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a capture", hint="letters, digits, and _ - . inside, as in orders-2"
        )
    if warehouse is None and not named:
        raise UsageError(
            f"capture {name}: the catalog tells no warehouse to keep a checkpoint in",
            hint="name a folder for it that outlives the machine: checkpoint=..., --checkpoint",
        )
    return f"{(warehouse or '').rstrip('/')}/_captures/{quote(table, safe='')}/{name}"


class Checkpoint:
    """The folder at ``place``, local or by a URI that pyarrow and Spark know, of the capture ``name``."""

    def __init__(self, place: str, name: str) -> None:
        from pyarrow.fs import FileSystem

        self.place = place if "://" in place else str(Path(place.removeprefix("file:")).absolute())
        self.name = name
        self._system, self._path = FileSystem.from_uri(self.place)
        self._known: dict[str, Any] = {}

    @property
    def spark(self) -> str:
        """Where Spark keeps its own."""
        return f"{self.place}/spark"

    @property
    def local(self) -> Path | None:
        """The folder, where it is on this machine or mounted there."""
        return None if "://" in self.place else Path(self.place)

    @property
    def uuid(self) -> str | None:
        """The table's uuid, once there is one."""
        return self._known.get("uuid")

    def claim(self, table: str, source: str) -> None:
        """Makes the folder this capture's, or finds that it is. Raises UsageError where it is another's."""
        self._known = self._read()
        mine = {"capture": self.name, "table": table, "source": source}
        for key, value in mine.items():
            if self._known.get(key, value) != value:
                raise UsageError(
                    f"{self.place} is the checkpoint of capture {self._known.get('capture')}: "
                    f"{self._known.get('source')} into {self._known.get('table')}, not {source} into {table}",
                    hint="give this capture a name of its own, or name another checkpoint",
                )
        if not mine.items() <= self._known.items():
            self._write(mine)

    def remember(self, uuid: str | None) -> None:
        """Keeps the table's uuid, by which a table of the same name is known from it."""
        if uuid is not None and self.uuid is None:
            self._write({"uuid": uuid})

    def read_spark(self, name: str) -> bytes:
        """A file of Spark's own."""
        with self._system.open_input_file(f"{self._path}/spark/{name}") as file:
            content: bytes = file.read()
            return content

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder, held against other processes of this machine. Raises DataError where one has it."""
        if self.local is None:
            yield
            return
        import fcntl

        with (self.local / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DataError(
                    f"capture {self.name} runs in another process already",
                    hint="wait for it, or stop it first",
                ) from error
            yield

    def _read(self) -> dict[str, Any]:
        try:
            with self._system.open_input_file(f"{self._path}/{_FILE}") as file:
                return dict(json.loads(file.read()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SetupError(f"{self.place}/{_FILE}: cannot be read: {error}") from error

    def _write(self, more: dict[str, str]) -> None:
        self._known |= more
        path = f"{self._path}/{_FILE}"
        try:
            self._system.create_dir(self._path)
            with self._system.open_output_stream(f"{path}.new") as file:
                file.write(json.dumps(self._known).encode())
            self._system.move(f"{path}.new", path)
        except OSError as error:
            raise SetupError(f"{path}: cannot be written: {error}") from error
