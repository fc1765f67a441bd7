"""Building blocks of text: names, values and types of data, in little space."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import List, Map, Struct, Type, name_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LISTED = 12  # of what is plain, as many are named; the rest is counted
SAMPLE = 48  # characters of a sample


def clean(text: str) -> str:
    """Text of data, safe on a terminal and on one line: what does not print is escaped.

    >>> clean("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shell(text: str) -> str:
    """Text of data as one word of a command that a person copies.

    >>> shell("shop.orders"), shell("`IMDB Rating`")
    ('shop.orders', "'`IMDB Rating`'")
    """
    return shlex.quote(clean(text))


def sample(text: str, most: int = SAMPLE) -> str:
    """A value from the data, cut to ``most`` characters."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def short(type_: Type) -> str:
    """A type on little room: a struct's fields by name.

    >>> from driftline.core.schema.types import LONG, STRING, Field
    >>> short(List(Struct((Field("sku", STRING), Field("qty", LONG)))))
    'list<struct<sku, qty>>'
    """
    match type_:
        case Struct(fields):
            names = [clean(f.name) for f in fields[:LISTED]] + ["…"] * (len(fields) > LISTED)
            return f"struct<{', '.join(names)}>"
        case List(element):
            return f"list<{short(element)}>"
        case Map(key, value):
            return f"map<{short(key)}, {short(value)}>"
        case _:
            return type_name(type_)


@dataclass(frozen=True, slots=True)
class Hanging:
    """Indented text, whose continuation lines are indented further."""

    text: Text
    first: int
    other: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for i, line in enumerate(self.text.wrap(console, max(options.max_width - self.other, 20))):
            line.rstrip()
            yield Text.assemble(" " * (self.other if i else self.first), line)


def size(n: float | None) -> str:
    """Bytes, as people read them.

    >>> size(12_345), size(None)
    ('12 kB', '?')
    """
    if n is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def from_folder(where: str, near: Path) -> str:
    """A place in a file, named from the folder ``near`` if it is in there."""
    return name_text(where.removeprefix("file:").removeprefix(f"{near}{os.sep}"))
