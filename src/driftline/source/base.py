"""The interface of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.schema.types import Schema, Struct
from driftline.observe.observation import Observation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.source.set_aside import Rejects
    from driftline.write import RowTasks

# The columns in which a source gives what is not accepted;
# `driftline.quarantine.table` adds the batch and the time.
REJECTED = (
    "raw string, raw_bytes binary, reason string, path string, table_type string, incoming_type string, "
    "source string, line bigint, topic string, partition int, offset bigint"
)


class Source(Protocol):
    """One batch of records, whose tasks make the rows and observe the records, also by a guessed plan.

    ``conf``: settings of the Spark session that reading it needs.
    """

    conf: Mapping[str, str]

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """A likely observation, by which rows may be made at once; None if observing first is better."""
        ...

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        """Observe every type of every path of every record, against the table's ``schema``.

        If the tasks have observed all, nothing is read again.
        """
        ...

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        """Reject records that the ``judge`` does not accept, or with one of the ``conflicts``, from now on.

        They are not observed as records.
        """
        ...

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        """Tasks that convert the records to rows of ``struct``, by the plan."""
        ...

    def set_aside(self) -> Rejects | None:
        """The lines and rows that the last run of the tasks set aside.

        None if the tasks reported nothing. To be called after `observe`.
        """
        ...

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        """The rejected lines and rows, with the columns of `REJECTED`; None if all could be read.

        This reads the batch once more. ``everything``: the reason for which all records are rejected.
        """
        ...
