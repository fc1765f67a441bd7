"""Paths of columns as people write them."""

from __future__ import annotations

from fnmatch import translate
from re import match


def fits(text: str, pattern: str) -> bool:
    """Whether a path has the pattern in it, in any letter case. With
    ``*``, any text, the whole path must be so.

    >>> fits("who.id", "ID"), fits("who.id", "who.*"), fits("who.id", "id*"), fits("who.id", "")
    (True, True, False, False)
    """
    text, pattern = text.casefold(), pattern.casefold()
    if "*" not in pattern:
        return bool(pattern) and pattern in text
    plain = "".join(f"[{c}]" if c in "?[" else c for c in pattern)  # of fnmatch's signs, * only is one here
    return bool(text) and match(translate(plain), text) is not None
