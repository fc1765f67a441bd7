"""A capture of a topic with sixty kinds of drifting records is killed twenty times: each of its tables is what a capture of its
kind alone makes. Some of the kinds are changes of rows by key. Beside it captures of files die into a DuckLake, and into a REST catalog whose tables are in a store. All of
them run in one process, as in `test_capture_faults.py`: at some of the points it is killed, at the others the lakes become what
a kill would have left of them.
"""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from answering import Answering, answering
from servers.kafka import Kafka
from servers.lakehouse import Lakehouse

KINDS, STARTS, BATCHES, RECORDS = 60, 20, 2, 3
KILLED = range(0, STARTS, 4)  # these starts end by a kill, the others as if by one
WRITING = 4  # where this one ends nothing of the batch is visible
AT_ONCE = 6  # captures of one kind each
FEW = 4  # kinds of the captures of files
# The tables of a DuckLake commit at once: what dies behind that leaves its micro-batch to no later start.
IN_DUCKLAKE = [("committing", 1), ("committed", 1), ("committing", 3), ("committing", 5), ("committed", 4)]
VALUES: Sequence[object] = (1, 2.5, "x", True, "2026-03-02", [1, "y"], {"a": 1}, {"a": "z", "b": [2]}, None)
OPTIONS = {"expect": {"q": "q >= 0 else quarantine"}}
KEYED = range(0, KINDS, 15)  # kinds whose records write and delete rows
KEY = {"key": "kind,id", "order_by": "at", "delete_when": "op = 'd'"}


def records(kind: int, number: int) -> list[str]:
    """Records of a kind in a batch, whose fields drift in a way of the kind's own; now and then one is not as expected."""
    chance = random.Random(f"{kind}, {number}")
    drifting = [
        {
            "kind": f"k{kind}", "id": RECORDS * number + place, "q": chance.randint(-1, 6), f"c{number}": place,
            **{f"f{chance.randrange(5)}": chance.choice(VALUES) for _ in range(3)},
        }
        for place in range(RECORDS)
    ]  # fmt: skip
    if kind in KEYED:
        for record in drifting:
            # Of a few rows, which are written and deleted, and at times by a record that comes too late.
            record |= {"id": chance.randrange(2), "at": chance.randrange(9), "op": chance.choice("ud")}
    return [json.dumps(record) for record in drifting]


def settings(kinds: int) -> dict[str, dict[str, str]]:
    """The settings by table."""
    return {f"kinds.k{kind}": KEY for kind in KEYED if kind < kinds}


def others(number: int) -> list[str]:
    """Records of no kind, and a text that is no record."""
    return [json.dumps({"id": number, "kind": None}), json.dumps({"id": number, "n": 1}), f"broken {number}"]


def batch(kinds: int, number: int) -> list[str]:
    """Records of many kinds, each of which comes again and again."""
    by_kind = [*(records(kind, number) for kind in range(kinds)), others(number)]
    return [line for lines in zip(*by_kind, strict=True) for line in lines]


def of_topic(kafka: Kafka, lake: Path) -> dict[str, Any]:
    """A capture of all kinds, and topics for each of them alone."""
    for number in range(BATCHES):
        kafka.send("kinds", [line.encode() for line in batch(KINDS, number)], partition=0)
        kafka.send("alone-_other", [line.encode() for line in others(number)], partition=0)
        for kind in range(KINDS):
            kafka.send(f"alone-k{kind}", [line.encode() for line in records(kind, number)], partition=0)
    return {
        "lake": str(lake), "source": f"kafka://{kafka.address}/kinds", "table": "kinds.{kind}", "name": "kinds",
        "options": {"max_records": RECORDS * (KINDS + 1), **OPTIONS}, "settings": settings(KINDS),
    }  # fmt: skip


def alone(kafka: Kafka, lake: Path) -> Iterator[dict[str, Any]]:
    """A capture of each kind alone."""
    for kind in ("_other", *(f"k{number}" for number in range(KINDS))):
        yield {
            "lake": str(lake), "source": f"kafka://{kafka.address}/alone-{kind}", "table": f"kinds.{kind}",
            "name": kind, "options": {"max_records": RECORDS, **OPTIONS}, "settings": settings(KINDS), "whole": True,
        }  # fmt: skip


def of_files(folder: Path, lake: str, **more: Any) -> dict[str, Any]:
    """A capture of a few of the kinds."""
    folder.mkdir()
    for number in range(BATCHES):
        (folder / f"{number}.jsonl").write_text("\n".join(batch(FEW, number)))
    return {
        "lake": lake, "source": str(folder), "table": "kinds.{kind}", "name": "kinds",
        "options": {"max_files": 1, **OPTIONS}, "settings": settings(FEW), "in_order": True, **more,
    }  # fmt: skip


def die(starts: Answering, topic: dict[str, Any], files: Sequence[dict[str, Any]]) -> None:
    """Has the captures die at each of the starts; those of files at kills alone, which nobody can imitate in a store."""
    chance = random.Random("deaths")

    def commit(most: int) -> tuple[str, int]:
        """Before a commit or behind it, so that each start leaves some more tables done."""
        return chance.choice(("committing", "committed")), chance.randint(1, most)

    for number in range(STARTS):
        is_killed = number in KILLED
        place = ("writing", chance.randint(1, KINDS)) if number == WRITING else commit(9)
        few = (
            [{"die": commit(2)}, {"die": IN_DUCKLAKE[KILLED.index(number)]}]
            if is_killed
            else [{"waits": True}] * 2
        )
        told = [
            *({**one, **its_own} for one, its_own in zip(files, few, strict=True)),
            {**topic, "die": place},
        ]
        if is_killed:
            assert starts.dies({"captures": told, "kill": True}) == -signal.SIGKILL, starts.printed()
        else:
            assert starts.ask({"captures": told, "kill": False}) == []


def test_each_table_is_as_if_its_kind_had_been_captured_alone(
    tmp_path: Path, kafka: Kafka, lakehouse: Lakehouse
) -> None:
    topic = of_topic(kafka, tmp_path / "lake")
    stored = of_files(
        tmp_path / "stored", lakehouse.warehouse, stores={"s3": lakehouse.s3.options},
        properties={"type": "rest", "uri": lakehouse.rest.uri, **lakehouse.reach},
    )  # fmt: skip
    duck = of_files(tmp_path / "in", str(tmp_path / "duck"), ducklake="sqlite")
    expected: dict[str, list[str]] = {}
    with answering(Path(__file__).with_name("killed.py")) as starts:
        die(starts, topic, [stored, duck])
        found = [one["tables"] for one in starts.ask({"captures": [stored, duck, topic], "kill": False})]
        told = list(alone(kafka, tmp_path / "alone"))
        for begin in range(0, len(told), AT_ONCE):
            for one in starts.ask({"captures": told[begin : begin + AT_ONCE], "kill": False}):
                expected |= one["tables"]
    few_tables = ("kinds._other", *(f"kinds.k{kind}" for kind in range(FEW)))
    few = {name: table for name, table in expected.items() if name.removesuffix("__quarantine") in few_tables}
    assert sum(name.endswith("__quarantine") for name in few) > 1
    assert found[0] == few
    assert without_ids(found[1]) == without_ids(few)
    assert found[2] == expected


def without_ids(tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """The tables without the ids of their fields, which a DuckLake counts in its own way."""
    return {name: [re.sub(r" #\d+", "", line) for line in lines] for name, lines in tables.items()}
