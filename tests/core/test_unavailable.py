"""Values that Debezium leaves out: the row keeps its own, in whatever order messages come."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from hashlib import md5
from itertools import permutations
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.test_envelopes import LSN, Database, change, checked, deliver, read, row_key
from core.test_upsert import Event, FilesTable, key_of
from driftline.keys.filling import filled
from driftline.keys.patch_fields import NOTHING, ROW, Patches

IT = "__debezium_unavailable_value"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
FORMS = {
    "text": IT,
    "bytes": BASE64,
    "texts": [IT],
    "lists of bytes": [BASE64],
    "numbers": list(IT.encode()),
    "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    "hstore": {IT: IT},
    "hstore as text": json.dumps({IT: IT}, separators=(",", ":")),
    "geometry": {"wkb": "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==", "srid": 4326},
    "geography": {"wkb": "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==", "srid": 4326},
}


def message(after: Event, **more: Any) -> Event:
    return {"op": "u", "before": None, "after": after, "source": LSN, **more}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_forms_of_what_is_left_out(form: Any, separators: tuple[str, str]) -> None:
    sent = message({"id": 7, "big": form, "n": 1})
    expected = {"id": 7, "n": 1, "_change": {**change("u")["_change"], "unavailable": '["big"]'}}
    line = json.dumps(sent, separators=separators).encode()
    assert read(line, row_key()) == ([expected], {})
    assert checked(line, row_key()) == [expected]
    patch = {"id": 7, "n": 1, **change("u")}
    assert read(sent, row_key(merge="patch")) == ([patch], {})
    assert checked(sent, row_key(merge="patch")) == [patch]
    why = "`big` is a value that Debezium has left out as unavailable, which rows without an order, or with deletes = soft, do not keep"
    assert read(sent, row_key(deletes="soft")) == (why, {})
    assert checked(sent, row_key(deletes="soft")) == ""


@pytest.mark.parametrize(("setting", "it"), [("no value", "no value"), ("hex:2d22c3a4", '-"ä')])
def test_a_placeholder_of_its_own(setting: str, it: str) -> None:
    """Debezium's own is then a value."""
    keyed = row_key(unavailable_value=setting)
    forms = [it, b64encode(it.encode()).decode(), [it], list(it.encode()), {it: it}]
    forms += [json.dumps({it: it}, separators=(",", ":"), ensure_ascii=False), [str(uuid3_of(it))]]
    for form in forms:
        line = json.dumps(message({"id": 7, "big": form}), ensure_ascii=False).encode()
        records, _ = read(line, keyed)
        assert [one["_change"].get("unavailable") for one in records] == ['["big"]'], form  # type: ignore[union-attr]
        assert checked(line, keyed) == records
    sent = message({"id": 7, "big": IT})
    assert read(sent, keyed) == ([{"id": 7, "big": IT, **change("u")}], {})
    assert checked(sent, keyed) == [{"id": 7, "big": IT, **change("u")}]


def uuid3_of(text: str) -> UUID:
    return UUID(bytes=md5(text.encode(), usedforsecurity=False).digest(), version=3)


@pytest.mark.parametrize("digits", ["6G", "", "6"])
def test_a_placeholder_that_is_no_bytes(digits: str) -> None:
    with pytest.raises(ValueError, match=f"'{digits}' is not in hexadecimal digits: write hex:6E6F6E65"):
        row_key(unavailable_value=f"hex:{digits}")


def test_unwrapped_rows_lack_values_too() -> None:
    keyed = row_key(envelope="debezium-unwrapped")
    sent = {"id": 7, "big": [IT], "__op": "u", "__lsn": 42}
    expected = {"id": 7, "__op": "u", "__lsn": 42, **change("u")}
    expected["_change"]["unavailable"] = '["big"]'
    assert read(sent, keyed) == ([expected], {})
    assert checked(sent, keyed) == [expected]
    gone = {**sent, "__op": "d"}
    assert read(gone, keyed) == ([{**gone, **change("d")}], {})
    assert checked(gone, keyed) == [{**gone, **change("d")}]


