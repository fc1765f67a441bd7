"""Takes unusual values out of lines of JSON, at any depth: the rest can be parsed as whole columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import MsgspecError, Raw, json

from driftline.convert import DriftedValues
from driftline.convert.usual import Drifting
from driftline.core.planning.gc_pause import gc_paused
from driftline.core.schema.types import Path
from driftline.core.values.parse import parse_values, raw_members
from driftline.observe.decoder import REFUSED, FieldDecoders
from driftline.observe.json_lines import Looked
from driftline.observe.screen import doubtful

_OBJECT, _NULL = b"{n"

Unusual: TypeAlias = "list[tuple[Path, bytes | Raw]]"  # values as text, each with the path that it stands at


@dataclass(frozen=True, slots=True)
class UsualRecords:
    """Records as ``texts`` of JSON that hold usual values alone, with the ``places`` of their lines.
    ``unusual``: the other values, by the number of their record.
    """

    texts: Sequence[bytes]
    places: Sequence[int]
    unusual: Mapping[int, Unusual]

    def part(self, start: int, stop: int) -> UsualRecords:
        """Some of the records."""
        unusual = {
            number - start: values for number, values in self.unusual.items() if start <= number < stop
        }
        return UsualRecords(self.texts[start:stop], self.places[start:stop], unusual)

    @gc_paused()
    def apart(self) -> dict[Path, DriftedValues]:
        """The unusual values by path, parsed."""
        rows: dict[Path, list[int]] = {}
        texts: dict[Path, list[bytes | Raw]] = {}
        for row, unusual in self.unusual.items():
            for path, text in unusual:
                rows.setdefault(path, []).append(row)
                texts.setdefault(path, []).append(text)
        return {path: DriftedValues(rows[path], parse_values(texts[path])) for path in rows}


@gc_paused()
def taken_apart(
    lines: Sequence[bytes], looked: Sequence[Looked], drifting: Drifting, takes: FieldDecoders
) -> tuple[UsualRecords, list[int]]:
    """The records of the lines without unusual values, and the places of lines to be read one by one.

    ``looked``: the lines that the observer's decoder did not take; ``drifting``: the paths of unusual values;
    ``takes``: decoders of usual values alone, except numbers that a double cannot tell apart.
    """
    if not looked:
        return UsualRecords(lines, range(len(lines)), {}), []
    drifted = [place for place, why in looked if why is None and lines[place].strip()]
    alone = {drifted[number] for number in doubtful([lines[place] for place in drifted])}
    passed_over = {place for place, _ in looked}.difference(drifted)
    texts, unusual = list(lines), dict[int, Unusual]()
    for place in drifted:
        if place not in alone:
            try:
                texts[place], unusual[place] = _without_unusual(lines[place], drifting, takes)
            except MsgspecError:
                alone.add(place)
    missing = alone | passed_over
    if not missing:
        return UsualRecords(texts, range(len(lines)), unusual), []
    places = [place for place in range(len(lines)) if place not in missing]
    by_number = {number: unusual[place] for number, place in enumerate(places) if place in unusual}
    return UsualRecords([texts[place] for place in places], places, by_number), sorted(alone)


def _without_unusual(line: bytes, drifting: Drifting, takes: FieldDecoders) -> tuple[bytes, Unusual]:
    """A record without its unusual values, and these. Of a key that occurs twice, the last counts."""
    unusual: Unusual = []
    return _without(line, drifting, takes, (), unusual), unusual


def _without(
    text: bytes | Raw, drifting: Drifting, takes: FieldDecoders, path: Path, unusual: Unusual
) -> bytes:
    """The text of a record without the values that are not usual, which are added to ``unusual``."""
    record = raw_members(text)
    for key in [key for key in record if key in drifting]:
        value = record[key]
        try:
            takes[key](value)
        except REFUSED:
            begins, inside = memoryview(value)[0], drifting[key]
            if begins == _OBJECT and inside is not None:
                record[key] = Raw(_without(value, inside, takes.below(key), (*path, key), unusual))
            elif begins != _NULL:
                del record[key]
                unusual.append(((*path, key), value))
    return json.encode(record)
