"""A Python process of Spark's, which runs one task after another."""

from __future__ import annotations

import gc
import os
import sys
from zipimport import zipimporter


def lighten_worker() -> None:
    """Makes the next task of this process begin sooner, and end sooner. Elsewhere it does nothing.

    Before a task, Spark has every importer forget what it knows: there is one for each package of Spark's own
    zip, and each reads the whole zip again; one is enough. After it, Spark has Python search for cycles
    through all that there is, modules too, which stay for good.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and importer.prefix:
            del sys.path_importer_cache[
                path
            ]  # made anew, from what the zip's first one knows, if it is needed
    if not gc.get_freeze_count():
        gc.freeze()
