"""Admits single records, once a plan fixes the table's schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.core.planning.limits import without_limits
from driftline.core.planning.plan import Conflict, facet_of
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape, without_excluded
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Path, Schema, SourceLocation
from driftline.core.settings.table import TableSettings


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """The check of single records against the table that a batch leads to.

    A record is accepted if each of the ``schemas`` takes it under the policies without a change, and each of
    the ``rooms`` has room for its columns.
    """

    schemas: Sequence[Schema]
    rooms: Sequence[Schema]
    settings: TableSettings
    not_rewritten: frozenset[Path] = frozenset()

    def conflict(self, shape: RecordShape) -> Conflict | None:
        """The reason a record of this shape is refused; None if it is accepted."""
        shape = without_excluded(shape, self.settings.fields)
        # Limits count what a batch adds, record by record; they are asked of ``rooms`` below.
        policies = without_limits(self.settings)
        # A plan for one record is the judge, so there is one set of rules. Only batches with conflicts pay
        # for it.
        for schema in self.schemas:
            planned = plan(schema, shape, policies, self.not_rewritten)
            if planned.conflicts:
                return planned.conflicts[0]
            # A record that needs a change does not fit the schema that the batch leads to.
            for change in planned.changes:
                reason = change.reason
                why = f"the table would need {type_name(change.type)} there: {reason.why}"
                facet = facet_of(change.type)
                return Conflict(
                    reason.field or change.path,
                    "none",
                    facet,
                    why,
                    reason.sample,
                    reason.location or SourceLocation(),
                )
        for room in self.rooms:
            planned = plan(room, shape, self.settings, self.not_rewritten)
            if planned.conflicts:
                return planned.conflicts[0]
        return None
