"""Merges patches into rows: each value is taken from the change that `keys.patch_fields` names.

Whole columns are taken at once; entries of maps are merged one by one. The rest of a row has the texts of
each source that no later change has replaced.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, json

from driftline.core.planning.own_columns import TYPE_KEY, is_type_key, rest_column, steps
from driftline.core.schema.naming import data_key, is_metadata
from driftline.core.schema.types import Field, List, Map, Path, Struct, Type, peel
from driftline.core.settings.row_key import ORDER_KIND, ORDERS_KIND
from driftline.core.values import raw_members
from driftline.keys.patch_fields import (
    NOTHING,
    PRESENCE,
    VALUE,
    FieldOrder,
    Node,
    PatchedField,
    Patches,
    Presence,
    StoredRow,
    is_object,
    kept_orders,
    latest_order,
    merged,
    presence_of,
    presence_of_table,
    read_presence,
)
from driftline.keys.slices import LiveParts, RowSlice, Slices, rows_at, with_row_ids
from driftline.keys.stored import StoredRows, no_rows
from driftline.tasks.run import RowMaker
from driftline.write import BatchFolder, Reported, SetAside

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Merges:
    """Values to be made, each by one of some merges.

    Attributes:
        merge: the number of each value's merge.
        places: the positions of the values' sources, -1 for none.
        begins: the index in ``places`` at which the sources of each value begin.
    """

    merge: NDArray[np.int64]
    places: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, merge: Sequence[int], places: Sequence[Sequence[int]]) -> Merges:
        """Build merges of values, each with the positions of its sources."""
        begins = np.cumsum([0, *map(len, places)])[:-1]
        flat = np.fromiter(chain.from_iterable(places), np.int64)
        return cls(np.asarray(merge, np.int64), flat, begins.astype(np.int64))

    def __len__(self) -> int:
        return len(self.merge)

    def from_sources(self, sources: Sequence[int]) -> NDArray[np.int64]:
        """Return the position of each value, given the source in each merge; -1 for none."""
        # One array look-up for all rows: each merge names a source, and each row its place of it.
        source = np.asarray(sources, np.int64)[self.merge]
        places = self.places[np.where(source < 0, 0, self.begins + source)]
        return np.where(source < 0, -1, places)

    def of_value(self, value: int, source: int) -> int:
        """Return the position of one value."""
        return -1 if source < 0 else int(self.places[self.begins[value] + source])


def merged_fields(
    fields: Sequence[Field], arrays: Sequence[pa.Array], nodes: Sequence[Node], merges: Merges, mark: str
) -> list[pa.Array]:
    """Merge the columns of a table's or a struct's fields.

    Args:
        nodes: the object that each merge has made.
    """
    of_fields: dict[str, list[Node]] = {}
    columns = []
    # One merge decides for all rows whose changes have the same fields, so columns are taken as a whole. Only
    # maps and the rest are looked at value by value.
    for field, array in zip(fields, arrays, strict=True):
        # Metadata columns say how the latest change came, so they are never mixed.
        if is_metadata(field.doc):
            columns.append(_taken(array, merges.from_sources([_latest(node) for node in nodes])))
            continue
        key = data_key(field, mark)
        # Siblings of a field share one decision, so a value and its other spelling come from one change.
        if key not in of_fields:
            of_fields[key] = [_inside(node, key) for node in nodes]
        columns.append(_merged(field.type, array, of_fields[key], merges, mark))
    return columns


def _inside(node: Node, key: str) -> Node:
    """Return a field of an object."""
    if isinstance(node, int):
        return node
    member = node.member(key)
    return node.rest if member is None else member


def _latest(node: Node) -> int:
    return node if isinstance(node, int) else node.latest


def _taken(array: pa.Array, places: NDArray[np.int64]) -> pa.Array:
    return array.take(pa.array(places, mask=places < 0))


def _merged(type_: Type, array: pa.Array, nodes: Sequence[Node], merges: Merges, mark: str) -> pa.Array:
    """Merge the values of one column."""
    if is_object(type_) and any(isinstance(node, PatchedField) for node in nodes):
        if isinstance(type_, Struct):
            member = merged_fields(type_.fields, array.flatten(), nodes, merges, mark)
            valid = _is_object(array, nodes, merges)
            return pa.StructArray.from_arrays(member, fields=list(array.type), mask=pa.array(~valid))
        if isinstance(type_, Map):
            return _merged_maps(type_, array, nodes, merges, mark)
    taken = _taken(array, merges.from_sources([_latest(node) for node in nodes]))
    if isinstance(type_, List) and is_object(peel(type_)[1]):
        return _with_merged_objects(type_, array, nodes, merges, taken, mark)
    return taken


def _with_merged_objects(
    type_: List, array: pa.Array, nodes: Sequence[Node], merges: Merges, taken: pa.Array, mark: str
) -> pa.Array:
    """Merge lists that wrap an object as that object; null if a source lacks such a list."""
    is_merged = np.array([isinstance(node, PatchedField) for node in nodes], np.bool_)[merges.merge]
    values = np.flatnonzero(is_merged)
    if not len(values):
        return taken
    offsets, valid = array.offsets.to_numpy(), array.is_valid().to_numpy(zero_copy_only=False)
    # An object was put into a list of one by the column's depth; a list of another length is no such object.
    wraps = valid & (np.diff(offsets) == 1)
    items: list[Node] = []
    places: list[list[int]] = []
    has_all = np.zeros(len(merges), np.bool_)
    for value in values.tolist():
        node = nodes[merges.merge[value]]
        of_sources = {source: merges.of_value(value, source) for source in _sources(node)}
        # A source from before this column has no copy of its object here: half an object would be wrong, null
        # is right, as the object's own column has it all.
        has_all[value] = all(place >= 0 and wraps[place] for place in of_sources.values())
        if has_all[value]:
            item_places = [-1] * (1 + max(of_sources))
            for source, place in of_sources.items():
                item_places[source] = int(offsets[place])
            items.append(node)
            places.append(item_places)
    merges_of_items = Merges.of(range(len(items)), places)
    merged = _merged(type_.element, array.values, items, merges_of_items, mark)
    ends = np.append(0, np.cumsum(has_all)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), merged, type=array.type, mask=pa.array(~has_all))
    return pc.if_else(pa.array(is_merged), lists, taken)


def _sources(node: Node) -> Sequence[int]:
    return [node] if isinstance(node, int) else list(node.objects)


def _is_object(array: pa.Array, nodes: Sequence[Node], merges: Merges) -> NDArray[np.bool_]:
    """Flag the values of which a source is an object."""
    # The last place answers for -1, which stands for no source.
    has = np.append(array.is_valid().to_numpy(zero_copy_only=False), False)
    sources = [_sources(node) for node in nodes]
    most = max(map(len, sources), default=0)
    valid = np.zeros(len(merges), np.bool_)
    for nth in range(most):
        of_merge = [some[nth] if nth < len(some) else NOTHING for some in sources]
        valid |= has[merges.from_sources(of_merge)]
    return valid


def _merged_maps(type_: Map, array: pa.Array, nodes: Sequence[Node], merges: Merges, mark: str) -> pa.Array:
    """Merge the values of a map by key, if they are objects."""
    valid = _is_object(array, nodes, merges)
    entries = _Entries(array)
    names: list[str] = []
    ends = [0]
    items: list[Node] = []
    places: list[list[int]] = []
    for value, number in enumerate(merges.merge.tolist()):
        node = nodes[number]
        if valid[value]:
            for name, item, item_places in entries.of(node, value, merges):
                names.append(name)
                items.append(item)
                places.append(item_places)
        ends.append(len(names))
    merged = Merges.of(range(len(items)), places)
    values = _merged(type_.value, array.items, items, merged, mark)
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.array(names, array.type.key_type),
        values,
        type=array.type,
        mask=pa.array(~valid),
    )


class _Entries:
    """The entries of maps by key, each with its position among all entries."""

    def __init__(self, array: pa.Array) -> None:
        self._offsets = array.offsets.to_numpy()
        self._keys = array.keys
        self._read: dict[int, dict[str, int]] = {}

    def of(self, node: Node, value: int, merges: Merges) -> Iterable[tuple[str, Node, list[int]]]:
        """Return the entries of one value: each key, its merge, and the positions of the merge's sources."""
        if isinstance(node, int):
            for key, place in self._at(merges.of_value(value, node)).items():
                yield key, 0, [place]
            return
        entries = {source: self._at(merges.of_value(value, source)) for source in node.objects}
        for key, member in node.fields.items():
            if not member.objects:
                if key in entries.get(member.source, {}):
                    yield key, 0, [entries[member.source][key]]
                continue
            item_places = [-1] * (1 + max(member.objects))
            for source in member.objects:
                item_places[source] = entries[source].get(key, -1)
            if max(item_places) >= 0:
                yield key, member, item_places

    def _at(self, place: int) -> dict[str, int]:
        if place < 0:
            return {}
        # Maps are read by row, and only those that more than one change has touched.
        if place not in self._read:
            low, high = int(self._offsets[place]), int(self._offsets[place + 1])
            keys = self._keys.slice(low, high - low).to_pylist()
            self._read[place] = {key: low + offset for offset, key in enumerate(keys)}
        return self._read[place]


