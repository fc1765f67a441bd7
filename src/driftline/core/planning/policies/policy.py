"""The interface of a policy: a question about one field, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driftline.core.planning.shape import Facet, Profile

Facets = Mapping[Facet, Profile]


@dataclass(frozen=True, slots=True)
class FieldState:
    """One field: its ``columns``, and its observed types.

    Attributes:
        pinned: for each column, true if a hint declares it.
        unit: of its epoch numbers.
        rewrite: columns may be rewritten, unless they are ``fixed``.
        reserved: its name is for the first batch only.
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
    """A column that a field needs: its facet, the reason, and the observation that caused it."""

    facet: Facet
    rule: str
    why: str
    cause: Profile


@dataclass(frozen=True, slots=True)
class Retyped:
    """A new type for an existing column: in place, or, with ``rewrite``, by rewriting its values."""

    facet: Facet
    why: str
    cause: Profile
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A facet that the field's columns do not take; ``inexact``: they do not take every value of it."""

    facet: Facet
    why: str
    inexact: Facet | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The columns of a field.

    Attributes:
        columns: a `Retyped` for each existing one, None where it stays.
        original: the new one that takes the field's own name.
    """

    columns: Sequence[Retyped | None]
    new: Sequence[New] = ()
    original: Facet | None = None
    refused: Sequence[Refusal] = ()


class Policy(Protocol):
    """Decides about a field whose values do not fit its columns."""

    @property
    def name(self) -> str:
        """The name in settings."""

    @property
    def keeps_all(self) -> bool:
        """True if every value finds a place: in siblings, in maps, in the rest."""

    @property
    def makes_columns(self) -> bool:
        """True if a field that the table lacks gets a column at all."""

    def decide(self, field: FieldState) -> Decision:
        """Decide which columns the field gets, and what is refused."""

    def takes(self, column: Facet, facet: Facet, profile: Profile) -> bool:
        """True if values of the facet are routed to the column."""

    def accepts(self, column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
        """True if the column takes every value of the facet exactly."""

    def keeps_required(self, *, absent: bool) -> str:
        """The reason a required column without a value stays required; empty where it becomes optional.

        Args:
            absent: no record of the batch has the field.
        """
