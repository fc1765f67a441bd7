"""Captures that die where they are told to: `killed.py JSON`. The whole process group goes, Python and Java, by SIGKILL.

The JSON is a list of captures, which run at once. Each has: lake, its properties, ducklake, stores, source, table, name,
options of the capture; `die`: phase and how often it begins before; `tidy`: first compacts the tables and expires all
snapshots but the last, of Iceberg. The process dies once each capture is where it is to die. Without `die` they go to their end, and it prints what is
there then, and which files were left by what died, and are deleted.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from driftline import Lake
from driftline.runtime.stores import configure

SECONDS = 300  # that one capture waits for the others before it dies


def main(told: list[dict]) -> None:
    for one in told:
        for kind, options in one.get("stores", {}).items():
            configure(kind, options)
    lakes = [opened(one) for one in told]
    for one, lake in zip(told, lakes, strict=True):
        for name in tables(one) if one.get("tidy") and "ducklake" not in one else ():
            if lake.spark.catalog.tableExists(f"lake.{name}"):
                tidy(lake, name)
    ready = threading.Barrier(len(told), lambda: os.killpg(0, signal.SIGKILL))
    running = [
        lake.table(one["table"]).capture(
            one["source"], name=one["name"], progress=deadly(one.get("die"), ready), **one.get("options", {})
        )
        for one, lake in zip(told, lakes, strict=True)
    ]
    for query in running:
        query.awaitTermination()
    print(json.dumps([found(one, lake) for one, lake in zip(told, lakes, strict=True)]))


def opened(one: dict) -> Lake:
    properties = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",  # of Spark's 200, expiry alone would take a minute
        **one.get("properties", {}),
    }
    return Lake.open(one["lake"], properties=properties, ducklake=one.get("ducklake"))


def tables(one: dict) -> tuple[str, str]:
    return one["table"], f"{one['table']}__quarantine"


def deadly(die: tuple[str, int] | None, ready: threading.Barrier) -> Callable[[str], None]:
    phase, times = die or (None, 0)
    left = [times]

    def progress(now: str) -> None:
        if now == phase:
            left[0] -= 1
            if left[0] <= 0:
                ready.wait(SECONDS)

    return progress


def found(one: dict, lake: Lake) -> dict:
    left = [orphan.path for orphan in lake.clean(0)]
    table, kept = tables(one)
    rows = lake.sql(f"select * from {table}")
    columns = [f"count({column}) as {column}" for column in rows.columns]
    (counts,) = rows.selectExpr("count(1) as rows", "count(distinct id) as ids", *columns).collect()
    (bad,) = lake.sql(f"select count(1) as rows, count(distinct raw) as records from {kept}").collect()
    numbers = sorted(row.n for row in rows.select("n").collect()) if "n" in rows.columns else []
    return {"table": counts.asDict(), "n": numbers, "quarantine": bad.asDict(), "left": left}


def tidy(lake: Lake, name: str) -> None:
    lake.sql(f"call lake.system.rewrite_data_files('{name}', options => map('rewrite-all', 'true'))")
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{name}', retain_last => 1, "
        "older_than => timestamp'2100-01-01')"
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
