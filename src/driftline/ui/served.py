"""The interface of a lake and its tables to the pages; `Lake` and `Table`, a layer above, have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from driftline.formats.base import State
from driftline.formats.open import EmbeddedLake
from driftline.operations.history import History
from driftline.operations.listing import Quarantine
from driftline.operations.promote import Promoted
from driftline.operations.replan import Replan
from driftline.operations.replay import Discarded, Replay
from driftline.operations.resolve import Resolved
from driftline.operations.undo import Undone
from driftline.stats import Stats


class TableOfPages(Protocol):
    """A table that is shown, and settled."""

    def stats(self) -> Stats:
        """Its contents and its drift."""

    def history(self) -> History:
        """The changes of its schema."""

    def state(self) -> State:
        """Its schema and properties."""

    def quarantine(self) -> Quarantine:
        """The records that wait, by reason."""

    def resolve(
        self,
        field: str,
        type_: str,
        /,
        *,
        dry_run: bool,
        drop_rest: bool,
        progress: Callable[[str], None],
    ) -> Resolved:
        """Fold the columns of a field into one."""

    def promote(
        self, *paths: str, everything: bool, dry_run: bool, progress: Callable[[str], None]
    ) -> Promoted:
        """Make columns of what waits in the rest."""

    def replan(self, *paths: str, apply: bool, progress: Callable[[str], None]) -> Replan:
        """The columns that it would have, had all of it come in one batch; ``apply`` gives it them."""

    def replay(self, *, settings: Mapping[str, Any], progress: Callable[[str], None]) -> Replay:
        """Ingest the waiting records again."""

    def discard_quarantine(self, source: Sequence[str] | None) -> Discarded:
        """End the wait of records in quarantine."""

    def undo(self, *, yes: bool) -> Undone:
        """Take back the last change."""


class LakeOfPages(Protocol):
    """A lake that is shown."""

    @property
    def embedded(self) -> EmbeddedLake | None:
        """The lake as it is read without Spark; None if it cannot be."""

    @property
    def warehouse(self) -> str | None:
        """The folder of its files; None if the catalog names none."""

    @property
    def catalog(self) -> str:
        """The catalog's name."""

    @property
    def _configured(self) -> tuple[Mapping[str, str], ...]:
        """The settings that may hold secrets."""

    def _names(self) -> list[str]:
        """The names of all tables."""

    def table(self, name: str) -> TableOfPages:
        """A table by its name."""
