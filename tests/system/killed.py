"""A capture that dies where it is told to: `killed.py JSON`. The whole process group goes, Python and Java, by SIGKILL.

The JSON: lake, its properties, stores, source, table, name, options of the capture; `die`: phase and how often it begins
before; `tidy`: first compacts the tables and expires all snapshots but the last. Without `die` it prints what is there
in the end, and which files were left by what died, and are deleted.
"""

import json
import os
import signal
import sys

from driftline import Lake
from driftline.runtime.stores import configure


def main(told: dict) -> None:
    for kind, options in told.get("stores", {}).items():
        configure(kind, options)
    properties = {"spark.master": "local[2]", "spark.driver.memory": "1g", **told.get("properties", {})}
    lake = Lake.open(told["lake"], properties=properties)
    table, kept = told["table"], f"{told['table']}__quarantine"
    if told.get("tidy"):
        for name in (table, kept):
            if lake.spark.catalog.tableExists(f"lake.{name}"):
                tidy(lake, name)
    phase, times = told.get("die") or (None, 0)
    left = [times]

    def progress(now: str) -> None:
        if now == phase:
            left[0] -= 1
            if left[0] <= 0:
                os.killpg(0, signal.SIGKILL)

    query = lake.table(table).capture(
        told["source"], name=told["name"], progress=progress, **told.get("options", {})
    )
    query.awaitTermination()
    left = [orphan.path for orphan in lake.clean(0)]
    found = lake.sql(f"select * from {table}")
    columns = [f"count({column}) as {column}" for column in found.columns]
    (counts,) = found.selectExpr("count(1) as rows", "count(distinct id) as ids", *columns).collect()
    (bad,) = lake.sql(f"select count(1) as rows, count(distinct raw) as records from {kept}").collect()
    print(json.dumps({"table": counts.asDict(), "quarantine": bad.asDict(), "left": left}))


def tidy(lake: Lake, name: str) -> None:
    lake.sql(f"call lake.system.rewrite_data_files('{name}', options => map('rewrite-all', 'true'))")
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{name}', retain_last => 1, "
        "older_than => timestamp'2100-01-01')"
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
