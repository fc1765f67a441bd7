"""Takes the files of a batch that was committed out of an Iceberg table again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.formats.base import CommitConflict
from driftline.formats.iceberg.commit import begin, commit, delete_files
from driftline.formats.iceberg.gateway import failure, java_class, java_errors
from driftline.formats.iceberg.unread import telling
from driftline.runtime.disk import NEW

if TYPE_CHECKING:
    from driftline.formats.iceberg.handle import IcebergHandle


def take_out(table: IcebergHandle, files: Iterable[Any]) -> bool:
    """Remove data files from the table in a commit of its own; False if it no longer has one of them.

    Raises CommitConflict if another writer was faster.
    """
    now = table.java()
    if now is None:
        return True
    java = begin(table, now)
    # Otherwise Iceberg passes over files that were rewritten meanwhile, and their rows would stay.
    delete = java.newDelete().validateFilesExist()
    for file in files:
        delete.deleteFile(file)
    try:
        with java_errors():
            delete.commit()
    except Py4JJavaError as error:
        if "ValidationException" in java_class(error):  # rewritten meanwhile
            return False
        raise failure(error, table.name) from error
    snapshot_id = java.table().currentSnapshot().snapshotId()
    try:
        commit(table, java, lambda now: now.snapshot(snapshot_id) is not None)
    except CommitConflict:
        # The next attempt writes manifests of its own.
        delete_files(java.table().io(), telling(java.table()), NEW)
        raise
    return True
