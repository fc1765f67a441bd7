"""SQL over the records of a quarantine, by Spark or, without Java, by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.schema.naming import QUARANTINE
from driftline.operations.duckdb_query import query
from driftline.quarantine.replays import last_replay, waits
from driftline.runtime.duckdb import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.open import EmbeddedLake

# Takes SQL that both engines read, and returns its rows: groups of records, never the records. In braces
# stand ``rows``, the condition that a record ``waits``, and what the engines spell differently: ``row``,
# ``millis``, and ``all`` behind the arguments of `regexp_replace`.
Ask: TypeAlias = Callable[[str], Sequence[Mapping[str, Any]]]

# In this order records came.
ORDER = (
    "{row}(r.quarantined_at, coalesce(r.source, ''), coalesce(r.line, 0), coalesce(r.topic, ''), "
    "coalesce(r.partition, 0), coalesce(r.offset, 0))"
)
_SPARK = {"rows": "{rows}", "row": "struct", "millis": "unix_millis", "all": ""}
_DUCKDB = {"row": "row", "millis": "epoch_ms", "all": ", 'g'"}


def by_spark(rows: DataFrame, reached: int) -> Ask:
    """Ask Spark about the ``rows`` of a quarantine. ``reached``: the last replay that its table has."""
    words = {**_SPARK, "waits": waits(reached)}
    return lambda sql: [
        row.asDict() for row in rows.sparkSession.sql(sql.format(**words), rows=rows).collect()
    ]


def by_duckdb(lake: EmbeddedLake, table: str) -> Ask | None:
    """Ask DuckDB about the quarantine of a table; None if there is none, or that takes Spark.

    Its answers raise DriftlineError where DuckDB is not installed, or does not read the quarantine.
    """
    names, own, quarantine = lake.names(), lake.table(table), lake.table(f"{table}{QUARANTINE}")
    if quarantine is None or (own is None and table in (names or ())):
        return None
    reached = last_replay(quarantine.load(), own.load().properties if own else {})
    rows = ".".join(map(identifier, quarantine.name.split(".")))
    words = {**_DUCKDB, "rows": rows, "waits": waits(reached)}

    def ask(sql: str) -> Sequence[Mapping[str, Any]]:
        """Run SQL."""
        statement = sql.format(**words)
        with query(lake.in_duckdb(statement), statement) as batches:
            answer: Sequence[Mapping[str, Any]] = batches.read_all().to_pylist()
            return answer

    return ask
