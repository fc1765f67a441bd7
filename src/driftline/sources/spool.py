"""Folders for data that come once and are read by tasks: here, or where all workers of a cluster see them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from driftline.errors import DriftlineError, SetupError
from driftline.formats.lakes import Orphan
from driftline.runtime import temporary
from driftline.runtime.disk import NEW, Bounds, delete_folder, on_disk
from driftline.runtime.spark_conf import runs_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "DRIFTLINE_SPOOL"
_PREFIX = "driftline-spool-"
_HINT = f"{VARIABLE} names a folder that all workers can reach: data from pipes and from Python is kept there"


def place_of(spark: SparkSession, shared: str | None) -> Path | None:
    """The folder for temporary files that tasks read; None: that of this machine's temporary files.

    The variable DRIFTLINE_SPOOL may name it. On a cluster it is the ``shared`` one, a path or URI, if on a
    disk.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    return None if shared is None or runs_here(spark.sparkContext) else on_disk(shared)


@contextmanager
def folder_in(place: Path | None) -> Iterator[Path]:
    """A folder that exists as long as it is used. Raises SetupError if none can be created."""
    if place is None:
        with TemporaryDirectory(prefix="spool-", dir=temporary.folder()) as folder:
            yield Path(os.path.realpath(folder))
        return
    # Not a temporary folder of Python's: workers may be of another user, who could not read it.
    path = Path(os.path.realpath(place)) / f"{_PREFIX}{uuid4().hex}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise SetupError(f"{path.parent}: no files can be put there: {error.strerror}", _HINT) from error
    try:
        yield path
    finally:
        delete_folder(path, NEW)


@contextmanager
def told_where(spark: SparkSession, place: Path | None) -> Iterator[None]:
    """Add advice to errors of tasks that cannot see files of this machine."""
    try:
        yield
    except DriftlineError as error:
        if place is None and not runs_here(spark.sparkContext) and "No such file" in error.message:
            raise type(error)(error.message, _HINT) from error
        raise


def leftovers(place: str | None, older_than: float, *, dry_run: bool) -> list[Orphan]:
    """Delete the folders of killed processes, untouched for so many seconds; returns them."""
    disk = None if place is None else on_disk(place)
    if disk is None:
        return []
    out = []
    for folder in disk.glob(f"{_PREFIX}*"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        latest = max(path.stat().st_mtime for path in [folder, *files])
        if latest <= time.time() - older_than:
            out += [Orphan(str(path), path.stat().st_size) for path in files]
            if not dry_run:
                delete_folder(folder, Bounds((str(disk),)))
    return out
