"""The ledger of a table's source files: which it has taken, and in which snapshot.

A file beside the table's metadata, which a property names: metadata are written anew with each
commit, and snapshots expire. Each batch of files writes a new ledger, and deletes the one before once
it is committed. The name begins with ``_``, so that Iceberg's `remove_orphan_files` passes over it.
A table whose ledger is gone begins a new one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from driftline.core.history.retention import rolled_back
from driftline.errors import SetupError
from driftline.formats.base import REMEMBERED
from driftline.formats.iceberg.gateway import java_class, java_errors, metadata_json, short
from driftline.runtime.disk import on_disk

_PREFIX, _SUFFIX = "_driftline-files-", ".bin"
WRITTEN_LEDGER = re.compile(rf"/{_PREFIX}[0-9a-f]{{32}}\{_SUFFIX}$")
_ENTRY = struct.Struct("<qq")  # a file's fingerprint, the snapshot's id


def read_ledger(path: str, io: Callable[[], Any]) -> dict[int, int]:
    """The snapshot that took each file, by the file's fingerprint, the
    oldest first; empty where the ledger is gone. ``io``: gives the table's FileIO.
    """
    disk = on_disk(path)
    try:
        with java_errors():
            content = disk.read_bytes() if disk is not None and disk.exists() else _read(path, io())
    except Py4JJavaError as error:
        if "NotFound" in java_class(error):
            return {}
        raise SetupError(f"{path} cannot be read: {short(error)}") from error
    return dict(_ENTRY.iter_unpack(content))


def place(table: Any, name: str) -> str:
    """The path of a file of this name beside the metadata of a Java ``table``."""
    return str(table.operations().metadataFileLocation(name))


def _read(path: str, io: Any) -> bytes:
    stream = io.newInputFile(path).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write_ledger(table: Any, entries: Mapping[int, int]) -> str:
    """Write the last entries into a new file beside the metadata of a Java ``table``; returns its path."""
    path = place(table, f"{_PREFIX}{uuid4().hex}{_SUFFIX}")
    content = b"".join(_ENTRY.pack(*entry) for entry in list(entries.items())[-REMEMBERED:])
    disk = on_disk(path)
    try:
        if disk is not None and disk.parent.is_dir():
            disk.write_bytes(content)
        else:
            with java_errors():
                _write(path, content, table.io())
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error
    except Py4JJavaError as error:
        raise SetupError(f"{path} cannot be written: {short(error)}") from error
    return path


def _write(path: str, content: bytes, io: Any) -> None:
    stream = io.newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()


def undone(jvm: Any, table: Any, entries: Mapping[int, int]) -> set[int]:
    """The files, of those in ``entries``, whose snapshots were rolled back."""
    metadata = metadata_json(jvm, table.operations().current())
    gone = rolled_back(metadata, set(entries.values()))
    return {file for file, snapshot in entries.items() if snapshot in gone}
