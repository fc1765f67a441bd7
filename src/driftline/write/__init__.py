"""Data files of a table, written in tasks; what the commit needs to know of each comes back."""

from driftline.write.parquet import FileSettings, WrittenFile, write_files
from driftline.write.tasks import FilePlan, RowTasks, write_in_tasks

__all__ = ["FilePlan", "FileSettings", "RowTasks", "WrittenFile", "write_files", "write_in_tasks"]
