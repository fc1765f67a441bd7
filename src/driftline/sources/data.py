"""The type of what a person can ingest, for checkers of types."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import Field
from typing import IO, TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import msgspec

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
