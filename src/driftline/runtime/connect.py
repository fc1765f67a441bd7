"""Spark Connect, whose client has no Java to write tables with."""

from __future__ import annotations

from driftline.errors import UsageError


def must_be_classic(given: object) -> None:
    """Raise UsageError for a session or a DataFrame of Spark Connect."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            f"a {type(given).__name__} of Spark Connect cannot be used: the tables are written in the driver's own process",
            hint="create it in a classic session, SparkSession.builder.master(…); or pass its rows: DataFrame.toArrow()",
        )
