"""Truncates: the rows and the changes that are older than the last one of the source's table go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.schema.types import STRING
from driftline.keys.identity import BatchKeys, Bounds, FieldColumns
from driftline.keys.order import orders
from driftline.keys.settle import Found

if TYPE_CHECKING:
    from numpy.typing import NDArray


Positions: TypeAlias = "Mapping[str, NDArray[np.int64]]"  # of rows, by file


@dataclass(frozen=True, slots=True)
class LastTruncate:
    """The last truncate that a table knows, by its ``epoch`` and ``position``; empty if there is none.
    ``new``: the batch brings it, and rows that are older go. ``updates``: it is a snapshot, in which the
    batch has the new values of rows that stay.
    """

    position: str = ""
    epoch: int = 0
    new: bool = False
    updates: bool = False

    @classmethod
    def of(cls, known: tuple[int, str], sent: tuple[int, str], *, updates: bool = False) -> LastTruncate:
        """The later one of that which the table has ``known`` and the last that a batch was ``sent``, each by
        epoch and position.
        """
        new = bool(sent[1]) and sent > known
        epoch, position = sent if new else known
        return cls(position, epoch, new, updates)

    def updated(self, orders: pa.Array) -> pa.Array:
        """Flags keys, by the ``orders`` of their latest changes, whose rows are updated if they are older."""
        return pc.and_(pc.greater_equal(orders, self.floor), self.updates)

    @property
    def floor(self) -> str:
        """The order of the truncate, as rows have theirs; empty without one."""
        if not self.position:
            return ""
        position = pa.table({"0": [self.position]})
        text: str = orders(position, [FieldColumns.of([(0, STRING)])], self.epoch)[0].as_py()
        return text


@dataclass(frozen=True, slots=True)
class KeysAndOlder:
    """The keys of a batch, and all rows whose order is below the ``floor``: these have the code behind the
    last key's, whatever their key is, unless the batch has ``updated`` it. It is looked for as `BatchKeys`
    are. ``order``: the id of the column.
    """

    keys: BatchKeys
    order: int
    floor: str
    updated: pa.Array

    @property
    def ids(self) -> list[int]:
        """The columns that are asked."""
        return [*self.keys.ids, self.order]

    def codes(self, rows: pa.Table) -> pa.Array:
        """The code of each row; null for one that is not looked for."""
        codes = self.keys.codes(rows)
        older = pc.less(rows.column(str(self.order)).cast(pa.string()), self.floor)
        older = pc.and_not(older, pc.fill_null(self.updated.take(codes), False))
        return pc.if_else(pc.fill_null(older, False), pa.scalar(len(self.keys), codes.type), codes)

    def may_be_in(self, bounds: Mapping[int, Bounds]) -> bool:
        """True if rows may have a key of the batch, or be older."""
        bound = bounds.get(self.order, ("\U0010ffff", None))
        return bound is None or bound[0] < self.floor or self.keys.may_be_in(bounds)

    def apart(self, found: Iterable[Found]) -> tuple[list[Found], Positions]:
        """The rows that have a key of the batch, and the positions of those that are older, by file."""
        rows: list[Found] = []
        older: dict[str, list[NDArray[np.int64]]] = {}
        for hits in found:
            is_older = hits.codes == len(self.keys)
            if is_older.any():
                older.setdefault(hits.file, []).append(hits.positions[is_older])
            rows.append(hits.only(~is_older))
        return rows, {file: np.concatenate(parts) for file, parts in older.items()}


def as_deletes(floor: str, keys: int) -> Found:
    """A truncate as what a table remembers of so many keys: each was deleted at the ``floor``."""
    codes = np.arange(keys)
    return Found("", codes, codes, pa.repeat(floor, keys).cast(pa.string()))


def together(some: Positions, others: Positions) -> Positions:
    """Positions of rows by file, of both."""
    parts: dict[str, Sequence[NDArray[np.int64]]] = {
        file: [rows[file] for rows in (some, others) if file in rows] for file in {**some, **others}
    }
    return {file: np.unique(np.concatenate(rows)) for file, rows in parts.items()}
