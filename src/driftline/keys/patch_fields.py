"""The fields that records have, as presence texts such as `{"a":1,"b":0,"c":{"d":1}}`, and their merge.

A column is null for an absent key and for null alike, so a presence accompanies the columns of patches. 0
stands for null, 1 for a value that is no object; the keys are sorted. A list without a value, which may
have no column, counts as null.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, json

from driftline.core.planning.own_columns import step, steps
from driftline.core.schema.naming import data_key
from driftline.core.schema.types import STRING, Field, Map, Struct, Type
from driftline.core.support import gc_paused
from driftline.core.values import parse, raw_members
from driftline.observe.decoder import REFUSED

# Of a field: null (0), a value that is no object (1), or an object's fields.
Presence: TypeAlias = "int | Mapping[str, Presence]"
Ranks: TypeAlias = "Callable[[str | None], int]"  # of an order, or of a row's own, None
NULL, VALUE = 0, 1

# The source of all of a field, or an object that several changes have made.
Node: TypeAlias = "int | PatchedField"

ROW = 0  # the source of values that the table's row has; those of changes count from 1
NOTHING = -1  # the source of a value that is gone
_NEVER = -1  # a rank before all changes
# Behind a path: the order of the change that made an object of it, if its fields tell less
_OBJECT = "."


class FieldOrder(NamedTuple):
    """A field whose order a row may have to keep.

    Attributes:
        path: the field's path.
        source: the source of its value.
        always: keep the order even if the row has the same.
        kept_before: keep the order only if the row has kept one.
    """

    path: str
    source: int
    always: bool = False
    kept_before: bool = False


@dataclass(slots=True)
class PatchedField:
    """A field after some changes.

    Attributes:
        written: the rank of the last change to null or to a value that is no object.
        source: that change.
        objects: later changes that had an object, each with its rank.
        fields: the fields of the object.
        emptied: some of the fields may be gone.
    """

    written: int = _NEVER
    source: int = NOTHING
    null: bool = True
    objects: dict[int, int] = field(default_factory=dict)
    fields: dict[str, PatchedField] = field(default_factory=dict)
    emptied: bool = False

    def write(self, presence: Presence, rank: int, source: int) -> None:
        """Merge a change; of equal ranks the later call wins."""
        # A change of the whole field came later; what this one has is gone already.
        if rank < self.written:
            return
        if isinstance(presence, int):
            # A plain value replaces the field with all that is older, but not members that later changes set.
            self._forget(rank)
            self.written, self.source, self.null = rank, source, presence == NULL
            return
        self.objects[source] = rank
        for key, member in presence.items():
            self.at(key).write(member, rank, source)

    def at(self, key: str) -> PatchedField:
        """Return a field of the object, created if missing."""
        member = self.fields.get(key)
        if member is None:
            member = self.fields[key] = PatchedField()
        return member

    def member(self, key: str) -> Node | None:
        """Return a field of the object: its source, or the merge of several; None if there is none."""
        member = self.fields.get(key)
        return None if member is None else member if member.objects else member.source

    @property
    def rest(self) -> int:
        """The source of the object's fields that no change has; they are null, or defaults."""
        # Unless something was emptied, the row's own fields stay where no change names them.
        if ROW in self.objects and not self.emptied:
            return ROW
        return max((source for source in self.objects if source != ROW), default=NOTHING)

    @property
    def latest(self) -> int:
        """The source of everything that is no field of the object."""
        return max(self.objects, key=self.objects.__getitem__) if self.objects else self.source

    def orders(self, path: str = "") -> Iterator[FieldOrder]:
        """Yield the orders from which `of_row` restores this field."""
        if path and self.written != _NEVER:
            # A null needs its order as well: without it, an older patch would fill what a newer one has
            # emptied.
            yield FieldOrder(path, self.source, self.null or bool(self.objects))
        if path and self.objects:
            source = self.latest
            rank = max((f.rank for f in self.fields.values()), default=_NEVER)
            if self.objects[source] > rank:  # an empty object may have no column
                yield FieldOrder(path + _OBJECT, source, always=True)
            elif source == ROW:
                yield FieldOrder(path + _OBJECT, source, always=True, kept_before=True)
        for key, member in self.fields.items():
            yield from member.orders(step(path, key))

    @property
    def rank(self) -> int:
        """The rank of the last change."""
        return max(self.written, *self.objects.values()) if self.objects else self.written

    def _forget(self, rank: int) -> bool:
        """Drop the effects of changes up to a rank; returns whether anything is left."""
        self.emptied = True
        if self.written <= rank:
            self.written, self.source, self.null = _NEVER, NOTHING, True
        if self.objects:
            self.objects = {source: own for source, own in self.objects.items() if own > rank}
            self.fields = {key: member for key, member in self.fields.items() if member._forget(rank)}
        return self.written != _NEVER or bool(self.objects)


