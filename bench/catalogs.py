"""Tables in the catalogs that people have: each server is started here, and a lake in it runs through the same steps.

    make catalogs                                 some minutes
    make catalogs ARGS="hive glue"                some of them
    make catalogs SPARK=3.5.8                     on that Spark

The steps: a first batch, one that drifts, changes by key, a capture that is killed in its commit and goes on, `verify` of
all, and `clean`. It prints the table of docs/cluster.md; a step that fails is told below it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import Request, urlopen

from driftline import Lake
from servers.catalogs import hive, rest
from servers.jars import class_path
from servers.mariadb import PASSWORD, USER, MariaDb
from servers.nessie import Nessie
from servers.postgres import Postgres
from servers.process import Process, free_port

BENCH = Path(__file__).parent
STEPS = ("first batch", "drift", "by key", "capture killed", "goes on", "verify", "clean")
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
RECORDS = 300
# A store that only the catalog's answers name: this has Iceberg's part for it downloaded.
IN_S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
VENDED = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
REGION = "us-east-1"
KEYS = {"AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "driftline", "AWS_SECRET_ACCESS_KEY": "of-the-tests"}
SECONDS = 300


@dataclass(frozen=True)
class Catalog:
    """A kind of catalog: how people name it, and what starts it; that yields a lake's properties."""

    title: str
    start: Callable[[Path], Any]


@contextmanager
def nessie(folder: Path) -> Iterator[dict[str, str]]:
    """Nessie, which has clients given keys of their own, for their table alone."""
    with moto(folder) as url:
        options = {"endpoint": url, "region": REGION, "access_key": "driftline", "secret_key": "of-the-tests"}
        with Nessie(folder / "nessie", "s3://lake/tables", options, tokens=url) as server:
            urlopen(Request(f"{url}/lake", method="PUT")).close()  # the bucket
            yield {"type": "rest", "uri": server.uri, "warehouse": "lake", **VENDED, **IN_S3}


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    """A server that plays Amazon's services, by its address."""
    port = free_port()
    program = Path(os.environ.get("MOTO", BENCH / ".catalogs/bin/moto_server"))
    server = Process([str(program), "-H", "127.0.0.1", "-p", str(port)], folder / "moto.log", "Running on")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


@contextmanager
def glue(folder: Path) -> Iterator[dict[str, str]]:
    with moto(folder) as url, mock.patch.dict(os.environ, KEYS):
        yield {"type": "glue", "warehouse": str(folder / "tables"), "glue.endpoint": url,
               "client.region": REGION, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}  # fmt: skip


def _jdbc(url: str, folder: Path, user: str, password: str) -> dict[str, str]:
    """A JDBC catalog's properties, with the drivers on Spark's class path."""
    return {
        "type": "jdbc", "uri": url, "jdbc.user": user, "jdbc.password": password, "jdbc.schema-version": "V1",
        "warehouse": str(folder / "tables"), "spark.driver.extraClassPath": class_path("jdbc"),
    }  # fmt: skip


@contextmanager
def postgres(folder: Path) -> Iterator[dict[str, str]]:
    place = folder / "postgres"
    place.mkdir()
    with Postgres(place) as server:
        parts = dict(part.split("=") for part in server.database().removeprefix("postgres:").split())
        yield _jdbc(f"jdbc:postgresql://127.0.0.1:{server.port}/{parts['dbname']}", folder, parts["user"], "")


@contextmanager
def mariadb(folder: Path) -> Iterator[dict[str, str]]:
    with MariaDb(folder / "mariadb") as server:
        yield _jdbc(server.url, folder, USER, PASSWORD)