def merged_rest(rest: pa.Array, roots: Sequence[PatchedField], merges: Merges) -> pa.Array:
    """Merge the rest of each row."""
    if rest.null_count == len(rest):
        return pa.nulls(len(merges), rest.type)
    texts, rows = rest.to_pylist(), []
    ends = [*merges.begins[1:].tolist(), len(merges.places)]
    for begin, end, number in zip(merges.begins.tolist(), ends, merges.merge.tolist(), strict=True):
        places = enumerate(merges.places[begin:end].tolist())
        has = {source: dict(texts[at] or ()) for source, at in places if at >= 0}
        rows.append(_merged_texts(has, roots[number]) or None)
    return pa.array(rows, rest.type)


def _merged_texts(texts: Mapping[int, Mapping[str, str]], root: PatchedField) -> list[tuple[str, str]]:
    """Merge the rest of one row, by path.

    Args:
        texts: the texts of each source.
    """
    row: dict[str, str] = {}
    for source, text_of in texts.items():
        for path, text in text_of.items():
            if is_type_key(path):
                continue
            remaining = _left(_at(root, path), text, source)
            if remaining is None:
                continue
            row[path] = _both(row[path], remaining) if path in row else remaining
            if path + TYPE_KEY in text_of:
                row[path + TYPE_KEY] = text_of[path + TYPE_KEY]
    return list(row.items())


