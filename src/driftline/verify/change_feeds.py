"""Reads changes of Canal, Maxwell, GoldenGate, DMS and MongoDB for the check, from parsed JSON."""

from __future__ import annotations

import base64
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.moments import moment_text

Row: TypeAlias = "dict[str, Any]"


class UnreadMessage(Exception):
    """A message of which no change can be read; the text says why."""


class SentChange(NamedTuple):
    """A change of a row.

    Attributes:
        op: its letter: c, u, r or d.
        row: the row after it; of a delete, before it.
        unwrapped: True if the row came without an envelope.
    """

    op: str
    row: Any
    before: Any = None
    position: str | None = None
    unwrapped: bool = False


def changes_in(envelope: str, message: Row) -> Sequence[SentChange]:
    """Return the changes in a message; none if it changes no row. Raises UnreadMessage."""
    return _READERS[envelope](message)


def is_of(envelope: str, message: Row) -> bool:
    """True if a message has the fields by which it is surely in the envelope."""
    return _MARKS_OF[envelope](message)


def named_by_itself(message: Row) -> str | None:
    """The envelope that a message is surely in."""
    return next((name for name in _MARKS_OF if is_of(name, message)), None)


def _whole(value: Any, width: int = 20) -> str | None:
    """A whole number with leading zeros, of a number or of a text of digits."""
    text = str(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else ""
    return text.rjust(width, "0") if re.fullmatch(r"[0-9]+", text) else None


def _joined(parts: Iterable[str | None]) -> str | None:
    numbers = list(parts)
    return None if None in numbers else ":".join(part or "" for part in numbers)


def _row(message: Row, name: str) -> Row:
    row = message.get(name)
    if not isinstance(row, dict):
        raise UnreadMessage(f"no object in {name}")
    return row


# Maxwell ------------------------------------------------------------------------------------------------

_BOOTSTRAP = {"database", "table", "type", "ts", "data", "comment", "primary_key", "primary_key_columns"}
_DDL = {"database", "table", "type", "ts", "old", "def", "sql", "charset", "position", "gtid", "schema_id"}


def _maxwell(message: Row) -> Sequence[SentChange]:
    kind = message.get("type")
    if "database" not in message or not isinstance(kind, str):
        raise UnreadMessage("no type and database")
    if (
        kind in ("bootstrap-start", "bootstrap-complete")
        and set(message) <= _BOOTSTRAP
        and not message.get("data")
    ):
        return []
    if re.fullmatch("(database|table)-(create|alter|drop)", kind) and set(message) <= _DDL:
        return []
    letter = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}.get(kind)
    if letter is None:
        raise UnreadMessage(f"type {kind!r}")
    row, old = _row(message, "data"), message.get("old")
    before = {**row, **old} if kind == "update" and isinstance(old, dict) else None
    return [SentChange(letter, row, before, _maxwell_position(message, letter))]


def _maxwell_position(message: Row, letter: str) -> str | None:
    offset = message.get("xoffset")
    # The last row of a transaction has no `xoffset`, and sorts behind all others.
    last = _whole(9999999999 if offset is None else offset, 10)
    place = message.get("position")
    if isinstance(place, str):
        match = re.fullmatch(r"(?:.*[^0-9])?([0-9]+):([0-9]+)", place)
        return match and _joined([_whole(match[1], 10), _whole(match[2]), last])
    if message.get("xid") is not None:
        return _joined([_whole(message["xid"]), last])
    # A row of a bootstrap says nothing of the log: it is older than any change.
    return f"{'0' * 20}:{'0' * 10}" if letter == "r" else None


# Canal --------------------------------------------------------------------------------------------------

_DIGITS = re.compile("[0-9]{1,20}")
_NUMERIC = re.compile(
    r"\s*(bit|bool|boolean|(tiny|small|medium|big)?int|integer|serial|year|dec|decimal|fixed|numeric|float|double|real)"
    r"(?![a-z0-9_])",
    re.IGNORECASE,
)


