"""Data files of a table, written in tasks; what the commit needs to know of each comes back."""

from driftline.write.dealing import Dealing
from driftline.write.keys import Key
from driftline.write.parquet import FilePlan, FileSettings, WrittenFile, write_files
from driftline.write.tasks import STAGED, WRITTEN, RowTasks, is_small, local, write_in_tasks

__all__ = [
    "STAGED",
    "WRITTEN",
    "Dealing",
    "FilePlan",
    "FileSettings",
    "Key",
    "RowTasks",
    "WrittenFile",
    "is_small",
    "local",
    "write_files",
    "write_in_tasks",
]
