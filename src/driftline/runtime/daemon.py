"""Starts Spark's daemon of Python workers on the installed pyspark.

Spark puts zips of pyspark and a jar first. Python compiles the modules of a zip at each start, and reads
the directories of all zips again before each task, once for each package in them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from zipimport import zipimporter


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


def lighten_worker() -> None:
    """Make the next task of this process begin and end sooner; in other processes do nothing.

    Before a task, Spark invalidates the caches of every importer: there is one for each package of a zip, and
    each reads the whole zip again; one is enough, and none of Spark's own, which do not change. After it,
    Spark has Python collect cycles among all objects, modules too, which stay for good.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and (importer.prefix or _is_spark_s(importer.archive)):
            # If it is needed, Python makes it anew from the directory of the zip, which it keeps.
            del sys.path_importer_cache[place]
    _freeze_modules()


# Once: to ask whether it was done would count 110,000 objects, in 6 to 20 ms.
@cache
def _freeze_modules() -> None:
    """Leave the objects of modules out of that collection, which took it 50 ms."""
    gc.freeze()


def _is_spark_s(archive: str) -> bool:
    home = os.environ.get("SPARK_HOME")
    return home is not None and Path(archive).resolve().is_relative_to(Path(home).resolve())
