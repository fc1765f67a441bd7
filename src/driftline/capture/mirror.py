"""A local folder whose files are kept in a store.

Spark and the log of files work on the folder. Their files are in the store before the micro-batch that needs
them is committed, so that the capture can continue on any machine.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyarrow.fs import FileSelector, FileType

from driftline.errors import SetupError
from driftline.runtime import temporary
from driftline.runtime.disk import Bounds, delete_file
from driftline.runtime.stores import at_once, explaining, filesystem, put

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
        if _IDENTITY in self._stored and _IDENTITY not in now:
            raise SetupError(
                f"{self.folder}: files of the running capture were deleted",
                hint=f"restart the capture: it resumes from {self._uri}",
            )
        new = [name for name, written in now.items() if self._stored.get(name) != written]
        with explaining(self._uri):
            for name in sorted(new, key=_rank):
                self._put(name)
                self._stored[name] = now[name]
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
