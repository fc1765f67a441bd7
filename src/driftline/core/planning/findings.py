"""Findings of the planner, as values: each step returns its own, and the step around it gathers them in
order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain

from driftline.core.changes import Change
from driftline.core.planning.maps import MapVerdict
from driftline.core.planning.routes import Conflict, Conversion
from driftline.core.planning.shape import Facet
from driftline.core.schema.types import Path


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one planning step.

    ``changes`` to the schema, a column before its contents; ``conflicts``: what policies refuse; ``untyped``:
    fields without a type so far; ``new_maps``: objects that become maps, and why; ``last``: for each field
    the last type to arrive that had room.
    """

    changes: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    converted: tuple[Conversion, ...] = ()
    untyped: tuple[Path, ...] = ()
    hints: tuple[str, ...] = ()
    new_maps: tuple[tuple[Path, MapVerdict], ...] = ()
    last: tuple[tuple[Path, Facet], ...] = ()


NOTHING = Findings()
_KINDS = tuple(f.name for f in fields(Findings))


def gathered(findings: Iterable[Findings]) -> Findings:
    """Concatenate findings in order."""
    parts = [part for part in findings if part is not NOTHING]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    return Findings(*(tuple(chain.from_iterable(getattr(part, kind) for part in parts)) for kind in _KINDS))
