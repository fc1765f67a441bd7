"""Spark settings that hold while driftline reads or writes, and paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driftline.runtime.spark_version import set_active

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Names are data: nothing in them may be taken for SQL's own. And
# `timestamp` is what it is in a table: an instant.
PLAIN = {
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    # Spark 3.5 takes several for each lambda within another, and a field of many columns has many.
    "spark.sql.analyzer.maxIterations": "1000",
}
CASE = "spark.sql.caseSensitive"
# In files, keys that differ only in case are two keys, and of duplicate keys the last counts.
FILES = {
    **PLAIN,
    CASE: "true",
    "spark.sql.variant.allowDuplicateKeys": "true",
    # A thousand small files are a few tasks, and as few files of the table, not hundreds.
    "spark.sql.files.openCostInBytes": "131072",
}

# Looking into a table. Times are UTC.
LOOK = {**PLAIN, CASE: "true", "spark.sql.session.timeZone": "UTC"}
# Of few rows and many expressions: to compile these takes longer than to interpret them.
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
}
# Of few rows: one task after a shuffle, and no plan made again when the rows are counted.
FEW_ROWS = {**_UNCOMPILED, "spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
INTERPRETED = {**LOOK, **_UNCOMPILED}
SMALL = {**LOOK, **FEW_ROWS}


def runs_here(context: SparkContext) -> bool:
    """True if tasks run on this machine."""
    return str(context.master).startswith("local")


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and with its own again afterwards; this thread's active one."""
    activate(spark)
    before = {key: old for key, value in conf.items() if (old := spark.conf.get(key, None)) != value}
    try:
        for key in before:
            spark.conf.set(key, conf[key])
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def activate(spark: SparkSession) -> None:
    """Make the session this thread's active one.

    Without one, Spark parses SQL and plans by its defaults, whatever is set in the session.
    """
    set_active(spark)


def literally(path: str) -> str:
    """The path for Spark's readers, which take it for a pattern.

    >>> print(literally("/in/a[1].json"))
    /in/a\\[1\\].json
    """
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)
