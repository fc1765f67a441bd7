"""A capture is killed at every point that matters, twice in a row, and again after its tables were tidied up: in the end
every record is there once."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

from driftline.runtime.java import QUICK
from servers.fixtures import kafka  # noqa: F401
from servers.kafka import Kafka
from servers.lakehouse import Lakehouse
from servers.registry import Registry

# Where each start dies: at the making of the table, then in the batch after it, again and again, until that is in.
DEATHS = [
    ("committing", 1),
    ("observing", 2),
    ("planning", 1),
    ("writing", 1),
    ("quarantining", 1),
    ("committing", 1),
    ("committed", 1),
    ("committed", 1),
]
TIDY = (5, 7)  # before these, snapshots expire to the last one and files are compacted
RECORDS = 3  # of one batch, and one that is none


def batch(number: int) -> list[str]:
    """Records that give the table a column each time, and one that does not parse."""
    good = [json.dumps({"id": RECORDS * number + i, f"c{number}": i, "a": i}) for i in range(RECORDS)]
    return [*good, f"broken {number}"]


def start(told: dict[str, Any]) -> tuple[int, str, str]:
    """One run of the capture in a process group of its own."""
    env = {**os.environ, "SPARK_SUBMIT_OPTS": QUICK}
    script = Path(__file__).with_name("killed.py")
    running = subprocess.Popen(
        [sys.executable, script, json.dumps(told)],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    out, err = running.communicate(timeout=600)
    return running.returncode, out, err


def died_everywhere(
    told: dict[str, Any], more: Callable[[int], object], deaths: list[tuple[str, int]] = DEATHS
) -> dict[str, Any]:
    """Kills the capture at each of the deaths, with one more batch to come each time; returns what is there in the end."""
    more(0)
    for number, death in enumerate(deaths):
        more(number + 1)
        code, out, err = start({**told, "die": death, "tidy": number in TIDY})
        assert (code, out) == (-signal.SIGKILL, ""), err
    code, out, err = start(told)
    assert code == 0, err
    return json.loads(out)


def check(found: dict[str, Any], deaths: list[tuple[str, int]] = DEATHS) -> None:
    batches = len(deaths) + 1
    rows = found["table"]
    assert rows["rows"] == rows["ids"] == RECORDS * batches
    assert {c for c in rows if c.startswith("c")} == {f"c{n}" for n in range(batches)}
    assert [n for c, n in rows.items() if c.startswith("c")] == [RECORDS] * batches
    assert found["quarantine"] == {"rows": batches, "records": batches}


def test_files(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    told = {"lake": str(tmp_path / "lake"), "source": str(source), "table": "t.t", "name": "t",
            "options": {"max_files": 1}}  # fmt: skip
    check(died_everywhere(told, lambda n: (source / f"{n}.json").write_text("\n".join(batch(n)))))


def test_files_into_a_store(tmp_path, lakehouse: Lakehouse):
    """What the lake and the checkpoint are in is an object store; what a process leaves there, `clean` finds."""
    source, deaths = tmp_path / "in", [("committing", 2), ("committed", 1)]
    source.mkdir()
    told = {"lake": lakehouse.warehouse, "properties": {"type": "rest", "uri": lakehouse.rest.uri, **lakehouse.reach},
            "stores": {"s3": lakehouse.s3.options}, "source": str(source), "table": "faults.t", "name": "t",
            "options": {"max_files": 1}}  # fmt: skip
    found = died_everywhere(told, lambda n: (source / f"{n}.json").write_text("\n".join(batch(n))), deaths)

    check(found, deaths)
    assert found["left"]
    assert all(path.startswith(f"{lakehouse.warehouse}/") for path in found["left"])


def test_kafka(tmp_path, kafka: Kafka):  # noqa: F811
    told = {"lake": str(tmp_path / "lake"), "source": f"kafka://{kafka.address}/faults", "table": "t.t", "name": "t",
            "options": {"max_records": RECORDS + 1}}  # fmt: skip
    check(died_everywhere(told, lambda n: kafka.send("faults", [r.encode() for r in batch(n)], partition=0)))


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


def test_kafka_of_typed_values(tmp_path, kafka: Kafka):  # noqa: F811
    deaths = [("writing", 2), ("committed", 1)]
    with Registry() as registry:
        options = {"max_records": RECORDS + 1, "value_format": "avro", "registry": {"url": registry.url}}
        told = {"lake": str(tmp_path / "lake"), "source": f"kafka://{kafka.address}/typed", "table": "t.t", "name": "t",
                "options": options}  # fmt: skip
        found = died_everywhere(
            told, lambda n: kafka.send("typed", [framed(r, registry) for r in batch(n)], partition=0), deaths
        )
    check(found, deaths)
