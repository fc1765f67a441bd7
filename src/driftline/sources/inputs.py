"""Data passed from Python, classified: paths, tables, or rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, asdict, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

import msgspec

from driftline.core.schema.text import with_article
from driftline.errors import DataError, DriftlineError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ArrowStream(Protocol):
    """Arrow's tables and readers, DataFrames of pandas and Polars, and all else with a stream of Arrow's."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream, as a capsule of C's."""
        ...


class Lazy(Protocol):
    """A LazyFrame of Polars'."""

    def collect_schema(self) -> Any:
        """Its columns."""
        ...

    def collect(self) -> Any:
        """The DataFrame."""
        ...


class Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Model(Protocol):
    """A model of Pydantic's."""

    def model_dump(self) -> dict[str, Any]:
        """Its fields by name."""
        ...


class TupleWithNames(Protocol):
    """A named tuple."""

    def _asdict(self) -> dict[str, Any]:
        """Its fields by name."""
        ...


class SparkRow(Protocol):
    """A row of Spark's."""

    def asDict(self, recursive: bool = ...) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Its fields by name."""
        ...


Record: TypeAlias = Mapping[Any, Any] | Dataclass | Model | msgspec.Struct | TupleWithNames | SparkRow
FilePath: TypeAlias = str | os.PathLike[str]
Data: TypeAlias = "FilePath | IO[Any] | DataFrame | ArrowStream | Lazy | Record | Iterable[Record | FilePath]"

_TYPES = (bytes, bytearray, date, datetime, time, Decimal, UUID)  # of values that stay what they are
# What gives an object's fields: of Pydantic's models, Spark's rows, named tuples.
_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("model_dump", {}),
    ("asDict", {"recursive": True}),
    ("_asdict", {}),
)


def as_record(item: Any) -> Mapping[Any, Any] | None:
    """Return an object's fields by name, None if it has none.

    Args:
        item: A dict or other mapping, a dataclass, a Pydantic model, a msgspec struct, a named tuple or a row
            of Spark's. Their classes are none of these.

    >>> from collections import namedtuple
    >>> as_record(namedtuple("Order", "id total")(1, 2.5))
    {'id': 1, 'total': 2.5}
    """
    if isinstance(item, Mapping):
        return item
    # A class has the methods and fields of its instances, and is no record.
    if isinstance(item, type):
        return None
    if is_dataclass(item):
        return asdict(item)  # type: ignore[arg-type]
    if isinstance(item, msgspec.Struct):
        fields: dict[str, Any] = msgspec.to_builtins(item, builtin_types=_TYPES)
        return fields
    for method, options in _METHODS:
        if callable(read := getattr(item, method, None)):
            try:
                record: Mapping[Any, Any] = read(**options)
            except Exception as error:
                raise _of_caller(f"{type(item).__name__}.{method}", error) from error
            return record
    return None


def as_records(items: Iterable[Any]) -> Iterator[Mapping[Any, Any]]:
    """Yield each item's fields by name. Raises UsageError for an item without any, by its number from 0."""
    for number, item in enumerate(items):
        record = item if type(item) is dict else as_record(item)
        if record is None:
            raise UsageError(
                f"item {number} is {with_article(type(item).__name__)}, not a dict",
                hint="pass dicts, dataclasses, Pydantic models, msgspec structs or named tuples",
            )
        yield record


def _items(data: Iterable[Any]) -> Iterator[Any]:
    """Yield what a caller's iterable has. Raises DataError where code of the caller's raises an error."""
    number = 0
    try:
        for item in data:
            yield item
            number += 1
    except DriftlineError:
        raise
    except Exception as error:
        raise _of_caller(
            getattr(data, "__qualname__", type(data).__name__), error, f"item {number}: "
        ) from error


def _of_caller(function: str, error: Exception, place: str = "") -> DataError:
    return DataError(f"{place}{function} raised {type(error).__name__}: {error}", "nothing was written")


def paths_or_rows(data: Any) -> tuple[list[str], Any]:
    """Split a person's data into paths and rows, of which only one is there.

    Returns:
        The paths; None, or a table of Arrow's, pandas' or Polars', or an iterator of dicts.

    Raises:
        UsageError: The data are neither.
    """
    if isinstance(data, (str, os.PathLike)):
        return [_path(data)], None
    if type(data).__name__ == "LazyFrame" and is_polars(data):
        data = data.collect()
    if is_table(data):
        return [], data
    if hasattr(data, "read"):
        return [_path_of(data)], None
    # Before lists of records: a mapping or a named tuple is iterable, too.
    if (record := as_record(data)) is not None:
        return [], iter([record])
    if not isinstance(data, Iterable):
        raise UsageError(
            f"cannot ingest {with_article(type(data).__name__)}",
            hint="pass paths, a DataFrame, an Arrow table, a dict, or a list or iterator of dicts",
        )
    items = _items(data)
    # An iterator yields its items once, so the first one is put back in front of the others.
    first = list(islice(items, 1))
    if first and isinstance(first[0], (str, os.PathLike)):
        return [_path(path) for path in chain(first, items)], None
    return [], as_records(chain(first, items))


def _path_of(file: Any) -> str:
    """The path of an open file, which is read from its beginning. Raises UsageError if it has none."""
    name = getattr(file, "name", None)
    if isinstance(name, (str, os.PathLike)) and Path(name).is_file():
        return os.fspath(name)
    raise UsageError(
        f"cannot ingest {with_article(type(file).__name__)}: not a file on disk",
        hint="pass its records, or write it to a file and pass the path",
    )


def given_paths(data: Any) -> list[str]:
    """The paths that a person passed; none if rows were passed, which are left untouched."""
    if isinstance(data, (str, os.PathLike)):
        return [_path(data)]
    paths = data if isinstance(data, (list, tuple)) else ()
    return [_path(path) for path in paths if isinstance(path, (str, os.PathLike))]


def _path(given: str | os.PathLike[str]) -> str:
    """A path as text, ``~`` as the home folder: no shell does so in Python."""
    path: str = os.path.expanduser(os.fspath(given))  # noqa: PTH111  of URIs, Path would drop a slash
    return path


def is_table(data: object) -> bool:
    """True if the data are a DataFrame other than Spark's, or come as a stream of Arrow's."""
    return hasattr(data, "__arrow_c_stream__") or is_pandas(data)


def is_pandas(data: object) -> bool:
    """True if the data are an object of pandas."""
    return type(data).__module__.partition(".")[0] == "pandas"


def is_polars(data: object) -> bool:
    """True if the data are an object of Polars'."""
    return type(data).__module__.partition(".")[0] == "polars"


def is_polars_frame(data: object) -> bool:
    """True if the data are a DataFrame of Polars'."""
    return is_polars(data) and hasattr(data, "iter_slices")


def column_of_no_frame() -> UsageError:
    """The error for a column of JSON texts of data that is no DataFrame of Spark."""
    return UsageError(
        "json_column is only for Spark DataFrames", "leave it out: the data's records are the rows"
    )


def format_of_no_files(named: str) -> UsageError:
    """The error for a file format of data that is in no file."""
    return UsageError(
        f"format={named!r} is only for files",
        "leave it out: records of Python and frames have no file format",
    )
