"""Settings of a table: kept as table properties, so that every later batch goes by the same."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from driftline.core.conversions import EPOCH_DIGITS
from driftline.core.naming import MARK
from driftline.core.routes import Settings
from driftline.errors import UsageError

PREFIX = "driftline."

# Each setting: its property, and the values it may have (None: any text; int: a whole number).
_KNOWN: dict[str, tuple[str, tuple[str, ...] | type[int] | None]] = {
    "dates": ("driftline.dates", ("on", "off", "instant")),
    "epoch_unit": ("driftline.epoch-unit", tuple(EPOCH_DIGITS)),
    "mark": ("driftline.mark", None),
    "max_columns": ("driftline.max-columns", int),
}


def as_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Settings of a person as table properties.

    >>> as_properties({"dates": "off"})
    {'driftline.dates': 'off'}

    Raises UsageError for an unknown name, with the nearest right one, or a wrong value.
    """
    out = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            raise UsageError(
                f"there is no setting {key!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"settings are {', '.join(sorted(_KNOWN))}",
            )
        prop, allowed = _KNOWN[name]
        if isinstance(allowed, tuple) and value not in allowed:
            raise UsageError(f"{key} = {value!r} is not possible", hint=f"one of {', '.join(allowed)}")
        if allowed is int and not value.isdecimal():
            raise UsageError(f"{key} = {value!r} is not a whole number")
        out[prop] = value
    return out


def from_properties(properties: Mapping[str, str]) -> Settings:
    """The settings that a table's properties hold; defaults for the others."""
    limit = properties.get("driftline.max-columns", "10000")
    return Settings(
        properties.get("driftline.dates", "on"),
        properties.get("driftline.epoch-unit"),
        properties.get("driftline.mark", MARK),
        int(limit),
    )
