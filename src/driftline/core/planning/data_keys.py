"""The looks of keys: the literal table of "Keys that are data" (section 9 of the evolution rules).

A key that looks like data is an id, a number, a date or the name of a thing, not the name of a field.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class KeyForm(Enum):
    """The look of a key. ``sure``: data by itself; ``code``: data if there are more of its kind; ``neutral``:
    no evidence either way; ``word``: the name of a field.
    """

    sure = "sure"
    data = "data"
    code = "code"
    neutral = "neutral"
    word = "word"


NEUTRAL = frozenset(
    {"default", "*", ".", "other", "unknown", "all", "none", "null", "undefined", ""}
)  # the empty key is a key of a map like any other
# One look a line, with what it matches; the first that matches counts.
TABLE = (
    (
        KeyForm.sure,
        r".*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}.*",
    ),  # a UUID
    (KeyForm.sure, r".*/.*"),  # a path, a URL, a media type
    (KeyForm.sure, r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?"),  # a date, a timestamp
    (KeyForm.sure, r"[^@\s]+@[^@\s]+\.[^@\s]+"),  # an e-mail address
    (KeyForm.sure, r"[+-]?\d{6,}"),
    (KeyForm.sure, r"(?=.*\d)[0-9a-fA-F]{16,}"),
    (KeyForm.data, r"[+-]?\d+"),
    (KeyForm.data, r"[+-]?\d*\.\d+([eE][+-]?\d+)?"),
    (KeyForm.data, r"v?\d+(\.\d+)+([-+.][0-9A-Za-z.+-]+)?"),  # a version
    (KeyForm.data, r"\d{4}-\d\d"),  # a month
    (KeyForm.data, r"(\d{1,3}\.){3}\d{1,3}(:\d+)?"),  # IPv4
    (KeyForm.data, r"(?=.*:.*:)[0-9a-fA-F:]+(%\w+)?"),  # IPv6
    (KeyForm.data, r"[0-7][0-9A-HJKMNP-TV-Z]{25}"),  # a ULID
    (KeyForm.data, r"0[xX][0-9a-fA-F]+"),
    (KeyForm.data, r"(?=.*\d)[0-9a-fA-F]{8,}"),
    (KeyForm.data, r"[A-Za-z]{1,5}[_-](?=\w*\d)[0-9A-Za-z]{8,}"),  # cus_9s6XKzkNRiz8i3
    (KeyForm.code, r"(?=.*[A-Z])(?=.*\d)[A-Z0-9]{1,5}"),  # Q42
    (KeyForm.code, r"(?=.*[A-Z])(?=.*\d)[A-Z0-9]{1,5}(-[A-Z0-9]{1,5})+"),  # CVE-2021-1
)
_TABLE = tuple((look, re.compile(pattern, re.DOTALL)) for look, pattern in TABLE)
_LONG = 500  # characters: no name of a field is so long


@lru_cache(65_536)
def look(key: str) -> KeyForm:
    """Classify a key by its look.

    >>> [look(key).name for key in ("2024-01-31", "17", "Q42", "default", "name", "a/b")]
    ['sure', 'data', 'code', 'neutral', 'word', 'sure']
    """
    if key in NEUTRAL:
        return KeyForm.neutral
    if len(key) > _LONG:
        return KeyForm.sure
    return next((kind for kind, pattern in _TABLE if pattern.fullmatch(key)), KeyForm.word)
