"""What a policy is asked about one field, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driftline.core.planning.shape import Facet, Seen

Facets = Mapping[Facet, Seen]


@dataclass(frozen=True, slots=True)
class FieldState:
    """One field: its ``columns``, and the types that were seen of it.

    ``pinned``: for each column, whether a hint declares it; ``unit``: of its epoch numbers.
    ``rewrite``: columns may be written anew, unless they are ``fixed`` as they are.
    ``reserved``: its name is for the first batch only.
    """

    columns: Sequence[Facet]
    facets: Facets
    pinned: Sequence[bool] = ()
    unit: str = "ms"
    rewrite: bool = False
    fixed: bool = False
    reserved: bool = False


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
    refused: Sequence[Refusal] = ()


class Policy(Protocol):
    """What becomes of a field whose values do not fit its columns."""

    @property
    def name(self) -> str:
        """As settings name it."""

    @property
    def keeps_all(self) -> bool:
        """Whether every value finds a place: in siblings, in maps, in the rest."""

    @property
    def makes_columns(self) -> bool:
        """Whether a field gets a column at all that the table does not have."""

    def decide(self, field: FieldState) -> Decision:
        """Which columns the field gets, and what of it is refused."""

    def takes(self, column: Facet, facet: Facet, seen: Seen) -> bool:
        """Whether values of the facet are routed to the column."""

    def accepts(self, column: Facet, facet: Facet, seen: Seen, unit: str) -> bool:
        """Whether the column takes every value of the facet, exactly."""

    def keeps_required(self, *, absent: bool) -> str:
        """Why a required column without a value is not made optional; empty where it is. ``absent``: no
        record of the batch has the field.
        """
