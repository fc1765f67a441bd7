"""How many lines of JSON a task converts at once."""

from __future__ import annotations

import pytest

from driftline.source import json_tasks
from driftline.source.json_tasks import _gathered


def test_lines_of_small_blocks_come_together_up_to_a_number_or_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_tasks, "_MANY", 4)
    monkeypatch.setattr(json_tasks, "_LARGE", 10)
    blocks = [[b"a"], [b"b", b"c"], [b"d"], [b"e" * 20], [b"f"] * 6, [b"g"]]
    together = [len(lines) for lines in _gathered(blocks)]
    assert together == [4, 1, 6, 1]
    assert [line for lines in _gathered(blocks) for line in lines] == [
        line for some in blocks for line in some
    ]


def test_nothing_comes_of_nothing() -> None:
    assert list(_gathered([])) == []
