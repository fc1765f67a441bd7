"""Files in Google Cloud Storage for DuckDB, through Arrow and with the keys that tasks use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow.fs import FileInfo

from driftline.runtime.disk import NEW, delete_file
from driftline.runtime.stores import filesystem

_KEPT = 10_000  # sizes


class StoredFiles(AbstractFileSystem):  # type: ignore[misc]
    """A store's files for DuckDB. A path is a URI, whose key is taken as it is, without patterns."""

    protocol = "gs"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        # Of files that were opened, as DuckDB asks for it time and again
        self._sizes: dict[str, int] = {}

    def glob(self, path: str, **_: Any) -> list[str]:
        """The file alone, if it is there."""
        return [path] if self.exists(path) else []

    def exists(self, path: str, **_: Any) -> bool:
        """True if there is a file."""
        return bool(_info(path).is_file)

    def isdir(self, path: str) -> bool:
        """True: a file may have any place in a store, without a folder that is made before."""
        return True

    def open(self, path: str, mode: str = "rb", **_: Any) -> pa.NativeFile:
        """A file to read anywhere in it, or a new one to write."""
        system, key = filesystem(path)
        if "w" in mode:
            return system.open_output_stream(key, compression=None)
        file = system.open_input_file(key)
        if len(self._sizes) >= _KEPT:
            self._sizes.clear()
        self._sizes[path] = file.size()
        return file

    def size(self, path: str) -> int:
        """The bytes of a file, as it was when it was last opened."""
        size = self._sizes.get(path)
        return int(_info(path).size) if size is None else size

    def modified(self, path: str) -> Any:
        """The time at which a file was written."""
        return _info(path).mtime

    def rm(self, path: str, **_: Any) -> None:
        """Delete a file that a statement of this process has written."""
        delete_file(path, NEW)


def _info(path: str) -> FileInfo:
    system, key = filesystem(path)
    return system.get_file_info(key)
