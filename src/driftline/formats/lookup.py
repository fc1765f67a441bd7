"""Looks up rows by key in a table's data files, in this process or in tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.convert.converter import initial_default
from driftline.core.schema.types import Field, Schema
from driftline.keys.stored import KeyCache, KeyFile, KeyFinder
from driftline.runtime.spark_conf import runs_here
from driftline.tasks.run import each

if TYPE_CHECKING:
    from pyspark import SparkContext

    from driftline.keys.identity import SoughtKeys
    from driftline.keys.settle import Found

_SMALL = 32 * 2**20  # bytes of key columns


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Keys of a batch that are looked up.

    Attributes:
        order: the id of the column with a row's order.
        columns: those of the table among the columns that are read, by their ids.
        deleted: the id of the column that marks a deleted row.
        row_id: of the column with ids of rows.
    """

    keys: SoughtKeys
    order: int | None
    columns: Mapping[int, Field]
    deleted: int | None = None
    row_id: int | None = None

    @classmethod
    def of(
        cls,
        keys: SoughtKeys,
        order: int | None,
        schema: Schema,
        deleted: int | None = None,
        row_id: int | None = None,
    ) -> KeyLookup:
        """Return the look-up in a table of this schema, which may lack columns that the batch brings."""
        ids = {*keys.ids, order, deleted}
        columns = {f.id: f for _, f in schema.walk() if f.id in ids}
        return cls(keys, order, columns, deleted, row_id)

    @property
    def constants(self) -> dict[int, pa.Scalar]:
        """The values that files without one of the columns have in it."""
        defaults = ((id_, initial_default(f)) for id_, f in self.columns.items())
        return {id_: default for id_, default in defaults if default is not None}

    def finder(self, open: Callable[[str], pa.NativeFile]) -> KeyFinder:  # noqa: A002
        """Return the finder of the keys; ``open``: opens a file by its path."""
        return KeyFinder(self.keys, self.order, open, self.deleted, self.row_id)


def find_rows(
    context: SparkContext,
    finder: KeyFinder,
    files: Sequence[tuple[int, KeyFile]],
    cache: KeyCache | None = None,
) -> list[Found]:
    """Return the rows of these files that have a key of the batch.

    ``files``: each with the bytes of its key columns; ``cache``: of those that were read before.
    """
    read_here, others = _shared(context, finder, files, cache or KeyCache())
    hits = finder.find(read_here, cache)
    if not others:
        return hits
    count = min(len(others), context.defaultParallelism)
    shares = [others[i::count] for i in range(count)]
    return [*hits, *chain.from_iterable(each(context, finder.find, shares))]


def _shared(
    context: SparkContext, finder: KeyFinder, files: Sequence[tuple[int, KeyFile]], cache: KeyCache
) -> tuple[list[KeyFile], list[KeyFile]]:
    """Return the files that are read in this process, and those that tasks read, the largest first.

    Those in the cache cost nothing here. As many of the others as make little work come into it one by one.
    """
    by_size = sorted(files, key=lambda sized: -sized[0])
    if not runs_here(context):
        return [], [file for _, file in by_size]
    read_here = [file for _, file in by_size if finder.cache_key(file.path) in cache]
    missing = [sized for sized in by_size if finder.cache_key(sized[1].path) not in cache]
    others: list[KeyFile] = []
    spare = _SMALL if cache.most or sum(size for size, _ in missing) <= _SMALL else 0
    for size, file in missing:
        (read_here if size <= spare else others).append(file)
        spare -= size if size <= spare else 0
    return read_here, others
