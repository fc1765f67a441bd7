"""Fields of Debezium's messages that look encoded, where no schema tells what their values stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from shlex import quote
from typing import NamedTuple

from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.definition import CHANGE
from driftline.core.schema.types import STRING, Path
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.row_key import RowKey

_ENVELOPES = ("debezium", "debezium-unwrapped", "auto")
_DATED = re.compile(r"(?:^|[_-])(?:date|day|born|birth|birthday|dob)(?:$|[_-])|date$", re.IGNORECASE)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4}){0,5}(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_SCHEMA = "or have the connector send schemas"


class Encoding(NamedTuple):
    """An encoding: its name, whether a value of a field looks like it, and what tells driftline, or the
    connector, so.
    """

    name: str
    looks: Callable[[str, str], bool]
    remedy: str


def _between(low: float, high: float) -> Callable[[str, str], bool]:
    return lambda _, value: value.isdecimal() and low <= int(value) < high


# Of the years 2000 to 2040.
ENCODINGS = (
    Encoding("a decimal in base64", lambda _, value: _BASE64.fullmatch(value) is not None, "set decimal.handling.mode = string in the connector"),
    Encoding("days since 1970", lambda name, value: bool(_DATED.search(name)) and _between(1, 40_000)(name, value), "set time.precision.mode = isostring in the connector"),
    Encoding("milliseconds since 1970", _between(946e9, 2209e9), "make the table with --hint {hint}"),
    Encoding("microseconds since 1970", _between(946e12, 2209e12), "make the table with --hint {hint} --set {unit}"),
)  # fmt: skip


def encoded_notes(shape: RecordShape, row_key: RowKey, known: Callable[[Path], bool]) -> Iterator[str]:
    """A note for each field that looks encoded. ``known``: true for a path that is left alone."""
    if row_key.envelope not in _ENVELOPES:
        return
    for name, field in shape.fields.items():
        if name == CHANGE or (name,) in row_key.key or known((name,)):
            continue
        if (encoding := _encoding(name, field)) is not None:
            path = spelled_path((name,))
            remedy = encoding.remedy.format(
                hint=quote(f"{path}=timestamp"), unit=quote(f"epoch_units.{path}=us")
            )
            yield f"{path} looks like {encoding.name}: {remedy}, {_SCHEMA}"


def _encoding(name: str, field: FieldShape) -> Encoding | None:
    """The encoding that a field's values look like, by the first of them."""
    if len(field.facets) != 1:
        return None
    ((facet, profile),) = field.facets.items()
    if facet.dim or profile.sample is None:
        return None
    value = str(profile.sample)
    if facet.base == STRING:
        value = value.strip('"')
        return ENCODINGS[0] if ENCODINGS[0].looks(name, value) else None
    return next((one for one in ENCODINGS[1:] if one.looks(name, value)), None)
