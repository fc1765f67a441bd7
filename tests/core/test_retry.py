"""Waiting for other writers: how long, how often, and what is told of it; and when written rows need no writing anew."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from driftline.cli import capture as cli
from driftline.core.changes import AddColumn, apply
from driftline.core.changes.apply import extends, refits
from driftline.core.schema.types import INT, LONG, STRING, Field, List, Map, Schema, Struct
from driftline.errors import DataError
from driftline.formats import commit
from driftline.formats.commit import Retry


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now, self.pauses = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(commit, "time", clock)
    monkeypatch.setattr(commit.random, "uniform", lambda _, most: most)
    return clock


def test_a_capture_never_gives_up_and_tells_why_it_waits(clock: Clock) -> None:
    lines: list[str] = []
    trying = Retry("shop.events", lines.append, endless=True)
    for _ in range(1000):
        trying.wait(RuntimeError("faster"))
    assert lines[0] == "waiting: others changed shop.events once in 0 s"
    assert lines[11].startswith("waiting: others changed shop.events 12 times in ")
    assert clock.now > 1030, "it does not spin"


def test_patience_counts_from_the_first_conflict(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "PATIENCE", 60.0)
    trying = Retry("shop.events")
    clock.now += 500  # of work
    for _ in range(60):
        trying.wait(RuntimeError("faster"))
    clock.now = 1560.0
    with pytest.raises(DataError, match=r"shop.events: faster: others changed it 61 times in 60 s") as told:
        trying.wait(RuntimeError("faster"))
    assert told.value.hint is not None
    assert "other writers keep changing this table" in told.value.hint


def test_who_has_waited_long_makes_shorter_pauses(clock: Clock) -> None:
    trying = Retry("t", endless=True)
    for _ in range(200):
        trying.wait(RuntimeError())
    longest = clock.pauses.index(max(clock.pauses))
    assert clock.pauses[: longest + 1] == sorted(clock.pauses[: longest + 1])
    assert clock.pauses[longest:] == sorted(clock.pauses[longest:], reverse=True)
    assert clock.pauses[-1] < 0.3 < max(clock.pauses) < 1


# Written rows under a later schema --------------------------------------------------------------------------------

BEFORE = apply(
    Schema(),
    [
        AddColumn((), Field("a", LONG)),
        AddColumn((), Field("s", Struct((Field("x", INT), Field("y", STRING))))),
    ],
)


def changed(path: str, **more: object) -> Schema:
    fields = tuple(replace(f, **more) if f.name == path else f for f in BEFORE.struct.fields)  # type: ignore[arg-type]
    return replace(BEFORE, struct=Struct(fields))


def added(column: Field) -> Schema:
    return apply(BEFORE, [AddColumn((), column)])


NESTED = Map(STRING, List(LONG))


@pytest.mark.parametrize(
    ("now", "fits", "only_more"),
    [
        (BEFORE, True, True),
        (replace(BEFORE, id=9), True, True),
        (added(Field("b", LONG)), True, True),
        (added(Field("b", NESTED)), True, True),
        (added(Field("b", LONG, initial_default=1, write_default=1)), True, False),
        (added(Field("b", LONG, required=True, initial_default=1, write_default=1)), True, False),
        (added(Field("b", LONG, initial_default=1, write_default=2)), False, False),
        (added(Field("b", LONG, write_default=2)), False, True),
        (added(Field("b", LONG, required=True)), False, True),
        (apply(BEFORE, [AddColumn(("s",), Field("z", LONG))]), True, True),
        (changed("a", name="z"), True, False),
        (changed("a", doc="new"), True, True),
        (changed("a", id=17), False, False),
        (changed("a", required=True), False, True),
        (changed("a", write_default=4), False, True),
        (changed("a", type=STRING), True, False),
        (changed("s", type=STRING), False, False),
        (replace(BEFORE, struct=Struct(BEFORE.struct.fields[:1])), True, False),
        (replace(BEFORE, identifiers=frozenset({1})), False, True),
    ],
)
def test_rows_need_no_writing_anew(now: Schema, fits: bool, only_more: bool) -> None:
    assert refits(BEFORE, now) == fits
    assert extends(BEFORE, now) == only_more


def test_a_relaxed_column_takes_what_was_written() -> None:
    assert refits(changed("a", required=True), BEFORE)


# In a log ----------------------------------------------------------------------------------------------------------


def test_a_log_is_told_of_a_long_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Query:
        asked = 0

        @property
        def isActive(self) -> bool:  # noqa: N802  Spark's name
            self.asked += 1
            return self.asked < 3

    monkeypatch.setattr(cli, "_PATIENCE", 0.0)
    shown = cli.Running(SimpleNamespace(spark=None), "orders", json=True, words=str)  # type: ignore[arg-type]
    shown.phase("committing")
    assert shown._next(Query()) is None  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    Retry("shop.events", shown.phase).wait(RuntimeError())
    shown.phase("committing")
    assert shown._next(Query()) is None  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert "orders: waiting: others changed shop.events once in 0 s\n" in told.err
    assert told.out == ""
