"""The terms on which a table admits records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict, Settings
from driftline.observe.expect import ExpectedField


@dataclass(frozen=True, slots=True)
class AdmissionTerms:
    """The terms on which a table admits records; they are sent to tasks.

    ``expected``: the table's columns. Records of JSON are refused one by one, by the ``judge``, and rows of
    columns by the ``conflicts``.
    """

    expected: ExpectedField
    settings: Settings
    conflicts: tuple[Conflict, ...] = ()
    judge: AdmissionCheck | None = None

    def refusing(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> AdmissionTerms:
        """These terms, which refuse more records: by the ``judge``, or for one of the ``conflicts``."""
        return replace(self, judge=judge, conflicts=(*self.conflicts, *conflicts))

    @property
    def refuse(self) -> bool:
        """True if some records are refused."""
        return self.judge is not None or bool(self.conflicts)
