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

from driftline.core.planning.own_columns import TYPE_KEY, rest_column, step, steps
from driftline.core.schema.types import Struct
from driftline.core.settings.row_key import ORDER_KIND, ORDERS_KIND
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
        values = {name: self.kept.get(name, Kept(self.source, self.order)) for name in lacking}
        self.source, self.order, self.kept = source, order, values

    def delete(self, order: str) -> None:
        """Apply a delete: of what is older nothing is left."""
        if order < self.order:
            self._fill(NOTHING, order, ())
        else:
            self.source, self.order, self.kept = NOTHING, order, {}

    def forget(self, order: str) -> None:
        """Apply a delete that the table remembers: values of its own order came after it."""
        if self.order < order:
            self.source, self.order, self.kept = NOTHING, order, {}
            return
        older = [name for name, value in self.kept.items() if value.order < order]
        self.kept |= dict.fromkeys(older, Kept(NOTHING, order))

    def _fill(self, source: int, order: str, lacking: Sequence[str]) -> None:
        for name, value in self.kept.items():
            if value.order <= order and name not in lacking:
                self.kept[name] = Kept(source, order)

    def node(self) -> PatchedField:
        """The sources of the row's fields, as the merge of columns takes them."""
        fields = {name: PatchedField(0, value.source) for name, value in self.kept.items()}
        return PatchedField(objects={self.source: 0}, fields=fields, emptied=self.source != ROW)

    def older(self) -> list[tuple[str, str]]:
        """The orders of fields that the row keeps, by path."""
        return [
            (step("", name), value.order) for name, value in self.kept.items() if value.order != self.order
        ]


def filled(row: Mapping[str, str] | None, order: str, changes: RowChanges) -> FilledRow:
    """Apply changes to a row of the table. ``row``: the orders that it keeps, by path; None without a row.

    >>> from driftline.keys.merge import Patches
    >>> made = filled({}, "2", (Patches((), ("3",)), ('["big"]',)))
    >>> made.source, made.older()
    (1, [('big', '2')])
    """
    patches, lacking = changes
    result = FilledRow()
    if row is not None:
        values = {str(steps(path)[0]): Kept(ROW, order_of_change) for path, order_of_change in row.items()}
        result = FilledRow(ROW, order, values)
    if patches.floor is not None:
        result.forget(patches.floor)
    for number, order_of_change in enumerate(patches.orders):
        if patches.floor is not None and order_of_change < patches.floor:
            continue
        text = lacking[number]
        if text is None:
            result.delete(order_of_change)
        else:
            result.write(1 + number, order_of_change, _names(text) if text else ())
    return result


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
        orders, orders_of_fields = (
            self._of_table(values, in_table, kind) for kind in (ORDER_KIND, ORDERS_KIND)
        )
        filled_rows = [
            filled(dict(fields or ()) if place_in_table >= 0 else None, order or "", of_row)
            for place_in_table, order, fields, of_row in zip(
                in_table, orders, orders_of_fields, changes, strict=True
            )
        ]
        merges = Merges.of(range(len(filled_rows)), sources)
        nodes = [row.node() for row in filled_rows]
        columns = merged_fields(self.struct.fields, values.columns, nodes, merges, self.mark)
        rest = rest_column(self.struct)
        if rest is not None:
            place = self.struct.fields.index(rest)
            columns[place] = _rest(values.column(place), filled_rows, sources)
        for kind, texts in (
            (ORDER_KIND, [row.order for row in filled_rows]),
            (ORDERS_KIND, [row.older() for row in filled_rows]),
        ):
            place = self.own[kind]
            columns[place] = pa.array(texts, values.column(place).type)
        return pa.RecordBatch.from_arrays(columns, schema=values.schema)

    def _of_table(self, values: pa.RecordBatch, places: Sequence[int], kind: str) -> list[Any]:
        none_below_zero = pa.array([place if place >= 0 else None for place in places], pa.int64())
        taken: list[Any] = values.column(self.own[kind]).take(none_below_zero).to_pylist()
        return taken


def _rest(column: pa.Array, rows: Sequence[FilledRow], sources: Sequence[Sequence[int]]) -> pa.Array:
    """The rest of each row: of each field the texts that its source has."""
    if column.null_count == len(column):
        return pa.nulls(len(rows), column.type)
    texts, texts_of_rows = column.to_pylist(), []
    for row, places in zip(rows, sources, strict=True):
        row_texts: list[tuple[str, str]] = []
        for source in {row.source, *(value.source for value in row.kept.values())} - {NOTHING}:
            for path, text in texts[places[source]] or ():
                name = str(steps(path.removesuffix(TYPE_KEY))[0])
                if (row.kept[name].source if name in row.kept else row.source) == source:
                    row_texts.append((path, text))
        texts_of_rows.append(row_texts or None)
    return pa.array(texts_of_rows, column.type)
