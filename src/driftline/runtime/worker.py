"""A Python process of Spark's, which runs one task after another."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from zipimport import zipimporter


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
    if not gc.get_freeze_count():
        gc.freeze()


def _is_spark_s(archive: str) -> bool:
    home = os.environ.get("SPARK_HOME")
    return home is not None and Path(archive).resolve().is_relative_to(Path(home).resolve())
