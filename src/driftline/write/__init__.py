"""Data files of a table, written in tasks; what the commit needs to know of each comes back."""

from driftline.write.dealing import Dealing, Partition
from driftline.write.folder import BatchFolder, folder_of_batch, local, on_disk
from driftline.write.keys import Key
from driftline.write.parquet import FilePlan, FileSettings, NewFile, WrittenFile, write_files
from driftline.write.places import InFolder, InStore, Place
from driftline.write.run import AsideFile, FrameTasks, PartTasks, RowTasks, SetAside, is_small, observed_by
from driftline.write.staging import staged
from driftline.write.tasks import STAGED, WRITTEN, write_in_tasks

__all__ = [
    "STAGED",
    "WRITTEN",
    "AsideFile",
    "BatchFolder",
    "Dealing",
    "FilePlan",
    "FileSettings",
    "FrameTasks",
    "InFolder",
    "InStore",
    "Key",
    "NewFile",
    "PartTasks",
    "Partition",
    "Place",
    "RowTasks",
    "SetAside",
    "WrittenFile",
    "folder_of_batch",
    "is_small",
    "local",
    "observed_by",
    "on_disk",
    "staged",
    "write_files",
    "write_in_tasks",
]