@dataclass(slots=True)
class _Orders:
    """The orders that a row keeps, as a tree.

    Attributes:
        own: of a field's last value.
        object: of its object.
    """

    own: str | None = None
    object: str | None = None
    fields: dict[str, _Orders] = field(default_factory=dict)

    @classmethod
    def of(cls, orders: Mapping[str, str]) -> _Orders:
        """Read the orders by path."""
        root = cls()
        for path, order in orders.items():
            node, is_object = root, path.endswith(_OBJECT)
            for key in steps(path.removesuffix(_OBJECT)):
                node = node.fields.setdefault(str(key), cls())
            if is_object:
                node.object = order
            else:
                node.own = order
        return root


_NO_ORDERS = _Orders()


def of_row(presence: Presence, orders: Mapping[str, str], rank: Ranks) -> PatchedField:
    """Restore a row of the table as its changes have left it.

    Args:
        presence: the row's values that are not null.
        orders: the orders that it keeps in addition to its own, by path.
        rank: ranks an order, or with None the row's own.
    """
    row = PatchedField()
    _read(row, presence, _Orders.of(orders) if orders else _NO_ORDERS, rank)
    row.objects[ROW] = rank(None)
    return row


def _read(node: PatchedField, presence: Presence | None, orders: _Orders, rank: Ranks) -> int:
    """Fill a field; returns the rank of its last change."""
    is_known = bool(orders.fields) or orders.object is not None
    is_object = isinstance(presence, Mapping) or (presence is None and is_known)
    if not is_object or orders.own is not None:
        node.written, node.source, node.null = rank(orders.own), ROW, presence != VALUE
    if not is_object:
        return node.written
    inside = presence if isinstance(presence, Mapping) else {}
    latest = _NEVER if orders.object is None else rank(orders.object)
    # Fields with an order and no value as well: they are null by a change. A field with neither is one that
    # no change has named, so a new column needs no entry in older rows.
    for key in dict.fromkeys((*inside, *orders.fields)):
        latest = max(latest, _read(node.at(key), inside.get(key), orders.fields.get(key, _NO_ORDERS), rank))
    node.objects[ROW] = rank(None) if latest == _NEVER else latest
    return node.objects[ROW]


class StoredRow(NamedTuple):
    """A row of a table: its order, the orders of older fields, and its ``presence``."""

    presence: Presence
    order: str = ""
    orders: Mapping[str, str] = {}


class Patches(NamedTuple):
    """The changes of a row, in order.

    Attributes:
        presences: the fields of each change; None for a delete.
        orders: the order of each change, if there are any.
        floor: the order of an earlier delete that the table remembers.
    """

    presences: Sequence[Presence | None]
    orders: Sequence[str] = ()
    floor: str | None = None

    def rank_of(self, row: StoredRow) -> Ranks:
        """Return the ranks of a row's orders among those of the changes."""
        return _Ranks(row.order, self)


