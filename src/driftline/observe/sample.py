"""The beginning of a value as people read it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from driftline.core.values import Number

SAMPLE = 80  # characters of a sample


def sample(value: object) -> str:
    """The JSON text of a value, of its beginning if it is long; a string without its quotes.

    >>> sample([Number("1.50"), "x", None])
    '[1.50, "x", null]'
    """
    text = ""
    for piece in [value[: SAMPLE + 1]] if isinstance(value, str) else _pieces(value):
        text += piece
        if len(text) > SAMPLE:
            return text[: SAMPLE - 1] + "…"
    return text


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for i, (key, item) in enumerate(value.items()):
            yield f"{', ' if i else ''}{json.dumps(key[:SAMPLE], ensure_ascii=False)}: "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for i, item in enumerate(value):
            yield ", " if i else ""
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, str) and not isinstance(value, Number):
        yield json.dumps(value[:SAMPLE], ensure_ascii=False)
    elif isinstance(value, bool) or value is None:
        yield {True: "true", False: "false", None: "null"}[value]
    else:
        yield str(value)
