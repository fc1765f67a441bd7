"""Rows that a change replaces but for the fields of which it does not have the values: those keep theirs.

A row has the order of the change that replaced it last, and keeps beside it that of each field which an older
one has filled: whatever comes late fills only these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import json

from driftline.core.planning.rest import TYPE_KEY, rest_column, step, steps
from driftline.core.planning.row_key import ORDER_KIND, ORDERS_KIND
from driftline.core.schema.types import Struct
from driftline.keys.merge import NOTHING, ROW, PatchedField
from driftline.keys.patched import Merges, merged_fields
from driftline.keys.patching import RowChanges

_names = json.Decoder(list[str]).decode
_UNKNOWN = ""  # the order of a field of which no value was ever known: before all others


class Kept(NamedTuple):
    """A field that the latest change did not have: the ``source`` of its value, and that one's ``order``."""

    source: int
    order: str


@dataclass(slots=True)
class FilledRow:
    """A row after some changes: its ``source`` and its ``order``, and the fields that it ``kept``.

    Changes are applied in their order, those that are older than the row too.
    """

    source: int = NOTHING
    order: str = _UNKNOWN
    kept: dict[str, Kept] = field(default_factory=dict)

    def write(self, source: int, order: str, lacking: Sequence[str]) -> None:
        """Apply a change that has all values but those that are ``lacking``."""
        if order < self.order:
            self._fill(source, order, lacking)
            return
        kept = {name: self.kept.get(name, Kept(self.source, self.order)) for name in lacking}
        self.source, self.order, self.kept = source, order, kept

    def delete(self, order: str) -> None:
        """Apply a delete: of what is older nothing is left."""
        if order < self.order:
            self._fill(NOTHING, order, ())
        else:
            self.source, self.order, self.kept = NOTHING, order, {}

    def _fill(self, source: int, order: str, lacking: Sequence[str]) -> None:
        for name, kept in self.kept.items():
            if kept.order <= order and name not in lacking:
                self.kept[name] = Kept(source, order)

    def node(self) -> PatchedField:
        """The sources of the row's fields, as the merge of columns takes them."""
        fields = {name: PatchedField(0, kept.source) for name, kept in self.kept.items()}
        return PatchedField(objects={self.source: 0}, fields=fields, emptied=self.source != ROW)

    def older(self) -> list[tuple[str, str]]:
        """The orders of fields that the row keeps, by path."""
        return [(step("", name), kept.order) for name, kept in self.kept.items() if kept.order != self.order]


def filled(row: Mapping[str, str] | None, order: str, changes: RowChanges) -> FilledRow:
    """Apply changes to a row of the table. ``row``: the orders that it keeps, by path; None without a row.

    >>> from driftline.keys.merge import Patches
    >>> made = filled({}, "2", (Patches((), ("3",)), ('["big"]',)))
    >>> made.source, made.older()
    (1, [('big', '2')])
    """
    patches, lacking = changes
    made = FilledRow()
    if row is not None:
        kept = {str(steps(path)[0]): Kept(ROW, own) for path, own in row.items()}
        made = FilledRow(ROW, order, kept)
    if patches.floor is not None:
        made.delete(patches.floor)
    for number, own in enumerate(patches.orders):
        if patches.floor is not None and own < patches.floor:
            continue
        text = lacking[number]
        if text is None:
            made.delete(own)
        else:
            made.write(1 + number, own, _names(text) if text else ())
    return made


@dataclass(frozen=True, slots=True)
class RowFiller:
    """Makes rows of ``struct`` of all changes of their keys; it is sent to tasks.

    ``own``: the places of the columns that are set here, by kind; ``mark``: the prefix of docs.
    """

    struct: Struct
    own: Mapping[str, int]
    mark: str

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """The rows. ``sources``: the places of each row's sources among the ``values``, that of the table's
        row first, -1 for a source without any.
        """
        in_table = [places[0] for places in sources]
        orders, kept = (self._of_table(values, in_table, kind) for kind in (ORDER_KIND, ORDERS_KIND))
        made = [
            filled(dict(fields or ()) if at >= 0 else None, order or "", of_row)
            for at, order, fields, of_row in zip(in_table, orders, kept, changes, strict=True)
        ]
        merges = Merges.of(range(len(made)), sources)
        nodes = [row.node() for row in made]
        columns = merged_fields(self.struct.fields, values.columns, nodes, merges, self.mark)
        rest = rest_column(self.struct)
        if rest is not None:
            place = self.struct.fields.index(rest)
            columns[place] = _rest(values.column(place), made, sources)
        for kind, own in (
            (ORDER_KIND, [row.order for row in made]),
            (ORDERS_KIND, [row.older() for row in made]),
        ):
            place = self.own[kind]
            columns[place] = pa.array(own, values.column(place).type)
        return pa.RecordBatch.from_arrays(columns, schema=values.schema)

    def _of_table(self, values: pa.RecordBatch, places: Sequence[int], kind: str) -> list[Any]:
        none_below_zero = pa.array([at if at >= 0 else None for at in places], pa.int64())
        taken: list[Any] = values.column(self.own[kind]).take(none_below_zero).to_pylist()
        return taken


def _rest(rest: pa.Array, rows: Sequence[FilledRow], sources: Sequence[Sequence[int]]) -> pa.Array:
    """The rest of each row: of each field the texts that its source has."""
    if rest.null_count == len(rest):
        return pa.nulls(len(rows), rest.type)
    texts, made = rest.to_pylist(), []
    for row, places in zip(rows, sources, strict=True):
        own: list[tuple[str, str]] = []
        for source in {row.source, *(kept.source for kept in row.kept.values())} - {NOTHING}:
            for path, text in texts[places[source]] or ():
                name = str(steps(path.removesuffix(TYPE_KEY))[0])
                if (row.kept[name].source if name in row.kept else row.source) == source:
                    own.append((path, text))
        made.append(own or None)
    return pa.array(made, rest.type)