def merged(row: StoredRow | None, patches: Patches) -> PatchedField:
    """Merge changes into a row; their sources are numbered from 1."""
    root = PatchedField() if row is None else of_row(row.presence, row.orders, patches.rank_of(row))
    late = 0
    if patches.floor is not None:
        # A remembered delete comes before all of the batch's changes that count, and after the row's older
        # fields.
        root.write(NULL, 1, NOTHING)
        # Orders of a key's changes ascend, so those older than the delete stand first.
        late = bisect_left(patches.orders, patches.floor)
    for number, presence in enumerate(patches.presences[late:], 1 + late):
        if presence is None:
            root.write(NULL, _rank(number), NOTHING)
        else:
            root.write(presence, _rank(number), number)
    return root


def _rank(number: int) -> int:
    """Return the rank of a change; below each is a rank for the row's fields, the first two for a delete."""
    return 2 * number + 1


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Ranks a row's orders among those of changes, which win ties."""

    order: str
    patches: Patches

    def __call__(self, order: str | None) -> int:
        """Rank an order, or with None the row's own."""
        text = self.order if order is None else order
        patches = self.patches
        if patches.floor is not None and text < patches.floor:
            return 0
        return 2 + 2 * bisect_left(patches.orders, text)


def kept_orders(node: Sequence[FieldOrder], row: StoredRow | None, patches: Patches) -> dict[str, str]:
    """Return the orders that the merged row keeps, by path.

    They belong to fields that are older than the row, and to fields that are null.
    """
    orders, before = patches.orders, StoredRow({}) if row is None else row
    own = latest_order(row, patches)
    orders_by_path = {}
    for path, source, always, kept_before in node:
        if source == ROW:
            order = before.orders.get(path, "" if kept_before else before.order)
        else:
            order = orders[source - 1]
        if order and (always or order != own):
            orders_by_path[path] = order
    return orders_by_path


def latest_order(row: StoredRow | None, patches: Patches) -> str:
    """Return the order of the merged row."""
    last = patches.orders[-1] if patches.orders else ""
    return last if row is None else max(last, row.order)


# A null column may be an absent key or an explicit null, and a patch must tell them apart.
# The column of a slice that has it; no table has one of this name
PRESENCE = "\0presence"

_OPEN_OBJECT, _NULL, _LIST = b"{n["


@gc_paused()
def presence_of_lines(lines: Iterable[bytes]) -> pa.Array:
    """Return the presence of records in JSON lines."""
    return pa.array([_of_line(line).decode() for line in lines], pa.string())


def _of_line(line: bytes) -> bytes:
    try:
        # Keys and the first byte of each value are enough; only lines that msgspec refuses are parsed.
        return _of_text(line)
    except REFUSED:
        return json.encode(presence_of(parse(line)))


def _of_text(text: bytes | Raw) -> bytes:
    record: dict[str, Raw] = raw_members(text)
    members = []
    for key in sorted(record):
        value = record[key]
        begins = memoryview(value)[0]
        if begins == _OPEN_OBJECT:
            presence = _of_text(value)
        else:
            # An empty list counts as null, since it may have no column.
            presence = b"0" if begins == _NULL or (begins == _LIST and _is_empty(value)) else b"1"
        members.append(json.encode(key) + b":" + presence)
    return b"{%b}" % b",".join(members)


def _is_empty(text: Raw) -> bool:
    """True for a list of nulls, or of such lists."""
    return not bytes(text).strip(b"[], \t\r\nnul")


def read_presence(text: str) -> Presence:
    """Parse the presence of a record."""
    presence: Presence = json.decode(text)
    return presence


def presence_of(value: Any) -> Presence:
    """Return the presence of a Python value."""
    if isinstance(value, dict):
        return {key: presence_of(value[key]) for key in sorted(value)}
    return NULL if value is None or (isinstance(value, list) and not any(map(_has_value, value))) else VALUE


def _has_value(item: Any) -> bool:
    return any(map(_has_value, item)) if isinstance(item, list) else item is not None


def presence_of_rows(rows: pa.RecordBatch, struct: Struct) -> pa.Array:
    """Return the presence of rows with all columns: null is null.

    Args:
        struct: the types, by key.
    """
    return _PresenceReader(lambda f: f.name, "0").presence(struct.fields, rows.columns, len(rows))