def _canal(message: Row) -> Sequence[SentChange]:
    kind = message.get("type")
    if not isinstance(kind, str) or "data" not in message:
        raise UnreadMessage("no type and data")
    if message.get("isDdl") is True:
        names = ("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY")
        if kind in names and message["data"] is None:
            return []
        raise UnreadMessage(f"type {kind!r} with isDdl")
    has_rows = message["data"] is not None or message.get("old") is not None
    if kind == "TIDB_WATERMARK" and not has_rows and _tidb_time(message, "watermarkTs") is not None:
        return []
    letter = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r"}.get(kind)
    if letter is None:
        raise UnreadMessage(f"type {kind!r}")
    types = {} if message.get("mysqlType") is None else message["mysqlType"]
    if not isinstance(types, dict) or not all(isinstance(text, str | None) for text in types.values()):
        raise UnreadMessage("no types in mysqlType")
    # Flink's serializer has the row that goes in `old`.
    gone = letter == "d" and message["data"] is None
    rows = _canal_rows(message.get("old") if gone else message["data"], types)
    olds: Sequence[Row | None] = [None] * len(rows)
    if letter == "u" and message.get("old") is not None:
        olds = _canal_rows(message["old"], types)
    if len(olds) != len(rows):
        raise UnreadMessage("not as many rows in old as in data")
    position = _canal_position(message)
    pairs = zip(rows, olds, strict=True)
    return [SentChange(letter, row, None if old is None else {**row, **old}, position) for row, old in pairs]


def _canal_position(message: Row) -> str | None:
    time = _tidb_time(message, "commitTs")
    if time is None:
        return _whole(message.get("es"))
    # A timestamp of TiDB's has 18 bits behind the millisecond, which is what `es` has.
    milliseconds, place = divmod(time, 2**18)
    return f"{milliseconds:020}:{place:06}"


def _tidb_time(message: Row, name: str) -> int | None:
    tidb = message.get("_tidb")
    digits = _whole(tidb.get(name)) if isinstance(tidb, dict) else None
    return None if digits is None else int(digits)


def _canal_rows(rows: Any, types: Mapping[str, str]) -> list[Row]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UnreadMessage("no list of objects")
    return [{name: _of_type(value, types.get(name) or "") for name, value in row.items()} for row in rows]


def _of_type(value: Any, type_text: str) -> Any:
    """Return the value of a column of known type: a number, a label, or the text unchanged."""
    if not isinstance(value, str):
        return value
    if _NUMERIC.match(type_text) and re.match("-?[0-9]", value):
        sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
        # ZEROFILL columns come with zeros in front, which are not JSON.
        digits = digits.lstrip("0")
        try:
            return parse(f'{{"v":{sign}{digits if digits[:1].isdigit() else "0" + digits}}}'.encode())["v"]
        except MalformedText:
            return value
    kind = type_text.strip().lower()
    if not kind.startswith(("enum(", "set(")) or not _DIGITS.fullmatch(value):
        return value
    labels = [text.replace("''", "'") for text in re.findall("'((?:[^']|'')*)'", type_text)]
    if value in labels:
        return value
    # Canal may send the number of a label instead: of an ENUM its place from 1, of a SET a bit for each.
    number = int(value)
    if kind.startswith("enum("):
        return labels[number - 1] if 1 <= number <= len(labels) else value
    named = [name for bit, name in enumerate(labels) if (number >> bit) % 2]
    return ",".join(named) if number < 1 << len(labels) else value


# GoldenGate ---------------------------------------------------------------------------------------------


def _ogg(message: Row) -> Sequence[SentChange]:
    kind = message.get("op_type")
    letter = {"I": "c", "U": "u", "D": "d"}.get(kind) if isinstance(kind, str) else None
    if letter is None or "table" not in message:
        raise UnreadMessage(f"op_type {kind!r}")
    if message.get("missing_columns"):
        raise UnreadMessage("columns are left out")
    row = _row(message, "before" if letter == "d" else "after")
    return [
        SentChange(
            letter, row, message.get("before") if letter == "u" else None, _whole(message.get("pos"), 40)
        )
    ]


# DMS ----------------------------------------------------------------------------------------------------


def _dms(message: Row) -> Sequence[SentChange]:
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or "record-type" not in metadata or "operation" not in metadata:
        raise UnreadMessage("no metadata")
    operation = metadata["operation"] if isinstance(metadata["operation"], str) else ""
    if metadata["record-type"] == "control":
        verb, _, thing = operation.partition("-")
        things = {"create": "table", "rename": "table column", "drop": "table column", "add": "column"}
        if thing in things.get(verb, "").split() or operation in ("change-columns", "column-type-change"):
            return []
        raise UnreadMessage(f"operation {operation!r}")
    letter = {"load": "r", "insert": "c", "update": "u", "delete": "d"}.get(operation)
    if metadata["record-type"] != "data" or letter is None:
        raise UnreadMessage(f"operation {operation!r}")
    data = _row(message, "data")
    # `BI_` is a prefix of DMS only where the column itself is there; else it is a name like any other.
    names = {name for name in data if name[:3] == "BI_" and name[3:] in data}
    row = {name: value for name, value in data.items() if name not in names}
    image = message.get("before-image")
    old = {name[3:]: data[name] for name in names} | (image if isinstance(image, dict) else {})
    position = _dms_time(metadata.get("timestamp"))
    if letter == "d":
        return [SentChange("d", row | old, None, position)]
    return [SentChange(letter, row, row | old if letter == "u" and old else None, position)]


