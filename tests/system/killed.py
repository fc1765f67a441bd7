"""Captures that die where they are told to: `killed.py`, told of each start of them by a line of JSON on standard input.

A line has `captures`, which run at once, and `kill`. Each capture has: lake, its properties, ducklake, stores, source, table
or pattern of tables, name, options of the capture; `settings` by table; `die`: phase and how often it begins before; `in_order`: its tables commit one
by one, so that few of them do before it dies; `tidy`: first compacts the tables and expires all snapshots but the last, of
Iceberg; `waits`: it does not run this time, but its lake is opened, as Spark starts with the way to
the stores of the first one. Without `die` they go to their end, and the answer is what is there then, whole where the table is a
pattern or `whole` is said, and which files were left by what died, and are deleted.

Once each capture is where it is to die, `kill` ends the whole process group, Python and Java, by SIGKILL. Without it the lakes
are copied at that moment: what is on the disk is what a kill leaves. The captures then end by an error, and the copies take the
place of the lakes, whatever that has done to them; so one Java serves several starts.
"""

import gc
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from unittest.mock import patch

from driftline import Lake
from driftline.core.schema.naming import QUARANTINE, is_pattern
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.runtime import duckdb
from driftline.runtime.stores import configure

SECONDS = 300  # that one capture waits for the others before it dies


class Died(Exception):
    pass


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    for number, line in enumerate(sys.stdin):
        told = json.loads(line)
        answer = started(told["captures"], number, kill=told["kill"])
        print(json.dumps(answer), file=answers, flush=True)


def one_by_one(lakes: list[Lake]) -> AbstractContextManager[object]:
    """Have the tables of a pattern commit one by one in these lakes; those of a DuckLake always commit at once."""
    at_once = IcebergCatalog.commits_at_once.fget
    folders = {lake.format.folder for lake in lakes}  # a capture's catalog is in a session of its own
    few = property(lambda catalog: 1 if catalog.folder in folders else at_once(catalog))
    return patch.object(IcebergCatalog, "commits_at_once", few)


def started(told: list[dict], number: int, *, kill: bool) -> list[dict]:
    """Run the captures; returns what is there of each in the end, nothing where they have died."""
    for one in told:
        for kind, options in one.get("stores", {}).items():
            configure(kind, options)
    all_lakes = [opened(one, number) for one in told]
    _ = all_lakes[0].spark  # starts it
    captures = [one for one in told if not one.get("waits")]
    lakes = [lake for one, lake in zip(told, all_lakes, strict=True) if not one.get("waits")]
    for one, lake in zip(captures, lakes, strict=True):
        for name in tables(one) if one.get("tidy") and "ducklake" not in one else ():
            if lake.spark.catalog.tableExists(f"lake.{name}"):
                tidy(lake, name)
    places = {Path(one["lake"]) for one in captures}
    ready = threading.Barrier(
        len(captures), (lambda: os.killpg(0, signal.SIGKILL)) if kill else lambda: copy(places)
    )
    # A kill comes also while several tables commit; a copy of the lakes must not.
    in_order = [lake for one, lake in zip(captures, lakes, strict=True) if one.get("in_order") or not kill]
    with one_by_one(in_order):
        run(captures, lakes, ready)
    if any("die" in one for one in captures):
        put_back(places)
        return []
    return [found(one, lake) for one, lake in zip(captures, lakes, strict=True)]


def run(captures: list[dict], lakes: list[Lake], ready: threading.Barrier) -> None:
    """Run the captures to their end, or until each has died."""
    running = [
        (lake.fan_out if is_pattern(one["table"]) else lake.table)(one["table"]).capture(
            one["source"], name=one["name"], progress=deadly(one.get("die"), ready), **options(one)
        )
        for one, lake in zip(captures, lakes, strict=True)
    ]
    for one, query in zip(captures, running, strict=True):
        with suppress(Died):
            query.awaitTermination()
            assert "die" not in one, f"{one['name']} into {one['lake']} ended before it died"


def options(one: dict) -> dict:
    if "settings" not in one:
        return one.get("options", {})
    by_table = one["settings"]
    of_all = (
        (lambda table: by_table.get(table, {}))
        if is_pattern(one["table"])
        else by_table.get(one["table"], {})
    )
    return {**one["options"], "settings": of_all}


def opened(one: dict, number: int) -> Lake:
    properties = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",  # of Spark's 200, expiry alone would take a minute
        # A catalog of its own for each start, with nothing open or known from the one before.
        "spark.sql.catalog.lake.start": str(number),
        **one.get("properties", {}),
    }
    return Lake.open(one["lake"], properties=properties, ducklake=one.get("ducklake"))


def tables(one: dict) -> tuple[str, str]:
    return one["table"], f"{one['table']}__quarantine"


def deadly(die: tuple[str, int] | None, ready: threading.Barrier) -> Callable[[str], None]:
    phase, times = die or (None, 0)
    left = [times]
    dies = threading.Lock()

    def progress(now: str) -> None:
        with dies:  # what other threads are about to do waits, too
            if left[0] <= 0 < times:
                raise Died
            left[0] -= now == phase
            if left[0] == 0 < times:
                ready.wait(SECONDS)
                raise Died

    return progress


def copy(places: set[Path]) -> None:
    for place in places:
        shutil.copytree(place, copy_of(place))


def put_back(places: set[Path]) -> None:
    """Has each lake be its copy, of which nothing is open in this process, as in a new one."""
    duckdb.database.cache_clear()
    gc.collect()
    for place in places:
        shutil.rmtree(place)
        copy_of(place).rename(place)


def copy_of(place: Path) -> Path:
    return place.with_name(f"{place.name} as killed")


def found(one: dict, lake: Lake) -> dict:
    if one.get("whole"):
        names = [name for name in tables(one) if lake.format.table(name).load().exists]
        return {"tables": {name: whole(lake, name) for name in names}}
    left = [orphan.path for orphan in lake.clean(0)]
    if is_pattern(one["table"]):
        namespace = one["table"].partition(".")[0]
        names = [name for name in lake.format.tables() if name.startswith(f"{namespace}.")]
        return {"tables": {name: whole(lake, name) for name in names}, "left": left}
    table, kept = tables(one)
    rows = lake.sql(f"select * from {table}")
    columns = [f"count({column}) as {column}" for column in rows.columns]
    (counts,) = rows.selectExpr("count(1) as rows", "count(distinct id) as ids", *columns).collect()
    (bad,) = lake.sql(f"select count(1) as rows, count(distinct raw) as records from {kept}").collect()
    numbers = sorted(row.n for row in rows.select("n").collect()) if "n" in rows.columns else []
    return {"table": counts.asDict(), "n": numbers, "quarantine": bad.asDict(), "left": left}


def whole(lake: Lake, name: str) -> list[str]:
    """The columns of a table in their order, with their types, then its rows; of a quarantine what was rejected, and why."""
    table = lake.table(name)
    if name.endswith(QUARANTINE):
        return sorted(map(str, table.read().select("raw", "reason", "path").collect()))
    return [*str(table.schema()).split("\n")[1:], *sorted(map(str, table.read().collect()))]


def tidy(lake: Lake, name: str) -> None:
    lake.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{name}', retain_last => 1, "
        "older_than => timestamp'2100-01-01')"
    )


if __name__ == "__main__":
    main()
