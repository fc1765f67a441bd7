"""A value in lists, taken apart by depth."""

from __future__ import annotations

from driftline.core.values.parse import has_value


class Parts:
    """A value taken apart: its leaves by depth, the deepest list without any, the depths of ``{}``."""

    def __init__(self) -> None:
        self.leaves: dict[int, list[object]] = {}
        self.empty_list = 0
        self.empty_records: set[int] = set()

    def dimension(self) -> tuple[int, bool]:
        """The depth of the deepest value, and whether there are values at others, too.

        Objects without any value decide only where there is no other.
        """
        valued = [depth for depth, leaves in self.leaves.items() if any(map(has_value, leaves))]
        return max(valued or self.leaves, default=0), len(valued) > 1

    def add(self, value: object, depth: int, whole: bool) -> None:
        """``whole``: ``{}`` is an object like others, as it lacks what is required."""
        if type(value) is not list:
            if value == {} and not whole:
                self.empty_records.add(depth)
            elif value is not None:
                self.leaves.setdefault(depth, []).append(value)
            return
        for item in value:
            self.add(item, depth + 1, whole)
        if not any(has_value(item) or (whole and type(item) is dict) for item in value):
            self.empty_list = max(self.empty_list, depth + 1)
