"""`catalog_tries.py HOME KIND EVERY`, with the shim loaded: commits to a DuckLake's catalog, without Spark, each try in a process of
its own that is struck at one of EVERY so many operations; prints a line of JSON for each, with what others find afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  before the processes fork

from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
from driftline.formats.ducklake.commit import commit, landed
from driftline.formats.ducklake.rows import CommitMessage, TableCommit
from driftline.runtime import duckdb as engine
from faults.control import Control, Mode

SCHEMA = Schema(Struct((Field("a", LONG, 1),)))


def make_table(catalog: CatalogDatabase, name: str) -> None:
    intent, message = TableCommit(name, None, SCHEMA, "/nowhere/"), CommitMessage("me", "text", {})
    catalog.write(lambda connection: commit(connection, [intent], message), partial(landed, message=message))


def tables(connection: Connection) -> list[str]:
    return [name for (name,) in connection.rows("SELECT table_name FROM meta.ducklake_table ORDER BY 1")]


def in_a_process(work: Callable[[], object]) -> Any:
    """The result of work in a forked process, or its error as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        try:
            answer: object = work()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else "died"


def tried(home: Path, catalog: CatalogDatabase, control: Control, mode: Mode, at: int) -> dict[str, Any]:
    """One commit that is struck; then what another process reads, and whether a further one commits."""
    shutil.rmtree(home / "lake", ignore_errors=True)
    shutil.copytree(home / "base", home / "lake")

    def struck() -> None:
        control.arm(home / "lake", mode, at, os.getpid())
        make_table(catalog, "s.t")

    said = in_a_process(struck)
    found = control.disarm()
    read = in_a_process(lambda: catalog.read(tables))
    last = in_a_process(lambda: (make_table(catalog, "s.more"), catalog.read(tables))[1])
    return {"mode": mode.name, "at": at, "number": found.number, "operation": found.operation, "path": found.path,
            "said": said, "read": read, "last": last}  # fmt: skip


def main(home: Path, kind: str, every: int) -> None:
    catalog, control = CatalogDatabase.of(kind, home / "lake"), Control(Path(os.environ["FAULTS_CONTROL"]))
    in_a_process(catalog.make)
    shutil.copytree(home / "lake", home / "base")
    assert not engine.database.cache_info().currsize, (
        "a database that was open here would be open in all processes"
    )
    for mode in (Mode.KILL, Mode.FULL):
        at = 1
        while (one := tried(home, catalog, control, mode, at))["number"]:
            print(json.dumps(one), flush=True)
            at += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
