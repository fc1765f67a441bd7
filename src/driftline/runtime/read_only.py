"""Checks that a statement is read-only, by Spark's parsed plan or its first keyword."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from driftline.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How statements begin that surely write, behind comments; for comments within comments, Spark is asked.
_BEGINS = re.compile(
    r"(?>\s|--(?:\\\n|[^\n])*\n|/\*(?:(?!/\*).)*?\*/)*+(update|(?:insert|drop|truncate|delete|merge)\s+\w+)\s",
    re.IGNORECASE | re.DOTALL,
)
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_READERS = ("Show", "Describe")  # commands whose names begin so
# These write, or may, though Spark has them for no commands.
_WRITERS = (
    *("InsertIntoStatement", "InsertIntoDir", "Call", "CallStatement"),
    *("UnresolvedExecuteImmediate", "ExecuteImmediateQuery"),  # the latter in Spark 4.0
)
_FILLS = "`driftline ingest` fills tables"
_DROPS = "`driftline drop` drops a table"
# What does it instead, by how the names of Spark's plans begin.
_INSTEAD = {
    ("InsertIntoStatement", "LoadData", "CreateTable", "ReplaceTable"): _FILLS,
    ("DropTable",): _DROPS,
    ("CreateView", "CreateIcebergView", "AlterView"): "`driftline view` makes views",
    ("SetCommand", "ResetCommand"): "Spark's settings stand in driftline.toml, under [catalog]",
    ("SetCatalog",): "name tables as namespace.table",
    (
        *("Alter", "AddColumns", "DropColumns", "RenameColumn", "RenameTable", "ReplaceColumns"),
        *("CommentOnTable", "SetTableProperties", "UnsetTableProperties", "SetWriteDistribution"),
        *("AddPartitionField", "DropPartitionField", "ReplacePartitionField", "DropIdentifierFields"),
        "SetIdentifierFields",
    ): "`driftline alter` changes tables",
}  # fmt: skip

_BY_WORDS = {"drop table": _DROPS}


def must_begin_to_read(sql: str, otherwise: str) -> None:
    """Raise UsageError for SQL whose first word writes, as `must_read` does, which judges all else."""
    if begins := _BEGINS.match(sql):
        words = " ".join(begins[1].lower().split())
        raise _refused(words, _FILLS if words.startswith("insert") else _BY_WORDS.get(words, otherwise))


def must_read(spark: SparkSession, sql: str, otherwise: str) -> None:
    """Raise UsageError for SQL that does more than read.

    The error names the command for that, or else gives the hint ``otherwise``.
    """
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(sql)
    except Exception:
        return
    writer = _writer(spark, plan)
    if writer is not None:
        hints = (hint for names, hint in _INSTEAD.items() if writer.startswith(names))
        raise _refused(_words(writer), next(hints, otherwise))


def _refused(words: str, hint: str) -> UsageError:
    return UsageError(f"SQL: a query only reads, and this is {words!r}; nothing of it was run", hint)


def _writer(spark: SparkSession, plan: Any) -> str | None:
    """The first part of a parsed statement that does more than read."""
    from py4j.java_gateway import is_instance_of

    gateway: Any = spark.sparkContext._gateway
    for node in _plans(plan):
        # The parsed plan decides, not keywords: INSERT, CALL and EXECUTE IMMEDIATE write, though they are no
        # commands.
        kind = str(node.getClass().getSimpleName())
        if kind == "ExplainCommand":
            if (inner := _writer(spark, node.logicalPlan())) is not None:
                return inner
        elif kind in _WRITERS or (is_instance_of(gateway, node, _COMMAND) and not kind.startswith(_READERS)):
            return kind
    return None


def _plans(plan: Any) -> Iterator[Any]:
    """A parsed statement and those in it."""
    yield plan
    for group in (plan.children(), plan.innerChildren(), plan.subqueries()):
        iterator = group.iterator()
        while iterator.hasNext():
            child = iterator.next()
            if hasattr(child, "children"):
                yield from _plans(child)


def _words(kind: str) -> str:
    """A part of a plan as a person's words.

    >>> _words("DropIcebergView"), _words("ClearCacheCommand$"), _words("InsertIntoStatement")
    ('drop view', 'clear cache', 'insert into')
    """
    plain = re.sub(r"Iceberg|Unresolved|(Command|Statement)\$?$", "", kind)
    return re.sub(r"(?<!^)(?=[A-Z])", " ", plain).lower()