def _at(root: PatchedField, path: str) -> Node | None:
    """Return the merged field at a path, or the field around it inside a list; None if it is gone."""
    node: Node | None = root
    for step in steps(path):
        if not isinstance(node, PatchedField) or isinstance(step, int):
            return node
        node = node.member(step)
    return node


def _left(node: Node | None, text: str | Raw, source: int) -> str | None:
    """Return the part of a source's text that no other source has replaced; None if there is none."""
    if not isinstance(node, PatchedField):
        return _plain(text) if node == source else None
    if source not in node.objects or memoryview(_bytes(text))[0] != ord("{"):
        return None
    remaining: dict[str, Any] = {}
    members: dict[str, Raw] = raw_members(_bytes(text))
    for key, value in members.items():
        part = _left(node.member(key), value, source)
        if part is not None:
            remaining[key] = Raw(part.encode())
    return json.encode(remaining).decode() if remaining or not members else None


def _both(first: str, second: str) -> str:
    """Join the members of two objects."""
    members: dict[str, Raw] = raw_members(first)
    for key, value in raw_members(second).items():
        has = members.get(key)
        is_object = has is not None and _plain(has)[0] == _plain(value)[0] == "{"
        members[key] = Raw(_both(_plain(has), _plain(value)).encode()) if is_object else value
    return json.encode(members).decode()


def _bytes(text: str | Raw) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def _plain(text: str | Raw | None) -> str:
    return text if isinstance(text, str) else bytes(text or b"").decode()


_MANY = 10_000  # rows that are merged at once

_Form: TypeAlias = "tuple[Any, ...]"  # equal for rows of one merge


