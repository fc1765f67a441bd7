"""The errors of driftline: each message says what happened, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class DriftlineError(Exception):
    """Base of every error that is meant for the user.

    `message` says what and where, `hint` what to do; `str(error)` is both as one text.
    `exit_code` is what the command line ends with.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__()
        self.message = message
        self._advice = hint
        self.spell(str)

    def spell(self, words: Callable[[str], str]) -> None:
        """Spell the hint for the surface that prints it: it is written with flags of the command line."""
        self._words = words
        self.hint = self._advice and words(self._advice)
        self.args = (f"{self.message}\n{self.hint}" if self.hint else self.message,)

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change the text of the error, as to take secrets out."""
        self.message = change(self.message)
        self._advice = self._advice and change(self._advice)
        self.spell(self._words)


class DataError(DriftlineError):
    """The data or the table says no."""


class UsageError(DriftlineError):
    """A wrong call or a wrong setting."""

    exit_code: ClassVar[int] = 2


class SetupError(DriftlineError):
    """The environment cannot do it: no Java, no network, the catalog is away."""

    exit_code: ClassVar[int] = 3


class NeedsSpark(Exception):
    """Work that was tried without Spark needs it: nothing has been done, and Spark has to do it."""


def no_table(name: str) -> UsageError:
    """The error for a table that does not exist."""
    return UsageError(
        f"there is no table {name}",
        "the first ingested record creates it; `driftline tables` lists the tables that exist, and quarantined records",
    )