CATALOGS = {
    "rest": Catalog("REST (Iceberg's test server)", rest),
    "nessie": Catalog("Nessie 0.99, which vends credentials", nessie),
    "hive": Catalog("Hive Metastore 2.3", hive),
    "glue": Catalog("Glue (moto)", glue),
    "postgres": Catalog("JDBC, PostgreSQL", postgres),
    "mariadb": Catalog("JDBC, MariaDB", mariadb),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("catalogs", nargs="*", choices=[*CATALOGS, []], help="all, if none is named")
    parser.add_argument(
        "--with",
        dest="python",
        default=sys.executable,
        help="the Python of the lakes, with a Spark of its own",
    )
    parser.add_argument("--steps", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps:
        told = json.loads(arguments.steps)
        print(json.dumps(run(told["properties"], Path(told["folder"]), again=told["again"])))
        return
    print(f"| catalog | {' | '.join(STEPS)} |\n|---|{'---|' * len(STEPS)}")
    failures = []
    for name in arguments.catalogs or CATALOGS:
        catalog = CATALOGS[name]
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as tmp:
            try:
                done = through(catalog, Path(tmp), arguments.python)
            except (RuntimeError, subprocess.SubprocessError) as error:  # no such server here, or no end
                done = {STEPS[0]: str(error).replace("\n", " ")[-300:]}
        failures += [f"{catalog.title}, {step}: {error}" for step, error in done.items() if error]
        cells = ["no" if done.get(step, "not reached") else "yes" for step in STEPS]
        print(f"| {catalog.title} | {' | '.join(cells)} |", flush=True)
    print(*failures, sep="\n")
    sys.exit(bool(failures))


def through(catalog: Catalog, folder: Path, python: str) -> dict[str, str]:
    """Each step that was reached, with its error, if it had one. The lakes run in ``python``, the servers in this one."""
    with catalog.start(folder) as properties:
        killed = _process(python, properties, folder, again=False)
        done: dict[str, str] = json.loads(done_file(folder).read_text())
        died = killed.returncode == -signal.SIGKILL
        done["capture killed"] = "" if died else f"it ended with {killed.returncode}: {killed.stderr[-800:]}"
        if died:
            second = _process(python, properties, folder, again=True)
            done |= json.loads(second.stdout.splitlines()[-1]) if second.stdout.strip() else {}
            if second.returncode:
                done["goes on"] = second.stderr[-800:]
    return done


def _process(
    python: str, properties: Mapping[str, str], folder: Path, *, again: bool
) -> subprocess.CompletedProcess[str]:
    """Take the steps up to the kill, or ``again``, those after it, in a process of their own: of one Spark."""
    told = json.dumps({"properties": properties, "folder": str(folder), "again": again})
    return subprocess.run(
        [python, __file__, "--steps", told],
        capture_output=True, text=True, check=False, start_new_session=True, timeout=SECONDS,
    )  # fmt: skip


def done_file(folder: Path) -> Path:
    """The file of the steps up to the kill, which takes what has been printed with it."""
    return folder / "done.json"


def run(properties: dict[str, str], folder: Path, *, again: bool) -> dict[str, str]:
    """Take the steps in this process; returns their errors."""
    lake = Lake.open(folder / "lake", properties={**SPARK, **properties})
    steps = after_the_kill(lake, folder) if again else before_the_kill(lake, folder)
    done: dict[str, str] = {}
    for name, step in steps.items():
        if not again:
            done_file(folder).write_text(json.dumps(done))
        try:
            step()
            done[name] = ""
        except Exception as error:
            done[name] = f"{type(error).__name__}: {error}"[:800]
            if not again:
                done_file(folder).write_text(json.dumps(done))
            raise
    return done


def before_the_kill(lake: Lake, folder: Path) -> dict[str, Callable[[], object]]:
    events, orders = lake.table("shop.events"), lake.table("shop.orders")
    first = put(folder / "in/1.jsonl", ({"id": i, "item": {"n": i}} for i in range(RECORDS)))
    drift = put(
        folder / "in/2.jsonl", ({"id": f"u{i}", "item": [{"n": 1.5}], "new": True} for i in range(RECORDS))
    )
    keyed = put(folder / "keyed/1.jsonl", ({"id": i, "seq": 1, "v": "a"} for i in range(RECORDS)))
    changes = put(
        folder / "keyed/2.jsonl",
        [{"id": 1, "seq": 2, "v": 2}, {"id": 2, "seq": 2, "op": "d"}, {"id": 3, "seq": 0}],
    )
    put(folder / "live/1.jsonl", ({"id": i} for i in range(RECORDS)))

    def drifts() -> None:
        assert {change.path for change in events.ingest(drift).changes} >= {("id_string",), ("new",)}

    def by_key() -> None:
        orders.ingest(keyed, settings={"key": "id", "order_by": "seq", "delete_when": "op = 'd'"})
        told = orders.ingest(changes).to_dict()
        assert (told["updated"], told["deleted"], told["late"]) == (1, 1, 1), told

    def dies(phase: str) -> None:
        if phase == "committing":
            os.killpg(0, signal.SIGKILL)

    def captured() -> None:
        query = lake.table("shop.live").capture(
            str(folder / "live"), name="live", checkpoint=str(folder / "checkpoint"), progress=dies
        )
        query.awaitTermination()

    return {
        "first batch": lambda: events.ingest(first),
        "drift": drifts,
        "by key": by_key,
        "capture killed": captured,
    }


def after_the_kill(lake: Lake, folder: Path) -> dict[str, Callable[[], object]]:
    put(folder / "live/2.jsonl", ({"id": f"x{i}"} for i in range(RECORDS)))
    live = lake.table("shop.live")

    def goes_on() -> None:
        live.capture(
            str(folder / "live"), name="live", checkpoint=str(folder / "checkpoint")
        ).awaitTermination()
        assert live.read().count() == 2 * RECORDS

    def verified() -> None:
        for name, files in {"shop.events": "in", "shop.live": "live", "shop.orders": "keyed"}.items():
            paths = sorted(map(str, (folder / files).glob("*.jsonl")))
            verdict = lake.table(name).verify(paths, exactly=True)
            assert verdict.ok, f"{name}: {verdict.to_dict()}"

    def cleaned() -> None:
        assert lake.clean(0), "what was killed left nothing to delete"
        assert live.read().count() == 2 * RECORDS
        assert not lake.clean(0)

    return {"goes on": goes_on, "verify": verified, "clean": cleaned}


def put(path: Path, records: Any) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


if __name__ == "__main__":
    main()
