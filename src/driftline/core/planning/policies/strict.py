"""The `strict` policy: the schema is frozen, and what does not fit it is refused."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.decision import Decision, Facets, Refusal
from driftline.core.planning.shape import Facet


def decide(
    columns: Sequence[Facet], facets: Facets, unit: str, why: str = "the schema is frozen"
) -> Decision:
    """No columns; a refusal for each facet that has values which fit none."""
    refused = []
    for facet, seen in facets.items():
        if any(preserve.accepts(c, facet, seen, unit) for c in columns):
            continue
        holder = next((c for c in columns if preserve.takes(c, facet, routing=False)), None)
        told = why if not columns else f"{preserve.unfit(facet, columns)}; {why}"
        refused.append(Refusal(facet, told, holder))
    return Decision([None] * len(columns), refused=tuple(refused))
