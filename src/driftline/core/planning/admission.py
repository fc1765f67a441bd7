"""Which single records a table accepts, once a plan has said what it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftline.core.planning.exclude import without_excluded
from driftline.core.planning.limits import leaf_columns
from driftline.core.planning.plan import plan
from driftline.core.planning.routes import Conflict, Settings, facet_of
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.place import Place
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Path, Schema


@dataclass(frozen=True, slots=True)
class Judge:
    """Accepts a record if every one of the ``schemas`` takes it as it
    is: by the policies, and without a change.
    """

    schemas: Sequence[Schema]
    settings: Settings
    not_rewritten: frozenset[Path] = frozenset()

    def conflict(self, shape: RecordShape) -> Conflict | None:
        """Why a record of this shape is not accepted; None if it is."""
        shape = without_excluded(shape, self.settings.contract)
        for schema in self.schemas:
            planned = plan(schema, shape, self._settings(schema), self.not_rewritten)
            if planned.conflicts:
                return planned.conflicts[0]
            for change in planned.changes:
                reason = change.reason
                why = f"the table would need {type_name(change.type)} there: {reason.why}"
                facet = facet_of(change.type)
                return Conflict(
                    reason.field or change.path, "none", facet, why, reason.sample, reason.place or Place()
                )
        return None

    def _settings(self, schema: Schema) -> Settings:
        """The settings for a table that gets no more columns: what has
        none goes to the rest, where such is kept.
        """
        if self.settings.beyond != "rest":
            return self.settings
        return replace(self.settings, max_columns=min(self.settings.max_columns, leaf_columns(schema.struct)))
