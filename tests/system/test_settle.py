"""The road from a drift to one column, by the command line: view, resolve, quarantine, notices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from answering import Commands, Done
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.operations.odcs import exported
from json_output import faults

DAY_1 = '{"id": 1, "price": 19.9, "items": [{"qty": 1}]}\n{"id": 2, "price": 20, "items": [{"qty": 2}]}\n'
DAY_2 = '{"id": 3, "price": "19,90 EUR", "items": [{"qty": "3"}]}\n{"id": 4, "price": "7.5", "items": []}\n'
STRICT = '{"id": 5, "price": 1.5}\n{"id": 6, "price": "free"}\n{"id": 7, "pri\n'
HELD = '{"id": 8, "who": "Ann"}\n{"id": 9, "basket": {"n": 1.5}, "who": "Bob"}\n'
T = "shop.orders"

COMMANDS = {
    "1": ["ingest", "1.jsonl", "--into", T],
    "2": ["ingest", "2.jsonl", "--into", T, "--on-change", "cat > told.json"],
    "3": ["ingest", "1.jsonl", "--into", "shop.other", "--on-change", "echo oh no >&2; exit 4", "--json"],
    "strict": ["ingest", "3.jsonl", "--into", "shop.strict", "--policy", "strict", "--hint", "id=long", "--hint", "price=double"],
    "paths": ["stats", T, "price", "items.element.*", "--json"],
    "paths text": ["stats", T, "items.*.qty", "price"],
    "no path": ["stats", T, "price", "price_strng"],
    "print": ["view", T, "--print"],
    "view": ["view", T],
    "view as": ["view", T, "--as", "price=decimal(9,2)", "--name", "shop.priced", "--json"],
    "viewed": ["query", "select id, price, items.qty from shop.orders_settled order by id", "--json"],
    "priced": ["query", "select price from shop.priced order by id", "--json"],
    "dry": ["resolve", T, "price", "--as", "double", "--dry-run"],
    "resolve": ["resolve", T, "price", "--as", "double"],
    "resolve json": ["resolve", T, "items.qty", "--as", "long", "--drop-rest", "--json"],
    "resolved": ["query", "select price, price_string from shop.orders order by id", "--json"],
    "verify": ["verify", "1.jsonl", "2.jsonl", "--table", T],
    "history": ["history", T],
    "undo": ["undo", T],
    "again": ["query", "select items.qty_string from shop.orders order by id", "--json"],
    "quarantine": ["quarantine", "shop.strict"],
    "quarantine json": ["quarantine", "shop.strict", "--json"],
    "export": ["quarantine", "shop.strict", "--export", "out.jsonl"],
    "alter": ["alter", "alter table shop.strict set tblproperties ('driftline.policy' = 'preserve')"],
    "replay": ["quarantine", "shop.strict", "--replay"],
    "replay again": ["quarantine", "shop.strict", "--replay", "--json"],
    "left": ["quarantine", "shop.strict"],
    "both": ["quarantine", "shop.strict", "--replay", "--export", "x"],
    "held": ["ingest", "1.jsonl", "--into", "shop.held", "--set", "new_fields=hold"],
    "held more": ["ingest", "4.jsonl", "--into", "shop.held"],
    "held stats": ["stats", "shop.held"],
    "promote dry": ["promote", "shop.held", "--all", "--dry-run", "--json"],
    "promote": ["promote", "shop.held", "basket"],
    "promoted": ["query", "select basket.n, _rest from shop.held where id = 9", "--json"],
    "held history": ["history", "shop.held"],
    "tables": ["tables", "--json"],
    "lake stats": ["stats", "--all", "--json"],
    "export json": ["quarantine", "shop.strict", "--export", "out2.jsonl", "--json"],
    "breaks": ["contract", "check", T, "broken.yaml", "--json"],
    "promote what": ["promote", "shop.held"],
    "no type": ["resolve", T, "price", "--as", "lung"],
    "no pair": ["view", T, "--as", "price"],
    "no field": ["resolve", T, "nothing", "--as", "long"],
    "no table": ["quarantine", "shop.nothing"],
}  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    for name, text in (("1", DAY_1), ("2", DAY_2), ("3", STRICT), ("4", HELD)):
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "broken.yaml").write_text(exported(T, Schema(Struct((Field("lacking", LONG, 1),))), {}))
    return folder


@pytest.fixture(scope="module")
def done(here: Path, command_line: Commands) -> dict[str, Done]:
    return command_line.each(here, COMMANDS)


def test_json_is_as_its_schema_says(done: dict[str, Done]) -> None:
    assert list(faults(COMMANDS, done)) == []
    assert "lacking" in {broken["path"] for broken in lines(done["breaks"])[0]["breaks"]}


def lines(done: Done) -> list[dict]:
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes(done: dict[str, Done], name: str) -> None:
    wrong = name in ("both", "promote what", "no type", "no pair", "no field", "no table", "no path")
    assert done[name].code == (2 if wrong else 1 if name == "breaks" else 0), done[name]
    assert ("error: " in done[name].err) == wrong
    assert "Traceback" not in done[name].err


def test_a_notice_is_told_and_a_failing_one_is_said(done: dict[str, Done], here: Path) -> None:
    told = json.loads((here / "told.json").read_text())
    change = next(c for c in told["changes"] if c["path"] == "price_string")
    assert (change["before"], change["sample"], change["seen_in"][-9:]) == (
        {"price": "double"},
        "19,90 EUR",
        "2.jsonl:1",
    )
    assert json.loads(done["3"].out)["rows_written"] == 2
    assert done["3"].err == "on-change: echo: ended with 4; the batch is in\n"


def test_what_waits_is_promoted(done: dict[str, Done]) -> None:
    assert "held" in done["held more"].out
    assert "who × 2, basket × 1: new fields go into the rest" in done["held more"].out
    assert "rest  2 × who" in done["held stats"].out
    assert json.loads(done["promote dry"].out)["values"] == {"basket": 1, "who": 2}
    assert "new basket struct<n: double>" in done["promote"].out
    assert lines(done["promoted"]) == [{"n": 1.5, "_rest": {"who": '"Bob"'}}]
    assert "promote basket" in done["held history"].out


def test_view(done: dict[str, Done]) -> None:
    assert done["print"].out.startswith("create or replace view `lake`.`shop`.`orders_settled` (\n")
    first, *rest = done["view"].out.splitlines()
    assert first == "shop.orders_settled  view of shop.orders, 2 drifted fields as one column each"
    assert [line.split()[:2] for line in rest] == [["price", "string"], ["items.qty", "string"]]
    assert [(r["price"], r["qty"]) for r in lines(done["viewed"])] == [
        ("19.9", ["1"]), ("20", ["2"]), ("19,90 EUR", ["3"]), ("7.5", []),
    ]  # fmt: skip
    assert [r["price"] for r in lines(done["priced"])] == [19.9, 20.0, None, 7.5]
    assert json.loads(done["view as"].out)["made"] is True


def test_stats_of_some_paths(done: dict[str, Done]) -> None:
    (some,) = lines(done["paths"])
    assert [column["path"] for column in some["columns"]] == [
        "price",
        "items.element.qty",
        "items.element.qty_string",
        "price_string",
    ]
    assert [field["field"] for field in some["drifted"]] == ["price", "items.element.qty"]
    assert "items.element.qty" in done["paths text"].out and "price_string" in done["paths text"].out
    assert done["no path"].err == (
        "error: shop.orders has no column with 'price_strng' in its path\n  did you mean price_string?\n"
    )


def test_resolve(done: dict[str, Done]) -> None:
    assert done["dry"].out.splitlines()[0] == "shop.orders  price would be double"
    assert "  3 of 4 values convert\n" in done["dry"].out
    assert "1 value would not convert: 19,90 EUR" in done["dry"].out
    assert "1 value kept in price_string: 19,90 EUR" in done["resolve"].out
    assert "view shop.orders_settled was made again" in done["resolve"].out
    found = json.loads(done["resolve json"].out)
    assert (found["field"], found["type"], found["values"], found["not_converted"]) == (
        "items.qty",
        "long",
        3,
        0,
    )
    assert [(r["price"], r["price_string"]) for r in lines(done["resolved"])] == [
        (19.9, None), (20.0, None), (None, "19,90 EUR"), (7.5, None),
    ]  # fmt: skip
    assert done["verify"].out.startswith("nothing is missing  4 records: 4 in shop.orders")
    assert "resolve price --as 'double'" in done["history"].out
    assert [r["qty_string"] for r in lines(done["again"])] == [[None], [None], ["3"], []]


def test_quarantine(done: dict[str, Done], here: Path) -> None:
    first, *rest = done["quarantine"].out.splitlines()
    assert first == "shop.strict  2 records in quarantine"
    assert any("price: string into double" in line for line in rest)
    assert any("(3.jsonl:2)" in line for line in rest)
    assert {g["path"] for g in json.loads(done["quarantine json"].out)["groups"]} == {"price", None}
    assert done["export"].out == "2 records in out.jsonl\n"
    assert len((here / "out.jsonl").read_text().splitlines()) == 2
    assert done["replay"].out.startswith("shop.strict  from quarantine  1 record read, 1 written\n")
    assert "1 stays in quarantine" in done["replay"].out
    assert json.loads(done["replay again"].out)["rows_written"] == 0
    assert done["left"].out.startswith("shop.strict  1 record in quarantine, 1 replayed\n")
