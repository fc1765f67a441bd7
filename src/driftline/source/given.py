"""What a person gave to be taken in: paths, or rows that Python holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

from driftline.errors import UsageError


def paths_or_rows(data: Any) -> tuple[list[str], Any]:
    """What a person gave as paths, or else, beside none of them, as rows.

    Raises UsageError for what is neither.
    """
    if isinstance(data, (str, os.PathLike)):
        return [os.fspath(data)], None
    if is_table(data):
        return [], data
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise UsageError(
            f"a {type(data).__name__} is nothing to take in",
            hint="give paths, a DataFrame, an Arrow table, or a list or iterator of dicts",
        )
    items = iter(data)
    first = list(islice(items, 1))
    if first and isinstance(first[0], (str, os.PathLike)):
        return [os.fspath(path) for path in chain(first, items)], None
    return [], chain(first, items)


def given_paths(data: Any) -> list[str]:
    """The paths that a person gave; none where rows were given, which are not touched."""
    if isinstance(data, (str, os.PathLike)):
        return [os.fspath(data)]
    paths = data if isinstance(data, (list, tuple)) else ()
    return [os.fspath(path) for path in paths if isinstance(path, (str, os.PathLike))]


def is_table(data: object) -> bool:
    """Whether the data are a DataFrame that is not Spark's, or come as a stream of Arrow's."""
    return hasattr(data, "__arrow_c_stream__") or is_pandas(data)


def is_pandas(data: object) -> bool:
    """Whether the data are something of pandas."""
    return type(data).__module__.partition(".")[0] == "pandas"
