"""Table properties of batches: the last micro-batch, truncates, first values in the rest, violations.

They are set in the commit that brings the data. Unlike a snapshot's summary, they outlive expiry,
compaction and rollbacks. Of a micro-batch, one property has the checkpoint and the number, as all versions
read it; the other says what the batch was made of, because numbers are assigned again once a checkpoint is
restored.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from driftline.core.columns.statistics import VIOLATIONS, SeenIn, violations
from driftline.core.planning.own_columns import keys_of, spelled_field, steps
from driftline.core.schema.definition import TRUNCATED_PROPERTY
from driftline.errors import DataError

PREFIX = "driftline.capture."
CONTENTS = "driftline.captured."
WAITING = "driftline.waiting."  # of a quarantine: the last micro-batch of a capture that waits there whole
FEED = "driftline.feed"  # of a quarantine: the properties that the table will have, while all of its records wait
WAITED = "driftline.waited"  # the quarantine remembers files that came before there was a table


class BatchIsInError(Exception):
    """The table has this micro-batch already."""


class ReplacedTable(DataError):
    """A table that was dropped, or made again, since it got the last batch of a capture."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The last micro-batch of a capture that a table has: ``epoch`` of the checkpoint ``stream``.

    Attributes:
        contents: what it was made of; empty where an earlier version brought it.
    """

    stream: str
    epoch: int
    contents: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> Captured | None:
        """The last batch of the capture ``name`` by a table's properties; None if there is none."""
        if not (text := properties.get(PREFIX + name, "")):
            return None
        stream, _, epoch = text.rpartition(":")
        contents = json.loads(properties.get(CONTENTS + name, "{}"))
        # An earlier version has brought a batch since, which sets the number alone.
        return cls(stream, int(epoch), contents if contents.pop("batch", None) == text else {})

    @property
    def digest(self) -> str:
        """A short text that only this batch has."""
        text = json.dumps([self.stream, self.epoch, dict(self.contents)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def number_alone(self) -> Captured:
        """The batch as one knows it whose table cannot be asked for its contents."""
        return Captured(self.stream, self.epoch)


@dataclass(frozen=True, slots=True)
class Token:
    """Micro-batch ``epoch`` of the stream that its checkpoint knows as ``stream``, in the capture ``name``.

    Attributes:
        table: the uuid of the capture's table, None while there is none.
        tried: an earlier attempt may have left rejects behind.
        contents: what the batch is made of.
        files: the fingerprints of its files.
        follows: another checkpoint, whose batches this one goes on from.
    """

    name: str
    stream: str
    epoch: int
    table: str | None = None
    tried: bool = True
    contents: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[int, ...] = ()
    follows: str | None = None

    @classmethod
    def of(cls, item: tuple[str, str]) -> Token | None:
        """The token that a property sets; None for any other property."""
        stream, _, epoch = item[1].rpartition(":")
        return cls(item[0].removeprefix(PREFIX), stream, int(epoch)) if item[0].startswith(PREFIX) else None

    @property
    def batch(self) -> str:
        """The batch's id, the same at each attempt."""
        # An attempt after a crash finds its predecessor's rejects and files by this id.
        return f"{self.name}-{self.epoch}-{self.stream[:8]}"

    @property
    def properties(self) -> dict[str, str]:
        """The property that shows the batch is in."""
        return {PREFIX + self.name: f"{self.stream}:{self.epoch}"}

    def table_properties(self, before: Mapping[str, str]) -> dict[str, str]:
        """The properties that the table gets with the batch.

        Args:
            before: those that it has.
        """
        if not self.contents:
            return self.properties
        last = Captured.of(self.name, before)
        # While the table's ledger has the capture's first file, it has all of its files.
        first = last.contents.get("first") if last is not None else next(iter(self.files), None)
        contents = {**self.contents, "batch": f"{self.stream}:{self.epoch}"}
        contents |= {} if first is None else {"first": first}
        if "offsets" in contents:
            contents["since"] = _since(last.contents if last is not None else None, self.contents)
        return {**self.properties, CONTENTS + self.name: json.dumps(contents)}

    def reached(self, properties: Mapping[str, str]) -> bool:
        """True if a table with these properties has this micro-batch, or a later one of the stream."""
        last = Captured.of(self.name, properties)
        return last is not None and last.stream == self.stream and last.epoch >= self.epoch

    @property
    def waiting(self) -> dict[str, str]:
        """The property of a quarantine that shows the batch waits there whole, as its table was in error."""
        return {WAITING + self.name: f"{self.stream}:{self.epoch}"}

    def waits(self, properties: Mapping[str, str]) -> bool:
        """True if this micro-batch, or a later one, waits whole in a quarantine with these properties.

        >>> batch, later = Token("orders", "0a1b", 6), Token("orders", "0a1b", 7)
        >>> batch.waits(later.waiting), later.waits(batch.waiting), batch.waits({})
        (True, False, False)
        """
        stream, _, epoch = properties.get(WAITING + self.name, "").rpartition(":")
        return stream == self.stream and int(epoch) >= self.epoch

    def check(self, name: str, uuid: str | None, properties: Mapping[str, str]) -> None:
        """Check that the table does not have the batch. ``uuid`` None: there is no such table now.

        Raises BatchIsInError if it has, DataError if it is not the capture's table or has batches of another
        checkpoint.
        """
        check_table(self.name, self.table, name, uuid)
        if self.reached(properties):
            raise BatchIsInError
        last = Captured.of(self.name, properties)
        # Numbers of two checkpoints say nothing about each other: this one would bring all records again.
        if last is not None and last.stream not in (self.stream, self.follows):
            raise other_checkpoint(self.name, name, last)


def _since(before: Mapping[str, Any] | None, contents: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The first offsets that a table has taken, by topic and partition, with a batch of these ``contents``.

    Args:
        before: those of the batch before; None if this is the first one. What it does not tell stays unknown.

    >>> first = {"offsets": {"t": {"0": [5, 9]}}, "topics": {"t": "a"}}
    >>> _since(None, first), _since(first, first)
    ({'t': {'0': 5}}, {'t': {}})
    >>> then = {"since": {"t": {"0": 5}}, **first}
    >>> next_batch = {"offsets": {"t": {"0": [9, 10], "1": [0, 2]}}}
    >>> _since(then, {**next_batch, "topics": {"t": "a"}}), _since(then, {**next_batch, "topics": {"t": "b"}})
    ({'t': {'0': 5, '1': 0}}, {'t': {'0': 9, '1': 0}})
    """
    had, ids = (before or {}).get("offsets", {}), (before or {}).get("topics", {})
    since: dict[str, dict[str, int]] = {}
    for topic, partitions in contents["offsets"].items():
        is_same = topic in had and ids.get(topic) == contents.get("topics", {}).get(topic)
        known = (before or {}).get("since", {}).get(topic, {}) if is_same else {}
        since[topic] = {
            number: min(first, known.get(number, first))
            for number, (first, _) in partitions.items()
            if number in known or not (is_same and number in had[topic])
        }
    return since


def check_table(capture: str, expected: str | None, name: str, uuid: str | None) -> None:
    """Raise ReplacedTable if the table ``name`` is not the one that a capture began with.

    Args:
        expected: the uuid of that one, None while there is none.
        uuid: that of the present one, None if there is no table.
    """
    if expected not in (None, uuid):
        became = "was dropped" if uuid is None else "is another one than at the last batch"
        raise ReplacedTable(
            f"{name} {became}: capture {capture} goes on where it was before",
            hint="restore the table; or take everything again into a new one: --resume-from table",
        )


def other_checkpoint(capture: str, name: str, last: Captured) -> DataError:
    """The error for a table that has the batches of another checkpoint."""
    return DataError(
        f"{name} has the batches of capture {capture} up to {last.epoch}, by another checkpoint; "
        "this one would bring them again",
        hint="use that checkpoint; if it is lost, go on with what the table does not have: --resume-from table; "
        "or give the capture another name to ingest everything again",
    )


def place_of(properties: Mapping[str, str]) -> tuple[int, str]:
    """The epoch and the position of the last truncate; an empty one if the table knows of none."""
    epoch, position = json.loads(properties.get(TRUNCATED_PROPERTY, "{}")).get("place", (0, ""))
    return epoch, position


def by_batch(properties: Mapping[str, str], place: tuple[int, str], batch: str) -> dict[str, str]:
    """The property after a ``batch`` with a truncate at this place; ``properties``: those before it."""
    value = {"place": place, "batch": batch, "before": place_of(properties)}
    return {TRUNCATED_PROPERTY: json.dumps(value)}


def without_batch(properties: Mapping[str, str], batch: str) -> dict[str, str]:
    """The properties without a ``batch`` that is taken back: its truncate, and its violations.

    >>> from driftline.core.columns.statistics import violated
    >>> before = violated({}, "a", 10, {"price": 2})
    >>> without_batch(before | violated(before, "b", 10, {"price": 1, "id": 3}), "b") == before
    True
    """
    counted = {key: text for key, text in properties.items() if not key.startswith(VIOLATIONS)}
    for name, counts in violations(properties).items():
        counted |= counts.without(batch).properties(name)
    return _without_truncate(counted, batch)


def _without_truncate(properties: Mapping[str, str], batch: str) -> dict[str, str]:
    """The properties without the truncate of a ``batch``.

    >>> first = by_batch({}, (0, "0042"), "a")
    >>> place_of(_without_truncate(by_batch(first, (1, "0007"), "b"), "b"))
    (0, '0042')
    >>> _without_truncate(first, "a"), _without_truncate(first, "b") == first
    ({}, True)
    """
    last = json.loads(properties.get(TRUNCATED_PROPERTY, "{}"))
    if last.get("batch") != batch:
        return dict(properties)
    others = {key: value for key, value in properties.items() if key != TRUNCATED_PROPERTY}
    if not last["before"][1]:
        return others
    return {**others, TRUNCATED_PROPERTY: json.dumps({"place": last["before"]})}


# Files forget it when they are rewritten. It survives `promote`, because an undo brings the values back.
REST_SINCE = "driftline.rest-since."
MOST = 200  # paths of a table
_LONGEST = 500  # characters of a path
_SEEN = re.compile(r"(\d{1,15}) (\S+)")


def first_seen(
    properties: Mapping[str, str], rest_paths: Iterable[str], batch: str, *, begins: bool
) -> dict[str, str]:
    """The properties that a batch sets for the ``paths`` whose first values it sends to the rest.

    ``begins``: the table had no rest before. Otherwise nothing is set, because an earlier batch may have sent
    values there.
    """
    before = sum(key.startswith(REST_SINCE) for key in properties)
    if not (begins or before):
        return {}
    keys = dict.fromkeys(_rest_key(path) for path in rest_paths if len(path) <= _LONGEST)
    new = [key for key in keys if key not in properties]
    noted = f"{time.time_ns() // 1_000_000} {batch}"
    # A table of data-like keys would fill its metadata with them, so their number has a bound.
    return dict.fromkeys(new[: max(0, MOST - before)], noted)


def rest_since(properties: Mapping[str, str], path: str) -> SeenIn | None:
    """The batch that brought the first value at a path of fields; None if unknown."""
    match = _SEEN.fullmatch(properties.get(_rest_key(path), ""))
    return SeenIn(int(match[1]), match[2]) if match else None


def rest_paths(properties: Mapping[str, str]) -> list[str]:
    """The paths of fields whose first batch is known."""
    return sorted(key.removeprefix(REST_SINCE) for key in properties if key.startswith(REST_SINCE))


def _rest_key(path: str) -> str:
    return REST_SINCE + spelled_field(keys_of(steps(path)))
