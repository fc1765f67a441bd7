"""Judges single records, each by its own shape: those that a table would not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict
from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.observe.expect import ExpectedField
from driftline.observe.walk import Walker

_REMEMBERED = 10_000  # shapes whose verdict is kept: most records that do not fit fail in one way


class AdmissionByShape:
    """Asks the judge about each record; records of one shape share a verdict."""

    def __init__(self, judge: AdmissionCheck, known: ExpectedField, dates: str) -> None:
        self._judge, self._known, self._dates = judge, known, dates
        self._verdicts: dict[object, Conflict | None] = {}

    def conflict(self, record: Mapping[str, object], source: str, line: int) -> Conflict | None:
        """The reason the record is not accepted.

        None if it is. Sample and place may be those of a record like it.
        """
        walker = Walker(self._known, self._dates)
        walker.walk(record, source, line)
        signature = _signature(walker.shape)
        if signature not in self._verdicts:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[signature] = self._judge.conflict(walker.shape)
        return self._verdicts[signature]


def _signature(shape: RecordShape) -> object:
    """A hashable form of a shape without places and samples."""
    return tuple((key, _field(field)) for key, field in shape.fields.items())


def _field(field: FieldShape) -> object:
    facets: list[Any] = [
        (
            facet,
            (seen.wide, seen.fraction, seen.far, seen.ragged, seen.digits),
            None if seen.record is None else _signature(seen.record),
            None if seen.value is None else _field(seen.value),
        )
        for facet, seen in field.facets.items()
    ]
    return field.empty_lists, field.empty_record, field.missing, field.absent, tuple(facets)
