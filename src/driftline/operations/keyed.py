"""Changes that would make a table with a key lose track of its rows: each is refused."""

from __future__ import annotations

from itertools import chain

from driftline.core.planning.contract import spelled_path
from driftline.core.planning.metadata import own_column
from driftline.core.planning.row_key import (
    DELETED_KIND,
    DELETES_PROPERTY,
    KEY_PROPERTY,
    MERGE_PROPERTY,
    ORDER_KIND,
    ORDER_PROPERTY,
    ORDERS_KIND,
)
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import Path
from driftline.errors import DataError
from driftline.formats.base import State
from driftline.keys.columns import columns_of
from driftline.settings import from_properties


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


def check_definition(table: str, before: Definition, after: Definition) -> None:
    """Raise DataError for a change that takes away a column of the key or the order, or the key itself."""
    settings = from_properties(before.properties)
    if settings.row_key is None:
        return
    for name in (KEY_PROPERTY, ORDER_PROPERTY, DELETES_PROPERTY, MERGE_PROPERTY):
        if before.properties.get(name) != after.properties.get(name):
            raise DataError(
                f"{table} has a key: {name} stays as it is", "make another table with another key"
            )
    needed = list(
        chain.from_iterable(
            columns_of(before.schema.struct, path, settings.mark) for path in settings.row_key.roles
        )
    )
    ids_after = {
        column.field.id
        for path in settings.row_key.roles
        for column in columns_of(after.schema.struct, path, settings.mark)
    }
    gone = [spelled_path(column.path) for column in needed if column.field.id not in ids_after]
    for kind in (ORDER_KIND, ORDERS_KIND, DELETED_KIND):
        column = own_column(before.schema.struct, kind)
        if column is not None and own_column(after.schema.struct, kind) is None:
            gone.append(column.name)
    if gone:
        raise DataError(
            f"{table}: {gone[0]} cannot go: the table knows its rows by {before.properties[KEY_PROPERTY]}",
            "columns of the key and the order stay as long as the table has a key",
        )
