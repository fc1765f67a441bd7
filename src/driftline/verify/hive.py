"""Partitions in the paths of files, `day=2026-01-01/`, as values that their records have too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from driftline.verify.files import Read
from driftline.verify.json_texts import parse
from driftline.verify.moments import moment

Values = Mapping[str, Mapping[str, Any]]  # of files, by key
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,6})\.[0-9]+")
_LONGS = range(-(2**63), 2**63)


def path_values(files: Mapping[str, str], fmt: str) -> Values:
    """The values in the paths of files, which go by these names: of typed files as numbers and dates, where
    all texts of a key are some; of JSON as numbers.

    >>> path_values({"/1": "/n=1/d=2026-01-01/a", "/2": "/n=x%20y/d=2026-01-02/a"}, "orc")["/2"]
    {'n': 'x y', 'd': datetime.date(2026, 1, 2)}
    """
    texts = {file: _texts(name) for file, name in files.items()}
    keys = {key for some in texts.values() for key in some}
    kinds = {key: _kind([some[key] for some in texts.values() if key in some], fmt) for key in keys}
    return {file: {key: kinds[key](text) for key, text in some.items()} for file, some in texts.items()}


def with_values(values: Values, read: Read) -> Read:
    """A record with the values of its file's path that it has not by itself."""
    beside = values.get(read.place.file)
    if read.record is None or not beside:
        return read
    own = {key: value for key, value in read.record.items() if value is not None}
    return replace(read, record={**read.record, **beside, **own})


def _texts(path: str) -> dict[str, str]:
    steps = re.findall(r"([^/=]+)=([^/]+)(?=/)", path)
    return {unquote(key): unquote(text) for key, text in steps if text != "__HIVE_DEFAULT_PARTITION__"}


def _kind(texts: Sequence[str], fmt: str) -> Callable[[str], Any]:
    if fmt == "csv":
        return str
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
