"""Shapes: the contents of a batch, as facets by path.

A facet is (dimension, base): how many lists around which base. Shapes merge associatively, commutatively and
idempotently, so they are built per partition, in any order. The annotations of a facet keep that property:
the first place (a minimum), and marks that only rise. Counts are not part of a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Primitive, SourceLocation
from driftline.core.settings.fields import FieldSettings
from driftline.core.support import pickled_by_fields


def without_excluded(shape: RecordShape, field_settings: FieldSettings) -> RecordShape:
    """The shape without its excluded fields."""
    if field_settings.empty:
        return shape
    fields = {}
    for key, field_shape in shape.fields.items():
        child = field_settings.of(key)
        if not child.excluded:
            fields[key] = _without(field_shape, child)
    return RecordShape(fields)


def _without(shape: FieldShape, field_settings: FieldSettings) -> FieldShape:
    if field_settings.empty:
        return shape
    out = replace(shape, facets={})
    for facet, profile in shape.facets.items():
        child = field_settings.inside(facet.dim)
        record = None if profile.record is None else without_excluded(profile.record, child)
        value = None if profile.value is None else _without(profile.value, child.of("value"))
        out.facets[facet] = replace(profile, record=record, value=value)
    return out


@dataclass(frozen=True, slots=True)
class Record:
    """The base of a JSON object or a struct."""

    def __str__(self) -> str:
        return "record"


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class MapOf:
    """The base of a map with this type of key; its values have a shape of their own."""

    key: Primitive

    def __str__(self) -> str:
        return f"map<{self.key}>"


RECORD = Record()
# A JSON number that no number type holds exactly: a string by rule 2.1, but never a date.
NUMBER_TEXT = Primitive("number_text")

Base: TypeAlias = Primitive | Record | MapOf


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Facet:
    """``Facet(1, LONG)`` is a list of longs, ``Facet(0, RECORD)`` an object."""

    dim: int
    base: Base

    def __str__(self) -> str:
        return f"{self.base}[{self.dim}]" if self.dim else str(self.base)

    def spelled(self) -> str:
        """The facet as people read it, in Iceberg's words.

        >>> Facet(1, RECORD).spelled()
        'list<record>'
        """
        base = type_name(self.base) if isinstance(self.base, Primitive) else str(self.base)
        return "list<" * self.dim + base + ">" * self.dim


@pickled_by_fields
@dataclass(slots=True)
class Profile:
    """The profile of a facet's values: its annotations beyond the type.

    Attributes:
        wide: a long beyond ±2^53.
        fraction: digits of a second's fraction, 0, 3 or 6.
        far: an instant outside 1970..2199.
        ragged: a list of mixed depth.
        digits: text of a number that no number type holds, or of a declared type's value that is too fine or
            too long for it.
        typed: declared by the source, not read from JSON.
        lossy: a typed number that is not exact in the table's float column, or bytes that are not UTF-8 where
            the table has a string column.
        sampled: the place of the sample in a typed source, whose facets have the place of their file alone.
        undivided: a map whose keys may be words, which a struct beside it would lack.
        outside: those of the table's types for whole numbers in DuckDB whose bounds some value is outside of.
    """

    location: SourceLocation
    sample: str = ""
    wide: bool = False
    fraction: int = 0
    far: bool = False
    ragged: bool = False
    digits: bool = False
    typed: bool = False
    lossy: bool = False
    outside: frozenset[str] = frozenset()
    record: RecordShape | None = None
    value: FieldShape | None = None
    sampled: SourceLocation | None = None
    undivided: bool = False

    @property
    def place(self) -> SourceLocation:
        """The place that a report shows beside the sample."""
        # New columns keep the order of their files' columns, by the place of the file: a task looks for the
        # row of the first value of each type, and no further, so the order would depend on the data.
        return self.sampled or self.location

    def bare(self) -> Profile:
        """A copy without the shapes below it."""
        return replace(self, record=None if self.record is None else RecordShape(), value=None)

    def covers(self, other: Profile) -> bool:
        """True if the other one adds nothing, places and samples aside."""
        marks = ("wide", "fraction", "far", "ragged", "digits", "typed", "lossy", "outside")
        return (
            all(getattr(self, mark) >= getattr(other, mark) for mark in marks)
            and _covers(self.record, other.record)
            and _covers(self.value, other.value)
        )

    def merge(self, other: Profile) -> Profile:
        """The annotations of both, with the first place and its sample."""
        # A minimum by the place and then the sample, so that merging in any order gives the same.
        first = min(self, other, key=lambda s: (s.location, not s.sample, s.place, s.sample))
        return Profile(
            first.location,
            first.sample,
            self.wide or other.wide,
            max(self.fraction, other.fraction),
            self.far or other.far,
            self.ragged or other.ragged,
            self.digits or other.digits,
            self.typed or other.typed,
            self.lossy or other.lossy,
            self.outside | other.outside,
            _both(self.record, other.record),
            _both(self.value, other.value),
            first.sampled,
            self.undivided or other.undivided,
        )


@pickled_by_fields
@dataclass(slots=True)
class FieldShape:
    """The facets of one field. Without facets it held only null, ``[]`` and ``{}`` (untyped).

    Attributes:
        empty_lists: the deepest empty list, 1 for ``[]``.
        empty_record: ``{}`` occurred, at any depth.
        missing: some record had no value, for required columns.
        absent: no record had even the key.
        comment: the doc of its column, if all sources agree on it.
    """

    location: SourceLocation
    facets: dict[Facet, Profile] = field(default_factory=dict)
    empty_lists: int = 0
    empty_record: bool = False
    missing: bool = False
    absent: bool = False
    comment: str = ""

    def bare(self) -> FieldShape:
        """A copy without its facets."""
        marks = self.empty_lists, self.empty_record, self.missing, self.absent, self.comment
        return FieldShape(self.location, {}, *marks)

    def lacking(self) -> FieldShape:
        """The shape of a field that some record lacks."""
        # In wide documents most fields are known to be lacking: a copy of each was a fifth of the time.
        return self if self.missing else replace(self, missing=True)

    def add(self, facet: Facet, profile: Profile) -> None:
        """Add a facet, or merge its annotations into those it has."""
        existing = self.facets.get(facet)
        self.facets[facet] = profile if existing is None else existing.merge(profile)

    @property
    def scalar(self) -> Facet | None:
        """The only type of its values, if that is a scalar; None for all other fields."""
        if len(self.facets) != 1 or self.empty_lists or self.empty_record:
            return None
        (facet,) = self.facets
        return None if facet.dim or not isinstance(facet.base, Primitive) else facet

    def covers(self, other: FieldShape) -> bool:
        """True if the other one adds nothing, places and samples aside."""
        return (
            self.empty_lists >= other.empty_lists
            and self.empty_record >= other.empty_record
            and self.missing >= other.missing
            and self.absent <= other.absent
            and all(
                (profile := self.facets.get(facet)) is not None and profile.covers(other_profile)
                for facet, other_profile in other.facets.items()
            )
        )

    @property
    def has_maps(self) -> bool:
        """True if it is a map, or one is below it."""
        return any(
            profile.value is not None or (profile.record is not None and profile.record.has_maps)
            for profile in self.facets.values()
        )

    @property
    def most_keys(self) -> int:
        """The number of keys of the largest record, at any depth."""
        records = (profile.record.most_keys for profile in self.facets.values() if profile.record is not None)
        values = (profile.value.most_keys for profile in self.facets.values() if profile.value is not None)
        return max((*records, *values), default=0)

    def merge(self, other: FieldShape) -> FieldShape:
        """Merge two shapes of one field into a new one."""
        out = FieldShape(
            min(self.location, other.location),
            dict(self.facets),
            max(self.empty_lists, other.empty_lists),
            self.empty_record or other.empty_record,
            self.missing or other.missing,
            self.absent and other.absent,
            # Sources that disagree leave some comment or none, but the same one in any order of merging.
            min(self.comment, other.comment),
        )
        for facet, profile in other.facets.items():
            out.add(facet, profile)
        return out


@pickled_by_fields
@dataclass(slots=True)
class RecordShape:
    """The fields of a record, by exact key."""

    fields: dict[str, FieldShape] = field(default_factory=dict)

    @property
    def has_maps(self) -> bool:
        """True if a field is a map, at any depth."""
        return any(shape.has_maps for shape in self.fields.values())

    @property
    def most_keys(self) -> int:
        """The number of keys of the largest record, at any depth."""
        return max((len(self.fields), *(shape.most_keys for shape in self.fields.values())))

    def kept(self, *, empty_names: bool) -> dict[str, FieldShape]:
        """The fields of a struct whose values are kept; the empty key only with ``empty_names`` (2.5)."""
        if empty_names or "" not in self.fields:
            return self.fields
        typed = any(profile.typed for profile in self.fields[""].facets.values())
        return self.fields if typed else {key: shape for key, shape in self.fields.items() if key}

    def having(self, takes: Callable[[str], bool]) -> RecordShape:
        """The fields whose keys satisfy ``takes``."""
        return RecordShape({key: shape for key, shape in self.fields.items() if takes(key)})

    def covers(self, other: RecordShape) -> bool:
        """True if the other one adds nothing, places and samples aside."""
        return all(
            (shape := self.fields.get(key)) is not None and shape.covers(field)
            for key, field in other.fields.items()
        )

    def merge(self, other: RecordShape) -> RecordShape:
        """Merge two records. A key that only one of them has is missing in records of the other."""
        # An empty shape is a part without records, and lacks no key.
        if not self.fields or not other.fields:
            return RecordShape(self.fields | other.fields)
        out = {
            key: shape.merge(other.fields[key]) if key in other.fields else shape.lacking()
            for key, shape in self.fields.items()
        }
        new = {key: shape for key, shape in other.fields.items() if key not in out}
        return RecordShape(out | {key: shape.lacking() for key, shape in new.items()})


_Shape = TypeVar("_Shape", RecordShape, FieldShape)


def _both(a: _Shape | None, b: _Shape | None) -> _Shape | None:
    if a is None or b is None:
        return a if b is None else b
    return a.merge(b)


def _covers(shape: _Shape | None, part: _Shape | None) -> bool:
    return part is None or (shape is not None and shape.covers(part))


def merge_all(shapes: Iterable[RecordShape]) -> RecordShape:
    """Merge all shapes into one."""
    out = RecordShape()
    for shape in shapes:
        out = out.merge(shape)
    return out
