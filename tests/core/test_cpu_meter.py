"""The CPU that benches count of processes that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

Looks = Sequence[
    dict[str, tuple[float, float]]
]  # by process: its own seconds, and of those it has waited for


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        pytest.param([{"p": (1, 0), "c": (2, 0)}, {"p": (1, 2.5)}], [3, 3.5], id="waited for"),
        pytest.param([{"p": (1, 0), "c": (2, 0)}, {"p": (1, 0)}, {"p": (2, 0)}], [3, 3, 4], id="not waited for"),
        pytest.param([{"p": (1, 0)}, {"p": (1, 2)}], [1, 3], id="never seen"),
        pytest.param(
            [{"p": (1, 0), "q": (1, 0), "c": (2, 0)}, {"p": (1, 0), "q": (1, 2)}, {"p": (1, 3)}],
            [4, 4, 4],
            id="parent ends too",
        ),
    ],
)  # fmt: skip
def test_an_ended_process_counts_once(
    looks: Looks, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    measure = import_module("measure")
    coming = iter(looks)
    monkeypatch.setattr(measure, "_times", lambda _: next(coming))
    meter = measure.CpuMeter(None)
    assert [meter.seconds() for _ in looks] == seconds
