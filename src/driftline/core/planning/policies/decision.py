"""What a policy decides for one field: its columns from now on, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from driftline.core.planning.shape import Facet, Seen

Facets = Mapping[Facet, Seen]


@dataclass(frozen=True, slots=True)
class New:
    """A column that a field needs: its facet, why, and what was seen of its cause."""

    facet: Facet
    rule: str
    why: str
    cause: Seen


@dataclass(frozen=True, slots=True)
class Retyped:
    """Another type for a column that is there: in place, or, with ``rewrite``, by writing its values anew."""

    facet: Facet
    why: str
    cause: Seen
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A facet that the field's columns do not take, or, ``inexact``, not every value of it."""

    facet: Facet
    why: str
    inexact: Facet | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """``columns``: a `Retyped` for each column that there was, None where it stays; ``original``: the
    new one that takes the field's own name.
    """

    columns: Sequence[Retyped | None]
    new: Sequence[New] = ()
    original: Facet | None = None
    refused: Sequence[Refusal] = field(default_factory=tuple)
