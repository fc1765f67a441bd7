"""A quarantine as it is at one time: which of its records wait, and
which of those may be sent through again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.history.batch_properties import Token
from driftline.formats.base import CatalogTable, State
from driftline.formats.commit import Retry, rewriting
from driftline.quarantine import table as quarantine
from driftline.quarantine.replays import DISCARDED, REPLAY, last_replay
from driftline.sql.quoting import literal, name, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Text that is no JSON record stays so, whatever the table becomes.
_NO_COLUMNS = "'no columns yet'"
RECORDS = f"(path is not null or reason = {_NO_COLUMNS})"
IS_DISCARDED = f"coalesce({REPLAY} = {DISCARDED}, false)"


@dataclass(slots=True)
class Pending:
    """A quarantine as it was loaded. ``reached``: the last replay that the table has; ``open``: batches of
    captures that are in quarantine, and not in the table yet.
    """

    table: CatalogTable
    state: State
    reached: int = 0
    open: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: CatalogTable) -> Pending | None:
        """Load the quarantine of a table; None if there is none."""
        quarantined = quarantine.of(table)
        state = quarantined.load()
        if not state.exists:
            return None
        pending, now = cls(quarantined, state), table.load()
        pending.reached = last_replay(state, now.properties)
        if now.exists:
            last = map(Token.of, state.properties.items())
            pending.open = tuple(token.batch for token in last if token and not token.reached(now.properties))
        return pending

    @property
    def waits(self) -> str:
        """SQL, whether a row still waits."""
        return f"coalesce({REPLAY} > {self.reached}, true)"

    @property
    def settled(self) -> str:
        """SQL, whether the batch of a row has ended. A capture that died in its batch takes its records back,
        and brings them again.
        """
        if not self.open:
            return "true"
        listed = ", ".join(map(literal, self.open))
        return f"(batch not in ({listed}) or reason = {_NO_COLUMNS})"

    @property
    def ready(self) -> str:
        """SQL, whether a row is a record that may be sent."""
        return f"{RECORDS} and {self.settled}"

    def left(self) -> tuple[int, int]:
        """The number that wait but are no records, and the number that are not ready."""
        stay, held = f"not {RECORDS}", f"{RECORDS} and not ({self.ready})"
        row = self.rows().where(self.waits).selectExpr(f"count_if({stay})", f"count_if({held})").head()
        assert row is not None
        return int(row[0]), int(row[1])

    def rows(self) -> DataFrame:
        """All rows of the quarantine."""
        return completed(self.table.read())

    def pending(self) -> list[int]:
        """The replays that the table has not, in their order."""
        rows = self.rows().where(f"{REPLAY} > {self.reached}").select(REPLAY).distinct().collect()
        return sorted(int(row[0]) for row in rows)

    def mark(self, chosen: str, number: Callable[[int], str], retry: Retry) -> int:
        """Set the replay of the rows that ``chosen``, SQL, is true of, in one commit; returns their number.

        ``number``: the SQL of the new value, by the last replay there is. Raises CommitConflict.
        """
        from pyspark.sql import functions as F

        with rewriting(self.table, self.state, retry) as rewrite:
            rows = completed(rewrite.rows)
            counts = rows.selectExpr(f"count_if({chosen})", f"max({REPLAY})").head()
            assert counts is not None
            if not counts[0]:
                return 0
            rewrite.transaction.evolve(quarantine.missing(self.state.schema))
            value = number(max(self.reached, counts[1] or 0))
            ids = self.table.row_ids(chosen)

            def marked(rows: DataFrame) -> DataFrame:
                """The rows, with the value in those that are chosen."""
                rows = completed(rows).selectExpr("*", *ids)
                return rows.withColumn(REPLAY, F.expr(f"if({chosen}, {value}, {REPLAY})"))

            rewrite.replace(marked, {})
        return int(counts[0])


def completed(rows: DataFrame) -> DataFrame:
    """The rows of a quarantine; one of an earlier version gets the columns that it lacks, empty."""
    missing = [f for f in quarantine.SCHEMA.struct.fields if f.name not in rows.columns]
    added = [f"cast(null as {spark_type(f.type)}) as {name(f.name)}" for f in missing]
    return rows.selectExpr("*", *added) if added else rows
