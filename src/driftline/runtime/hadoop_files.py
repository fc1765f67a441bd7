"""Paths and file systems of Hadoop, by which Spark reaches files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.runtime.java_types import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hadoop_path(spark: SparkSession, path: str) -> Any:
    """A path as Java's object."""
    return java_type(spark._jvm, "org.apache.hadoop.fs.Path")(path)


def hadoop_file_system(spark: SparkSession, path: Any) -> Any:
    """The file system of a Java path, by the session's settings."""
    session: Any = spark._jsparkSession
    return path.getFileSystem(session.sessionState().newHadoopConf())
