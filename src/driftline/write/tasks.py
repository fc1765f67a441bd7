"""Tasks that write data files: each writes its rows into a folder apart,
out of which the driver takes whole files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from shutil import move
from typing import TYPE_CHECKING

from driftline.write.dealing import Dealing, Part, Slice
from driftline.write.parquet import FilePlan, WrittenFile, write_files
from driftline.write.run import RowTasks, each, number_and_attempt
from driftline.write.staging import local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

# What tasks write, by its path: as a file of a table, and in the folder of a batch.
WRITTEN = re.compile(r"/([01]+-)?\d{5}-\d+-[0-9a-f]{32}-\d{5}\.parquet$")
STAGED = re.compile(r"/[0-9a-f]{32}(\.gone)?/[\d-]+([0-9a-f]{32}-\d{5}\.parquet|\.arrow)$")


def write_in_tasks(
    context: SparkContext, tasks: RowTasks, plan: FilePlan, folder: Path, place: Callable[[WrittenFile], str]
) -> list[WrittenFile]:
    """Runs the tasks; returns the files that they wrote, each in its place in the table.

    ``folder``: of this batch alone, on the table's file system; ``place``: where a file belongs. Attempts
    that failed, were repeated or are late leave nothing outside of the folder, and after an error there is no
    file at all. Raises SetupError where a task does not see the folder.
    """
    dealing = plan.dealing
    if not (dealing.partition or dealing.sort):
        return _placed(tasks.run(partial(_write, plan, folder), folder), place)
    if tasks.alone:
        return _placed(tasks.run(partial(_write_alone, plan, folder), folder), place)
    slices = chain.from_iterable(tasks.run(partial(_deal, dealing, folder), folder))
    shares = dealing.parts(slices, context.defaultParallelism)
    return _placed(each(context, partial(_write_parts, plan, folder), shares), place)


def _placed(
    written: Iterable[Sequence[WrittenFile]], place: Callable[[WrittenFile], str]
) -> list[WrittenFile]:
    placed: list[WrittenFile] = []
    try:
        for file in chain.from_iterable(written):
            placed.append(replace(file, path=place(file)))
            target = local(placed[-1].path)
            target.parent.mkdir(parents=True, exist_ok=True)
            move(file.path, target)
    except BaseException:
        for file in placed:
            local(file.path).unlink(missing_ok=True)
        raise
    return placed


def _write(plan: FilePlan, folder: Path, rows: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    """In a task: writes its rows as data files."""
    return list(write_files(rows, plan, _path_of(folder)))


def _write_alone(plan: FilePlan, folder: Path, rows: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    """In the only task: both rounds."""
    shares = plan.dealing.parts(_deal(plan.dealing, folder, rows), 1)
    return _write_parts(plan, folder, [part for share in shares for part in share])


def _deal(dealing: Dealing, folder: Path, rows: Iterable[pa.RecordBatch]) -> list[Slice]:
    """In a task of the first round: writes its rows in slices."""
    number, attempt = number_and_attempt(folder)
    return dealing.deal(rows, folder / f"{number}-{attempt}.arrow")


def _write_parts(plan: FilePlan, folder: Path, parts: Sequence[Part]) -> list[WrittenFile]:
    """In a task of the second round: writes its parts as data files."""
    numbers, path_of = count(1), _path_of(folder)
    return [
        replace(file, partition=part.partition)
        for part in parts
        for file in write_files(plan.dealing.rows(part), plan, lambda _: path_of(next(numbers)))
    ]


def _path_of(folder: Path) -> Callable[[int], Path]:
    """The names of a task's files, by number: no other attempt has the same."""
    number, attempt = number_and_attempt(folder)
    return lambda file: folder / f"{number:05d}-{attempt}-{folder.name}-{file:05d}.parquet"
