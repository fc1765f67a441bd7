"""The `strict` policy: the schema is frozen, and anything that does not fit is refused."""

from __future__ import annotations

from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Decision, FieldState, Policy, Refusal
from driftline.core.planning.shape import Facet, Profile

_FROZEN = "the policy is strict (preserve adds columns)"


class Strict:
    """Adds no column and changes no type."""

    name = "strict"
    keeps_all = False
    makes_columns = False

    def decide(self, field: FieldState) -> Decision:
        """Decide the field by `decide`, without new columns."""
        return decide(field)

    def takes(self, column: Facet, facet: Facet, profile: Profile) -> bool:
        """True if `preserve` would route the facet to the column."""
        return preserve.routes(column, facet, profile)

    def accepts(self, column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
        """True if the column holds each value exactly, as in `preserve`."""
        return preserve.accepts(column, facet, profile, unit)

    def keeps_required(self, *, absent: bool) -> str:
        """The reason to refuse records without a value: the schema is frozen."""
        del absent
        return f"a required column without a value; {_FROZEN}"


def decide(field: FieldState, why: str = _FROZEN, policy: Policy | None = None) -> Decision:
    """Add no columns; refuse each facet with values that fit none of those that the ``policy`` fills."""
    columns, refused = field.columns, []
    for facet, profile in field.facets.items():
        filled = [c for c in columns if policy is None or policy.takes(c, facet, profile)]
        if any(preserve.accepts(c, facet, profile, field.unit) for c in filled):
            continue
        holder = next((c for c in filled if preserve.takes(c, facet, routing=False)), None)
        refusal = why if not columns else f"{preserve.unfit(facet, columns)}; {why}"
        refused.append(Refusal(facet, refusal, holder))
    return Decision([None] * len(columns), refused=tuple(refused))
