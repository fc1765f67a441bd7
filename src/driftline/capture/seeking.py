"""Moves a capture to another position, so that it repeats or skips records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, TypedDict, cast

from driftline.core.support import as_json
from driftline.errors import DataError, UsageError

# To reset a capture is to seek its beginning: one command changes a position.
Position: TypeAlias = datetime | Literal["earliest", "latest"]
Sought: TypeAlias = tuple[list[str], list[str]]  # files or offsets: taken again, and passed over
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = {"earliest": -(2**63), "latest": 2**63}  # of times of files


class SeekJson(TypedDict):
    """A change of a capture's position: files or ranges of offsets that are taken again, or passed over."""

    table: str
    capture: str
    to: str
    done: bool
    again: list[str]
    passed: list[str]


@dataclass(frozen=True, slots=True)
class Seek:
    """A change of the position of ``capture``, made or planned.

    Attributes:
        again: the files, or ranges of offsets, that are taken once more.
        passed: those that are not taken.
        is_done: False for a dry run.
    """

    table: str
    capture: str
    to: Position
    again: tuple[str, ...]
    passed: tuple[str, ...]
    is_done: bool

    def to_dict(self) -> SeekJson:
        """The form that `--json` prints."""
        to = self.to if isinstance(self.to, str) else self.to.isoformat()
        return as_json(SeekJson, self, to=to, done=self.is_done)


def parsed(position: str | datetime) -> Position:
    """The position that a person gives. A time without a zone is in UTC. Raises UsageError.

    >>> str(parsed("1970-01-01T00:00:01"))
    '1970-01-01 00:00:01+00:00'
    """
    if position in _BOUNDS:
        return cast("Position", position)
    try:
        moment = position if isinstance(position, datetime) else datetime.fromisoformat(position)
    except ValueError as error:
        raise UsageError(
            f"{position!r} is not a position in a stream",
            hint="use earliest, latest, or a time such as 2026-01-31T12:00Z",
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def nanoseconds(position: Position) -> int:
    """A position as a time, in nanoseconds since 1970."""
    if isinstance(position, str):
        return _BOUNDS[position]
    # In integers: a float of seconds has no room for microseconds.
    return (position - _EPOCH) // timedelta(microseconds=1) * 1000


def not_begun(capture: str) -> DataError:
    """The error for a capture that has no position yet."""
    return DataError(
        f"capture {capture} has not begun, and has no position to change",
        hint="start it; in a topic it begins at --from",
    )
