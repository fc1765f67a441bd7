"""A quarantine as it is at one time: which of its records wait, and
which of those may be sent through again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.changelog.token import Token
from driftline.formats.base import CatalogTable, State
from driftline.quarantine import table as quarantine
from driftline.quarantine.replays import REPLAY, last_replay
from driftline.sql.quoting import literal, name, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Text that is no JSON record stays so, whatever the table becomes.
_NO_COLUMNS = "'no columns yet'"
RECORDS = f"(path is not null or reason = {_NO_COLUMNS})"


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
    def ready(self) -> str:
        """Records that may be sent. A capture that died in its batch takes that back, and brings it again."""
        if not self.open:
            return RECORDS
        listed = ", ".join(map(literal, self.open))
        return f"{RECORDS} and (batch not in ({listed}) or reason = {_NO_COLUMNS})"

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


def completed(rows: DataFrame) -> DataFrame:
    """The rows of a quarantine; one of an earlier version gets the columns that it lacks, empty."""
    missing = [f for f in quarantine.SCHEMA.struct.fields if f.name not in rows.columns]
    added = [f"cast(null as {spark_type(f.type)}) as {name(f.name)}" for f in missing]
    return rows.selectExpr("*", *added) if added else rows