@dataclass(frozen=True, slots=True)
class RowMerger:
    """Merges patches into rows of ``struct``; it is sent to tasks.

    Attributes:
        own: the positions of the columns that are set here, by kind.
        mark: the prefix of docs.
        excluded: fields that the table does not take.
    """

    struct: Struct
    own: Mapping[str, int]
    mark: str
    excluded: Sequence[Path] = ()

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """Merge the rows.

        Args:
            values: the sources' columns.
            sources: for each row the positions of its sources in ``values``, the table's row first; -1 if a
                source has no values.
            changes: the changes of each row.
        """
        stored = self._stored(values, [places[0] for places in sources])
        roots: list[PatchedField] = []
        orders: list[list[FieldOrder]] = []
        numbers: dict[_Form, int] = {}
        merges, field_orders, latest = [], [], []
        for (patches, texts), row in zip(changes, stored, strict=True):
            # Rows whose changes have the same fields in the same order merge alike: one merge decides for
            # all.
            form = (tuple(texts), patches.floor is None, *(() if row is None else row.form(patches)))
            number = numbers.setdefault(form, len(roots))
            before = None if row is None else row.row
            if number == len(roots):
                presences = [None if text is None else self._presence(text) for text in texts]
                complete = None if before is None or row is None else before._replace(presence=row.presence())
                roots.append(merged(complete, patches._replace(presences=presences)))
                orders.append(list(roots[-1].orders()))
            merges.append(number)
            if ORDER_KIND in self.own:
                field_orders.append(list(kept_orders(orders[number], before, patches).items()))
                latest.append(latest_order(before, patches))
        row_merges = Merges.of(merges, sources)
        columns = merged_fields(self.struct.fields, values.columns, roots, row_merges, self.mark)
        rest_field = rest_column(self.struct)
        if rest_field is not None:
            place = self.struct.fields.index(rest_field)
            columns[place] = merged_rest(values.column(place), roots, row_merges)
        for kind, texts_of in ((ORDER_KIND, latest), (ORDERS_KIND, field_orders)):
            if kind in self.own:
                columns[self.own[kind]] = pa.array(texts_of, values.column(self.own[kind]).type)
        return pa.RecordBatch.from_arrays(columns, schema=values.schema)

    def _presence(self, text: str) -> Presence:
        presence = read_presence(text)
        for path in self.excluded:
            _drop(presence, path)
        return presence

    def _stored(self, values: pa.RecordBatch, places: Sequence[int]) -> list[_OfTable | None]:
        """Return the table's rows at these positions, None for -1."""
        in_table = pa.array([place for place in places if place >= 0], pa.int64())
        taken = pa.Table.from_batches([values.take(in_table)])
        fields = [f for f in self.struct.fields if not is_metadata(f.doc)]
        present = presence_of_table(fields, taken, self.mark).to_pylist()
        order, orders = self._own(taken, ORDER_KIND), self._own(taken, ORDERS_KIND)
        rest_field = rest_column(self.struct)
        waiting = [None] * len(taken) if rest_field is None else taken.column(rest_field.name).to_pylist()
        rows = (
            _OfTable(StoredRow({}, order_ or "", dict(orders_ or ())), text, rest_ or ())
            for text, order_, orders_, rest_ in zip(present, order, orders, waiting, strict=True)
        )
        return [next(rows) if place >= 0 else None for place in places]

    def _own(self, rows: pa.Table, kind: str) -> list[Any]:
        place = self.own.get(kind)
        return [None] * len(rows) if place is None else rows.column(place).to_pylist()


@dataclass(frozen=True, slots=True)
class _OfTable:
    """A row of the table: its orders, its ``present`` fields, and its rest."""

    row: StoredRow
    present: str
    rest: Sequence[tuple[str, str]]

    def form(self, patches: Patches) -> _Form:
        """Return the part of the row that decides how patches change it."""
        rank = patches.rank_of(self.row)
        orders = tuple((path, rank(order)) for path, order in self.row.orders.items())
        return self.present, tuple(self.rest), rank(None), orders

    def presence(self) -> Presence:
        """The fields that have a value."""
        presence: Presence = json.decode(self.present)
        for path, text in self.rest:
            if not is_type_key(path):
                _add(presence, path, text)
        return presence


def _add(presence: Any, path: str, text: str) -> None:
    """Add a field of the rest; a list that has values there is one value."""
    *parents, last = steps(path)
    for step in parents:
        if not isinstance(presence, dict) or isinstance(step, int):
            return
        presence = presence.setdefault(str(step), {})
    if not isinstance(presence, dict) or isinstance(last, int):
        return
    member = presence_of(json.decode(text)) if text.startswith("{") else VALUE
    has = presence.get(last)
    presence[last] = {**has, **member} if isinstance(has, dict) and isinstance(member, dict) else member


def _drop(presence: Any, path: Path) -> None:
    for step in path[:-1]:
        presence = presence.get(step) if isinstance(presence, dict) else None
    if isinstance(presence, dict):
        presence.pop(path[-1], None)


class MergesRows(Protocol):
    """The merge of changes and a row of the table into one row. ``struct``: the columns."""

    @property
    def struct(self) -> Struct: ...

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """The merged rows."""
        ...


class ReplacesRows(Protocol):
    """The rows that their latest change replaces as a whole, whatever was before it."""

    def replace_whole(self, latest: pa.RecordBatch, named: pa.Table) -> tuple[pa.Array, pa.RecordBatch]:
        """Flag the keys whose ``latest`` change is all of their row, and return these rows."""
        ...