def _dms_time(text: Any) -> str | None:
    match = re.fullmatch(r"([0-9-]{10}T[0-9:]{8})(\.[0-9]{1,9})?Z", text) if isinstance(text, str) else None
    return match and f"{match[1]}.{(match[2] or '.')[1:]:0<9}Z"


# Debezium's rows, unwrapped -----------------------------------------------------------------------------


def unwrapped_row(message: Row, position_of: Callable[[Row], str | None]) -> SentChange:
    """Return the change in a row that has Debezium's fields among its own. Raises UnreadMessage."""
    letter, gone = message.get("__op"), message.get("__deleted")
    if letter not in ("c", "u", "r", "d", None) or str(gone) not in (
        "true",
        "false",
        "True",
        "False",
        "None",
    ):
        raise UnreadMessage(f"__op {letter!r}, __deleted {gone!r}")
    deletes = letter == "d" or str(gone).lower() == "true"
    op, place = "d" if deletes else letter or "u", _unwrapped_position(message, position_of)
    return SentChange(op, message, None, place, unwrapped=True)


def _unwrapped_position(message: Row, position_of: Callable[[Row], str | None]) -> str | None:
    source: Row = {}
    # Debezium's `add.fields` adds `lsn` as `__lsn`, and `source.lsn` as `__source_lsn`: the longer name
    # counts.
    for prefix in ("__", "__source_"):
        source |= {
            name.removeprefix(prefix): value
            for name, value in message.items()
            if name.startswith(prefix) and value is not None
        }
    # `__ts_ms` is when the connector handled the change, not its place in the log.
    source = {name: value for name, value in source.items() if name not in ("ts_ms", "source_ts_ms")}
    places = ("file", "pos", "row", "lsn", "commit_lsn", "change_lsn", "event_serial_no", "commit_scn", "scn")
    if any(source.get(name) is not None for name in (*places, "rs_id", "ssn", "ord")):
        return position_of({**source, "ts_ms": message.get("__source_ts_ms")})
    for name, factor in (("__source_ts_ns", 1), ("__source_ts_us", 1000), ("__source_ts_ms", 10**6)):
        if (time := _whole(message.get(name))) is not None:
            return f"time:{int(time) * factor:020d}"
    return None


# Truncates ----------------------------------------------------------------------------------------------


def truncate_of(envelope: str, message: Row, position_of: Callable[[Row], str | None]) -> str | None:
    """The position of a truncate of the source's table; None for any other message.

    Args:
        position_of: that of Debezium's `source`.
    """
    match envelope:
        case "auto":
            named = named_by_itself(message)
            # A truncate has no row, which the marks ask for, so each tool is asked.
            tools = [named] if named is not None else ["debezium", "canal", "dms"]
            return next((place for tool in tools if (place := truncate_of(tool, message, position_of))), None)
        case "debezium" if message.get("op") == "t" and isinstance(message.get("source"), dict):
            return position_of(message["source"])
        case "debezium-unwrapped" if message.get("__op") == "t":
            return _unwrapped_position(message, position_of)
        case "canal" if message.get("type") == "TRUNCATE" and message.get("isDdl") is True:
            return _canal_position(message) if "data" in message and message["data"] is None else None
        case "ogg" if message.get("op_type") == "T" and "table" in message:
            return _whole(message.get("pos"), 40)
        case "dms" if isinstance(message.get("metadata"), dict):
            metadata = message["metadata"]
            if (metadata.get("record-type"), metadata.get("operation")) == ("control", "truncate-table"):
                return _dms_time(metadata.get("timestamp"))
    return None


_READERS: Mapping[str, Callable[[Row], Sequence[SentChange]]] = {
    "maxwell": _maxwell,
    "canal": _canal,
    "ogg": _ogg,
    "dms": _dms,
}


def _texts(message: Row, *names: str) -> bool:
    return all(isinstance(message.get(name), str) for name in names)


def _number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _inside(message: Row, name: str, *names: str) -> bool:
    value = message.get(name)
    return isinstance(value, dict) and _texts(value, *names)


