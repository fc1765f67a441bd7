"""Errors of Spark and Java in operations on a table, as a person needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.errors import DataError
from driftline.formats.commit import is_conflict
from driftline.runtime.failure import explained, java_ended


@contextmanager
def explaining(place: str) -> Iterator[None]:
    """Turn errors of Spark and Java, except for conflicts, into driftline's; ``place`` begins the message."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if is_conflict(error):
            raise
        message, hint = explained(error)
        raise java_ended(error) or DataError(f"{place}: {message}", hint) from error