@pytest.mark.parametrize("value", [f"about {IT}", ["b68a35a7-17ad-35b3-af2a-ae46edb4545b"], [95, 95, 100, 101, 98], None])  # fmt: skip
def test_values_that_only_look_alike(value: Any) -> None:
    sent = message({"id": 7, "big": value})
    assert read(sent, row_key()) == ([{"id": 7, "big": value, **change("u")}], {})
    assert checked(sent, row_key()) == [{"id": 7, "big": value, **change("u")}]


@pytest.mark.parametrize("value", [{"a": IT}, ["x", BASE64], [[IT]]])
def test_what_is_left_out_inside_a_value_waits(value: Any) -> None:
    why = "a value inside another that Debezium has left out as unavailable"
    assert read(message({"id": 7, "big": value}), row_key()) == (why, {})
    assert checked(message({"id": 7, "big": value}), row_key()) == ""


# Rows ---------------------------------------------------------------------------------------------------


def sequence(history: list[tuple[str, str | None]]) -> dict[str, int]:
    """The number of the change that each field has its value of, by a dictionary; -1 for none."""
    row: dict[str, int] = {}
    for number, (_, lacking) in enumerate(history):
        if lacking is None:
            row = {}
        else:
            row = {name: row.get(name, NOTHING) if name in lacking else number for name in "ab"}
    return row


@pytest.mark.parametrize(
    "history",
    [
        [("1", ""), ("2", '["a"]'), ("3", '["a"]')],
        [("1", '["a"]'), ("2", '["b"]'), ("3", '["a","b"]')],
        [("1", ""), ("2", None), ("3", '["a"]')],
        [("1", ""), ("2", '["a"]'), ("3", None), ("4", '["b"]')],
        [("1", '["a"]'), ("2", ""), ("3", '["a"]'), ("4", '["a","b"]')],
    ],
)
def test_any_order_of_arrival_ends_in_one_row(history: list[tuple[str, str | None]]) -> None:
    """Each alone in a batch, once, whatever came before; the table remembers the last delete."""
    for arrival in permutations(range(len(history))):
        order, kept, sources, floor = "", None, {}, None
        for number in arrival:
            own, lacking = history[number]
            if kept is None and floor is not None and own < floor:
                continue
            if lacking is None:
                if kept is None or own > order:
                    order, kept, sources, floor = "", None, {}, max(floor or "", own)
                    continue
                floor = max(floor or "", own)
            made = filled(
                kept, order, (Patches((), (own,), floor if lacking is not None else None), [lacking])
            )
            values = {name: made.kept[name].source if name in made.kept else made.source for name in "ab"}
            sources = {name: sources[name] if at == ROW else number if at > 0 else NOTHING for name, at in values.items()}  # fmt: skip
            order, kept = made.order, dict(made.older())
        assert sources == sequence(history), arrival


class LargeValues(Database):
    """A database of which an update does not send a large value that stays: it has replica identity default."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, "postgresql")

    def row(self, id_: Any) -> Event:
        return {**super().row(id_), "big": f"text {self.at}", "shape": {"x": self.at, "y": [self.at]}}

    def step(self) -> list[Event]:
        before = {key: dict(row) for key, row in self.rows.items()}
        messages = super().step()
        first = messages[0]
        if first.get("op") != "u":
            return messages
        row, key = first["after"], key_of(first["after"])
        sent = dict(row)
        for name in ("big", "shape"):
            if self.chance.random() < 0.6:
                row[name], sent[name] = before[key][name], IT
        return [{**first, "after": sent}]


@pytest.mark.parametrize("seed", range(6))
def test_any_delivery_ends_in_what_the_database_has(tmp_path: Path, seed: int) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path)
    database = LargeValues(chance)
    messages = [message for _ in range(200) for message in database.step()]
    sent = messages + chance.sample(messages, 40)
    if seed:
        chance.shuffle(sent)
    deliver(table, sent, "debezium", chance)
    rows = {key_of(row): row for row in table.rows()}
    assert {key: (row["n"], row["big"], row["shape"]) for key, row in rows.items()} == {
        key: (row["n"], row["big"], row["shape"]) for key, row in database.rows.items()
    }
