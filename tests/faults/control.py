"""The file that shim.c reads: which operation on which files fails, and how; and what it did."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

_LAYOUT = struct.Struct("4Ii1024s32s1024sI")


class Mode(IntEnum):
    """The fault at the operation, and what follows it."""

    OFF = 0
    COUNT = 1
    KILL = 2  # all processes die before it
    FREEZE = 3  # it fails and so does all that follows: what is on disk is what a kill leaves, and Java lives
    FULL = 4  # from it on, nothing that takes space succeeds
    FAIL = 5  # it alone fails
    RECORD = 6  # none fails; all are written down, for power cuts


@dataclass(frozen=True)
class Struck:
    """The operations that were counted. ``number``: that which failed, 0 for none; with its kind and its path."""

    count: int
    number: int
    operation: str
    path: str


class Control:
    """The mapped file, as a test and the processes that it starts see it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            file.write_bytes(bytes(_LAYOUT.size))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _LAYOUT.size)

    def arm(self, folder: Path, mode: Mode, at: int = 0, group: int = 0) -> None:
        """Has the operation ``at`` on files below a folder fail; ``group``: the processes that die by KILL."""
        self._map[:] = _LAYOUT.pack(Mode.OFF, at, 0, 0, group, str(folder).encode(), b"", b"", 0)
        self._map[:4] = struct.pack("I", mode)

    @property
    def count(self) -> int:
        """The operations so far."""
        return int(_LAYOUT.unpack(self._map[:])[2])

    def disarm(self) -> Struck:
        """Lets everything succeed from now on."""
        self._map[:4] = struct.pack("I", Mode.OFF)
        _, _, count, number, _, _, operation, path, _ = _LAYOUT.unpack(self._map[:])
        return Struck(count, number, _text(operation), _text(path))

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(padded: bytes) -> str:
    return padded.split(b"\0", 1)[0].decode()


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc")


def shim(folder: Path) -> Path:
    """Compiles the library that LD_PRELOAD is to name."""
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
