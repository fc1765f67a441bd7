"""Row keys as settings: the fields of the key and the order, and the rule for deletes (section 11)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import get_args

from driftline.core.schema.definition import (
    ARRIVAL,
    EPOCH_PROPERTY,
    KEEP,
    OPERATION,
    ORDER_PROPERTY,
    PATCH,
    POSITION,
    REPLACE,
    SOFT,
)
from driftline.core.schema.naming import METADATA, spelled_name
from driftline.core.schema.text import parse_size, parse_span
from driftline.core.schema.types import BOOLEAN, STRING, Field, Map, Path
from driftline.core.settings.condition import (
    MESSAGE_KEY,
    Condition,
    Expectation,
    Junction,
    OneOf,
    asks_for_null,
    paths_of,
)
from driftline.core.settings.declarations import Envelope, default, property_of
from driftline.core.settings.fields import parse_paths, spelled_path
from driftline.errors import DataError, UsageError

KEY, ORDER = "key", "order"


ORDER_KIND = "order"
ORDER_COLUMN = Field(
    "_order",
    STRING,
    doc=f"{METADATA}{ORDER_KIND}\nthe order of the row's latest change, as a text that sorts",
)
KEY_TEXT = "driftline:key"  # of remembered deletes whose key is one text
ORDERS_KIND = "order_fields"
ORDERS_COLUMN = Field(
    "_order_fields",
    Map(STRING, STRING),
    doc=f"{METADATA}{ORDERS_KIND}\nthe order of fields that are older than the row, or null, by path",
)

PLACEHOLDER = "__debezium_unavailable_value"
_HEX = "hex:"  # before the digits of a placeholder that is bytes
MOST_EPOCHS = 999_999
RECONCILE = "reconcile"
# Begins the reason for which a message that cannot be ordered waits
NO_POSITION = "no position"
# Envelopes that tell a snapshot's last record
_WITH_SNAPSHOTS = ("debezium", "debezium-unwrapped", "auto")
ENVELOPES: tuple[str, ...] = get_args(Envelope)

DELETED_KIND = "deleted"
# Iceberg has a column `_deleted` itself.
DELETED_COLUMN = Field(
    "_is_deleted",
    BOOLEAN,
    doc=f"{METADATA}{DELETED_KIND}\ntrue for a row whose latest change deletes it",
)


@dataclass(frozen=True, slots=True)
class RowKey:
    """The fields that identify and order rows, and the rules for changes to them.

    Attributes:
        order_by: the latest change by these fields wins; without any, the last to arrive.
        delete_when: a record for which this is true deletes its row.
        delete_memory: the seconds for which a delete is remembered, with an order.
        soft: deleted rows stay, with a mark.
        merge: a record replaces its row, changes the fields of it that it has (`PATCH`), or is a duplicate of
            it, as the first record of a key stays (`KEEP`).
        cache: the bytes of the table's keys that a capture keeps in memory.
        envelope: the envelope of messages, which hold the records and describe their changes.
        placeholder: stands for values that messages leave out.
        reconciles: rows missing from a complete snapshot are deleted.
        epoch: changes of a later epoch win, whatever their order.
    """

    key: tuple[Path, ...]
    order_by: tuple[Path, ...] = ()
    delete_when: Condition | None = None
    delete_memory: int = int(parse_span(default("delete_memory")))
    soft: bool = False
    merge: str = REPLACE
    cache: int = parse_size(default("key_cache"))
    envelope: str = ""
    placeholder: str = PLACEHOLDER
    epoch: int = 0
    reconciles: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> RowKey | None:
        """Read the settings, by name; None without a key. Raises ValueError."""
        key, order_by, delete_when, envelope = (
            settings.get(name, "") for name in ("key", "order_by", "delete_when", "envelope")
        )
        soft, merge = settings.get("deletes") == SOFT, settings.get("merge") or REPLACE
        epoch, reconciles = int(settings.get("epoch") or 0), settings.get("on_snapshot") == RECONCILE
        if epoch > MOST_EPOCHS:
            raise ValueError(f"epoch = {epoch} is beyond {MOST_EPOCHS}")
        if not key:
            _check_needless(settings)
            return None
        keys, orders = parse_paths(key), _orders(order_by, envelope)
        _check_fields((*keys, *orders))
        _check_merge(merge, soft, delete_when, envelope)
        if reconciles and (envelope not in _WITH_SNAPSHOTS or orders != (POSITION,) or soft):
            raise ValueError(
                f"on_snapshot = {RECONCILE} needs an envelope of Debezium's and its order, and deletes = hard"
            )
        condition = parse_condition(delete_when) if delete_when else None
        if envelope:
            condition = _deletes_in_envelope(condition)
        memory = int(parse_span(settings.get("delete_memory") or default("delete_memory")))
        cache = parse_size(settings.get("key_cache") or default("key_cache"))
        placeholder = settings.get("unavailable_value") or PLACEHOLDER
        placeholder_bytes(placeholder)
        return cls(
            keys,
            orders,
            condition,
            memory,
            soft,
            merge,
            cache,
            envelope,
            placeholder=placeholder,
            epoch=epoch,
            reconciles=reconciles,
        )

    @property
    def patch(self) -> bool:
        """True if a record changes only the fields of its row that it has."""
        return self.merge == PATCH

    @property
    def keep(self) -> bool:
        """True if the first record of a key stays, and later ones are duplicates."""
        return self.merge == KEEP

    @property
    def remembers(self) -> bool:
        """True if deletes are remembered, because neither rows nor the order of arrival show them."""
        return self.delete_when is not None and bool(self.order_by) and not self.soft

    @property
    def reads_messages(self) -> bool:
        """True if a field is that of a message's key, which topics and envelopes have."""
        if self.envelope:
            return True
        conditions = () if self.delete_when is None else paths_of(self.delete_when)
        return any(path[0] == MESSAGE_KEY for path in (*self.key, *self.order_by, *conditions))

    @property
    def deletes_by_null(self) -> bool:
        """True if a topic's null value may delete the row of its key, or be an envelope's message."""
        if self.envelope:
            return True
        has_key = any(path[0] == MESSAGE_KEY for path in self.key)
        return has_key and self.delete_when is not None and asks_for_null(self.delete_when)

    @property
    def keeps_fields(self) -> bool:
        """True if a replaced row may keep fields, because messages in an envelope do not have all values."""
        return bool(self.envelope and self.order_by) and not (self.patch or self.soft)

    @property
    def columns(self) -> dict[str, Field]:
        """The columns that driftline adds to the table's rows, by kind."""
        orders = {ORDER_KIND: ORDER_COLUMN, ORDERS_KIND: ORDERS_COLUMN} if self.order_by else {}
        if not self.patch:
            orders.pop(ORDERS_KIND, None)
        return orders | ({DELETED_KIND: DELETED_COLUMN} if self.soft else {})

    @property
    def roles(self) -> dict[Path, str]:
        """The role of each field."""
        return dict.fromkeys(self.key, KEY) | dict.fromkeys(self.order_by, ORDER)


