"""Changes of a database in Debezium's messages, next to a plain append of the same messages, in one run.

    make bench-cdc                                    100,000 messages, a minute or two
    make bench-cdc ARGS="--messages 20000 --rounds 1"  a try

A stream of inserts, updates and deletes is ingested from files of JSON lines, one by one: into a table with a key by
`--envelope debezium`, and into one without, as what the messages look like. Three kinds of messages: without a
schema; without, where every fifth update leaves out a large value; with Kafka Connect's schema beside each payload.
In the end the table must have the rows that the database has. Sides take turns; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from measure import cpu

from driftline import Lake

FILES = 4
SETTINGS = {"key": "id", "envelope": "debezium"}
LEFT_OUT = "__debezium_unavailable_value"
TYPES = {
    "id": {"type": "int64"},
    "name": {"type": "string"},
    "price": {
        "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"},
    },
    "born": {"type": "int32", "name": "io.debezium.time.Date"},
    "seen": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "note": {"type": "string"},
}  # fmt: skip
ROW = {
    "type": "struct",
    "optional": True,
    "fields": [{**type_, "optional": True, "field": name} for name, type_ in TYPES.items()],
}
SCHEMA = {
    "type": "struct",
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {"type": "struct", "field": "source", "fields": [{"type": "int64", "field": "lsn"}]},
        {"type": "string", "field": "op"},
    ],
}
KINDS = ("bare", "left out", "schema")


class Database:
    """The source's rows, and the messages of its changes."""

    def __init__(self, kind: str) -> None:
        self.kind, self.rows, self.chance = kind, dict[int, dict[str, Any]](), random.Random(7)

    def messages(self, count: int) -> Iterator[str]:
        for number in range(count):
            message = self._change(number)
            if self.kind == "schema":
                message = {"schema": SCHEMA, "payload": message}
            key = (message.get("payload", message)["after"] or message.get("payload", message)["before"])[
                "id"
            ]
            yield json.dumps({"key": {"id": key}, "value": message}) + "\n"

    def _change(self, number: int) -> dict[str, Any]:
        source = {
            "connector": "postgresql",
            "db": "shop",
            "schema": "public",
            "table": "people",
            "lsn": number,
        }
        act = self.chance.random()
        message = {"before": None, "source": source, "ts_ms": 1_772_355_600_000 + number}
        if act < 0.4 or not self.rows:
            row = self.rows[number] = self._row(number, number)
            return {**message, "after": row, "op": "c"}
        id_ = self.chance.choice(range(number))
        while id_ not in self.rows:
            id_ = self.chance.choice(range(number))
        if act > 0.95:
            del self.rows[id_]
            return {**message, "before": {"id": id_}, "after": None, "op": "d"}
        note = self.rows[id_]["note"]
        row = self.rows[id_] = self._row(id_, number)
        if self.kind == "left out" and number % 5 == 0:
            row["note"] = note
            return {**message, "after": {**row, "note": LEFT_OUT}, "op": "u"}
        return {**message, "after": row, "op": "u"}

    def _row(self, id_: int, number: int) -> dict[str, Any]:
        cents = number % 100_000
        return {
            "id": id_,
            "name": f"user-{number % 9973}",
            "price": b64encode(cents.to_bytes(4, "big")).decode() if self.kind == "schema" else cents / 100,
            "born": number % 20_000,
            "seen": 1_772_355_600_000_000 + number,
            "note": f"a note of some length that says nothing of {number}",
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc-") as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        print("| messages | append | by envelope | ratio of CPU |\n|---|--:|--:|--:|")
        for kind in args.kinds:
            _compare(lake, Path(tmp, kind.replace(" ", "_")), kind, args)


def _compare(lake: Lake, folder: Path, kind: str, args: argparse.Namespace) -> None:
    """Print what both sides take, a table of their own in each round; the first round warms up."""
    folder.mkdir()
    database = Database(kind)
    lines = list(database.messages(args.messages))
    share = -(-len(lines) // FILES)
    files = [folder / f"{file}.jsonl" for file in range(FILES)]
    for number, file in enumerate(files):
        file.write_text("".join(lines[number * share : (number + 1) * share]))
    used: dict[str, list[tuple[float, float]]] = {"append": [], "envelope": []}
    for round_ in range(args.rounds + 1):
        for side, costs in used.items():
            table = lake.table(f"bench.{folder.name}_{side}_{round_}")
            costs.append(_ingest(table, files, SETTINGS if side == "envelope" else {"format_version": "3"}))
    _check(lake, f"bench.{folder.name}_envelope_{args.rounds}", database)
    cells, cpus = [], []
    for costs in used.values():
        seconds, cpu_seconds = (statistics.median(some) for some in zip(*costs[1:], strict=True))
        cells.append(f"{args.messages / seconds:,.0f} a second, {cpu_seconds:.1f} CPU")
        cpus.append(cpu_seconds)
    print(f"| {args.messages:,}, {kind} | {cells[0]} | {cells[1]} | {cpus[1] / cpus[0]:.2f} |", flush=True)


def _ingest(table: Any, files: list[Path], settings: dict[str, str]) -> tuple[float, float]:
    me = psutil.Process()
    used, begun = cpu(me), time.perf_counter()
    for number, file in enumerate(files):
        table.ingest(file, settings={} if number else settings)
    return time.perf_counter() - begun, cpu(me) - used


def _check(lake: Lake, name: str, database: Database) -> None:
    rows = lake.table(name).read().select("id", "name", "note").collect()
    held = {row["id"]: (row["name"], row["note"]) for row in rows}
    assert len(rows) == len(held)
    assert held == {id_: (row["name"], row["note"]) for id_, row in database.rows.items()}


if __name__ == "__main__":
    main()
