"""Points of curves, and what they say: how steep a curve ends, and whether it bends."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

LINEAR = 1.1  # a slope up to here is linear
FLAT = 0.1
STEP = 2.0  # sizes that are nearer to each other tell no slope


@dataclass(slots=True)
class Curve:
    """One line of a panel. ``points``: what was measured at each size, once a round."""

    name: str
    points: dict[int, list[float]] = field(default_factory=dict)

    def add(self, size: int, value: float) -> None:
        self.points.setdefault(size, []).append(value)

    def at(self, size: int) -> float:
        """The median of the rounds, the better of two."""
        return statistics.median_low(self.points[size])

    @property
    def slope(self) -> float | None:
        """Of the last points, on log-log scale; None where there are too few."""
        pair = self._last()
        return None if pair is None else _slope(*pair, self.at(pair[0]), self.at(pair[1]))

    def bends(self, limit: float) -> bool:
        """True if it is steeper than the limit, even if the noise of the rounds is all against it."""
        pair = self._last()
        if pair is None:
            return False
        return _slope(*pair, max(self.points[pair[0]]), min(self.points[pair[1]])) > limit

    def _last(self) -> tuple[int, int] | None:
        sizes = sorted(size for size in self.points if size > 0)
        before = [size for size in sizes if sizes[-1] >= STEP * size]
        return (before[-1], sizes[-1]) if before else None


@dataclass(slots=True)
class Panel:
    """Curves of one kind. ``limit``: the slope that they may have in the end; ``over``: what their sizes count;
    ``factor``: by which a value is shown in the ``unit``."""

    title: str
    over: str
    unit: str
    limit: float = LINEAR
    factor: float = 1.0
    curves: dict[str, Curve] = field(default_factory=dict)

    def add(self, line: str, size: int, value: float | None) -> None:
        if value is not None:
            self.curves.setdefault(line, Curve(line)).add(size, value * self.factor)

    def verdict(self, curve: Curve) -> str:
        """The table's verdict on a curve."""
        if curve.slope is None:
            return ""
        told = "bends" if curve.bends(self.limit) else "flat" if curve.slope <= FLAT else "ok"
        return f"{curve.slope:.2f} {told}"


def _slope(x: float, other_x: float, y: float, other_y: float) -> float:
    if y <= 0 or other_y <= 0:
        return 0.0 if other_y <= y else math.inf
    return math.log(other_y / y) / math.log(other_x / x)
