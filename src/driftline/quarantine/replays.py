"""Replay numbers: rows that a replay takes carry its number, and the table keeps the last one.

A row waits if it has no number, or a later one. No replay is number 0, which discarded rows carry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from driftline.core.history.batch_properties import FEED, Token
from driftline.formats.base import State

REPLAY = "replay"  # the column of the quarantine
# No replay has this number, so earlier versions, too, see that the record does not wait. `--restore` only
# takes the mark away.
DISCARDED = 0
IS_DISCARDED = f"coalesce({REPLAY} = {DISCARDED}, false)"  # SQL


_NAME = "replay:"  # begins the name of each replay, as that of a capture


def is_replay(batch: str) -> bool:
    """True for the id of a batch that a replay made.

    >>> from driftline.core.history.batch_properties import Token
    >>> is_replay(Token("replay:0a1b", "0a1b2c3d", 1).batch), is_replay(Token("orders", "0a1b2c3d", 1).batch)
    (True, False)
    """
    return batch.startswith(_NAME)


def replay_token(quarantine: State, number: int) -> Token:
    """The token of a replay: its number is the epoch, and the quarantine is the stream."""
    stream = str(quarantine.uuid)
    return Token(f"{_NAME}{stream[:8]}", stream, number)


def waits(reached: int) -> str:
    """SQL that is true of a row that waits, where the table has the replays up to ``reached``."""
    # The table commits a replay's number with its rows. A number it has not reached is of a replay that died
    # after it marked the rows, so they still wait.
    return f"coalesce({REPLAY} > {reached}, true)"


def has_replay(quarantine: State, properties: Mapping[str, str]) -> bool:
    """True if a table with these properties has a replay of the quarantine."""
    return not replay_token(quarantine, 0).properties.keys().isdisjoint(properties)


def last_replay(quarantine: State, properties: Mapping[str, str]) -> int:
    """The number of the last replay that a table with these properties has; 0 if none."""
    (key,) = replay_token(quarantine, 0).properties
    # A replay of which each record is refused again makes no table.
    last = properties.get(key) or json.loads(quarantine.properties.get(FEED, "{}")).get(key, "")
    return int(last.rpartition(":")[2] or 0)
