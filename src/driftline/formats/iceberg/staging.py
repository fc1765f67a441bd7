"""Files of Spark's own writer: each transaction's are in a folder of its own, which shows whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from driftline.core.schema.types import Schema
from driftline.formats.iceberg.gateway import items, java_schema
from driftline.formats.iceberg.unread import telling
from driftline.runtime.java_types import java_type

# Checksums, which begin with a dot, are deleted with their files.
WRITTEN_BY_SPARK = re.compile(r"/driftline-[0-9a-f]{32}/(.+/)?[^./][^/]*$")

_DATA = "write.data.path"
_PATHS = (_DATA, "write.object-storage.path", "write.folder-storage.path")


def data_folders(table: Any) -> Iterator[str]:
    """The possible folders of a Java table's data files, the likeliest first."""
    properties = table.properties()
    for name in _PATHS:
        if (path := properties.get(name)) is not None:
            yield str(path).rstrip("/")
    yield f"{table.location()}/data"


def new_folder(table: Any) -> str:
    """A folder for files of a Java table, of a name that nothing has yet."""
    return f"{next(data_folders(table))}/driftline-{uuid4().hex}"


def staging(jvm: Any, java: Any, inside: Any, schema: Schema, folder: str) -> Any:
    """A Java transaction on the table ``java``, never to be committed, whose data files go into the folder.

    Its table is as it is ``inside`` another transaction, but for the columns that ``schema`` lacks.
    """
    transaction = java.newTransaction()
    operations, now = transaction.table().operations(), inside.operations().current()
    builder = java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(now).setProperties({_DATA: folder})
    builder.setCurrentSchema(java_schema(jvm, schema), max(now.lastColumnId(), schema.highest_id()))
    operations.commit(operations.current(), builder.build())
    return transaction


def taken_files(table: Any, before: Any) -> list[Any]:
    """The data files that a staging transaction has added since the snapshot ``before``.

    ``table``: the transaction's. The metadata files of the addition are deleted.
    """
    snapshot = table.currentSnapshot()
    if snapshot is None or (before is not None and snapshot.snapshotId() == before.snapshotId()):
        return []
    files = items(snapshot.addedDataFiles(table.io()))
    for path in telling(table):
        table.io().deleteFile(path)
    return files
