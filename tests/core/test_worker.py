"""The state of a Python process of Spark's after a task."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from driftline.runtime import daemon
from driftline.runtime.daemon import lighten_worker


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A zip on Python's path, of which a package within a package is imported."""
    path = str(tmp_path / "outer.zip")
    with ZipFile(path, "w") as file:
        for name in ("__init__", "inner/__init__", "inner/one", "inner/two"):
            file.writestr(f"outer_zipped/{name}.py", f"name = {name!r}")
    monkeypatch.syspath_prepend(path)
    for name in [name for name in sys.modules if name.startswith("outer_zipped")]:
        del sys.modules[name]
    importlib.import_module("outer_zipped.inner.one")
    return path


def importers(path: str) -> list[str]:
    """The places in a zip that have an importer each."""
    cache = sys.path_importer_cache.items()
    return [place for place, one in cache if isinstance(one, zipimporter) and one.archive == path]


def test_a_zip_is_read_once_before_the_next_task(zipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(gc, "freeze", lambda: None)
    assert len(importers(zipped)) == 3
    lighten_worker()
    assert importers(zipped) == [zipped]
    importlib.invalidate_caches()
    assert importlib.import_module("outer_zipped.inner.two").name == "inner/two"


def test_spark_s_own_zips_are_not_read_again(zipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setenv("SPARK_HOME", str(Path(zipped).parent))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    lighten_worker()
    assert importers(zipped) == []
    assert importlib.import_module("outer_zipped.inner.two").name == "inner/two"


def test_modules_are_searched_for_cycles_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    daemon._freeze_modules.cache_clear()
    try:
        lighten_worker()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_objects_that_were_set_aside_are_not_counted_by_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: calls.append("count"))
    daemon._freeze_modules.cache_clear()
    lighten_worker()
    lighten_worker()
    assert calls == ["freeze"]


def test_another_process_stays_as_it_is(zipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    frozen = gc.get_freeze_count()
    lighten_worker()
    assert len(importers(zipped)) == 3
    assert gc.get_freeze_count() == frozen