_NEED_KEY = (
    *("order_by", "delete_when", "deletes", "merge", "envelope", "epoch", "unavailable_value"),
    "on_snapshot",
)
# A table without a key has none of these.
KEY_SETTINGS = frozenset({KEY, "delete_memory", "key_cache", *_NEED_KEY})


def _check_needless(settings: Mapping[str, str]) -> None:
    """Raise ValueError for a setting of rows by key in a table without one."""
    for name in _NEED_KEY:
        if settings.get(name, "") not in ("", default(name)):
            raise ValueError(f"{name} needs a key")


def _check_merge(merge: str, soft: bool, delete_when: str, envelope: str) -> None:
    """Raise ValueError for deletes that ``merge`` gives no meaning."""
    # Whether a patch revives the old values or begins from nothing would depend on where batches are cut. And
    # nobody agrees on what the delete of a first record means.
    if soft and merge != REPLACE:
        raise ValueError(f"deletes = soft does not go with merge = {merge}: leave one of them out")
    if merge == KEEP and (delete_when or envelope):
        refused = "delete_when" if delete_when else f"envelope = {envelope}, whose messages delete rows,"
        raise ValueError(f"{refused} does not go with merge = {KEEP}: leave it out, or set merge = {REPLACE}")


def _orders(order_by: str, envelope: str) -> tuple[Path, ...]:
    """Return the fields of the order; empty if the last change to arrive wins."""
    if order_by == ARRIVAL:
        return ()
    if order_by:
        return parse_paths(order_by)
    return (POSITION,) if envelope else ()


def _check_fields(paths: tuple[Path, ...]) -> None:
    """Raise ValueError for a field that is named twice."""
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{spelled_path(path)} is named twice")


def _deletes_in_envelope(condition: Condition | None) -> Condition:
    """Combine the delete of an envelope with the table's own condition: either deletes the row."""
    says_so = OneOf(OPERATION, ("d",))
    return says_so if condition is None else Junction((says_so, condition), any_of=True)


def placeholder_bytes(text: str) -> bytes:
    """Return the bytes of a connector's `unavailable.value.placeholder`. Raises ValueError.

    >>> placeholder_bytes("none"), placeholder_bytes("hex:6E6F")
    (b'none', b'no')
    """
    if not text.startswith(_HEX):
        return text.encode()
    digits = text.removeprefix(_HEX)
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    if not raw:
        raise ValueError(f"{digits!r} is not in hexadecimal digits: write hex:6E6F6E65")
    return raw


