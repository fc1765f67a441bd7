"""Positions of changes in the log of their database, as texts that sort as these do.

Numbers are padded with zeros: a text of a fixed width can be read, and compared by its characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import Struct

Part: TypeAlias = "Callable[[Any], str | None]"


@dataclass(frozen=True, slots=True)
class Digits:
    """A whole number of at most so many ``digits``, of a field or of the text of digits that it has.

    ``absent``: the number in place of none.
    """

    digits: int = 20
    absent: int | None = None

    def __call__(self, value: Any) -> str | None:
        """The text of a value; None if it is no such number.

        >>> Digits(5)(42), Digits(5)("42"), Digits(5)(None), Digits(5, 0)(None), Digits(5)(-1)
        ('00042', '00042', None, '00000', None)
        """
        if value is None:
            value = self.absent
        if type(value) is int and value >= 0:  # as nearly all are
            return str(value).zfill(self.digits)
        text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        return text.zfill(self.digits) if text.isascii() and text.isdecimal() else None


_FILE = re.compile(r"(?:.*\D)?(\d+)", re.ASCII)


def file_number(value: Any) -> str | None:
    """The number at the end of the name of a binary log.

    >>> file_number("mysql-bin.000003"), file_number("mysql-bin.1000000"), file_number("log")
    ('0000000003', '0001000000', None)
    """
    match = _FILE.fullmatch(value) if isinstance(value, str) else None
    return match and match[1].zfill(10)


_HEX = re.compile(r"[0-9a-fA-F]+(?::[0-9a-fA-F]+)*")


def hex_parts(value: Any) -> str | None:
    """The parts of a log sequence number; zero without one, as in a snapshot.

    >>> hex_parts("0000003a:00000d20:0002"), hex_parts(None)
    ('0000003a:00000d20:00000002', '00000000:00000000:00000000')
    """
    if value is None or value in ("NULL", ""):
        value = "0:0:0"
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return None
    return ":".join(part.lower().zfill(8) for part in value.split(":"))


def plain(value: Any) -> str | None:
    """A text of a fixed width, without the blanks around it; empty without one."""
    return value.strip() if isinstance(value, str) else "" if value is None else None


class ChangeSource(Struct):
    """The fields of `source` in a message of Debezium's that give the position of its change, and its place
    in a ``snapshot``.
    """

    connector: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    lsn: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    event_serial_no: Any = None
    commit_scn: Any = None
    scn: Any = None
    rs_id: Any = None
    ssn: Any = None
    ts_ms: Any = None
    ord: Any = None
    snapshot: Any = None


# Fields of the source from left to right, and another that has the value where one has none.
Rule: TypeAlias = "Sequence[tuple[str, Part, str | None]]"

_BINLOG: Rule = [("file", file_number, None), ("pos", Digits(), None), ("row", Digits(10, absent=0), None)]
_LSN: Rule = [("lsn", Digits(), None)]
_DB2: Rule = [("commit_lsn", hex_parts, None), ("change_lsn", hex_parts, None)]
_SQL_SERVER: Rule = [*_DB2, ("event_serial_no", Digits(10, absent=0), None)]
_ORACLE: Rule = [
    ("commit_scn", Digits(), "scn"),  # a snapshot has only the latter
    ("scn", Digits(), None),
    ("rs_id", plain, None),
    ("ssn", Digits(10, absent=0), None),
]
_OPLOG: Rule = [("ts_ms", Digits(), None), ("ord", Digits(10, absent=0), None)]

# By Debezium's name of the connector; its documentation of each has the fields of `source`.
BY_CONNECTOR: Mapping[str, Rule] = {
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "postgresql": _LSN,
    "sqlserver": _SQL_SERVER,
    "db2": _DB2,
    "oracle": _ORACLE,
    "mongodb": _OPLOG,
}
# A source without the name of its connector is known by a field that no other has.
_BY_FIELD: Mapping[str, Rule] = {
    "file": _BINLOG,
    "lsn": _LSN,
    "commit_lsn": _SQL_SERVER,
    "scn": _ORACLE,
    "ord": _OPLOG,
}


LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")  # of all tables, or of this one


def position(source: ChangeSource) -> str | None:
    """The position of a change; None if there is none that is known.

    >>> position(ChangeSource("mysql", file="bin.000003", pos=154, row=1))
    '0000000003:00000000000000000154:0000000001'
    >>> position(ChangeSource("vitess", pos=1))
    """
    if source.connector is None:
        rule = next((rule for name, rule in _BY_FIELD.items() if getattr(source, name) is not None), None)
    else:
        rule = BY_CONNECTOR.get(source.connector) if isinstance(source.connector, str) else None
    if rule is None:
        return None
    numbers = []
    for name, part, otherwise in rule:
        value = getattr(source, name)
        number = part(value if value is not None or otherwise is None else getattr(source, otherwise))
        if number is None:
            return None
        numbers.append(number)
    return ":".join(numbers)
