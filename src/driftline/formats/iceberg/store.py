"""A table's files in a store: the options to reach them, as its FileIO has them, and listing and deleting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError

from driftline.formats.iceberg.gateway import items, java_errors, text_map
from driftline.formats.lakes import Orphan
from driftline.runtime.disk import NEW, delete_by_file_io, delete_by_hadoop
from driftline.runtime.file_io import options, vended

_RESOLVING = "ResolvingFileIO"
_WITH_CREDENTIALS = "org.apache.iceberg.io.SupportsStorageCredentials"


def options_of(spark: Any, table: Any, location: str) -> dict[str, str] | None:
    """The options of `stores.filesystem` for files of a Java ``table`` at the URI ``location``.

    They include secrets. Returns None if only Java can reach the store.
    """
    io = table.io()
    properties = text_map(spark._jvm, io.properties())
    if is_instance_of(spark.sparkContext._gateway, io, _WITH_CREDENTIALS):
        handed = [
            (str(credential.prefix()), text_map(spark._jvm, credential.config()))
            for credential in items(io.credentials())
        ]
        properties |= vended(handed, location)
    return options(_class(io, location), properties, location)


def in_store(table: Any, folder: str) -> bool:
    """True if the table's own FileIO, and not Hadoop, lists this folder of its files."""
    return _class(table.io(), folder) != "HadoopFileIO"


def listed(table: Any, folder: str, before: float) -> Iterator[Orphan]:
    """All files in a folder of a store that were made ``before`` then, in seconds since 1970."""
    for file in items(table.io().listPrefix(f"{folder.rstrip('/')}/")):
        if int(file.createdAtMillis()) / 1000 <= before:
            yield Orphan(str(file.location()), int(file.size()))


def remove_all(io: Any, prefix: str) -> None:
    """Delete all files of this process whose URIs begin so; any that cannot be deleted are orphans."""
    with suppress(Py4JJavaError), java_errors():
        for file in items(io.listPrefix(prefix)):
            delete_by_file_io(io, str(file.location()), NEW)


def delete_folder(spark: Any, table: Any, folder: str) -> None:
    """Delete a folder of files that this process has made; any that cannot be deleted are orphans."""
    if in_store(table, folder):
        remove_all(table.io(), f"{folder}/")
    else:
        with suppress(Py4JJavaError):
            delete_by_hadoop(spark, folder, NEW)


def _class(io: Any, location: str) -> str:
    """The class of the FileIO that has this location, without its package."""
    name = str(io.getClass().getSimpleName())
    return str(io.ioClass(location).getSimpleName()) if name == _RESOLVING else name
