"""Spark's daemon of Python workers, on pyspark as it is installed.

Spark puts zips of it and a jar first. Python compiles the modules of a zip at each start, and reads the
directories of all zips again before each task, once for each package in them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any


def without_archives(path: Sequence[str], home: Path) -> list[str]:
    """The search path without what lies in Spark's ``home``; unchanged if pyspark is not found without it."""
    home = home.resolve()
    rest = [place for place in path if not Path(place).resolve().is_relative_to(home)]
    pyspark, py4j = (PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j"))
    if pyspark is None or py4j is None or pyspark.origin is None:
        return list(path)
    return rest if Path(pyspark.origin).resolve().parent == home else list(path)


def ending_with_spark(main: Callable[..., None]) -> Callable[..., None]:
    """A worker's main function that ends once Spark has closed the connection, as it does behind a task that
    failed; pyspark's own prints a traceback then, in front of the error's sentence.
    """

    def run(*streams: Any) -> None:
        """Run the worker. Raises SystemExit where Spark has gone."""
        try:
            main(*streams)
        except EOFError:
            sys.exit(1)

    return run


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path, Path(os.environ["SPARK_HOME"]))
    sys.path_importer_cache.clear()  # what it has is read before each task
    from pyspark import daemon

    daemon.worker_main = ending_with_spark(daemon.worker_main)
    daemon.manager()
