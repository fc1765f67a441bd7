"""Spark settings that hold while driftline reads or writes, and paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from driftline.runtime.spark_version import set_active, settings_of

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


class _Holds:
    """The settings that open blocks hold, of every session and in all threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        # Of a setting: the session's own value, then those of the blocks, the latest last.
        self._values: WeakKeyDictionary[SparkSession, dict[str, dict[object, str | None]]]
        self._values = WeakKeyDictionary()

    def begin(self, spark: SparkSession, key: str, value: str, block: object) -> None:
        """Hold a setting at a value until the ``block`` ends."""
        now = spark.conf.get(key, None)
        self._values.setdefault(spark, {}).setdefault(key, {None: now})[block] = value
        if now != value:
            spark.conf.set(key, value)

    def end(self, spark: SparkSession, key: str, block: object) -> None:
        """Give a setting the value of the latest of the other blocks, or the session's own."""
        settings = self._values.get(spark, {})
        values = settings.get(key, {})
        if block not in values:  # an error came before
            return
        before = list(values.values())[-1]
        del values[block]
        after = list(values.values())[-1]
        if len(values) == 1:
            del settings[key]
        if after is None:
            spark.conf.unset(key)
        elif after != before:
            spark.conf.set(key, after)

    def own(self, spark: SparkSession) -> dict[str, str | None]:
        """The session's own values of the settings that blocks hold."""
        return {key: values[None] for key, values in self._values.get(spark, {}).items()}


_HOLDS = _Holds()


def own_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of a session, without what open blocks hold."""
    with _HOLDS.lock:
        settings = {**settings_of(spark), **_HOLDS.own(spark)}
    return {key: value for key, value in settings.items() if value is not None}


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and with its own again afterwards; this thread's active one.

    Threads may share a session: its own settings are back once the last block has ended. While two blocks set
    a key to different values, the later one holds, so threads that read differently need a session each.
    """
    activate(spark)
    block = object()
    try:
        with _HOLDS.lock:
            for key, value in conf.items():
                _HOLDS.begin(spark, key, value, block)
        yield
    finally:
        with _HOLDS.lock:
            for key in conf:
                _HOLDS.end(spark, key, block)


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
