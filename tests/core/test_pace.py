"""The progress of a reading, in the words of the terminal."""

from __future__ import annotations

import pytest

from driftline.cli import terminal
from driftline.cli.terminal import Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_rate_and_time_left() -> None:
    clock = Clock()
    pace = Pace(4_000_000_000, clock)
    assert pace.text(0, 40) == "0 bytes of 4.00 GB"
    clock.now += 1
    assert pace.text(1, 40) == "100 MB of 4.00 GB"
    clock.now += 9
    assert pace.text(10, 40) == "1.00 GB of 4.00 GB, 100 MB/s, 30 s left"
    assert pace.text(0, 0) == ""
    assert pace.text(0, 40) == "0 bytes of 4.00 GB"
    clock.now += 10
    assert pace.text(20, 40) == "2.00 GB of 4.00 GB, 200 MB/s, 10 s left"


def test_a_log_has_one_line_of_what_is_large(capsys: pytest.CaptureFixture[str]) -> None:
    for size in (10, 4_000_000_000):
        with terminal.Progress(size=size) as progress:
            phase = progress.of("day.jsonl")
            phase("observing")
            phase("writing")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "day.jsonl: reading 4.00 GB\n")
