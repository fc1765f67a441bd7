"""Spark Connect, whose client has no Java to write tables with."""

from __future__ import annotations

import os

from driftline.errors import SetupError, UsageError

# With these pyspark makes sessions of Spark Connect only. It sets the second one with its first of them.
_MODES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_INSTEAD = (
    "or write its rows as Parquet files, and ingest those in another process; see docs/spark-connect.md"
)


def must_be_classic(given: object) -> None:
    """Raise UsageError for a session or a DataFrame of Spark Connect."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            f"a {type(given).__name__} of Spark Connect cannot be used: the tables are written in the driver's own process",
            hint=f"create it in a classic session, SparkSession.builder.master(…); {_INSTEAD}",
        )


def must_start_classic() -> None:
    """Raise SetupError if pyspark makes no classic session in this process."""
    if mode := next((name for name in _MODES if name in os.environ), None):
        raise SetupError(
            f"{mode} is set, so pyspark makes sessions of Spark Connect only: the lake's own Spark cannot start",
            hint="Open the lake in a process without it, and without a session of Spark Connect; see docs/spark-connect.md",
        )
