"""A value in lists, taken apart by depth."""

from __future__ import annotations


class Parts:
    """A value taken apart: its leaves by depth, the deepest list without any, the depths of ``{}``."""

    def __init__(self) -> None:
        self.leaves: dict[int, list[object]] = {}
        self.empty_list = 0
        self.empty_records: set[int] = set()

    def dimension(self) -> int:
        """The depth of the deepest leaf; ``{}`` decides only where there is no other."""
        valued = [depth for depth, leaves in self.leaves.items() if any(leaf != {} for leaf in leaves)]
        return max(valued or self.leaves, default=0)

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
        if all(item is None or (item == {} and not whole) for item in value):
            self.empty_list = max(self.empty_list, depth + 1)
