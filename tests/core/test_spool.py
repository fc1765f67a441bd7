"""The folder for data that come once and are read by tasks: on this machine, or where a cluster sees it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import DataError, SetupError
from driftline.sources.spooled import VARIABLE, folder_in, leftovers, place_of, told_where

HERE: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
CLUSTER: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"))


def test_a_cluster_has_it_where_its_lake_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_of(HERE, "/lake") is None
    assert place_of(CLUSTER, "/lake") == place_of(CLUSTER, "file:/lake") == Path("/lake")
    assert place_of(CLUSTER, "s3://bucket/lake") is place_of(CLUSTER, None) is None
    monkeypatch.setenv(VARIABLE, "/shared")
    assert place_of(CLUSTER, "s3://bucket/lake") == place_of(HERE, None) == Path("/shared")


def test_the_folder_is_for_all_to_read_and_goes(tmp_path: Path) -> None:
    with folder_in(tmp_path / "new" / "lake") as folder:
        assert folder.parent == tmp_path / "new" / "lake"
        umask = os.umask(0)
        os.umask(umask)
        assert folder.stat().st_mode & 0o777 == 0o777 & ~umask
        (folder / "a").write_text("x")
    assert not folder.exists()
    with folder_in(None) as folder:
        (folder / "a").write_text("x")
    assert not folder.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="no files can be put there") as raised, folder_in(tmp_path / "file"):
        pass
    assert VARIABLE in str(raised.value.hint)


def test_who_does_not_see_it_is_told_what_to_do() -> None:
    def failing(spark: Any, place: Path | None) -> DataError:
        with pytest.raises(DataError) as raised, told_where(spark, place):
            raise DataError("t.t: [Errno 2] No such file or directory: 'x'", "another hint")
        return raised.value

    assert VARIABLE in str(failing(CLUSTER, None).hint)
    assert failing(HERE, None).hint == failing(CLUSTER, Path("/lake")).hint == "another hint"


def test_what_a_killed_process_left_is_cleaned_away_once_it_is_old(tmp_path: Path) -> None:
    for name, age in (("old", 7200), ("young", 60)):
        folder = tmp_path / f"driftline-spool-{name}"
        (folder / "0").mkdir(parents=True)
        (folder / "0" / "rows").write_text("rows")
        for path in (folder / "0" / "rows", folder):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    (tmp_path / "shop").mkdir()
    (orphan,) = leftovers(str(tmp_path), 3600, dry_run=True)
    assert orphan.path.endswith("driftline-spool-old/0/rows") and orphan.size == 4
    assert leftovers(f"file:{tmp_path}", 3600, dry_run=False) == [orphan]
    assert {path.name for path in tmp_path.iterdir()} == {"driftline-spool-young", "shop"}
    assert leftovers("s3://bucket/lake", 0, dry_run=False) == leftovers(None, 0, dry_run=False) == []
