"""Every public method of the Python interface once Java has died: what each raises, as JSON on standard output."""

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from inspect import getattr_static, isfunction
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import SparkContext

from driftline import Lake, PatternTables, Table
from driftline.capture.query import CaptureQuery
from driftline.core.changes import RelaxColumn

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Lake.alter": ("ALTER TABLE s.t RENAME COLUMN n TO m",),
    "Lake.query": ("SELECT 1",),
    "Lake.sql": ("SELECT 1",),
    "Lake.fan_out": ("s.{a}",),
    "Lake.table": ("s.t",),
    "Lake.view": ("s.all", "s.*"),
    "PatternTables.split": ("s.t",),
    "Table.alter": (RelaxColumn(("n",)),),
    "Table.erase": ("id = 1",),
    "Table.expire": (timedelta(days=1),),
    "Table.export_quarantine": ("q.jsonl",),
    "Table.promote": ("n",),
    "Table.resolve": ("n", "string"),
    "CaptureQuery.lag": (0,),
    "CaptureQuery.awaitTermination": (1,),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "PatternTables.capture": {"name": "again"},
    "PatternTables.seek": {"name": "again", "to": "earliest"},
    "Table.capture": {"name": "again"},
    "Table.seek": {"name": "again", "to": "earliest"},
}
OF_OTHERS = {"Lake.open", "Lake.attach", "Lake.altered", "Lake.on", "Lake.close"}


def outcome(call: Callable[[], Any]) -> list[str | None]:
    """The classes, up to Exception, and the message of what a call raises; none if it returns."""
    try:
        call()
    except Exception as error:
        return [*(kind.__name__ for kind in type(error).__mro__), str(error).split("\n")[0]]
    return []


def main(folder: Path) -> None:
    lake = Lake.open(folder / "lake")
    table = lake.table("s.t")
    table.ingest([{"id": 1, "n": 1}, {"id": 2, "n": "x"}])
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text('{"id": 3}\n')
    came = Event()
    query = table.capture(folder / "in", name="c", every=3600, on_batch=lambda _: came.set())
    assert came.wait(120)
    ARGUMENTS["PatternTables.ingest"] = ARGUMENTS["PatternTables.verify"] = ([{"a": 1}],)
    ARGUMENTS["Table.ingest"] = ARGUMENTS["Table.verify"] = ([{"id": 1}],)
    for called in ("PatternTables.capture", "PatternTables.seek", "Table.capture", "Table.seek"):
        ARGUMENTS[called] = (folder / "in",)
    SparkContext._gateway.proc.kill()  # type: ignore[union-attr]
    SparkContext._gateway.proc.wait()  # type: ignore[union-attr]
    outcomes = {}
    tables = lake.fan_out("s.{a}")
    for target, cls in ((lake, Lake), (table, Table), (tables, PatternTables), (query, CaptureQuery)):
        for name in dir(cls):
            member, called = getattr_static(cls, name), f"{cls.__name__}.{name}"
            if name.startswith("_") or called in OF_OTHERS:
                continue
            given, options = ARGUMENTS.get(called, ()), OPTIONS.get(called, {})
            outcomes[called] = (
                outcome(partial(getattr(target, name), *given, **options))
                if isfunction(member)
                else outcome(partial(getattr, target, name))
            )
    closed = outcome(lake.close)
    with Lake.open(folder / "lake") as fresh:
        rows = fresh.table("s.t").ingest([{"id": 4}]) and fresh.table("s.t").read().count()
        old = outcome(lambda: table.ingest([{"id": 5}]))
    json.dump({"outcomes": outcomes, "closed": closed, "rows": rows, "old": old}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
