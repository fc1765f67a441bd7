"""Errors of Spark's SQL in one line of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from driftline.errors import DataError, SetupError, UsageError
from driftline.runtime.failure import ASK_DOCTOR, explained, is_away

_NOT_REACHED = ("java.net.", "org.apache.iceberg.exceptions.NotAuthorized")


@contextmanager
def query_errors() -> Iterator[None]:
    """Raise errors of Spark as errors of the query."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise failure(error) from error
        raise


def failure(error: Exception) -> DataError | UsageError | SetupError:
    """The error of a query in Spark, in one line."""
    from pyspark.errors import ParseException

    text, hint = explained(error)
    if any(is_away(name) or name.startswith(_NOT_REACHED) for name in _causes(error)):
        return SetupError(f"the catalog does not respond: {text}", ASK_DOCTOR)
    position = re.search(r"\bline (\d+),? pos(?:ition)? (\d+)", str(error))
    where = f" (line {position[1]}, column {int(position[2]) + 1})" if position else ""
    kind = UsageError if isinstance(error, ParseException) else DataError
    if text == "Namespace does not exist:":  # Iceberg's, of SHOW VIEWS without one
        text, hint = "no namespace is named", "write `show views in NAMESPACE`"
    if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
        hint = "`driftline tables` lists what is there"
    return kind(f"SQL: {text}{where}", hint)


def _causes(error: BaseException) -> Iterator[str]:
    """The classes of a Java error and of its causes."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield java.getClass().getName()
        java = java.getCause()
