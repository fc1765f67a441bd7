"""Java's archive of classes: which is used, and what is made and removed; Java itself does not run here."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from driftline.runtime import class_data
from driftline.runtime.class_data import Archive
from driftline.runtime.java import Java


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Java, list[Path], Path]:
    """A cache, a Java 17, a jar and a Spark with another."""
    for name in class_data.FOLDERS:
        monkeypatch.delenv(name, raising=False)
    base = tmp_path / "java" / "lib" / "server" / "classes.jsa"
    jar, spark = tmp_path / "cache" / "jars" / "a.jar", tmp_path / "spark"
    for file in (base, tmp_path / "java" / "release", jar, spark / "jars" / "b.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    return tmp_path / "cache", Java(tmp_path / "java", 17, "x"), [jar], spark


@pytest.fixture
def one(parts) -> Archive:
    found = Archive.of(*parts)
    assert found is not None
    return found


def made(draft: Path, lake: Path) -> bool:
    draft.write_text("classes")
    lake.mkdir()
    return True


def test_made_once_and_used_from_then_on(one):
    assert (one.flags(), one.wanted()) == ([], True)
    one.make(made)
    file = one.folder / f"{one.key}-7.jsa"
    assert f"-XX:SharedArchiveFile={file}" in one.flags()
    assert not one.wanted()
    one.make(lambda *_: pytest.fail("made twice"))
    assert {f.name for f in one.folder.iterdir()} == {file.name, "lock"}


@pytest.mark.parametrize("text", ["", "class", "classes and more"])
def test_a_file_of_another_size_is_not_used_and_is_made_anew(one, text):
    one.folder.mkdir()
    (one.folder / f"{one.key}-7.jsa").write_text(text)
    assert (one.flags(), one.wanted()) == ([], True)
    one.make(made)
    assert one.file().read_text() == "classes"


def test_of_two_at_a_time_one_makes_it(one):
    one.folder.mkdir()
    with (one.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        one.make(lambda *_: pytest.fail("two at a time"))
    assert one.file() is None


def test_what_failed_is_tried_again_the_next_day(one):
    def fails(draft: Path, lake: Path) -> bool:
        draft.write_text("half")
        return False

    assert one.wanted()
    one.make(fails)
    assert not one.wanted()
    failed = one.folder / f"{one.key}.failed"
    assert {f.name for f in one.folder.iterdir()} == {"lock", failed.name}
    os.utime(failed, (time.time() - 2 * class_data.DAY,) * 2)
    assert one.wanted()


def test_it_goes_when_it_was_long_unused(one):
    assert one.wanted()
    old, young = one.folder / "old-3.jsa", one.folder / "young-3.jsa"
    for file in (old, young, one.folder / "dead.draft"):
        file.write_text("abc")
    (one.folder / "lake").mkdir()
    os.utime(old, (time.time() - class_data.UNUSED - 9,) * 2)
    one.make(made)
    assert {f.name for f in one.folder.iterdir()} == {young.name, one.file().name, "lock"}


def test_a_full_disk_is_left_alone(one, monkeypatch):
    monkeypatch.setattr(class_data, "SPACE", 2**80)
    assert not one.wanted()


def test_another_java_pyspark_or_jar_has_another(parts, one):
    _, java, jars, spark = parts
    assert Archive.of(*parts) == one
    for file in (java.home / "release", *jars, spark / "jars" / "b.jar"):
        before = Archive.of(*parts).key
        file.write_text(file.read_text() + "2")
        assert Archive.of(*parts).key != before


def test_where_java_takes_none(parts, monkeypatch):
    cache, java, jars, spark = parts
    assert Archive.of(cache, Java(java.home, 21, "x"), jars, spark) is None
    assert Archive.of(cache / "a:b", java, jars, spark) is None
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(cache))
        assert Archive.of(*parts) is None
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert Archive.of(*parts) is None


def test_only_what_was_missed_is_made_soon(parts, one, monkeypatch):
    started: list[dict[str, object]] = []
    monkeypatch.setattr(class_data, "_missing", [])
    monkeypatch.setattr(class_data.subprocess, "Popen", lambda argv, **more: started.append(more))
    class_data.make_soon()
    assert started == []
    assert class_data.flags(Archive.of(*parts)) == []
    class_data.make_soon()
    assert [(s["cwd"], s["env"]["JAVA_HOME"]) for s in started] == [(one.folder, str(parts[1].home))]
