"""Building blocks of text: names, values and types of data, in little space."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import List, Map, Struct, Type, name_text
from driftline.core.settings.declarations import SETTINGS, SettingArguments

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LISTED = 12  # of what is plain, as many are named; the rest is counted
SAMPLE = 48  # characters of a sample
Words: TypeAlias = Callable[[str], str]  # spells advice in the words of the surface that prints it
_STEP = r'[\w-]+|"(?:[^"\\]|\\.)*"'
_SETTING = re.compile(rf'(\w+)((?:\.(?:{_STEP}))*) = ("(?:[^"\\]|\\.)*")  # (.*)')  # as `toml_line` makes it
_FLAG = re.compile(r"--([a-z][a-z-]*)( (?:'[^']*'|[^\s,;:()]+))?")
_WITH_VALUE = {*SettingArguments.__annotations__, "format", "value_format"}
_OF_FLAG = {setting.flag.name: name for name, setting in SETTINGS.items() if setting.flag is not None}
_IN_PYTHON = {
    "again": "again=True",
    "no_keep": "keep=False",
    "skip_empty": "skip_empty=True",
    "json": "to_dict()",
    "replay": "replay()",
    "discard": "discard_quarantine()",
    "restore": "restore_quarantine()",
}


def clean(text: str) -> str:
    """Text of data, safe on a terminal and on one line: what does not print is escaped.

    >>> clean("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def from_folder(where: str, near: Path) -> str:
    """A place in a file, named from the folder ``near`` if it is in there."""
    return name_text(where.removeprefix("file:").removeprefix(f"{near}{os.sep}"))


def in_flags(advice: str) -> str:
    """Spell advice for the command line: a setting of `driftline.toml` as a flag.

    >>> in_flags('maps.m = "off"  # keeps a struct'), in_flags('hints.a.b = "list<long>"  # it is one')
    ('--set maps.m=off  # keeps a struct', "--hint 'a.b=list<long>'  # it is one")
    """
    if (setting := _setting(advice)) is None:
        return advice
    name, path, value, why = setting
    if name == "hints":
        return f"--hint {shlex.quote(f'{path}={value}')}  # {why}"
    return f"--set {shlex.quote(f'{name}.{path}={value}' if path else f'{name}={value}')}  # {why}"


def in_python(advice: str) -> str:
    """Spell advice for Python: settings and flags as arguments, flags that are commands as methods.

    >>> in_python('maps.m = "off"  # keeps a struct'), in_python("pass --records data")
    ('maps={"m": "off"}  # keeps a struct', 'pass records="data"')
    >>> in_python("--replay ingests them again")
    'replay() ingests them again'
    """
    if (setting := _setting(advice)) is None:
        return _FLAG.sub(_argument, advice)
    name, path, value, why = setting
    argument = _quoted(value) if not path else f"{{{_quoted(path)}: {_quoted(value)}}}"
    return f"{name}={argument}  # {why}"


def _setting(advice: str) -> tuple[str, str, str, str] | None:
    """The name, path and value of a setting in `driftline.toml`, and the comment; None for other advice."""
    if (match := _SETTING.fullmatch(advice)) is None:
        return None
    name, path, value, why = match.groups()
    steps = re.findall(rf"\.({_STEP})", path)
    spelled = ".".join(json.loads(step) if step.startswith('"') else step for step in steps)
    return name, spelled, json.loads(value), why


def _argument(flag: re.Match[str]) -> str:
    name, value = flag[1].replace("-", "_"), flag[2] or ""
    if name in _IN_PYTHON:
        return f"{_IN_PYTHON[name]}{value}"
    if name == "hint" and "=" in value:
        path, _, type_ = "".join(shlex.split(value)).partition("=")
        return f"hints={{{_quoted(path)}: {_quoted(type_)}}}"
    if name == "set" and "=" in value:
        name, _, value = value.strip().partition("=")
    elif (name := _OF_FLAG.get(name, name)) not in _WITH_VALUE:
        return flag[0]
    return f"{name}={_quoted(''.join(shlex.split(value)))}" if value else name


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
