"""The files of a DuckLake, on a disk or in a store, as this process and tasks reach them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from driftline.errors import SetupError
from driftline.runtime.disk import NEW, delete_file
from driftline.runtime.stores import configured, created, explaining, filesystem, is_stored, native


@dataclass(frozen=True, slots=True)
class Storage:
    """The disk or the store that has a lake's files; it is sent to tasks.

    ``options``: of the store, as `stores.filesystem` takes them; None on a disk.
    """

    options: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str) -> Self:
        """The one that has this folder. Raises SetupError for a place that only Java knows."""
        if is_stored(folder):
            return cls(configured(folder))
        if local(folder) is None:
            raise SetupError(
                f"the files of the lake are in {folder}: driftline reaches those on a disk and in stores"
            )
        return cls()

    def open(self, path: str) -> pa.NativeFile:
        """A file, to be read anywhere in it."""
        return pa.memory_map(str(local(path))) if self.options is None else native(path, self.options)

    def create(self, path: str) -> pa.NativeFile:
        """A new file, open for writing, with the folders on the way."""
        if self.options is not None:
            return created(path, self.options)
        place = Path(str(local(path)))
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")

    def put(self, path: str, content: bytes) -> None:
        """Write a new file; after an error it is not there."""
        try:
            with self.create(path) as stream:
                stream.write(content)
        except BaseException:
            self.remove(path)
            raise

    def copy(self, source: str, target: str) -> None:
        """Copy a file, in a store without its bytes coming here."""
        if self.options is None:
            shutil.copyfile(str(local(source)), str(local(target)))
            return
        (system, place), (_, copied) = (filesystem(path, self.options) for path in (source, target))
        with explaining(source, self.options):
            system.copy_file(place, copied)

    def remove(self, path: str) -> None:
        """Delete a file that this process has made, if it is there; one that stays is an orphan."""
        if self.options is None:
            delete_file(str(local(path)), NEW)
            return
        with suppress(OSError):
            delete_file(path, NEW, self.options)

    def sweep(self, prefix: str) -> None:
        """Delete all files of a store whose URIs begin so; those that cannot be deleted are orphans."""
        from pyarrow.fs import FileSelector

        scheme = prefix.partition("://")[0]
        system, place = filesystem(prefix, self.options)
        with suppress(OSError):
            beside = FileSelector(place.rpartition("/")[0], allow_not_found=True)
            for file in system.get_file_info(beside):
                if file.is_file and file.path.startswith(place):
                    delete_file(f"{scheme}://{file.path}", NEW, self.options)

    def size(self, path: str) -> int:
        """The bytes of a file. Raises FileNotFoundError."""
        if self.options is None:
            return Path(str(local(path))).stat().st_size
        system, place = filesystem(path, self.options)
        with explaining(path, self.options):
            info = system.get_file_info(place)
        if info.size is None:
            raise FileNotFoundError(2, "there is no such object", path)
        return int(info.size)


def local(path: str) -> Path | None:
    """The path on this machine; None for one elsewhere."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else path)
    return None
