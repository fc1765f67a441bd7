"""Rows by key, as a person sets it: fields of the key, fields of the order, what deletes (section 11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from driftline.core.planning.condition import Condition
from driftline.core.planning.contract import parse_paths, spelled_path
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import BOOLEAN, STRING, Field, Map, Path
from driftline.errors import UsageError

KEY_PROPERTY = "driftline.key"
ORDER_PROPERTY = "driftline.order-by"
DELETES_PROPERTY = "driftline.deletes"
HARD, SOFT = "hard", "soft"  # what a delete does: removes the row, or marks it
MERGE_PROPERTY = "driftline.merge"
REPLACE, PATCH = "replace", "patch"  # what a record does to its row: is it, or changes fields of it

ORDER_KIND = "order"
ORDER_COLUMN = Field(
    "_order",
    STRING,
    doc=f"{METADATA}{ORDER_KIND}\nthe order of the row's latest change, as a text that sorts",
)
ORDERS_KIND = "order_fields"
ORDERS_COLUMN = Field(
    "_order_fields",
    Map(STRING, STRING),
    doc=f"{METADATA}{ORDERS_KIND}\nthe order of fields that are older than the row, or null, by path",
)

DELETED_KIND = "deleted"
# Iceberg has a column `_deleted` itself.
DELETED_COLUMN = Field(
    "_is_deleted",
    BOOLEAN,
    doc=f"{METADATA}{DELETED_KIND}\ntrue for a row whose latest change deletes it",
)


@dataclass(frozen=True, slots=True)
class RowKey:
    """The fields by which a table knows its rows; the latest change by ``order_by`` counts, else the last to
    arrive. A record for which ``delete_when`` is true deletes its row, and with an order that is remembered
    for ``delete_memory`` seconds; with ``soft`` the row stays instead, and has a mark. With ``patch`` a
    record changes only the fields of its row that it has.
    """

    key: tuple[Path, ...]
    order_by: tuple[Path, ...] = ()
    delete_when: Condition | None = None
    delete_memory: int = 7 * 86_400
    soft: bool = False
    patch: bool = False

    @classmethod
    def of(
        cls,
        key: str,
        order_by: str = "",
        delete_when: str = "",
        delete_memory: str = "7d",
        deletes: str = HARD,
        merge: str = REPLACE,
    ) -> RowKey | None:
        """Read the settings; None without a key. Raises ValueError."""
        soft, patch = deletes == SOFT, merge == PATCH
        if not key:
            given = {"order_by": order_by, "delete_when": delete_when, "deletes": soft, "merge": patch}
            if needless := [name for name, value in given.items() if value]:
                raise ValueError(f"{needless[0]} needs a key")
            return None
        keys, orders = parse_paths(key), parse_paths(order_by) if order_by else ()
        for path in (*keys, *orders):
            if (*keys, *orders).count(path) > 1:
                raise ValueError(f"{spelled_path(path)} is named twice")
            if set(path) & {"element", "value"}:
                raise ValueError(f"{spelled_path(path)}: no key or order is inside a list or a map")
        if soft and patch:
            raise ValueError("deletes = soft does not go with merge = patch")
        condition = parse_condition(delete_when) if delete_when else None
        return cls(keys, orders, condition, parse_span(delete_memory), soft, patch)

    @property
    def remembers(self) -> bool:
        """True if deletes are remembered, as neither a row nor the order of arrival tells of them."""
        return self.delete_when is not None and bool(self.order_by) and not self.soft

    @property
    def columns(self) -> dict[str, Field]:
        """The columns of the table's own that its rows have, by kind."""
        orders = {ORDER_KIND: ORDER_COLUMN, ORDERS_KIND: ORDERS_COLUMN} if self.order_by else {}
        if not self.patch:
            orders.pop(ORDERS_KIND, None)
        return orders | ({DELETED_KIND: DELETED_COLUMN} if self.soft else {})

    @property
    def roles(self) -> dict[Path, str]:
        """The role of each field."""
        return dict.fromkeys(self.key, KEY) | dict.fromkeys(self.order_by, ORDER)


def parse_condition(text: str) -> Condition:
    """Read what `delete_when` says. Raises ValueError."""
    from driftline.core.planning.condition_sql import condition_of  # late: sqlglot is slow to import

    return condition_of(text)


_SPAN = re.compile(r"(\d+) *([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_span(text: str) -> int:
    """The seconds of a span of time. Raises ValueError.

    >>> parse_span("7d"), parse_span("90m")
    (604800, 5400)
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a span of time: write 7d, 36h, 90m")
    return int(match[1]) * _SECONDS[match[2]]


def check_kept(table: str, now: Mapping[str, str], requested: Mapping[str, str]) -> None:
    """Raise UsageError where an existing table would get another key or order.

    ``now``: its properties; ``requested``: those of a batch.
    """
    for name, flag, default in (
        (KEY_PROPERTY, "key", ""),
        (ORDER_PROPERTY, "order_by", ""),
        (DELETES_PROPERTY, "deletes", HARD),
        (MERGE_PROPERTY, "merge", REPLACE),
    ):
        kept = now.get(name) or default
        if name in requested and (requested[name] or default) != kept:
            has = f"{flag} = {kept!r}" if kept else f"no {flag}"
            raise UsageError(
                f"{table} has {has}: {flag} is set when a table is made",
                "make another table with it, from the same source",
            )