@dataclass(frozen=True, slots=True)
class PatchedRowsOf:
    """Makes rows of a table from all changes of their keys.

    Attributes:
        stored: reads the table's rows.
        whole: makes the rows that need no merge; None if each change is merged into its row.
    """

    merger: MergesRows
    stored: StoredRows | None
    whole: ReplacesRows | None = None

    def maker(self, slices: Slices, parts: LiveParts) -> RowMaker[int]:
        """Return the maker of rows whose keys have their last change in these parts."""
        return _PatchedRows(slices.folder, parts, slices.parts, self)


RowChanges: TypeAlias = "tuple[Patches, Sequence[str | None]]"  # with what each of them has


@dataclass(frozen=True, slots=True)
class _PatchedRows:
    """Makes the rows whose keys have their last change in some slices.

    Attributes:
        parts: each of these slices, with the file that names its keys.
        slices: all slices of the batch.
    """

    folder: BatchFolder
    parts: LiveParts
    slices: Sequence[RowSlice]
    rows_of: PatchedRowsOf

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Yield the rows of one slice."""
        del set_aside
        part, live_file = self.parts[number]
        with self.folder.open(live_file) as file:
            named = pa.ipc.open_file(file).read_all()
        if self.rows_of.whole is not None:
            named = yield from self._replaced(self.rows_of.whole, part, named)
        # A row with all its sources is held in memory at once; a slice may have any number of rows.
        for begin in range(0, len(named), _MANY):
            yield self._made(named.slice(begin, _MANY))
        return Reported(None)

    def _replaced(
        self, whole: ReplacesRows, part: RowSlice, named: pa.Table
    ) -> Generator[pa.RecordBatch, None, pa.Table]:
        """Yield the rows that their latest change replaces; returns what names the others."""
        others, begin = [named.slice(0, 0)], 0
        # The numbers of latest changes ascend, so they are read as those of rows that are not merged.
        for latest in rows_at(self.folder, part, named["row"].to_numpy()):
            of_batch = named.slice(begin, len(latest))
            begin += len(latest)
            flags, rows = whole.replace_whole(latest, of_batch)
            if len(rows):
                yield with_row_ids(rows, of_batch.filter(flags))
            others.append(of_batch.filter(pc.invert(flags)))
        return pa.concat_tables(others)

    def _made(self, named: pa.Table) -> pa.RecordBatch:
        numbers = named["changes"].combine_chunks()
        flat = numbers.flatten().to_numpy()
        # Slices are read forward, each batch once, so numbers are sorted and put back afterwards.
        order = np.argsort(flat)
        of_batch = self._of_batch(flat[order])
        places = np.empty(len(flat), np.int64)
        places[order] = np.arange(len(flat))
        is_known = named["file"].is_valid().to_numpy()
        of_table_rows = self._of_table(named.filter(pa.array(is_known)))
        # Rows of the table follow those of the batch in `values`, in the order of `named`.
        of_table = np.where(is_known, len(flat) + np.cumsum(is_known) - 1, -1).tolist()
        present = of_batch[PRESENCE].take(pa.array(places)).to_pylist()
        values = (
            pa.concat_tables([of_batch.select(of_table_rows.column_names), of_table_rows])
            .combine_chunks()
            .to_batches()
        )
        deletes = named["deletes"].combine_chunks().flatten().to_pylist()
        orders = named["orders"].to_pylist()
        floors = named["floor"].to_pylist()
        sources, changes = [], []
        ends = np.cumsum([0, *(len(row_sources) for row_sources in numbers)]).tolist()
        for number, (low, high) in enumerate(pairwise(ends)):
            texts = [None if deletes[i] else present[i] for i in range(low, high)]
            row_sources = [-1 if deletes[i] else int(places[i]) for i in range(low, high)]
            sources.append([of_table[number], *row_sources])
            changes.append((Patches((), orders[number] or (), floors[number]), texts))
        rows = self.rows_of.merger.rows(values[0], sources, changes)
        return with_row_ids(rows, named)

    def _of_table(self, named: pa.Table) -> pa.Table:
        """Read the table's rows that are changed."""
        if self.rows_of.stored is None or not len(named):
            return no_rows(self.rows_of.merger.struct)
        files = named["file"].combine_chunks()
        return self.rows_of.stored.read(files, named["position"].to_numpy())

    def _of_batch(self, numbers: Any) -> pa.Table:
        """Read rows of the batch by their ascending ``numbers``."""
        parts: list[pa.Table] = []
        begin = 0
        for part in self.slices:
            low, high = np.searchsorted(numbers, [begin, begin + part.rows])
            if low < high:
                chosen = rows_at(self.folder, part, numbers[low:high] - begin)
                parts += [pa.Table.from_batches([rows]) for rows in chosen]
            begin += part.rows
        return pa.concat_tables(parts)
