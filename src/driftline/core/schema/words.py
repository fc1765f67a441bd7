"""SQL in words, each with its place, and a cursor over them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn, TypeVar

from driftline.core.schema.types import Path
from driftline.errors import UsageError

T = TypeVar("T")


class TokenKind(Enum):
    word = auto()  # a bare name or a keyword
    quoted = auto()  # a quoted name
    text = auto()
    number = auto()
    bytes = auto()
    symbol = auto()
    other = auto()  # a character of expressions alone
    end = auto()


@dataclass(frozen=True, slots=True)
class Word:
    """``value`` is without quotes; ``start`` and ``stop`` are where it stands."""

    kind: TokenKind
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
    | (?P<other>  [^'"`] )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[Word]:
    """All words, and the end. Raises UsageError for an unclosed quote.

    >>> [t.value for t in tokens("DROP COLUMN `a``b`.\\"c\\" -- gone")]
    ['DROP', 'COLUMN', 'a`b', '.', 'c', '']
    """
    out, position = [], 0
    while position < len(sql):
        match = _TOKENS.match(sql, position)
        if match is None:
            quotes, thing = sql[position], "text" if sql[position] == "'" else "name"
            message = f"a {thing} that begins with {quotes} has no end; inside it, {quotes} is written twice"
            raise UsageError(f"{message}\n{pointed(sql, position, position + 1)}")
        position = match.end()
        kind, value = match.lastgroup, match.group()
        assert kind is not None
        if kind in ("text", "quoted"):
            quote = value[0]
            value = value[1:-1].replace(quote * 2, quote)
        elif kind == "bytes":
            value = value[2:-1]
        if kind != "skip":
            out.append(Word(TokenKind[kind], value, match.start(), position))
    out.append(Word(TokenKind.end, "", len(sql.rstrip()), len(sql.rstrip()) + 1))
    return out


def quoted(name: str) -> str:
    """A name in SQL's own quotes.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


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


class Words:
    """A cursor over the words of a text. Its errors are UsageErrors that point at the offending word."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokens(sql)
        self.at = 0

    @property
    def now(self) -> Word:
        """The word under the cursor; raises UsageError for a character that has no meaning."""
        token = self.tokens[self.at]
        if token.kind is TokenKind.other:
            self.stop(f"{token.value!r} has no meaning here", token=token)
        return token

    @property
    def done(self) -> bool:
        """True at the end of the text."""
        return self.now.kind is TokenKind.end

    @property
    def last(self) -> Word:
        """The word read last."""
        return self.tokens[self.at - 1]

    def next(self) -> Word:
        """Read a word. At the end the cursor stays."""
        token = self.now
        self.at += token.kind is not TokenKind.end
        return token

    def sees(self, *words: str) -> bool:
        """True if these keywords or symbols come next."""
        ahead = self.tokens[self.at : self.at + len(words)]
        return len(ahead) == len(words) and all(
            t.kind in (TokenKind.word, TokenKind.symbol) and t.value.upper() == w
            for t, w in zip(ahead, words, strict=True)
        )

    def got(self, *words: str) -> bool:
        """Read these keywords or symbols, if they come next."""
        is_next = self.sees(*words)
        self.at += len(words) * is_next
        return is_next

    def need(self, *words: str) -> None:
        """Read these keywords or symbols; raises UsageError if one is missing."""
        for word in words:
            if not self.got(word):
                self.stop(f"{word} is missing {self.here()}")

    def here(self) -> str:
        """The cursor's place, for an error: before a word, or at the end.

        >>> words = Words("ADD x")
        >>> words.got("ADD"), words.here(), words.name(), words.here()
        (True, "before 'x'", 'x', 'at the end')
        """
        return "at the end" if self.done else f"before {self.now.value!r}"

    def stop(self, message: str, hint: str | None = None, token: Word | None = None) -> NoReturn:
        """Raise a UsageError that points at ``token``, or else at the word under the cursor."""
        token = token or self.now
        raise UsageError(f"{message}\n{pointed(self.sql, token.start, token.stop)}", hint)

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read one or more items separated by commas."""
        out = [read()]
        while self.got(","):
            out.append(read())
        return tuple(out)

    def enclosed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read a list up to its closing bracket; the opening one is already read."""
        out = self.listed(read)
        self.need(")")
        return out

    def name(self, sought: str = "a name") -> str:
        """Read a name, quoted or not. ``sought``: the name's role, for errors."""
        token = self.now
        if token.kind is TokenKind.text:
            self.stop(f"{sought} stands in backticks or double quotes, or in none")
        if token.kind not in (TokenKind.word, TokenKind.quoted):
            self.stop(f"{sought} is missing {self.here()}")
        return self.next().value

    def path(self, sought: str = "a column") -> Path:
        """Read names separated by dots."""
        out = [self.name(sought)]
        while self.got("."):
            out.append(self.name(sought))
        return tuple(out)

    def number(self) -> int:
        """Read a whole number."""
        if self.now.kind is not TokenKind.number or not self.now.value.isdecimal():
            self.stop(f"a whole number is missing {self.here()}")
        return int(self.next().value)

    def text(self, sought: str) -> str:
        """Read text in single quotes. ``sought``: its role, for errors."""
        if self.now.kind is not TokenKind.text:
            self.stop(f"{sought} in single quotes is missing {self.here()}")
        return self.next().value