_MARKS_OF: Mapping[str, Callable[[Row], bool]] = {
    "debezium": lambda m: (
        _texts(m, "op")
        and _inside(m, "source", "connector")
        and any(isinstance(m.get(name), dict | str) for name in ("before", "after"))
    ),
    "debezium-unwrapped": lambda m: _texts(m, "__op", "__deleted"),
    "maxwell": lambda m: (
        _texts(m, "database", "table", "type") and _number(m.get("ts")) and isinstance(m.get("data"), dict)
    ),
    "canal": lambda m: (
        _texts(m, "database", "table", "type")
        and isinstance(m.get("isDdl"), bool)
        and _number(m.get("es"))
        and isinstance(m.get("data"), list)
    ),
    "ogg": lambda m: (
        _texts(m, "table", "op_type", "op_ts", "pos")
        and (isinstance(m.get("before"), dict) or isinstance(m.get("after"), dict))
    ),
    "dms": lambda m: isinstance(m.get("data"), dict) and _inside(m, "metadata", "record-type", "operation"),
}


class NoDocument(Exception):
    """A text of which no document can be read; the text says why."""


class DocumentChange(NamedTuple):
    """A change of a document: its letter and the document, or what a patch changes of it."""

    op: str
    row: Any


def mongodb_changes(
    op: str, message: dict[str, Any], id_: Any, *, patch: bool, known: Callable[[Any], bool]
) -> Sequence[DocumentChange]:
    """The changes in a message about a document.

    Args:
        id_: the id in the message's key; None without one.
        patch: rows keep what a change does not have.
        known: true for a document with the table's key.

    Raises NoDocument.
    """
    after, before = _document(message.get("after")), _document(message.get("before"))
    if op == "d":
        if before is not None and known(before):
            return [DocumentChange("d", before)]
        if id_ is None:
            raise NoDocument("no key")
        return [DocumentChange("d", {"_id": id_})]
    if after is None:
        if not patch or id_ is None:
            raise NoDocument("no document")
        return [DocumentChange(op, {**_update(message.get("updateDescription")), "_id": id_})]
    # A patch keeps what a document does not have; behind a delete there is nothing to keep.
    clears = [DocumentChange("d", after)] if patch and op != "c" else []
    return [*clears, DocumentChange(op, after)]


def id_of(key: Any) -> Any:
    """The id that a message's key has: a value of Extended JSON as a text, or the text."""
    inside = key.get("id") if isinstance(key, dict) else key
    if not isinstance(inside, str):
        return inside
    try:
        return plain_value(parse(b'{"v":%b}' % inside.encode())["v"])
    except MalformedText:
        return inside


def _document(text: Any) -> Any:
    if text is None:
        return None
    try:
        document = plain_value(parse(text.encode())) if isinstance(text, str) else None
    except MalformedText:
        document = None
    if not isinstance(document, dict):
        raise NoDocument("no document as text")
    return document


def _update(description: Any) -> dict[str, Any]:
    if not isinstance(description, dict) or description.get("truncatedArrays"):
        raise NoDocument("no update that a patch can have")
    try:
        updated = parse((description.get("updatedFields") or "{}").encode())
    except (AttributeError, MalformedText):
        raise NoDocument("no update") from None
    removed = description.get("removedFields") or []
    if not isinstance(removed, list) or not all(isinstance(path, str) for path in removed):
        raise NoDocument("no update")
    fields = [(path, plain_value(value)) for path, value in updated.items()]
    fields += [(path, None) for path in removed if path not in updated]
    # With a dot at its end, a path sorts directly before those inside it, so neighbours are enough.
    paths = sorted(f"{path}." for path, _ in fields)
    if any(path.startswith(around) for around, path in pairwise(paths)):
        raise NoDocument("fields of an update inside each other")
    # A patch can neither replace an object nor change an element of a list, which a number in a path names.
    if not fields or any(
        isinstance(value, dict) or re.search(r"(^|[.])[0-9]+([.]|$)", path) for path, value in fields
    ):
        raise NoDocument("no update that a patch can have")
    row: dict[str, Any] = {}
    for path, value in fields:
        parent, _, last = path.rpartition(".")
        inside = row
        for step in parent.split(".") if parent else ():
            inside = inside.setdefault(step, {})
        inside[last] = value
    return row


