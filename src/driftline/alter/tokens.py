"""SQL in words, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from driftline.errors import UsageError


class Kind(Enum):
    word = auto()  # a bare name or a keyword
    quoted = auto()  # a quoted name
    text = auto()
    number = auto()
    bytes = auto()
    symbol = auto()
    end = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """``value`` is without quotes; ``start`` and ``stop`` are where it stands."""

    kind: Kind
    value: str
    start: int
    stop: int


_TOKENS = re.compile(
    r"""
      (?P<skip>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<bytes>  [xX]'[0-9a-fA-F]*' )
    | (?P<text>   '(?:[^']|'')*' )
    | (?P<quoted>   `(?:[^`]|``)*` | "(?:[^"]|"")*" )
    | (?P<number> \d+(?:\.\d+)?(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? )
    | (?P<word>   [^\W\d]\w* )
    | (?P<symbol> [][().,;=<>:+-] )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[Token]:
    """All of the words, and the end. Raises UsageError for what is none.

    >>> [t.value for t in tokens("DROP COLUMN `a``b`.\\"c\\" -- gone")]
    ['DROP', 'COLUMN', 'a`b', '.', 'c', '']
    """
    out, at = [], 0
    while at < len(sql):
        match = _TOKENS.match(sql, at)
        if match is None:
            raise UsageError(f"{unreadable(sql, at)}\n{pointed(sql, at, at + 1)}")
        at = match.end()
        kind, value = match.lastgroup, match.group()
        assert kind is not None
        if kind in ("text", "quoted"):
            quote = value[0]
            value = value[1:-1].replace(quote * 2, quote)
        elif kind == "bytes":
            value = value[2:-1]
        if kind != "skip":
            out.append(Token(Kind[kind], value, match.start(), at))
    out.append(Token(Kind.end, "", len(sql.rstrip()), len(sql.rstrip()) + 1))
    return out


def unreadable(sql: str, at: int) -> str:
    quotes = {"'": "text", "`": "name", '"': "name"}
    if sql[at] in quotes:
        return f"a {quotes[sql[at]]} that begins with {sql[at]} has no end; inside it, {sql[at]} is written twice"
    return f"{sql[at]!r} has no meaning here"


def pointed(sql: str, start: int, stop: int) -> str:
    """The line of SQL with carets below a part of it, both indented.

    >>> pointed("DROP\\nCOLUMN a", 12, 13)
    '  COLUMN a\\n         ^'
    """
    first = sql.rfind("\n", 0, start) + 1
    last = sql.find("\n", start)
    line = sql[first : len(sql) if last < 0 else last]
    stop = min(stop, first + len(line) + 1)
    shown = "".join(c if c.isprintable() else " " for c in line)
    return f"  {shown}\n  {' ' * (start - first)}{'^' * max(stop - start, 1)}"
