"""Snapshots that are taken again: rows that a complete one does not have go, in any delivery."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.test_envelopes import LSN, Database, row_key
from core.test_unavailable import LargeValues
from core.test_upsert import Event, FilesTable, key_of
from driftline.core.settings.properties import as_properties, from_properties
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.verify.envelopes import _truncate_in, records_in
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import parse

SETTINGS = {"key": "id", "envelope": "debezium", "on_snapshot": "reconcile"}


def snapshot(database: Database, *, until: int | None = None) -> list[Event]:
    """The messages of a snapshot, which may end before its last record, as that of a connector that fails."""
    rows, source = list(database.rows.values()), database.source()
    places = ["true"] * len(rows)
    if rows:
        places[0], places[-1] = "first", "last"
    messages = [
        {"op": "r", "before": None, "after": row, "source": {**source, "snapshot": place}}
        for row, place in zip(rows, places, strict=True)
    ]
    return messages[:until]


def unwatched(database: Database) -> list[Event]:
    """Changes of which no message comes, then a snapshot; sometimes one before it that was cut off."""
    for key in database.chance.sample(sorted(database.rows), len(database.rows) // 2):
        del database.rows[key]
    for _ in range(3):
        database.step()
    cut_off = snapshot(database, until=-1) if database.chance.random() < 0.5 else []
    database.step()
    return cut_off + snapshot(database)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("merge", ["replace", "patch"])
@pytest.mark.parametrize("kind", ["mysql", "oracle", "large"])
def test_any_delivery_ends_in_what_the_database_has(tmp_path: Path, seed: int, kind: str, merge: str) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path)
    database = LargeValues(chance) if kind == "large" else Database(chance, kind)
    settings = from_properties(as_properties({**SETTINGS, "merge": merge}))
    messages: list[Event] = []
    for number in range(150):
        messages += unwatched(database) if number % 40 == 39 else database.step()
    sent = messages + chance.sample(messages, 40)
    if seed:
        chance.shuffle(sent)
    while sent:
        batch, sent = sent[: (size := chance.randrange(1, 60))], sent[size:]
        assert table.ingest(batch, settings)[1] == 0
    names = ("n", "big", "shape") if kind == "large" else ("n",)
    held = {key_of(row): [row[name] for name in names] for row in table.rows()}
    assert held == {key: [row[name] for name in names] for key, row in database.rows.items()}
    assert len(held) == len(table.rows())


def read(message: Event, **settings: str) -> tuple[int, dict[str, int], str]:
    """The number of records in a message, the marks, and the position of a truncate; as the check has it."""
    keyed = row_key(**settings)
    unwrapper = Unwrapper(keyed)
    texts, _ = unwrapper.records([json.dumps(message).encode()])
    marks, truncated = unwrapper.drain()
    checked = Read(SourcePlace("x"), parse(json.dumps(message).encode()))
    assert _truncate_in(keyed, checked) == truncated
    assert len(list(records_in(keyed, checked, truncated=True))) == len(texts)
    return len(texts), dict(marks), truncated


RECONCILE = {"on_snapshot": "reconcile"}
AFTER = {"id": 1}


@pytest.mark.parametrize(
    ("message", "settings", "is_last"),
    [
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "last"}}, RECONCILE, True),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "last_in_data_collection"}}, RECONCILE, True),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "last"}}, {}, False),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "true"}}, RECONCILE, False),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "first"}}, RECONCILE, False),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "incremental"}}, RECONCILE, False),
        ({"op": "r", "after": AFTER, "source": {**LSN, "snapshot": ["last"]}}, RECONCILE, False),
        ({"op": "c", "after": AFTER, "source": {**LSN, "snapshot": "last"}}, RECONCILE, False),
        (
            {"op": "r", "after": AFTER, "source": {"connector": "mongodb", "ts_ms": 1, "snapshot": "last"}},
            RECONCILE,
            False,
        ),
        ({"payload": {"op": "r", "after": AFTER, "source": {**LSN, "snapshot": "last"}}}, RECONCILE, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("envelope", ["debezium", "auto"])
def test_which_messages_end_a_snapshot(
    message: Event, settings: dict[str, str], is_last: bool, envelope: str
) -> None:
    count, marks, truncated = read(message, envelope=envelope, **settings)
    assert (count, marks, bool(truncated)) == (1, {"complete snapshot": 1} if is_last else {}, is_last)


@pytest.mark.parametrize(
    ("place", "is_last"),
    [
        ({"__lsn": 7, "__snapshot": "last"}, True),
        ({"__source_lsn": 7, "__source_snapshot": "last_in_data_collection"}, True),
        ({"__lsn": 7, "__snapshot": "true"}, False),
        ({"__source_ts_ms": 7, "__source_snapshot": "last"}, False),
        ({"__lsn": 7, "__snapshot": ["last"]}, False),
        ({"__lsn": 7, "__snapshot": {"last": 1}}, False),
    ],
)
def test_rows_unwrapped(place: Event, is_last: bool) -> None:
    row = {"id": 1, "__op": "r", "__deleted": "false", **place}
    count, _, truncated = read(row, envelope="debezium-unwrapped", **RECONCILE)
    assert (count, bool(truncated)) == (1, is_last)


@pytest.mark.parametrize(
    "others", [{"envelope": "canal"}, {"envelope": ""}, {"deletes": "soft"}, {"order_by": "n"}]
)
def test_where_a_snapshot_tells_nothing(others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="on_snapshot"):
        row_key(**RECONCILE, **others)
