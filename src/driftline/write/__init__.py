"""Data files of a table, written in a task; what the commit needs to know of each comes back."""

from driftline.write.parquet import FileSettings, WrittenFile, write_file

__all__ = ["FileSettings", "WrittenFile", "write_file"]
