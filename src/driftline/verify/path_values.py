"""Values in the paths of files, as in `day=2026-01-01/`, beside those of their records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from driftline.verify.files import Read
from driftline.verify.json_texts import parse
from driftline.verify.moments import moment
from driftline.verify.values import Cell

Values = Mapping[str, Mapping[str, Any]]  # of files, by key
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,6})\.[0-9]+")
_LONGS = range(-(2**63), 2**63)


def path_values(files: Mapping[str, str], fmt: str) -> Values:
    """The values in the paths of files, which go by these names.

    In typed files they are numbers or dates if all texts of a key are; in JSON numbers.

    >>> path_values({"/1": "/n=1/d=2026-01-01/a", "/2": "/n=x%20y/d=2026-01-02/a"}, "orc")["/2"]
    {'n': 'x y', 'd': datetime.date(2026, 1, 2)}
    """
    texts = {file: _texts(name) for file, name in files.items()}
    keys = {key for values in texts.values() for key in values}
    kinds = {key: _kind([values[key] for values in texts.values() if key in values], fmt) for key in keys}
    return {file: {key: kinds[key](text) for key, text in values.items()} for file, values in texts.items()}


def with_values(values: Values, read: Read) -> Read:
    """Add the values of the file's path that the record does not have itself."""
    beside = values.get(read.place.file)
    if read.record is None or not beside:
        return read
    present = {key: value for key, value in read.record.items() if value is not None}
    return replace(read, record={**read.record, **beside, **present})


def _texts(path: str) -> dict[str, str]:
    steps = re.findall(r"([^/=]+)=([^/]+)(?=/)", path)
    return {_name(key): _name(text) for key, text in steps if text != "__HIVE_DEFAULT_PARTITION__"}


def _name(step: str) -> str:
    return unquote_to_bytes(os.fsencode(step)).decode("utf-8", "backslashreplace")


def _kind(texts: Sequence[str], fmt: str) -> Callable[[str], Any]:
    if fmt == "csv":
        return Cell
    if all(_WHOLE.fullmatch(text) and int(text) in _LONGS for text in texts):
        return int
    if all(_is_float(text) for text in texts):
        return _of_json if fmt == "json" else float
    if fmt == "json":
        return _with_t
    kinds = {_moment_kind(text) for text in texts}
    return str if len(kinds) > 1 or None in kinds else _moment


def _is_float(text: str) -> bool:
    if _WHOLE.fullmatch(text):
        return abs(int(text)) <= 2**53
    return bool(_FRACTION.fullmatch(text)) and repr(float(text)) == text


def _of_json(text: str) -> Any:
    return parse(b'{"v": %s}' % text.encode())["v"]


def _moment(text: str) -> Any:
    return moment(_with_t(text))


def _with_t(text: str) -> str:
    return re.sub(r"^(\d{4}-\d\d-\d\d) (?=\d\d:\d\d:\d\d)", r"\1T", text)


def _moment_kind(text: str) -> Any:
    value = _moment(text)
    return value and (type(value), isinstance(value, datetime) and value.tzinfo)
