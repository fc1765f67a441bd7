"""Walks single records and adds their facets to a shape; the fast decoder learns from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from driftline.core.planning.conversions import outside
from driftline.core.planning.maps import as_map, entries_of, values_of
from driftline.core.planning.shape import RECORD, Base, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.types import BIG_INTEGER, BOOLEAN, LONG, STRING, Path, Primitive, SourceLocation
from driftline.core.values import (
    DATELIKE,
    EXACT,
    Number,
    base_of,
    declared_base,
    declared_string_base,
    far,
    fraction,
    has_value,
    mode_of,
    read_text,
    string_base,
)
from driftline.observe.expect import UNKNOWN, BesideMap, ExpectedField
from driftline.observe.observation import sample


class Parts:
    """The parts of a value: its leaves by depth, the deepest empty list, and the depths of ``{}``."""

    def __init__(self) -> None:
        self.leaves: dict[int, list[object]] = {}
        self.empty_list = 0
        self.empty_records: set[int] = set()

    def dimension(self) -> tuple[int, bool]:
        """Return the depth of the deepest value, and True if there are values at other depths too.

        Objects without any value decide only if there is nothing else.
        """
        valued = [depth for depth, leaves in self.leaves.items() if any(map(has_value, leaves))]
        # A value counts by its deepest leaf: `[1, ["x"]]` is `long[2]` and `string[2]`.
        return max(valued or self.leaves, default=0), len(valued) > 1

    def add(self, value: object, depth: int, whole: bool) -> None:
        """Add a value.

        Args:
            whole: ``{}`` counts as an object, as it lacks required fields.
        """
        if type(value) is not list:
            if value == {} and not whole:
                self.empty_records.add(depth)
            elif value is not None:
                self.leaves.setdefault(depth, []).append(value)
            return
        for item in value:
            self.add(item, depth + 1, whole)
        # An empty list says how deep a field is only where no value inside says more.
        if not any(has_value(item) or (whole and type(item) is dict) for item in value):
            self.empty_list = max(self.empty_list, depth + 1)


_MAP = MapOf(STRING)
# Of one object, that are kept apart before it is asked whether they are data
MANY_KEYS = 1_000
# All records are observed anyway, so a wrong map costs a second read and nothing else.
FEWER_KEYS = 20  # the same where a guess will do: each key costs as much as a record
_FOLDED = BesideMap()  # an object whose many keys were folded but for its words


class Depth(NamedTuple):
    """The number of lists around a value; ``ragged``: other values of its field have another number."""

    dim: int
    ragged: bool = False


_FLAT = Depth(0)


class ShapeChanged(ValueError):
    """A value adds something to the shape."""


class Walker:
    """Adds records to a ``shape``.

    A list's dimension is that of its deepest leaf, and all its leaves count there. What a shape already
    implies adds nothing: a date in a field known to hold other strings, an empty list where lists as deep
    hold values, ``{}`` where objects are. So a shape depends on the order of records, but never on how they
    were read.

    Attributes:
        version: rises with every addition.
        folded: rises with every object whose keys are dropped.
        dropped: the number of empty keys, by the path of their record.
        root: the shape as that of a field that holds the records.
    """

    def __init__(
        self,
        expected: ExpectedField,
        dates: str,
        shape: RecordShape | None = None,
        *,
        folds_at: int | None = None,
        empty_names: bool = False,
    ) -> None:
        """Start with a shape.

        Args:
            expected: the table's columns.
            dates: the setting of that name.
            shape: the shape to add to.
            folds_at: an object with this many keys that are data is described by all its values together.
            empty_names: the empty key is like others, and not dropped.
        """
        self.expected, self.dates, self.empty_names = expected, dates, empty_names
        self._folds_at = folds_at
        # By facet, how many keys it has when it is looked at again
        self._next_look: dict[int, int] = {}
        self.shape = RecordShape() if shape is None else shape
        self.root = FieldShape(
            SourceLocation(), {Facet(0, RECORD): Profile(SourceLocation(), record=self.shape)}
        )
        self.dropped: Counter[Path] = Counter()
        self.version = self.folded = 0
        self._source, self._line = "", 0
        self._path: list[str] = []
        self._dry = False
        # Facets of a field by identity, which is quicker to ask for than equality.
        self._quick: dict[tuple[int, int, int], Profile] = {}

    def beginning_with(self, shape: RecordShape) -> Walker:
        """Return another walker of the same table, with this shape."""
        return Walker(self.expected, self.dates, shape, empty_names=self.empty_names)

    def walk(self, record: Mapping[str, object], source: str, line: int) -> None:
        """Add one record, as `driftline.core.values.parse` returns it."""
        self._source, self._line = source, line
        self._path.clear()
        self._record(record, self.shape, self.expected)

    def check(self, value: object, field_shape: FieldShape, expected: ExpectedField) -> None:
        """Raise ShapeChanged if a field's ``value`` would add anything; numbers may be ints and floats."""
        self._dry = True
        try:
            self._value(value, field_shape, expected, 0)
        finally:
            self._dry = False

    def _learn(self) -> None:
        if self._dry:
            raise ShapeChanged
        self.version += 1

    def _record(self, record: Mapping[str, object], shape: RecordShape, expected: ExpectedField) -> None:
        for position, (key, value) in enumerate(record.items()):
            if not (key or self.empty_names):
                self._drop()
            field_shape = shape.fields.get(key)
            if field_shape is None:
                self._learn()
                field_shape = shape.fields[key] = FieldShape(
                    SourceLocation(self._source, self._line, position)
                )
            # `type` rather than `isinstance`: this loop sees each value of each walked record.
            if type(value) is dict or type(value) is list:
                self._path.append(key)
                self._value(value, field_shape, expected.fields.get(key, UNKNOWN), position)
                self._path.pop()
            elif value is not None:
                self._leaf(value, _FLAT, value, field_shape, expected.fields.get(key, UNKNOWN), position)
            # An entry that only a missing required value made: the field itself comes with this record.
            if field_shape.absent:
                self._learn()
                field_shape.absent = False
        for key in expected.required_keys:
            if record.get(key) is None:
                self._miss(key, shape, len(record))

    def _drop(self) -> None:
        if self._dry:
            raise ShapeChanged
        self.dropped[tuple(self._path)] += 1

    def _miss(self, key: str, shape: RecordShape, position: int) -> None:
        field_shape = shape.fields.get(key)
        if field_shape is None or not field_shape.missing:
            self._learn()
            location = SourceLocation(self._source, self._line, position)
            field_shape = shape.fields.setdefault(key, FieldShape(location, absent=True))
            field_shape.missing = True

    def _value(self, value: object, field_shape: FieldShape, expected: ExpectedField, position: int) -> None:
        if type(value) is not list and value != {}:
            self._leaf(value, _FLAT, value, field_shape, expected, position)
            return
        parts = Parts()
        parts.add(value, 0, bool(expected.required_keys))
        depth = Depth(*parts.dimension())
        for leaves in parts.leaves.values():
            for leaf in leaves:
                self._leaf(leaf, depth, value, field_shape, expected, position)
        if parts.empty_list > max(field_shape.empty_lists, *(f.dim for f in field_shape.facets), 0):
            self._learn()
            field_shape.empty_lists = parts.empty_list
        if not field_shape.empty_record and any(
            Facet(d, RECORD) not in field_shape.facets and Facet(d, _MAP) not in field_shape.facets
            for d in parts.empty_records
        ):
            self._learn()
            field_shape.empty_record = True

    def _leaf(
        self,
        leaf: object,
        depth: Depth,
        value: object,
        field_shape: FieldShape,
        expected: ExpectedField,
        position: int,
    ) -> None:
        """Add a value that is no list; ``value`` is the whole value around it."""
        wide = beyond = False
        digits, unbound = 0, frozenset[str]()
        base: Base
        if isinstance(leaf, dict):
            self._object(leaf, depth, value, field_shape, expected, position)
            return
        dim, ragged = depth
        if type(leaf) is str and expected.texts is not None:
            leaf = read_text(leaf, expected.texts)
        if isinstance(leaf, bool):
            base = BOOLEAN
        elif isinstance(leaf, str) and not isinstance(leaf, Number):
            base = self._string(leaf, dim, field_shape, expected)
            if base is not STRING and base in DATELIKE:
                digits, beyond = fraction(leaf), far(leaf)
        else:
            text = str(leaf)
            base = declared_base(text, expected.types) if expected.types else base_of(text)
            # Texts of up to 15 characters are within 2**53, and most integers are that short.
            wide = base is LONG and len(text) > 15 and not -EXACT <= int(text) <= EXACT
            if expected.bounded and base in (LONG, BIG_INTEGER):
                unbound = outside(int(text), int(text), expected.bounded)
        facet = self._facet(base, dim, value, field_shape, position)
        is_new = wide > facet.wide or digits > facet.fraction or beyond > facet.far or ragged > facet.ragged
        if is_new or not unbound <= facet.outside:
            self._learn()
            facet.outside |= unbound
            facet.wide, facet.fraction = facet.wide or wide, max(facet.fraction, digits)
            facet.far, facet.ragged = facet.far or beyond, facet.ragged or ragged

    def _object(
        self,
        leaf: Mapping[str, object],
        depth: Depth,
        value: object,
        field_shape: FieldShape,
        expected: ExpectedField,
        position: int,
    ) -> None:
        """Add an object: as a record, as a map's values, or split between both."""
        dim, ragged = depth
        beside = expected.beside
        is_map = expected.value is not None or Facet(dim, _MAP) in field_shape.facets
        # An object that was folded in this batch, and whose words stayed in a struct: no column says so yet.
        if beside is None and expected.value is None and is_map and Facet(dim, RECORD) in field_shape.facets:
            beside = _FOLDED
        if not is_map or beside is not None:
            fields = leaf if beside is None else {k: v for k, v in leaf.items() if beside.in_struct(k)}
            facet = self._facet(RECORD, dim, value, field_shape, position)
            self._mix(facet, ragged)
            if facet.record is None:
                facet.record = RecordShape()
            self._record(fields, facet.record, expected)
            # Where the table has a struct, its fields keep their columns, and no fold may drop them.
            if self._folds_at is not None and not is_map and not expected.fields:
                self._fold(facet, facet.record, dim, field_shape, self._folds_at)
        if is_map:
            facet = self._facet(_MAP, dim, value, field_shape, position)
            self._mix(facet, ragged)
            facet.undivided = facet.undivided or beside is None
            if facet.value is None:
                facet.value = FieldShape(facet.location)
            self._path.append("value")
            for key, item in leaf.items():
                if item is not None and (beside is None or beside.in_map(key)):
                    self._value(item, facet.value, expected.value or UNKNOWN, position)
            self._path.pop()

    def _mix(self, facet: Profile, ragged: bool) -> None:
        if ragged > facet.ragged:
            self._learn()
            facet.ragged = True

    def _fold(
        self, facet: Profile, record: RecordShape, dim: int, field_shape: FieldShape, many: int
    ) -> None:
        """Drop the keys of a large object that is a map: memory follows the schema, not the keys."""
        if len(record.fields) < self._next_look.get(id(facet), many):
            return
        verdict = as_map(entries_of([record]))
        if verdict is None:
            # Asked again at twice the keys: the question costs as much as all keys, so its cost stays linear.
            self._next_look[id(facet)] = 2 * len(record.fields)
            return
        self._learn()
        del field_shape.facets[Facet(dim, RECORD)]
        if verdict.apart:
            field_shape.add(Facet(dim, RECORD), replace(facet, record=record.having(_FOLDED.in_struct)))
            record = record.having(_FOLDED.in_map)
        value = values_of(record, facet.location)
        undivided = not verdict.apart
        field_shape.add(Facet(dim, _MAP), replace(facet, record=None, value=value, undivided=undivided))
        # By identity: of shapes that are gone, too
        self._quick.clear()
        self._next_look.clear()
        self.folded += 1

    def _facet(self, base: Base, dim: int, value: object, field_shape: FieldShape, position: int) -> Profile:
        quick = id(field_shape), dim, id(base)
        profile = self._quick.get(quick)
        if profile is None:
            facet = Facet(dim, base)
            profile = field_shape.facets.get(facet)
            if profile is None:
                self._learn()
                profile = field_shape.facets[facet] = Profile(
                    SourceLocation(self._source, self._line, position), sample(value)
                )
            self._quick[quick] = profile
        return profile

    def _string(self, text: str, dim: int, field_shape: FieldShape, expected: ExpectedField) -> Primitive:
        mode = self.dates if expected.texts is None else mode_of(self.dates, expected.texts)
        if not expected.plain_strings:
            base = declared_string_base(text, expected.types, mode)
        else:
            base = string_base(text, mode)
        if base is STRING or expected.dated or base not in DATELIKE:
            return base
        # Among other strings dates are strings, unless the field has a column for them (rule 2.2).
        return STRING if Facet(dim, STRING) in field_shape.facets else base