def plain_value(value: Any) -> Any:
    """The value that a value of Extended JSON stands for; an object of other names stays one."""
    if isinstance(value, list):
        return list(map(plain_value, value))
    if not isinstance(value, dict):
        return value
    values = list(_told(value)) if any(name.startswith("$") for name in value) else []
    return values[0] if values else {name: plain_value(member) for name, member in value.items()}


def _told(value: dict[str, Any]) -> Iterator[Any]:
    """The value that an object of Extended JSON stands for; nothing if it is another object."""
    if len(value) == 2:
        # The old form of binaries and of expressions, whose type or options stand next to them.
        match value:
            case {"$binary": str() as text, "$type": str() as kind}:
                yield from _binary(text, kind)
            case {"$regex": str() as pattern, "$options": str() as options}:
                yield {"pattern": pattern, "options": options}
    if len(value) != 1:
        return
    match value:
        case {"$oid": str() as text} if re.fullmatch("[0-9a-fA-F]{24}", text):
            yield text
        case {"$uuid": str() as text} if re.fullmatch(
            "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text
        ):
            yield text
        case {"$symbol": str() as text} | {"$code": str() as text}:
            yield text
        case {"$numberInt": str() as text} | {"$numberLong": str() as text}:
            yield from _long(text)
        case {"$numberDouble": str() as text}:
            yield from _parsed_number(text)
        case {"$numberDecimal": str() as text}:
            yield from ([text] if _is_rounded(text) else _parsed_number(text))
        case {"$date": found}:
            yield from _instant(found)
        case {"$binary": {"base64": str() as text, "subType": str() as kind, **others}} if not others:
            yield from _binary(text, kind)
        case {"$undefined": True}:
            yield None
        case {"$timestamp": {"t": int() as seconds, "i": int() as turn, **others}} if not others:
            if not isinstance(seconds, bool) and not isinstance(turn, bool):
                yield {"t": seconds, "i": turn}
        case {"$regularExpression": {"pattern": str(), "options": str(), **others} as expression} if (
            not others
        ):
            yield expression


def _long(text: str) -> Iterator[int]:
    if re.fullmatch("-?[1-9][0-9]{0,18}|0", text) and -(2**63) <= int(text) < 2**63:
        yield int(text)


def _instant(date: Any) -> Iterator[str]:
    """The moment of a date, by a text with an offset, or by milliseconds."""
    match date:
        case str():
            zone = r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})"
            form = re.fullmatch(
                rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}(:[0-9]{{2}}){{2}}([.][0-9]{{1,6}})?{zone}",
                date,
            )
            if form is None:
                return
            try:
                local = datetime.fromisoformat(date.removesuffix(form["zone"])).replace(tzinfo=UTC)
            except ValueError:
                return
            if form["zone"] == "Z":
                yield date
                return
            minutes = int(form["zone"][1:3]) * 60 + int(form["zone"][-2:])
            since = local - datetime(1970, 1, 1, tzinfo=UTC)
            since -= timedelta(minutes=minutes if form["zone"][0] == "+" else -minutes)
            yield f"{moment_text(since // timedelta(microseconds=1), 6)}Z"
        case {"$numberLong": str() as text, **others} if not others:
            yield from (f"{moment_text(number, 3)}Z" for number in _long(text))
        case int() if not isinstance(date, bool) and -(2**63) <= date < 2**63:
            yield f"{moment_text(date, 3)}Z"


def _parsed_number(text: str) -> Iterator[Any]:
    if text in ("NaN", "Infinity", "-Infinity"):
        yield text
    elif re.match("-?[0-9]", text):
        with suppress(MalformedText):
            yield parse(b'{"v":%b}' % text.encode())["v"]


def _is_rounded(text: str) -> bool:
    """True for a fraction of at most 17 digits that a number of JSON would be the nearest double for."""
    if not re.fullmatch("-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?", text) or not re.search("[.eE]", text):
        return False
    exact, nearest = Decimal(text), float(text)
    if not nearest or not math.isfinite(nearest):
        return False
    _, digits, exponent = exact.as_tuple()
    written = "".join(map(str, digits)).rstrip("0")
    unit = Fraction(10) ** (int(exponent) + len(digits) - len(written))  # of the last digit
    is_near = len(written) <= 17 and abs(Fraction(exact) - Fraction(nearest)) * 2 <= unit
    return is_near and Decimal(repr(nearest)) != exact


def _binary(text: str, kind: str) -> Iterator[str]:
    if not re.fullmatch("[0-9a-fA-F]{1,2}", kind):
        return
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return
    yield str(uuid.UUID(bytes=raw)) if kind in ("4", "04") and len(raw) == 16 else text
