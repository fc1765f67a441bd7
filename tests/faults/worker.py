"""`worker.py HOME`: runs the commands that it is given, a line of JSON each, on the lake of a format in HOME.

A command is run as if the process had just begun: with a catalog of its own, and without an open database.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from driftline import Lake
from driftline.errors import DriftlineError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.lake import DuckLake
from driftline.runtime import duckdb as engine
from driftline.runtime.session import embedded_catalog, open_session
from faults.cases import CASES, lake_at, prepare, prepare_source, relocated
from faults.control import Control, Mode

SETTINGS = {"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}


def lake_of(session: SparkSession, home: Path, format_: str, folder: str = "lake") -> Lake:
    fresh = session.newSession()
    if format_ == "iceberg":
        for key, value in embedded_catalog(home / folder).items():
            fresh.conf.set(f"spark.sql.catalog.lake.{key}", value)
        return Lake.attach(fresh, "lake")
    return Lake(fresh, "lake", DuckLake(fresh, CatalogDatabase.of(format_, home / "lake")))


def close_databases() -> None:
    engine.database.cache_clear()
    gc.collect()


def run(lake: Lake, home: Path, command: str) -> None:
    if command == "prepare":
        prepare(lake, home)
        if home.name == "iceberg":
            (home / "source").mkdir()
            prepare_source(lake_of(lake.spark, home, home.name, "source"), home)
    elif command == "relocate elsewhere":
        relocated(home, "elsewhere")
    elif command == "check home":
        lake_at(home, "lake").check_open(writes=True)
    elif command == "clean 0":
        lake.clean(0)
    elif command == "open":
        for name in lake.format.tables():
            lake.format.table(name).read().count()
    else:
        CASES[command].run(lake, home)


def failure(error: Exception) -> dict[str, Any]:
    """An error of driftline's is for people; any other is a fault that it does not know."""
    known = isinstance(error, DriftlineError)
    return {"error": str(error), "known": known, "trace": "".join(traceback.format_exception(error))}


class Acknowledged(logging.Handler):
    """The number of file operations behind which each batch was reported."""

    def __init__(self, control: Control | None) -> None:
        super().__init__(logging.INFO)
        self.control = control
        self.counts: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.control is not None and getattr(record, "event", None) == "batch":
            self.counts.append(self.control.count)


def main(home: Path) -> None:
    session = open_session(home / "iceberg" / "lake", properties=SETTINGS)
    control = Control(Path(os.environ["FAULTS_CONTROL"])) if "FAULTS_CONTROL" in os.environ else None
    acknowledged = Acknowledged(control)
    logging.getLogger("driftline").setLevel(logging.INFO)
    logging.getLogger("driftline").addHandler(acknowledged)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        place = home / request["format"]
        lake, answer = lake_of(session, place, request["format"]), {}
        acknowledged.counts.clear()
        if control is not None and request["mode"]:
            control.arm(place / "lake", Mode(request["mode"]), request["at"], os.getpgrp())
        try:
            for command in request["commands"]:
                run(lake, place, command)
            if request["mode"] == Mode.RECORD:
                answer = {"acknowledged": acknowledged.counts}
        except Exception as error:
            answer = failure(error)
        finally:
            close_databases()  # as when a process ends, with its fault
            if control is not None:
                control.disarm()
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
