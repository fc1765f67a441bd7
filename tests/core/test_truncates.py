"""Truncates of the source's table: all older rows go, and what comes late stays away, in any delivery."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.test_change_feeds import ES, canal, dms, ogg
from core.test_envelopes import AT, LSN, Database, checked, deliver, read, row_key
from core.test_unavailable import IT, LargeValues
from core.test_upsert import Event, FilesTable, key_of
from driftline.core.settings.properties import as_properties, from_properties
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.verify.envelopes import _truncate_in, records_in
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import parse


def truncating(database: Database) -> list[Event]:
    """A step of the database, which is now and then a truncate."""
    if database.chance.random() > 0.03:
        return database.step()
    database.rows.clear()
    return [{"op": "t", "before": None, "after": None, "source": database.source()}]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["mysql", "postgresql", "oracle", "large"])
def test_any_delivery_ends_in_what_the_database_has(tmp_path: Path, seed: int, kind: str) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path)
    database = LargeValues(chance) if kind == "large" else Database(chance, kind)
    messages = [message for _ in range(150) for message in truncating(database)]
    assert any(message.get("op") == "t" for message in messages)
    sent = messages + chance.sample(messages, 40)
    if seed:
        chance.shuffle(sent)
    deliver(table, sent, "debezium", chance)
    names = ("n", "big", "shape") if kind == "large" else ("n",)
    held = {key_of(row): [row[name] for name in names] for row in table.rows()}
    assert held == {key: [row[name] for name in names] for key, row in database.rows.items()}
    assert len(held) == len(table.rows())


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    table, settings = (
        FilesTable(tmp_path),
        from_properties(as_properties({"key": "id", "envelope": "debezium"})),
    )

    def ingest(*changes: Any) -> dict[str, int]:
        batch = [
            {"op": op, "after": None if id_ is None else {"id": id_}, "source": {"lsn": lsn}}
            for op, id_, lsn in changes
        ]
        counts, malformed = table.ingest(batch, settings)
        assert malformed == 0
        return {name: getattr(counts, name) for name in counts.__slots__ if getattr(counts, name)}

    def ids() -> list[Any]:
        return sorted(row["id"] for row in table.rows())

    assert ingest(("c", 1, 10), ("c", 2, 20), ("c", 3, 30)) == {"inserted": 3}
    # Rows of the same place, or of a later one, stay.
    assert ingest(("t", None, 20)) == {"truncated": 1}
    assert ids() == [2, 3]
    assert ingest(("c", 4, 19), ("c", 5, 20), ("u", 3, 18)) == {"late": 2, "inserted": 1}
    # The same once more, and an older one.
    assert ingest(("t", None, 20), ("t", None, 15)) == {}
    assert ids() == [2, 3, 5]
    # With changes around it, in one batch.
    changes = ("u", 2, 35), ("c", 6, 39), ("t", None, 40), ("c", 2, 41), ("c", 7, 42)
    assert ingest(*changes) == {"inserted": 2, "superseded": 1, "late": 1, "truncated": 3}
    assert ids() == [2, 7]


def test_what_a_row_of_the_truncates_position_keeps(tmp_path: Path) -> None:
    """It came after the truncate, and lends its large value to later changes."""
    table = FilesTable(tmp_path)
    settings = from_properties(as_properties({"key": "id", "envelope": "debezium"}))
    for op, big, lsn in (("c", "text", 20), ("t", None, 20), ("u", IT, 30), ("u", IT, 40)):
        after = None if op == "t" else {"id": 1, "n": lsn, "big": big}
        table.ingest([{"op": op, "after": after, "source": {"lsn": lsn}}], settings)
    assert [(row["n"], row["big"]) for row in table.rows()] == [(40, "text")]


def test_a_truncate_before_all_rows(tmp_path: Path) -> None:
    table, settings = (
        FilesTable(tmp_path),
        from_properties(as_properties({"key": "id", "envelope": "debezium"})),
    )
    rows = [{"op": "c", "after": {"id": id_}, "source": {"lsn": id_}} for id_ in (1, 9)]
    counts, _ = table.ingest([*rows, {"op": "t", "source": {"lsn": 5}}], settings)
    assert (counts.inserted, counts.late, [row["id"] for row in table.rows()]) == (1, 1, [9])


SENT = [
    ("debezium", {"op": "t", "before": None, "after": None, "source": LSN}, AT),
    ("debezium", {"key": None, "value": {"schema": None, "payload": {"op": "t", "source": LSN}}}, AT),
    ("debezium-unwrapped", {"__op": "t", "__lsn": 42}, AT),
    ("canal", canal("TRUNCATE", None, isDdl=True), ES),
    ("ogg", ogg("T", None, None, pos="7"), f"{7:040}"),
    ("dms", {"metadata": {**dms("x", None, "control")["metadata"], "operation": "truncate-table", "timestamp": "2026-02-18T23:57:11Z"}}, "2026-02-18T23:57:11.000000000Z"),
]  # fmt: skip


@pytest.mark.parametrize(("envelope", "message", "position"), SENT)
def test_truncates_of_each_tool(envelope: str, message: Event, position: str) -> None:
    for name in (envelope, "auto") if envelope in ("canal", "dms") else (envelope,):
        unwrapper = Unwrapper(row_key(envelope=name))
        assert unwrapper.records([json.dumps(message).encode()]) == ([], [])
        assert unwrapper.drain() == ({"truncate": 1}, position)
        assert unwrapper.drain() == ({}, "")
        parsed = Read(SourcePlace("f"), parse(json.dumps(message).encode()))
        assert _truncate_in(row_key(envelope=name), parsed) == position
        assert list(records_in(row_key(envelope=name), parsed, truncated=True)) == []


@pytest.mark.parametrize(("envelope", "message", "_"), SENT)
def test_a_truncate_that_cannot_be_applied_waits(envelope: str, message: Event, _: str) -> None:
    for settings in ({"deletes": "soft"}, {"order_by": "n"}):
        keyed = row_key(envelope=envelope, **settings)
        why, marks = read(message, keyed)
        assert str(why).startswith("a truncate of the source's table, which is not applied")
        assert not marks
        assert checked(message, keyed) == ""
        parsed = Read(SourcePlace("f"), parse(json.dumps(message).encode()))
        assert not _truncate_in(keyed, parsed)


def test_a_truncate_without_a_place_waits() -> None:
    why, _ = read({"op": "t"}, row_key())
    assert why == "a truncate of the source's table that does not say where it stood"
