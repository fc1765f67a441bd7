"""Checks changes to a table's key settings before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftline.core.planning.own_columns import own_column
from driftline.core.schema.definition import ARRIVAL, KEY_PROPERTY, ORDER_PROPERTY, ROW_KEY, Definition
from driftline.core.schema.types import Struct
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.row_key import ORDER_KIND, ORDERS_KIND, RowKey, check_stays, table_property
from driftline.errors import DataError, UsageError


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A change of the settings by which a table knows its rows; None: each record is a row."""

    table: str
    before: RowKey | None
    after: RowKey | None

    @classmethod
    def of(cls, table: str, before: Definition, after: Definition) -> KeyChange:
        """The change from one definition to another. Raises DataError for one that is not possible."""
        change = cls(table, key_of(before), key_of(after))
        was, now = change.before, change.after
        check_stays(table, was, now)
        if was is None or now is None:
            return change
        for property_, old, new in (
            (KEY_PROPERTY, was.key, now.key),
            (ORDER_PROPERTY, was.order_by, now.order_by),
        ):
            # Another key needs two steps, so that nobody loses remembered deletes by surprise.
            if old and new and old != new:
                role = "key" if property_ == KEY_PROPERTY else "order"
                raise DataError(
                    f"{table} has the {role} {', '.join(map(spelled_path, old))} already",
                    f"take it away first, and with it what is remembered of orders and deletes: "
                    f"driftline alter {table_property(table, property_, '')}",
                )
        return change

    @property
    def looks_at_rows(self) -> bool:
        """True if the table's rows must be looked at, or get values."""
        was, now = self.before, self.after
        if now is None:
            return False
        return was is None or was.soft != now.soft or (not was.order_by and bool(now.order_by))

    def applied(self, after: Definition) -> Definition:
        """The definition without what goes with the key, or with the order.

        Raises DataError where something else needs the column of orders.
        """
        was, now = self.before, self.after
        if was is not None and now is None:
            properties = {key: value for key, value in after.properties.items() if key not in ROW_KEY}
            after = replace(after, properties=properties)
        if was is None or not was.order_by or (now is not None and now.order_by):
            return after
        # The column with marks of deletes is not among them: without it, deleted rows would be rows again.
        columns = [own_column(after.schema.struct, kind) for kind in (ORDER_KIND, ORDERS_KIND)]
        for column in columns:
            if column is not None and (use := after.use_of(column)) is not None:
                raise DataError(
                    f"{self.table}: {column.name} cannot be dropped: {use.why}", f"{use.way_out} first"
                )
        fields = tuple(f for f in after.schema.struct.fields if f not in columns)
        return replace(after, schema=replace(after.schema, struct=Struct(fields)))


def key_of(definition: Definition) -> RowKey | None:
    """The key by which a table knows its rows. Raises UsageError for settings that make none."""
    known_by = definition.known_by
    # Without an order, an envelope would give its own.
    settings = known_by._replace(order_by=known_by.order_by or ARRIVAL)._asdict()
    try:
        return RowKey.of(settings) if known_by.key else None
    except ValueError as error:
        raise UsageError(str(error)) from error
