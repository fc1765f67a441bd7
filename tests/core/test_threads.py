"""Threads may share what is the process's or a session's: whoever leaves first takes nothing from the others."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Barrier, Event, Thread, Timer
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from driftline.core.support import LruCache, deep_recursion, gc_paused
from driftline.keys.stored import KeyCache
from driftline.runtime import spark_conf, threads
from driftline.runtime.spark_conf import CASE, configured
from driftline.runtime.threads import at_once

LONG = 10  # seconds, for what comes at once


def overlapping(
    block: Callable[[], AbstractContextManager[None]], seen: Callable[[], object]
) -> list[object]:
    """Open a block in two threads; returns what is seen in the second before and after the first has ended."""
    entered, inside, left = Event(), Event(), Event()
    values: list[object] = []

    def first() -> None:
        with block():
            entered.set()
            assert inside.wait(LONG)
        left.set()

    def second() -> None:
        assert entered.wait(LONG)
        with block():
            values.append(seen())
            inside.set()
            assert left.wait(LONG)
            values.append(seen())

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(first), threads.submit(second)]:
            done.result()
    return values


class Properties(dict[str, str]):
    """The local properties of a thread of Spark's."""

    def clone(self) -> Properties:
        return Properties(self)


class Conf(dict[str, str]):
    """The settings of a session."""

    set = dict.__setitem__
    unset = dict.__delitem__


class Session:
    """A session with settings alone."""

    def __init__(self, **conf: str) -> None:
        self.conf = Conf(conf)


@pytest.fixture
def inactive(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spark_conf, threads):
        monkeypatch.setattr(module, "activate", lambda spark: None)


@pytest.mark.usefixtures("inactive")
@pytest.mark.parametrize("own", [{CASE: "false"}, {CASE: "true"}, {}])
def test_a_session_keeps_its_settings_until_the_last_block_ends(own: dict[str, str]) -> None:
    spark: Any = Session(**own)
    seen = overlapping(lambda: configured(spark, {CASE: "true"}), lambda: spark.conf[CASE])
    assert seen == ["true", "true"]
    assert spark.conf == own


@pytest.mark.usefixtures("inactive")
def test_the_later_of_two_values_holds() -> None:
    spark, other = Session(a="own"), Session(a="other")
    outer, inner = configured(spark, {"a": "1", "b": "1"}), configured(spark, {"a": "2"})  # type: ignore[arg-type]
    outer.__enter__()
    inner.__enter__()
    assert (spark.conf, other.conf) == ({"a": "2", "b": "1"}, {"a": "other"})
    outer.__exit__(None, None, None)
    assert spark.conf == {"a": "2"}
    inner.__exit__(None, None, None)
    assert spark.conf == {"a": "own"}


def test_each_thread_may_recurse_as_deep_as_it_said() -> None:
    limit = sys.getrecursionlimit()
    both, one = overlapping(lambda: deep_recursion(100), sys.getrecursionlimit)
    assert (both, one) == (limit + 4000, limit + 2000)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("searched", [True, False])
def test_no_thread_switches_the_collection_on_for_another(searched: bool) -> None:
    if not searched:
        gc.disable()
    try:
        assert overlapping(gc_paused, gc.isenabled) == [False, False]
        assert gc.isenabled() == searched
    finally:
        gc.enable()


class Key:
    """A key that does something else, in another thread, when it is looked for so many times."""

    def __init__(self, name: str, meanwhile: Callable[[], None] = lambda: None, at: int = 0) -> None:
        self.name, self.meanwhile, self.left = name, meanwhile, at

    def _used(self) -> None:
        self.left -= 1
        if self.left == 0:
            other = Thread(target=self.meanwhile)
            other.start()
            other.join(0.05)  # it waits for us, if the cache is in use

    def __eq__(self, other: object) -> bool:
        self._used()
        return isinstance(other, Key) and other.name == self.name

    def __hash__(self) -> int:
        self._used()
        return hash(self.name)


def test_what_two_threads_put_at_once_is_both_cached() -> None:
    cache, ended = LruCache[Key, int](most=3), Event()

    def put() -> None:
        cache.put(Key("c"), 3)
        ended.set()

    cache.put(Key("a", put, at=1), 1)
    cache.put(Key("b"), 2)  # "a" is compared with it
    assert ended.wait(LONG)
    assert [cache.get(Key(name)) for name in "abc"] == [1, 2, 3]


def test_a_file_goes_from_the_cache_while_another_thread_asks_for_it() -> None:
    rows = [(0, pa.table({"1": [1, 2, 3]}))]
    cache = KeyCache()
    cache.begin(100)
    cache.put(Key("a"), rows)
    asked = Key("a", lambda: cache.begin(0), at=2)
    assert cache.get(asked) == rows


@pytest.fixture
def local(inactive: None) -> Any:
    """A session, with the properties that Spark keeps for each thread."""
    java = SimpleNamespace(getLocalProperties=lambda: Properties(group="a"), set=[])
    java.setLocalProperties = java.set.append
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java)), java=java)


def test_results_come_in_the_order_of_the_items_whoever_ends_first(local: Any) -> None:
    both, last = Barrier(2), Event()

    def work(item: int) -> int:
        if item < 2:
            both.wait(LONG)
        if item == 0:
            assert last.wait(LONG)
        if item == 3:
            last.set()
        return -item

    assert at_once(local, work, range(4), threads=2) == [0, -1, -2, -3]
    assert at_once(local, work, [], threads=2) == []
    (first, second) = local.java.set
    assert first == second == {"group": "a"}
    assert first is not second


def test_after_an_error_nothing_more_begins_and_the_earliest_error_is_raised(local: Any) -> None:
    begun: list[int] = []
    both, second_failed = Barrier(2), Event()

    def work(item: int) -> None:
        begun.append(item)
        both.wait(LONG)
        if item == 0:
            assert second_failed.wait(LONG)
        else:
            Timer(0.05, second_failed.set).start()
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        at_once(local, work, range(9), threads=2)
    assert sorted(begun) == [0, 1]


def test_an_interrupt_waits_for_what_has_begun_and_begins_nothing_more(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    begun, interrupted = Event(), Event()

    def work(item: int) -> None:
        begun.set()
        assert interrupted.wait(LONG)
        ended.append(item)

    def wait(_: object) -> None:
        assert begun.wait(LONG)
        Timer(0.05, interrupted.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(threads, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        at_once(local, work, range(9), threads=1)
    assert ended == [0]
