"""Texts that are dates by a pattern, read by Python's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby

_HINT = re.compile(r"(\w+)\s*\(\s*(?:\"([^\"]*)\"|'((?:[^']|'')*)')\s*\)")
_AN_INSTANT = re.compile(r"\btimestamp(?:tz|_ltz)?\b(?!\s*\()")  # not of a pattern, which has no zone
_PREFIXES = ("driftline.hints.", "driftline.hinted.", "driftline.resolved.")
# Directives of strptime, and those of strftime where a run prints otherwise.
_PARSED = {
    "y": "%Y", "u": "%Y", "M": "%m", "MMM": "%b", "MMMM": "%B", "d": "%d", "E": "%a", "EEEE": "%A", "H": "%H", "h": "%I", "a": "%p", "m": "%M", "s": "%S", "S": "%f",
}  # fmt: skip


@dataclass(frozen=True)
class WrittenDate:
    """A pattern: its runs of letters, and its literal texts."""

    runs: tuple[tuple[str, bool], ...]
    is_date: bool

    @classmethod
    def of(cls, text: str, *, is_date: bool) -> WrittenDate:
        """Read a pattern.

        >>> WrittenDate.of("d.MM.yyyy", is_date=True).runs
        (('d', True), ('.', False), ('MM', True), ('.', False), ('yyyy', True))
        """
        runs: list[tuple[str, bool]] = []
        for number, part in enumerate(text.replace("''", "\0").split("'")):
            for letter, run in groupby(part.replace("\0", "'")):
                is_letter = number % 2 == 0 and letter.isascii() and letter.isalpha()
                runs.append(("".join(run), is_letter))
        return cls(tuple(runs), is_date)

    def moment(self, text: str) -> date | None:
        """The date or moment that the pattern prints as this text; None if there is none.

        >>> pattern = WrittenDate.of("d.MM.yyyy", is_date=True)
        >>> pattern.moment("1.03.2026"), pattern.moment("01.03.2026"), pattern.moment("x")
        (datetime.date(2026, 3, 1), None, None)
        """
        directives = (
            _directive(run) if is_letter else run.replace("%", "%%") for run, is_letter in self.runs
        )
        try:
            moment = datetime.strptime(text, "".join(directives))
        except ValueError:
            return None
        if self.text(moment) != text:
            return None
        return moment.date() if self.is_date else moment

    def text(self, moment: datetime) -> str:
        """The moment as the pattern prints it."""
        return "".join(_printed(run, moment) if is_letter else run for run, is_letter in self.runs)


def written_dates(properties: Mapping[str, str]) -> dict[str, tuple[WrittenDate, ...]]:
    """The patterns by which fields have been read, by path, in a table's properties.

    >>> list(written_dates({"driftline.hints.a.`b`": "date('d.M.yyyy')", "driftline.hints.n": "double"}))
    ['a.b']
    """
    patterns: dict[str, tuple[WrittenDate, ...]] = {}
    for key, value in properties.items():
        path = next((key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix)), "")
        if path and (patterns_of_field := tuple(_in_hint(value))):
            name = path.replace("`", "")
            patterns[name] = tuple(dict.fromkeys((*patterns.get(name, ()), *patterns_of_field)))
    return patterns


def takes_offsets(properties: Mapping[str, str]) -> bool:
    """True if texts with other offsets than UTC may have become instants: by a setting, or by a resolve.

    >>> takes_offsets({"driftline.resolved.at": "timestamptz; timestamp('dd.MM.yyyy HH:mm')"})
    True
    >>> takes_offsets({"driftline.resolved.at": "timestamp_ntz", "driftline.dates": "on"})
    False
    """
    resolved = (value for key, value in properties.items() if key.startswith("driftline.resolved."))
    return properties.get("driftline.dates") == "instant" or any(map(_AN_INSTANT.search, resolved))


def _in_hint(value: str) -> Iterable[WrittenDate]:
    for word, double, single in _HINT.findall(value):
        yield WrittenDate.of(double or single.replace("''", "'"), is_date=word.lower() == "date")


def _directive(run: str) -> str:
    return _PARSED.get(run, "") or _PARSED[run[0]]


def _printed(run: str, moment: datetime) -> str:
    """A part of a moment as the letters print it."""
    directive = _directive(run)
    if run[0] == "S":
        return f"{moment.microsecond:06}"[: len(run)]
    if run[0] in "yu":
        return f"{moment.year:04}"
    text = moment.strftime(directive)
    return str(int(text)) if len(run) == 1 and text.isdigit() else text
