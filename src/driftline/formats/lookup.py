"""Looks up rows by key in a table's data files: in this process where that is sooner, else in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from driftline.runtime.spark_conf import runs_here
from driftline.write.run import each

if TYPE_CHECKING:
    from pyspark import SparkContext

    from driftline.keys.finder import KeyFile, KeyFinder
    from driftline.keys.settle import Found

_SMALL = 32 * 2**20  # bytes of key columns


def find_rows(context: SparkContext, finder: KeyFinder, files: Sequence[tuple[int, KeyFile]]) -> list[Found]:
    """The rows of these files that have a key of the batch.

    ``files``: each with the bytes of its key columns.
    """
    if runs_here(context) and sum(size for size, _ in files) <= _SMALL:
        return finder.find(file for _, file in files)
    count = min(len(files), context.defaultParallelism)
    largest_first = [file for _, file in sorted(files, key=lambda sized: -sized[0])]
    shares = [largest_first[i::count] for i in range(count)]
    return list(chain.from_iterable(each(context, finder.find, shares)))
