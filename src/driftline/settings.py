"""Settings of a table: kept as table properties, so that every later batch goes by the same."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.core.planning.contract import MAPS, NEW_FIELDS, POLICIES, contract, parse_path
from driftline.core.planning.conversions import EPOCH_DIGITS
from driftline.core.planning.routes import Settings
from driftline.core.schema.naming import MARK
from driftline.core.schema.type_text import parse_type
from driftline.core.schema.types import Path
from driftline.errors import UsageError

PREFIX = "driftline."
# Settings of tables that did not exist before: those that were made earlier go on as they did.
NEW_TABLE = {PREFIX + "maps": "auto", PREFIX + "beyond": "rest", PREFIX + "max-fields": "1000"}

# Each setting, and the values it may have (None: any text; int: a whole number). The property is its name.
_KNOWN: dict[str, tuple[str, ...] | type[int] | None] = {
    "allow_rewrite": ("true", "false"),
    "beyond": ("rest", "quarantine", "fail"),
    "dates": ("on", "off", "instant"),
    "epoch_unit": tuple(EPOCH_DIGITS),
    "maps": MAPS,
    "mark": None,
    "max_columns": int,
    "max_fields": int,
    "new_fields": NEW_FIELDS,
    "on_conflict": ("quarantine", "fail"),
    "policy": POLICIES,
}
# Settings of paths, `hints.amount`: the values that each may have; None: a type.
_BY_PATH: dict[str, tuple[str, ...] | None] = {
    "epoch_units": tuple(EPOCH_DIGITS),
    "exclude": ("true", "false"),
    "hints": None,
    "maps": MAPS,
    "new_fields": NEW_FIELDS,
    "policies": POLICIES,
}


def as_properties(given: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a person as table properties.

    Settings of paths are tables of their own, or dotted names; an empty value takes back what was set before.

    >>> as_properties({"dates": "off", "hints": {"a.b": "list<string>"}, "exclude": ["secret"]})
    {'driftline.dates': 'off', 'driftline.hints.a.b': 'list<string>', 'driftline.exclude.secret': 'true'}

    Raises UsageError for an unknown name, with the nearest right one, or a wrong value.
    """
    return {_property(key): _checked(key, value) for key, value in flattened(given)}


def flattened(given: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Settings with dotted names; a list names the paths for which the setting is true."""
    for key, value in given.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{path}", text) for path, text in flattened(value))
        elif isinstance(value, (list, tuple)):
            yield from ((f"{key}.{path}", "true") for path in value)
        else:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _property(key: str) -> str:
    name, dot, path = key.partition(".")
    return PREFIX + name.replace("_", "-") + dot + path


def _checked(key: str, value: str) -> str:
    name, dot, path = key.partition(".")
    name = name.replace("-", "_")
    known: Iterable[str] = _BY_PATH if dot else _KNOWN
    if name not in known:
        raise UsageError(f"there is no setting {key!r}", hint=_nearest(name, path))
    allowed = _BY_PATH[name] if dot else _KNOWN[name]
    if not value:
        return value
    if isinstance(allowed, tuple) and value not in allowed:
        raise UsageError(f"{key} = {value!r} is not possible", hint=_one_of(value, allowed))
    if allowed is int and not value.isdecimal():
        raise UsageError(f"{key} = {value!r} is not a whole number")
    try:
        if dot:
            parse_path(path)
        if name == "hints":
            parse_type(value)
    except ValueError as error:
        raise UsageError(f"{key}: {error}") from error
    return value


def _nearest(name: str, path: str) -> str:
    if path and (near := difflib.get_close_matches(name, _BY_PATH, 1, 0.5)):
        return f"did you mean '{near[0]}.{path}'?"
    if near := difflib.get_close_matches(name, [*_KNOWN, *_BY_PATH], 1):
        return f"did you mean {near[0]!r}?" if near[0] in _KNOWN else f"write {near[0]}.PATH"
    return f"settings are {', '.join(sorted(_KNOWN))}; of a path {', '.join(sorted(_BY_PATH))}"


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(value, allowed, 1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"


def from_properties(properties: Mapping[str, str]) -> Settings:
    """The settings that a table's properties hold; defaults for the others. Raises UsageError for what is wrong there."""
    plain: dict[str, str] = {}
    paths: dict[str, dict[Path, str]] = {name: {} for name in _BY_PATH}
    for prop, value in properties.items():
        name, dot, path = prop.removeprefix(PREFIX).partition(".")
        name = name.replace("-", "_")
        if not prop.startswith(PREFIX) or not value or name not in (_BY_PATH if dot else _KNOWN):
            continue
        _checked(name + dot + path, value)
        if dot:
            paths[name][parse_path(path)] = value
        else:
            plain[name] = value
    return Settings(
        dates=plain.get("dates", "on"),
        mark=plain.get("mark", MARK),
        max_columns=int(plain.get("max_columns", "10000")),
        max_fields=int(plain["max_fields"]) if "max_fields" in plain else None,
        beyond=plain.get("beyond", "quarantine"),
        on_conflict=plain.get("on_conflict", "quarantine"),
        allow_rewrite=plain.get("allow_rewrite") == "true",
        contract=contract(
            plain.get("policy", "preserve"),
            plain.get("epoch_unit"),
            policies=paths["policies"],
            hints={path: parse_type(text) for path, text in paths["hints"].items()},
            exclude=[path for path, value in paths["exclude"].items() if value == "true"],
            epoch_units=paths["epoch_units"],
            maps=plain.get("maps", "hint"),
            maps_of=paths["maps"],
            new_fields=plain.get("new_fields", "add"),
            new_fields_of=paths["new_fields"],
        ),
    )
