"""Spark's own table of how far the calendar of Java's old classes is from today's, by time zone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from driftline.errors import SetupError

Shifts = tuple[tuple[int, ...], tuple[int, ...]]  # from which seconds since 1970 on, and by how many seconds
_TABLE = "julian-gregorian-rebase-micros.json"


@cache
def julian_shifts() -> Mapping[str, Shifts]:
    """For each time zone the seconds to add to a moment that was counted by the old calendar: from the year 1
    on. Raises SetupError where Spark's jars are not there.
    """
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home(), "jars")
    for jar in sorted(jars.glob("spark-*.jar")):
        with ZipFile(jar) as archive:
            if _TABLE in archive.namelist():
                rows: Any = json.loads(archive.read(_TABLE))
                return {row["tz"]: (tuple(row["switches"]), tuple(row["diffs"])) for row in rows}
    raise SetupError(
        f"{jars}: no jar has Spark's table of calendars, {_TABLE}",
        hint="set SPARK_HOME to a Spark installation with its jars",
    )
