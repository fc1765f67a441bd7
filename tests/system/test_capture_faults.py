"""Captures die at every point that matters, twice in a row, and again after their tables were tidied up: in the end every
record is there once. All of them run in one process, as its start is what takes long; at some of the points it is killed, at
the others their lakes become what a kill would have left of them (`killed.py`). Each format of a table dies at every point;
captures that differ by their sources alone share the points."""

from __future__ import annotations

import io
import json
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro

from answering import answering
from core.test_upsert import Event
from lake.test_capture_keys import NO_KEY, folded, stream_of
from lake.test_keyed import SETTINGS
from servers.kafka import Kafka
from servers.lakehouse import Lakehouse
from servers.registry import Registry

Deaths = dict[int, tuple[str, int]]  # by the numbers of starts: the phase, and which one of that name
# At the making of the table, then in the batch after it, again and again, until that is in.
EVERYWHERE: Deaths = {
    0: ("committing", 1),
    1: ("observing", 2),
    2: ("planning", 1),
    3: ("writing", 1),
    4: ("quarantining", 1),
    5: ("committing", 1),
    6: ("committed", 1),
    7: ("committed", 1),
}
# These two together die everywhere as well, each of them at the making of its table or behind it, and tidied up.
HALF: Deaths = {0: ("committing", 1), 3: ("writing", 2), 5: ("committing", 1), 7: ("committed", 1)}
OTHER_HALF: Deaths = {
    1: ("observing", 2),
    2: ("planning", 1),
    4: ("quarantining", 1),
    6: ("committed", 1),
    7: ("committed", 1),
}
TIDY = (5, 7)  # before these, snapshots expire to the last one and files are compacted
KILLED = (3, 4)  # these end by a kill; behind the others lakes are as one would leave them
# No kill can be imitated in a store.
STORED: Deaths = {3: ("committing", 2), 4: ("committed", 1)}
TYPED: Deaths = {3: ("writing", 2), 4: ("committed", 1)}
RECORDS = 3  # of one batch, and one that is none


def batch(number: int) -> list[str]:
    """Records that give the table a column each time, and one that does not parse."""
    good = [json.dumps({"id": RECORDS * number + i, f"c{number}": i, "a": i}) for i in range(RECORDS)]
    return [*good, f"broken {number}"]


@dataclass(frozen=True)
class Faulty:
    """A capture, as `killed.py` is told of it, and what has one more batch come."""

    told: dict[str, Any]
    more: Callable[[int], object]
    deaths: Deaths

    @classmethod
    def into(
        cls,
        table: str,
        lake: str,
        source: str,
        more: Callable[[int], object],
        deaths: Deaths,
        **options: Any,
    ) -> Faulty:
        told = {
            "lake": lake,
            "source": source,
            "table": table,
            "name": table.partition(".")[2],
            "options": options,
        }
        return cls(told, more, deaths)

    @classmethod
    def of_files(cls, table: str, lake: str, folder: Path, deaths: Deaths) -> Faulty:
        folder.mkdir()
        return cls.into(
            table,
            lake,
            str(folder),
            lambda n: (folder / f"{n}.json").write_text("\n".join(batch(n))),
            deaths,
            max_files=1,
        )

    def start(self, number: int) -> dict[str, Any]:
        """The arguments of the start with this number: if it is to die there, one more batch has come before."""
        if number not in self.deaths:
            return {**self.told, "waits": True}
        self.more(sorted(self.deaths).index(number) + 1)
        return {**self.told, "die": self.deaths[number], "tidy": number in TIDY}

    def check(self, found: dict[str, Any]) -> None:
        batches = len(self.deaths) + 1
        rows = found["table"]
        assert rows["rows"] == rows["ids"] == RECORDS * batches
        assert {c for c in rows if c.startswith("c")} == {f"c{n}" for n in range(batches)}
        assert [n for c, n in rows.items() if c.startswith("c")] == [RECORDS] * batches
        assert found["quarantine"] == {"rows": batches, "records": batches}


