"""Changes that would make a table with a key lose track of its rows: each is refused."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from driftline.core.planning.contract import parse_paths, spelled_path
from driftline.core.planning.metadata import own_column
from driftline.core.planning.row_key import DELETED_KIND, ORDER_KIND, RowKey, table_property
from driftline.core.schema.definition import KEY_PROPERTY, Definition
from driftline.core.schema.naming import MARK
from driftline.core.schema.types import Path
from driftline.errors import DataError
from driftline.formats.base import State
from driftline.keys.columns import columns_of
from driftline.settings import PREFIX, from_properties


def check_path(table: str, state: State, path: Path, operation: str) -> None:
    """Raise DataError where ``operation`` would be done to a field by which rows are known or ordered."""
    row_key = from_properties(state.properties).row_key
    for field, role in row_key.roles.items() if row_key is not None else ():
        if field[: len(path)] == path or path[: len(field)] == field:
            raise DataError(
                f"{table}: {spelled_path(field)} cannot be {operation}: it is of the table's {role}, whose values are "
                "told apart by their columns",
                "leave it as it is: rows are found whichever column has their key",
            )


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
    known = after.known_by
    if not (known.key and before.known_by.key):
        return
    mark = before.properties.get(f"{PREFIX}mark") or MARK
    fields = parse_paths(known.key) + (parse_paths(known.order_by) if known.order_by else ())
    needed = chain.from_iterable(columns_of(before.schema.struct, path, mark) for path in fields)
    ids_after = {column.field.id for path in fields for column in columns_of(after.schema.struct, path, mark)}
    gone = [spelled_path(column.path) for column in needed if column.field.id not in ids_after]
    for kind, kept in (
        (ORDER_KIND, known.order_by),
        (DELETED_KIND, known.deletes == before.known_by.deletes),
    ):
        column = own_column(before.schema.struct, kind)
        if kept and column is not None and own_column(after.schema.struct, kind) is None:
            gone.append(column.name)
    if gone:
        raise DataError(
            f"{table}: {gone[0]} cannot be dropped: the table knows its rows by {', '.join(filter(None, known[:2]))}",
            f"take the key away first: driftline alter {table_property(table, KEY_PROPERTY, '')}",
        )
