"""Advice in the words of the surface that prints it: flags, Python's arguments, or lines of `driftline.toml`.

Advice is written with the flags and commands of the shell; that of one setting is a line of `toml_line`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from driftline.core.settings.declarations import SETTINGS, SettingArguments
from driftline.core.settings.fields import parse_path, toml_line
from driftline.errors import UsageError

Words: TypeAlias = Callable[[str], str]  # spells advice in the words of a surface
_STEP = r'[\w-]+|"(?:[^"\\]|\\.)*"'
_LINE = re.compile(rf'(\w+)((?:\.(?:{_STEP}))*) = ("(?:[^"\\]|\\.)*")  # (.*)')  # as `toml_line` makes it
_VALUE = r"""'(?:[^']|'"'"')*'|"(?:[^"\\]|\\.)*"|[.,](?!\S)|[^\s,;()`'"]*[^\s,;:.()`'"]"""
_FLAG = re.compile(rf"(?<![\w-])--([a-z][a-z-]*)(?: ({_VALUE}))?")
_OF_FLAG = {setting.flag.name: name for name, setting in SETTINGS.items() if setting.flag is not None}
_OF_FLAG["hint"] = "hints"
# Settings whose flags take no value.
_ON = {name for name, setting in SETTINGS.items() if setting.flag and setting.values == ("true", "false")}
_SWITCHES = {
    **{name: f"{name}=True" for name in _ON},
    "again": "again=True",
    "all": "everything=True",
    "audit": "audit=True",
    "drop_rest": "drop_rest=True",
    "dry_run": "dry_run=True",
    "exact": "exact=True",
    "exactly": "exactly=True",
    "no_keep": "keep=False",
    "purge": "purge=True",
    "siblings": "siblings=True",
    "skip_lost": "skip_lost=True",
    "upgrade": "upgrade=True",
    "verify": "verify=True",
    "yes": "yes=True",
    "json": "to_dict()",
    "replay": "replay()",
    "discard": "discard_quarantine()",
    "restore": "restore_quarantine()",
}
_ARGUMENTS = {
    **{name: name for name in ("format", "value_format", "changed_files", "resume_from", "registry", "name")},
    "at_most": "at_most",
    "checkpoint": "checkpoint",
    "fail_on": "fail_on",
    "from": "start",
    "kafka_set": "kafka",
    "on_audit": "on_audit",
    "lake": "path",
    "max_tables": "max_tables",
    "to": "to",
}
# What the shell says, mostly commands, and what says the same in Python.
# The more exact ones first, or a shorter one would replace a part of them.
_CALLS = tuple(
    (re.compile(command.replace("ARG", f"(?:{_VALUE})")), call)
    for command, call in (
        (r"driftline --lake (?P<path>ARG) relocate --yes", "Lake.open({path}).relocate()"),
        (r"driftline resolve ARG (?P<path>ARG) --as (?P<type>ARG)", "Table.resolve({path}, {type})"),
        (r"(?:driftline )?resolve --as (?P<type>ARG)", "Table.resolve(…, {type})"),
        (r"--as (?P<type>ARG)", "type={type}"),
        (r"driftline resolve --dry-run", "Table.resolve(…, dry_run=True)"),
        (r"driftline split (?P<table>ARG) --by ARG", "Lake.fan_out(…).split({table})"),
        (r"driftline undo ARG --to (\d+)", r"Table.undo(to=\1)"),
        (r"driftline alter (?P<sql>ARG)", "Lake.alter({sql})"),
        (r"--to (VERSION)\b", r"to=\1"),
        (r"driftline (alter|tables|query)\b", r"Lake.\1()"),
        (r"driftline (drop|history|ingest|resolve|schema|stats|undo|view)\b(?: ARG\.ARG)?", r"Table.\1()"),
    )
)


class _SettingLine(NamedTuple):
    """A setting as a line of `driftline.toml`."""

    name: str
    path: str
    value: str
    why: str


def in_flags(advice: str) -> str:
    """Spell advice for the command line: a setting of `driftline.toml` as a flag.

    >>> in_flags('maps.m = "off"  # keeps a struct'), in_flags('hints.a.b = "list<long>"  # it is one')
    ('--set maps.m=off  # keeps a struct', "--hint 'a.b=list<long>'  # it is one")
    """
    if (line := _line(advice)) is None:
        return advice
    name, path, value, why = line
    if name == "hints":
        return f"--hint {shlex.quote(f'{path}={value}')}  # {why}"
    return f"--set {shlex.quote(f'{name}.{path}={value}' if path else f'{name}={value}')}  # {why}"


def in_toml(advice: str) -> str:
    """Spell advice for a table whose settings stand in `driftline.toml`: flags of settings as its lines.

    >>> in_toml("--set hive=off ignores them"), in_toml("pass --hint at=date, or --format csv")
    ('hive = "off" ignores them', 'pass hints.at = "date", or --format csv')
    """
    return advice if _line(advice) else _FLAG.sub(_toml, advice)


def in_python(advice: str) -> str:
    """Spell advice for Python: settings and flags as arguments, commands and flags that are such as calls.

    >>> in_python('maps.m = "off"  # keeps a struct'), in_python("pass --records data")
    ('maps={"m": "off"}  # keeps a struct', 'pass records="data"')
    >>> in_python("--replay ingests them again"), in_python("`driftline tables` lists them")
    ('replay() ingests them again', '`Lake.tables()` lists them')
    """
    if (line := _line(advice)) is None:
        for command, call in _CALLS:
            advice = command.sub(partial(_call, call), advice)
        return _FLAG.sub(_argument, advice)
    return f"{_given(line.name, line.path, line.value)}  # {line.why}"


def _line(advice: str) -> _SettingLine | None:
    """A setting's line of `driftline.toml`; None for other advice."""
    if (match := _LINE.fullmatch(advice)) is None:
        return None
    name, path, value, why = match.groups()
    steps = re.findall(rf"\.({_STEP})", path)
    spelled = ".".join(json.loads(step) if step.startswith('"') else step for step in steps)
    return _SettingLine(name, spelled, json.loads(value), why)


def _setting(flag: re.Match[str]) -> tuple[str, str, str | None] | None:
    """The name, path and value of a setting that a flag states; None for another flag."""
    name, value = flag[1].replace("-", "_"), None if flag[2] is None else _unquoted(flag[2])
    if name in ("set", "hint"):
        left, equals, right = (value or "").partition("=")
        setting, _, path = f"hints.{left}".partition(".") if name == "hint" else left.partition(".")
        return (setting, path, right) if equals else ("hints", "", None) if name == "hint" else None
    name = _OF_FLAG.get(name, name)
    return (name, "", value) if name in SettingArguments.__annotations__ else None


def _toml(flag: re.Match[str]) -> str:
    if (setting := _setting(flag)) is None:
        return flag[0]
    name, path, value = setting
    if name in _ON and flag[1] != "set":
        return f'{name} = "true"{_behind(flag)}'
    if value is None:
        return name
    try:
        return toml_line(name, parse_path(path) if path else (), value, "").removesuffix("  # ")
    except UsageError:  # the path is not spelled as settings have it
        return flag[0]


def _argument(flag: re.Match[str]) -> str:
    name = flag[1].replace("-", "_")
    if name in _SWITCHES:
        return f"{_SWITCHES[name]}{_behind(flag)}"
    name, path, value = _setting(flag) or (
        _ARGUMENTS.get(name, ""),
        "",
        flag[2] and _unquoted(flag[2]),
    )
    if not name:
        return flag[0]
    return name if value is None else _given(name, path, value)


def _behind(flag: re.Match[str]) -> str:
    """The word behind a flag that takes no value."""
    return "" if flag[2] is None else f" {flag[2]}"


def _call(call: str, command: re.Match[str]) -> str:
    """The call for a command."""
    named = command.groupdict()
    quoted = {key: _quoted(_unquoted(value)) for key, value in named.items()}
    return call.format(**quoted) if quoted else command.expand(call)


def _given(name: str, path: str, value: str) -> str:
    if path:
        return f"{name}={{{_quoted(path)}: {_quoted(value)}}}"
    return f"{name}=[{_quoted(value)}]" if name == "exclude" else f"{name}={_quoted(value)}"


def _unquoted(value: str) -> str:
    return "".join(shlex.split(value)) if value[0] in "'\"" else value


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
