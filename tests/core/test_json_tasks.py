"""How many lines of JSON a task converts at once."""

from __future__ import annotations

from driftline.observe.json_files import gathered


def test_lines_of_small_blocks_come_together_up_to_a_number_or_a_size() -> None:
    blocks = [[b"a"], [b"b", b"c"], [b"d"], [b"e" * 20], [b"f"] * 6, [b"g"]]
    together = [len(lines) for lines in gathered(blocks, size=10, count=4)]
    assert together == [4, 1, 6, 1]
    assert [line for lines in gathered(blocks, size=10, count=4) for line in lines] == [
        line for some in blocks for line in some
    ]


def test_records_come_together_up_to_a_size_alone() -> None:
    records = [b"123", b"456", b"789", b"0" * 9, b"1"]
    assert [len(some) for some in gathered(([record] for record in records), size=8)] == [3, 1, 1]


def test_nothing_comes_of_nothing() -> None:
    assert list(gathered([], size=10)) == []