def parse_condition(text: str) -> Condition:
    """Parse the setting `delete_when`. Raises ValueError."""
    from driftline.core.settings.condition_sql import condition_of  # late: sqlglot is slow to import

    return condition_of(text)


def parse_expectation(name: str, text: str) -> Expectation:
    """Parse a setting `expect` of a name. Raises ValueError."""
    from driftline.core.settings.condition_sql import expectation_of  # late: sqlglot is slow to import

    return expectation_of(name, text)


def check_kept(table: str, now: Mapping[str, str], requested: Mapping[str, str]) -> None:
    """Raise UsageError if a batch would give an existing table another key or order.

    Args:
        table: the table's name.
        now: its properties.
        requested: the batch's properties.
    """
    # A wrong flag of one batch would change what all later records mean, so `alter` alone sets a key.
    for setting in ("key", "order_by", "deletes", "merge", "envelope"):
        name = property_of(setting)
        current = now.get(name) or default(setting)
        if name in requested and (requested[name] or default(setting)) != current:
            has = f"{setting} = {current!r}" if current else f"no {setting}"
            raise UsageError(
                f"{table} has {has}, and a batch does not change that",
                _STAYS
                if setting in ("merge", "envelope")
                else f"driftline alter {table_property(table, name, requested[name])}",
            )

    check_epoch(table, now, requested)


def check_epoch(table: str, now: Mapping[str, str], requested: Mapping[str, str]) -> None:
    """Raise UsageError if an epoch would end. ``now``, ``requested``: properties."""
    was, epoch = int(now.get(EPOCH_PROPERTY) or 0), requested.get(EPOCH_PROPERTY, "")
    if epoch.isdecimal() and int(epoch) < was:
        raise UsageError(
            f"{table} has epoch = {was}, and an epoch that has begun does not end", "leave it out"
        )


_STAYS = "make another table with it, from the same source"


def check_stays(table: str, before: RowKey | None, after: RowKey | None) -> None:
    """Raise DataError if an existing table would merge its rows differently, or read another envelope."""
    merge = REPLACE if before is None else before.merge
    if after is not None and after.merge != merge:
        raise DataError(f"{table} has merge = {merge!r}, which is set when a table is made", _STAYS)
    envelope = "" if before is None else before.envelope
    if after is not None and after.envelope != envelope:
        has = f"envelope = {envelope!r}" if envelope else "no envelope"
        raise DataError(f"{table} has {has}, which is set when a table is made", _STAYS)


def late_hint(table: str, row_key: RowKey, late: int, changes: int) -> str:
    """Suggest a new epoch for a batch most of whose ``changes`` are ``late``; empty for any other.

    >>> late_hint("t", RowKey((("id",),), envelope="dms"), 3, 4)[:59]
    '3 of 4 changes are older than what the table has: if the so'
    """
    # No epoch begins by itself, not even with a snapshot: a connector sends again what it has sent, and older
    # messages would then count as later.
    if not row_key.envelope or 2 * late <= changes:
        return ""
    return (
        f"{late} of {changes} changes are older than what the table has: if the source was restored, or is another "
        f"server, begin a new epoch: driftline alter {table_property(table, EPOCH_PROPERTY, str(row_key.epoch + 1))}"
    )


def arrival_hint(table: str, reasons: Iterable[str], *, exists: bool) -> list[str]:
    """Suggest the order of arrival, if messages in an envelope wait because they have no position.

    Args:
        table: the table's name.
        reasons: the reasons for which messages of a batch wait.
        exists: the table exists already.
    """
    if not any(reason.startswith(NO_POSITION) for reason in reasons):
        return []
    if exists:
        remedy = f"driftline alter {table_property(table, ORDER_PROPERTY, ARRIVAL)}, which drops its order,"
    else:
        remedy = f"--order-by {ARRIVAL}"
    hint = (
        f"messages without a position: {remedy} takes them as they come. They must then come in order, and once: "
        "what comes late, or again, overwrites newer rows; truncates, and messages without all values, wait"
    )
    return [hint]


def table_property(table: str, name: str, value: str) -> str:
    """Format the argument of `driftline alter` that sets a property, or removes it without a ``value``.

    >>> print(table_property("shop.people", "driftline.key", "id"))
    "ALTER TABLE shop.people SET TBLPROPERTIES ('driftline.key' = 'id')"
    """
    text = value.replace("'", "''")
    change = f"SET TBLPROPERTIES ('{name}' = '{text}')" if value else f"UNSET TBLPROPERTIES ('{name}')"
    sql = f"ALTER TABLE {spelled_name(table)} {change}"
    return quote(sql) if re.search(r'["$`\\]', sql) else f'"{sql}"'
