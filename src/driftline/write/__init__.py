"""Writes data files in tasks, and returns what a commit needs to know of each."""

from driftline.tasks.batch_folder import BatchFolder, folder_of_batch
from driftline.tasks.run import (
    AsideFile,
    FrameTasks,
    PartTasks,
    Reported,
    RowTasks,
    SetAside,
    TaskResult,
    is_small,
    observed,
)
from driftline.write.distribution import Distribution, Key, Partition
from driftline.write.files import (
    Destination,
    FilePlan,
    FileSettings,
    InFolder,
    InStore,
    NewFile,
    WrittenFile,
    write_files,
)
from driftline.write.tasks import STAGED, WRITTEN, staged, write_in_tasks

__all__ = [
    "STAGED",
    "WRITTEN",
    "AsideFile",
    "BatchFolder",
    "Destination",
    "Distribution",
    "FilePlan",
    "FileSettings",
    "FrameTasks",
    "InFolder",
    "InStore",
    "Key",
    "NewFile",
    "PartTasks",
    "Partition",
    "Reported",
    "RowTasks",
    "SetAside",
    "TaskResult",
    "WrittenFile",
    "folder_of_batch",
    "is_small",
    "observed",
    "staged",
    "write_files",
    "write_in_tasks",
]
