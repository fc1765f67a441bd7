"""The property of a table that a pattern made: the pattern, and the values that named the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from driftline.ingest.pattern import Pattern, Values

ROUTE = "driftline.route"
SPELLINGS = 20  # values that a table remembers, which differ in case alone


@dataclass(frozen=True, slots=True)
class Route:
    """The pattern that made a table, and the values that named it.

    Attributes:
        pattern: its text.
        values: the first spellings of the values that named the table, in the order of the braces.
    """

    pattern: str
    values: tuple[Values, ...]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Route | None:
        """The route in a table's properties; None if no pattern made the table."""
        if ROUTE not in properties:
            return None
        written = json.loads(properties[ROUTE])
        return cls(written["pattern"], tuple(tuple(values) for values in written["values"]))

    def as_property(self) -> dict[str, str]:
        """The property, of as many spellings as are kept."""
        written = {"pattern": self.pattern, "values": self.values[:SPELLINGS]}
        return {ROUTE: json.dumps(written, ensure_ascii=False)}


def named_values(pattern: Pattern, properties: Mapping[str, str]) -> tuple[Values, ...]:
    """The values that named a table, by its properties; none if the pattern did not make it."""
    route = Route.of(properties)
    return route.values if route is not None and route.pattern == pattern.text else ()
