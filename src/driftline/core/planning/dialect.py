"""Dialects of CSV: as a person states them, or else as each file shows."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

TAB = ("tab", r"\t")
NONE = "none"
_NO_TEXT = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """A stated dialect; empty means not stated. ``delimiter`` separates cells, ``quote`` encloses them
    (`none`: nothing does), ``decimal`` is the sign in numbers; ``encoding`` is any of Python's names for
    one.

    >>> Dialect(delimiter="tab", encoding="Latin1")
    Dialect(delimiter='\\t', quote='', encoding='iso8859-1', decimal='')

    Raises ValueError for what cannot be.
    """

    delimiter: str = ""
    quote: str = ""
    encoding: str = ""
    decimal: str = ""

    def __post_init__(self) -> None:
        if self.delimiter in TAB:
            object.__setattr__(self, "delimiter", "\t")
        if self.encoding:
            object.__setattr__(self, "encoding", _encoding(self.encoding))
        for mark in (self.delimiter, "" if self.quote == NONE else self.quote):
            if mark and (len(mark) > 1 or not mark.isascii() or mark in "\r\n\0" or mark.isalnum()):
                raise ValueError(
                    f"{mark!r} is not one character of ASCII that is no letter, digit or line end"
                )
        if self.delimiter and self.delimiter == self.quote:
            raise ValueError(f"{self.delimiter!r} stands between cells, and cannot stand around them")

    @property
    def flags(self) -> str:
        """The flags that state this dialect.

        >>> Dialect(";", encoding="utf-16").flags
        "--delimiter ';' --encoding utf-16"
        """
        shown = {
            "delimiter": "tab" if self.delimiter == "\t" else self.delimiter and f"'{self.delimiter}'",
            "quote": f'"{self.quote}"' if self.quote == "'" else self.quote and f"'{self.quote}'",
            "encoding": self.encoding,
            "decimal": self.decimal,
        }
        return " ".join(f"--{name} {text}" for name, text in shown.items() if text)


def _encoding(name: str) -> str:
    """The canonical name of an encoding."""
    try:
        info = codecs.lookup(name)
        text = isinstance(b"a".decode(name, "replace"), str)
    except (LookupError, ValueError):
        text = False
    if not text or info.name in _NO_TEXT:
        raise ValueError(
            f"{name!r} is no encoding: write utf-8, cp1252, latin1, utf-16, shift_jis, gb18030, …"
        )
    return info.name
