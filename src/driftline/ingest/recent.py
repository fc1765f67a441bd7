"""The last batches of a lake, or of a capture: those to come are likely to be alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from driftline.core.planning.plan import Plan, Settings
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Path, Schema
from driftline.core.support import LruCache
from driftline.keys.stored import KeyCache
from driftline.observe.observation import Observation
from driftline.sources.scan import BatchScan, Observed

_MOST = 16  # of each


@dataclass(frozen=True, slots=True)
class RecentBatches:
    """Observations and plans of the last batches.

    They are kept by what the batches were observed against, which has the ids of a table's columns.
    ``keys``: those that the batches of a capture have read.
    """

    keys: KeyCache | None = None

    _observations: LruCache[tuple[Schema, Settings], Observation] = field(
        default_factory=lambda: LruCache(_MOST)
    )
    _plans: LruCache[tuple[Schema, RecordShape, Settings, frozenset[Path]], Plan] = field(
        default_factory=lambda: LruCache(_MOST)
    )

    def observation(self, scan: BatchScan) -> Observation | None:
        """The observation of the last batch for such a table; None for a table without columns."""
        return self._observations.get((scan.schema, scan.settings)) if scan.schema.struct.fields else None

    def remember(self, observed: Observed) -> None:
        """Keep the observation of a batch that has records, if the next one is likely to be like it."""
        scan = observed.scan
        if scan.repeats and observed.observation.tally.records:
            self._observations.put((scan.schema, scan.settings), observed.observation)

    def plan(
        self,
        schema: Schema,
        shape: RecordShape,
        settings: Settings,
        not_rewritten: frozenset[Path] = frozenset(),
    ) -> Plan:
        """Plan a batch as `plan` does, unless one like it was planned."""
        key = schema, shape, settings, not_rewritten
        planned = self._plans.get(key)
        if planned is None:
            planned = plan(*key)
            self._plans.put(key, planned)
        return planned
