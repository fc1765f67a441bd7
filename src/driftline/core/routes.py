"""What planning gives: a plan's changes, and the routes by which each column is filled."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.core.changes import Change
from driftline.core.naming import MARK
from driftline.core.shape import RECORD, Facet, FieldShape, MapOf, Place
from driftline.core.types import Map, Path, Primitive, Schema, Struct, Type, peel
from driftline.errors import DataError


@dataclass(frozen=True, slots=True)
class Settings:
    """What a table's settings say to the planner and the observer.

    ``dates``: "on", "off" or "instant" (rules 2.2). ``epoch_unit``: "s", "ms", "us", "ns", or None where it was
    not set. ``mark``: prefix of an evolved column's doc. ``max_columns``: leaf columns a table may have.
    """

    dates: str = "on"
    epoch_unit: str | None = None
    mark: str = MARK
    max_columns: int = 10_000


@dataclass(frozen=True, slots=True)
class ColumnRoute:
    """How one column is filled: from which facets of its field, and inside it by which routes."""

    name: str
    type: Type
    takes: tuple[Facet, ...]
    record: RecordRoute | None = None
    value: FieldRoute | None = None

    @property
    def facet(self) -> Facet:
        return facet_of(self.type)


@dataclass(frozen=True, slots=True)
class FieldRoute:
    """A field of the data, what was seen of it, and the columns it goes to."""

    key: str
    shape: FieldShape
    columns: tuple[ColumnRoute, ...]


@dataclass(frozen=True, slots=True)
class RecordRoute:
    fields: tuple[FieldRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type that went into a wider column which was there before."""

    path: Path
    source: Type
    target: Type
    sample: str
    place: Place


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch does to a table: ``changes`` lead from ``before`` to ``schema``; ``route`` fills it."""

    before: Schema
    schema: Schema
    changes: tuple[Change, ...]
    route: RecordRoute
    converted: tuple[Conversion, ...]
    untyped: tuple[Path, ...]
    hints: tuple[str, ...]


def facet_of(type_: Type) -> Facet:
    """A column's type as a facet."""
    dim, inner = peel(type_)
    match inner:
        case Struct():
            return Facet(dim, RECORD)
        case Map(key=Primitive() as key):
            return Facet(dim, MapOf(key))
        case Primitive():
            return Facet(dim, inner)
        case _:
            raise DataError(f"a map with keys of type {inner} cannot be filled")
