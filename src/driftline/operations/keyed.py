"""Refuses changes that would make a keyed table lose track of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from driftline.core.columns.folding import TEMPORARY, FieldSite, Resolution
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.definition import KEY_PROPERTY, Definition
from driftline.core.schema.naming import MARK
from driftline.core.schema.types import Path, Primitive, Schema
from driftline.core.settings.declarations import PREFIX
from driftline.core.settings.fields import parse_paths, spelled_path
from driftline.core.settings.row_key import DELETED_KIND, ORDER_KIND, ORDERS_KIND, RowKey, table_property
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, KeyedTransaction
from driftline.keys.identity import FieldColumns, KeyFold
from driftline.keys.remembered import key_texts
from driftline.keys.stored import columns_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa


def check_resolved(table: str, row_key: RowKey | None, path: Path, *, drop_rest: bool) -> None:
    """Raise DataError where a fold of the field at ``path`` would take keys or orders away from rows."""
    for field, role in row_key.roles.items() if row_key is not None else ():
        if field[: len(path)] == path or path[: len(field)] == field:
            reason = f"the table knows its rows by the {role} {spelled_path(field)}"
            if field != path:
                raise DataError(
                    f"{table}: {spelled_path(path)} cannot be resolved: {reason}",
                    f"resolve {spelled_path(field)}",
                )
            # Only columns of one kind are folded: with numbers folded into text two keys would become one,
            # and the next number a third.
            if drop_rest:
                raise DataError(
                    f"{table}: values of {spelled_path(path)} cannot be dropped: {reason}",
                    "leave out --drop-rest",
                )


@dataclass(frozen=True, slots=True)
class RememberedFold:
    """The fold of a key's field in the deletes that a table remembers by its columns.

    ``sites``: the structs that have the field; ``ids``: the columns of keys and orders.
    """

    sites: Sequence[FieldSite]
    to: Primitive
    ids: Sequence[int]

    @classmethod
    def of(cls, plan: Resolution, schema: Schema, row_key: RowKey | None) -> RememberedFold | None:
        """The fold that a plan asks for; None for a field that is not of the key."""
        order = own_column(schema.struct, ORDER_KIND)
        if row_key is None or plan.path not in row_key.key or order is None:
            return None
        assert isinstance(plan.merged.type, Primitive)
        columns = chain.from_iterable(columns_of(schema.struct, path, plan.mark) for path in row_key.key)
        return cls(plan.sites, plan.merged.type, [*(c.field.id for c in columns), order.id])

    def kept(self, transaction: KeyedTransaction) -> set[Path]:
        """The columns with values of remembered deletes that the one column cannot hold."""
        columns: set[Path] = set()
        for _, rows in transaction.remembered(self.ids):
            for site, fold in zip(self.sites, self._folds, strict=True):
                ids = fold.kept(rows)
                columns |= {(*site.parent, column.name) for column in site.folded if column.id in ids}
        return columns

    def rewrite(self, transaction: KeyedTransaction, rest: Mapping[Path, Sequence[str]]) -> None:
        """Have the remembered deletes in the new columns too. ``rest``: the names of columns that stay, by
        site.
        """
        # The old columns stay beside the new ones: after an `undo` the deletes are found by the old ones
        # again.
        transaction.rewrite_deletes(
            (file, self._folded(rows, transaction.schema, rest))
            for file, rows in transaction.remembered(self.ids)
        )

    def _folded(self, rows: pa.Table, now: Schema, rest: Mapping[Path, Sequence[str]]) -> pa.Table:
        for site, fold in zip(self.sites, self._folds, strict=True):
            new = _id_at(now, (*site.parent, TEMPORARY))
            takers = [
                (column.id, _id_at(now, (*site.parent, f"{TEMPORARY}_{i}")))
                for i, column in enumerate(site.folded)
                if column.name in rest[site.parent]
            ]
            rows = fold.folded(rows, new, takers)
        return rows

    @property
    def _folds(self) -> list[KeyFold]:
        """For each site the fold of its columns."""
        return [
            KeyFold(
                FieldColumns.of((c.id, c.type) for c in site.folded if isinstance(c.type, Primitive)), self.to
            )
            for site in self.sites
        ]


def check_remembered(table: CatalogTable, before: Definition, after: Definition) -> None:
    """Raise DataError if deletes that the table remembers have no key in the columns of ``after``."""
    settings, mark = after.known_by, after.properties.get(f"{PREFIX}mark") or MARK
    order = own_column(after.schema.struct, ORDER_KIND)
    if order is None or not settings.key or before.known_by != settings:
        return
    key = [list(columns_of(after.schema.struct, path, mark)) for path in parse_paths(settings.key)]
    fields, ids = [values_of(columns) for columns in key], [c.field.id for c in chain.from_iterable(key)]
    if set(ids) <= {f.id for _, f in before.schema.walk()}:
        return
    transaction = table.transaction(table.load()).by_key()
    for _, rows in transaction.remembered([*ids, order.id]):
        if any(None in json.loads(text) for text in key_texts(fields, rows).to_pylist()):
            raise DataError(
                f"{table.name}: deletes were remembered since by the present columns of {settings.key} alone",
                "leave it as it is, or take the key away, and set it anew",
            )


def _id_at(schema: Schema, path: Path) -> int:
    column = schema.find(path)
    assert column is not None
    return column.id


def check_promoted(table: str, row_key: RowKey | None, fields: Iterable[Path]) -> None:
    """Raise DataError where values of such a field would get columns: rows would get other keys or orders."""
    roles = {} if row_key is None else row_key.roles
    for path in fields:
        for field, role in roles.items():
            if path[: len(field)] == field or field[: len(path)] == path:
                raise DataError(
                    f"{table}: {spelled_path(path)} cannot be promoted: the table knows its rows by the {role} "
                    f"{spelled_path(field)}",
                    f"take the key away first: driftline alter {table_property(table, KEY_PROPERTY, '')}",
                )


def check_definition(table: str, before: Definition, after: Definition) -> None:
    """Raise DataError for a change that takes away a column of the key or the order, which both have."""
    settings = after.known_by
    if not (settings.key and before.known_by.key):
        return
    mark = before.properties.get(f"{PREFIX}mark") or MARK
    fields = parse_paths(settings.key) + (parse_paths(settings.order_by) if settings.order_by else ())
    needed = chain.from_iterable(columns_of(before.schema.struct, path, mark) for path in fields)
    ids_after = {column.field.id for path in fields for column in columns_of(after.schema.struct, path, mark)}
    gone = [spelled_path(column.path) for column in needed if column.field.id not in ids_after]
    for kind, needs in (
        (ORDER_KIND, settings.order_by),
        (ORDERS_KIND, settings.order_by),
        (DELETED_KIND, settings.deletes == before.known_by.deletes),
    ):
        column = own_column(before.schema.struct, kind)
        if needs and column is not None and own_column(after.schema.struct, kind) is None:
            gone.append(column.name)
    if gone:
        raise DataError(
            f"{table}: {gone[0]} cannot be dropped: the table knows its rows by {', '.join(filter(None, settings[:2]))}",
            f"take the key away first: driftline alter {table_property(table, KEY_PROPERTY, '')}",
        )
