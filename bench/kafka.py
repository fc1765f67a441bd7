"""Topics next to plain Structured Streaming: JSON, and Avro behind a schema registry, side by side on one machine.

    PYTHONPATH=tests python bench/kafka.py [--records 1000000] [--turns 3] [--only avro]

A broker and a registry are started here. Plain Spark reads the topic with a schema that it is given (`from_json`,
`from_avro` behind the header), and appends to an Iceberg table with the same columns; driftline captures it. Each takes
the whole topic as one micro-batch, in turns, into tables that are there before; the quickest turn of each counts.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
from confluent_kafka import Producer
from events import event
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from stream import NEW_TABLE, SCHEMA

from driftline import Lake
from servers.kafka import Kafka
from servers.registry import Registry

_LISTS = {"sku": "string", "price": "double", "n": "long"}


def record(name: str, fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": k, "type": v} for k, v in fields.items()]}


AVRO = record(
    "Event",
    {
        "id": "long",
        "event": "string",
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "user": record("User", {"id": "long", "name": "string", "country": "string", "vip": "boolean"}),
        "session": "string",
        "amount": "double",
        "quantity": "long",
        "code": "long",
        "device": record(
            "Device", {"os": "string", "version": "string", "screen": record("Screen", {"w": "long", "h": "long"})}
        ),
        "tags": {"type": "array", "items": "string"},
        "items": {"type": "array", "items": record("Item", _LISTS)},
        "referrer": ["null", "string"],
        "ok": "boolean",
    },
)  # fmt: skip


def values(fmt: str, count: int, registry: Registry) -> Iterator[bytes]:
    """The events as values of a topic: seeded, the same at each call."""
    rng, number = random.Random(7), registry.register("events-value", AVRO)
    head, schema = b"\0" + number.to_bytes(4, "big"), fastavro.parse_schema(AVRO)
    for i in range(count):
        one = event(i, rng)
        if fmt == "json":
            yield json.dumps(one, separators=(",", ":")).encode()
            continue
        out = io.BytesIO(head)
        out.seek(len(head))
        one["at"] = 1_772_000_000_000_000 + i
        fastavro.schemaless_writer(out, schema, one)
        yield out.getvalue()


def fill(kafka: Kafka, topic: str, made: Iterator[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 50, "compression.type": "lz4"})
    for i, value in enumerate(made):
        producer.produce(topic, value, partition=i % 2)
        if i % 5000 == 0:
            producer.flush()
    producer.flush()


def plain(lake: Lake, kafka: Kafka, fmt: str, folder: Path) -> Callable[[str, str], None]:
    def row() -> Column:
        if fmt == "json":
            return F.from_json(F.col("value").cast("string"), SCHEMA)
        return from_avro(F.expr("substring(value, 6)"), json.dumps(AVRO))

    def run(topic: str, table: str) -> None:
        read = lake.spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.address)
        read = read.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = read.load().select(row().alias("row")).select("row.*")
        out = rows.writeStream.option("checkpointLocation", str(folder / table)).trigger(availableNow=True)
        out.toTable(f"lake.{table}").awaitTermination()

    return run


def driftline(lake: Lake, kafka: Kafka, fmt: str, registry: Registry) -> Callable[[str, str], None]:
    def run(topic: str, table: str) -> None:
        url = f"kafka://{kafka.address}/{topic}"
        query = lake.table(table).capture(url, name="bench", value_format=fmt, registry=registry.url)
        query.awaitTermination()

    return run


def compare(
    lake: Lake, kafka: Kafka, registry: Registry, fmt: str, args: argparse.Namespace, folder: Path
) -> None:
    topic, warm = f"events-{fmt}", f"warm-{fmt}"
    fill(kafka, warm, values(fmt, 2000, registry))
    fill(kafka, topic, values(fmt, args.records, registry))
    sides = {
        "plain spark": plain(lake, kafka, fmt, folder),
        "driftline": driftline(lake, kafka, fmt, registry),
    }
    took: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(args.turns + 1):
        for place, (side, run) in enumerate(sides.items()):
            table = f"bench.{fmt}_{place}_{turn}"
            lake.sql(f"create table lake.{table} ({SCHEMA}) using iceberg tblproperties ({NEW_TABLE})")
            start = time.perf_counter()
            run(topic if turn else warm, table)
            took[side].append(time.perf_counter() - start)
            count = lake.sql(f"select count(*) from lake.{table}").head()[0]
            assert count == (args.records if turn else 2000), (side, count)
            lake.sql(f"drop table lake.{table} purge")
    best = {side: min(times[1:]) for side, times in took.items()}
    shown = ", ".join(f"{side} {seconds:.1f} s" for side, seconds in best.items())
    print(
        f"{fmt}: {args.records:,} records: {shown}, ratio {best['driftline'] / best['plain spark']:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=["json", "avro"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with Kafka(folder / "kafka") as kafka, Registry() as registry:
            lake = Lake.open(folder / "lake")
            for fmt in [args.only] if args.only else ["json", "avro"]:
                compare(lake, kafka, registry, fmt, args, folder)


if __name__ == "__main__":
    main()
