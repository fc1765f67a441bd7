"""The time since which values wait in the rest, by path, in properties of the table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from driftline.core.columns.statistics import SeenIn
from driftline.core.planning.own_columns import keys_of, spelled_field, steps

PREFIX = "driftline.rest-since."
MOST = 200  # paths of a table
_LONGEST = 500  # characters of a path
_SEEN = re.compile(r"(\d{1,15}) (\S+)")


def first_seen(
    properties: Mapping[str, str], paths: Iterable[str], batch: str, *, begins: bool
) -> dict[str, str]:
    """The properties that a batch sets for the ``paths`` whose first values it sends to the rest.

    ``begins``: the table had no rest before. Otherwise nothing is set, because an earlier batch may have sent
    values there.
    """
    before = sum(key.startswith(PREFIX) for key in properties)
    if not (begins or before):
        return {}
    keys = dict.fromkeys(_key(path) for path in paths if len(path) <= _LONGEST)
    new = [key for key in keys if key not in properties]
    noted = f"{time.time_ns() // 1_000_000} {batch}"
    return dict.fromkeys(new[: max(0, MOST - before)], noted)


def since(properties: Mapping[str, str], path: str) -> SeenIn | None:
    """The batch that brought the first value at a path of fields; None if unknown."""
    match = _SEEN.fullmatch(properties.get(_key(path), ""))
    return SeenIn(int(match[1]), match[2]) if match else None


def paths(properties: Mapping[str, str]) -> list[str]:
    """The paths of fields whose first batch is known."""
    return sorted(key.removeprefix(PREFIX) for key in properties if key.startswith(PREFIX))


def _key(path: str) -> str:
    return PREFIX + spelled_field(keys_of(steps(path)))