def presence_of_table(fields: Sequence[Field], rows: pa.Table, mark: str) -> pa.Array:
    """Return the presence of a table's rows, in which null says nothing.

    Args:
        mark: the prefix of docs.
    """
    arrays = [rows.column(f.name).combine_chunks() for f in fields]
    return _PresenceReader(lambda f: data_key(f, mark), None).presence(fields, arrays, len(rows))


def is_object(type_: Type) -> bool:
    """True for types of objects, which have named fields."""
    return isinstance(type_, Struct) or (isinstance(type_, Map) and type_.key == STRING)


@dataclass(frozen=True, slots=True)
class _PresenceReader:
    """Reads presences from columns.

    Attributes:
        key: returns the data key of a column.
        null: the text of fields without a value; None if they are absent.
    """

    key: Callable[[Field], str]
    null: str | None

    def presence(self, fields: Sequence[Field], arrays: Sequence[pa.Array], count: int) -> pa.Array:
        """The presence of objects with these fields."""
        by_key: dict[str, list[tuple[Type, pa.Array]]] = {}
        for f, array in zip(fields, arrays, strict=True):
            by_key.setdefault(self.key(f), []).append((f.type, array))
        members = [
            pc.binary_join_element_wise(json.encode(key).decode(), self._of_field(by_key[key]), ":")
            for key in sorted(by_key)
        ]
        return _object_of(members) if members else pa.repeat("{}", count)

    def _of_field(self, columns: Sequence[tuple[Type, pa.Array]]) -> pa.Array:
        """The presence of a field with these columns; null where it is absent."""
        presence, plain = pa.nulls(len(columns[0][1]), pa.string()), None
        for type_, array in columns:
            if is_object(type_):
                presence = _both(presence, self._object(type_, array))
            else:
                plain = array.is_valid() if plain is None else pc.or_(plain, array.is_valid())
        if plain is not None:
            # An object in one column and a value in another are siblings of one field: the object tells more.
            presence = pc.coalesce(presence, pc.if_else(plain, "1", pa.scalar(None, pa.string())))
        return presence if self.null is None else pc.fill_null(presence, self.null)

    def _object(self, type_: Type, array: pa.Array) -> pa.Array:
        none = pa.scalar(None, pa.string())
        if isinstance(type_, Struct):
            texts = self.presence(type_.fields, array.flatten(), len(array))
            return pc.if_else(array.is_valid(), texts, none)
        assert isinstance(type_, Map)
        offsets, keys = array.offsets.to_numpy(), array.keys.to_pylist()
        values = pc.fill_null(self._of_field([(type_.value, array.items)]), "0").to_pylist()
        members = [f"{json.encode(key).decode()}:{value}" for key, value in zip(keys, values, strict=True)]
        texts = [
            f"{{{','.join(members[low:high])}}}"
            for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ]
        return pc.if_else(array.is_valid(), pa.array(texts, pa.string()), none)


def _both(first: pa.Array, second: pa.Array) -> pa.Array:
    """Merge the members of two objects; if one is null, return the other."""
    if first.null_count == len(first):
        return second
    inside = [pc.utf8_slice_codeunits(texts, 1, -1) for texts in (first, second)]
    inside = [pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts) for texts in inside]
    null = pc.and_(first.is_null(), second.is_null())
    return pc.if_else(null, pa.scalar(None, pa.string()), _object_of(inside))


def _object_of(members: Iterable[pa.Array]) -> pa.Array:
    """Join members to the texts of objects, without null members."""
    # A comma behind each member that is there, and the last one trimmed: no row is handled alone.
    ended = [pc.fill_null(pc.binary_join_element_wise(texts, ",", ""), "") for texts in members]
    inside = pc.utf8_rtrim(pc.binary_join_element_wise(*ended, ""), ",")
    return pc.binary_join_element_wise("{", inside, "}", "")
