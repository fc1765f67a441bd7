"""The differences that remain whichever way a value is looked for: in record columns, or in the maps beside
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from driftline.verify.difference import RowDifference, Steps, shown


def weight(differences: Sequence[RowDifference]) -> tuple[int, int]:
    """A sort key for the amount of difference: losses first."""
    return sum(d.lost and not d.unproven for d in differences), len(differences)


def together(ways: Sequence[list[RowDifference]]) -> Iterator[RowDifference]:
    """The differences common to all columns: a value is lost if all of them lost it."""
    best = min(ways, key=weight)
    lost = [
        {at for d in differences if d.lost and not d.unproven for at in _places(d)} for differences in ways
    ]
    nowhere = set.intersection(*lost)
    for differences in ways:
        for d in differences:
            if not d.lost or d.unproven:
                if d.invented or differences is best:
                    yield d
            elif differences is best and not nowhere.isdisjoint(_places(d)):
                yield from _parts(d, nowhere)
            elif d.invented:
                yield replace(d, lost=False)


def _parts(d: RowDifference, nowhere: Collection[Steps]) -> Iterator[RowDifference]:
    """The lost parts of the difference's value: all of it, or each place of it that is ``nowhere``."""
    places = _places(d)
    if all(at in nowhere for at in places):
        yield d
        return
    for at, x in places.items():
        if at in nowhere:
            yield replace(d, steps=at, value=x, why=f"{shown(x)} is nowhere")


def _places(d: RowDifference) -> dict[Steps, Any]:
    """The scalars of a difference's value by their places; the value itself if it has none."""
    return dict(_scalars(d.value, d.steps)) or {d.steps: d.value}


def _scalars(v: Any, at: Steps) -> Iterator[tuple[Steps, Any]]:
    if isinstance(v, dict):
        for key, x in v.items():
            yield from _scalars(x, (*at, key_text(key)))
    elif isinstance(v, list):
        for i, x in enumerate(v):
            yield from _scalars(x, (*at, i))
    elif v is not None:
        yield at, v


def key_text(key: Any) -> str:
    """The key of a map, as the paths of differences have it."""
    return str(key).lower() if isinstance(key, bool) else str(key)