@dataclass(frozen=True)
class Keyed(Faulty):
    """A capture of the files of a folder into a table with a key; the ``stream`` comes in ``batches`` of them."""

    stream: list[Event]
    batches: int

    @classmethod
    def of_changes(
        cls, table: str, lake: str, folder: Path, deaths: Deaths, ducklake: str | None = None
    ) -> Keyed:
        folder.mkdir()
        stream, batches = stream_of(random.Random(table), 120), len(deaths) + 1

        def more(number: int) -> None:
            records = [NO_KEY | {"seq": number}, *stream[number * size : (number + 1) * size]]
            (folder / f"{number}.json").write_text("\n".join(map(json.dumps, records)))

        size = -(-len(stream) // batches)
        told = Faulty.into(table, lake, str(folder), more, deaths, settings=SETTINGS, max_files=1).told
        if ducklake is not None:
            told["ducklake"] = ducklake
        return cls(told, more, deaths, stream, batches)

    def check(self, found: dict[str, Any]) -> None:
        assert found["n"] == sorted(folded(self.stream).values())
        assert found["quarantine"] == {"rows": self.batches, "records": self.batches}


def died_everywhere(*captures: Faulty) -> list[dict[str, Any]]:
    """Has the captures die at each of their deaths; returns what is there of each in the end."""
    for capture in captures:
        capture.more(0)
    with answering(Path(__file__).with_name("killed.py")) as starts:
        for number in EVERYWHERE:
            told = [capture.start(number) for capture in captures]
            if number in KILLED:
                assert starts.dies({"captures": told, "kill": True}) == -signal.SIGKILL, starts.printed()
            else:
                assert starts.ask({"captures": told, "kill": False}) == []
        found: list[dict[str, Any]] = starts.ask(
            {"captures": [capture.told for capture in captures], "kill": False}
        )
    for capture, each in zip(captures, found, strict=True):
        capture.check(each)
    return found


def framed(line: str, registry: Registry) -> bytes:
    """A record of `batch` in Avro behind the id of its schema; what is none as it is."""
    if line.startswith("broken"):
        return line.encode()
    record = json.loads(line)
    fields = [{"name": name, "type": "long"} for name in record]
    schema = {"type": "record", "name": "Record", "fields": fields}
    value = io.BytesIO()
    fastavro.schemaless_writer(value, schema, record)
    return b"\0" + registry.register("typed-value", schema).to_bytes(4, "big") + value.getvalue()


def of_a_store(folder: Path, lakehouse: Lakehouse) -> tuple[Faulty, Faulty]:
    """Captures of files, one of them into a table with a key; the lake, and their checkpoints, are in an object store."""
    files = Faulty.of_files("faults.t", lakehouse.warehouse, folder / "store-in", STORED)
    files.told.update(
        properties={"type": "rest", "uri": lakehouse.rest.uri, **lakehouse.reach},
        stores={"s3": lakehouse.s3.options},
    )
    keyed = Keyed.of_changes("faults.keyed", "", folder / "store-changes", STORED)
    keyed.told.update(
        {**files.told, **{name: keyed.told[name] for name in ("source", "table", "name", "options")}}
    )
    return files, keyed


def of_topics(kafka: Kafka, registry: Registry, lake: str) -> tuple[Faulty, Faulty]:
    """A capture of JSON, and one of Avro."""
    return (
        Faulty.into(
            "t.topic",
            lake,
            f"kafka://{kafka.address}/faults",
            lambda n: kafka.send("faults", [r.encode() for r in batch(n)], partition=0),
            OTHER_HALF,
            max_records=RECORDS + 1,
        ),
        Faulty.into(
            "t.typed",
            lake,
            f"kafka://{kafka.address}/typed",
            lambda n: kafka.send("typed", [framed(r, registry) for r in batch(n)], partition=0),
            TYPED,
            max_records=RECORDS + 1,
            value_format="avro",
            registry={"url": registry.url},
        ),
    )


def test_files_topics_and_changes_by_key(tmp_path: Path, kafka: Kafka, lakehouse: Lakehouse) -> None:
    """In the end `clean` finds the files that dead processes left in a store."""
    lake = str(tmp_path / "lake")
    # A DuckLake has no phase of its own for the quarantine.
    in_one = EVERYWHERE | {4: ("committing", 1)}
    with Registry() as registry:
        found, *_ = died_everywhere(
            *of_a_store(tmp_path, lakehouse),
            *of_topics(kafka, registry, lake),
            Faulty.of_files("t.files", lake, tmp_path / "in", HALF),
            Keyed.of_changes("t.keyed", lake, tmp_path / "changes", EVERYWHERE),
            Keyed.of_changes("t.keyed_too", str(tmp_path / "duck"), tmp_path / "more", in_one, "sqlite"),
        )
    assert found["left"]
    assert all(path.startswith(f"{lakehouse.warehouse}/") for path in found["left"])
