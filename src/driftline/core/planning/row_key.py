"""Rows by key, as a person sets it: fields of the key, fields of the order, what deletes (section 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftline.core.planning.condition import Condition
from driftline.core.planning.contract import parse_paths, spelled_path
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import STRING, Field, Path
from driftline.errors import UsageError

KEY_PROPERTY = "driftline.key"
ORDER_PROPERTY = "driftline.order-by"

ORDER_KIND = "order"
ORDER_COLUMN = Field(
    "_order",
    STRING,
    doc=f"{METADATA}{ORDER_KIND}\nthe order of the row's latest change, as a text that sorts",
)


@dataclass(frozen=True, slots=True)
class RowKey:
    """The fields by which a table knows its rows; the latest change by ``order_by`` counts, else the last to
    arrive. A record for which ``delete_when`` is true deletes its row.
    """

    key: tuple[Path, ...]
    order_by: tuple[Path, ...] = ()
    delete_when: Condition | None = None

    @classmethod
    def of(cls, key: str, order_by: str, delete_when: str) -> RowKey | None:
        """Read the three settings; None without a key. Raises ValueError."""
        if not key:
            if order_by or delete_when:
                raise ValueError(f"{'order_by' if order_by else 'delete_when'} needs a key")
            return None
        keys, orders = parse_paths(key), parse_paths(order_by) if order_by else ()
        for path in (*keys, *orders):
            if (*keys, *orders).count(path) > 1:
                raise ValueError(f"{spelled_path(path)} is named twice")
            if set(path) & {"element", "value"}:
                raise ValueError(f"{spelled_path(path)}: no key or order is inside a list or a map")
        return cls(keys, orders, parse_condition(delete_when) if delete_when else None)

    @property
    def roles(self) -> dict[Path, str]:
        """The role of each field."""
        return dict.fromkeys(self.key, KEY) | dict.fromkeys(self.order_by, ORDER)


def parse_condition(text: str) -> Condition:
    """Read what `delete_when` says. Raises ValueError."""
    from driftline.core.planning.condition_sql import condition_of  # late: sqlglot is slow to import

    return condition_of(text)


def check_kept(table: str, now: Mapping[str, str], requested: Mapping[str, str]) -> None:
    """Raise UsageError where an existing table would get another key or order.

    ``now``: its properties; ``requested``: those of a batch.
    """
    for name, flag in ((KEY_PROPERTY, "key"), (ORDER_PROPERTY, "order_by")):
        if name in requested and requested[name] != now.get(name, ""):
            has = f"{flag} = {now[name]!r}" if now.get(name) else f"no {flag}"
            raise UsageError(
                f"{table} has {has}: {flag} is set when a table is made",
                "make another table with it, from the same source",
            )
