"""The archive of classes as Java writes and takes it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from driftline.runtime.class_data import JAVAS
from driftline.runtime.jars import cache_folder, find_jars
from driftline.runtime.java import find_java
from driftline.runtime.session import prepare_environment
from servers.machine import lacking

LOOK = """
import sys
from driftline.lake import Lake
jvm = Lake.open(sys.argv[1]).spark._jvm
print(*jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments(), sep="\\n")
print(jvm.java.lang.System.getProperty("java.vm.info"))
"""


def test_a_command_has_it_made_behind_its_back_and_the_next_takes_it(tmp_path):
    if find_java().major not in JAVAS:
        lacking("Java 17", "apt-get install openjdk-17-jre-headless")
    prepare_environment()
    find_jars()
    cache = tmp_path / "a cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_folder() / "jars")
    # The process that makes archives gives way to all others: beside other tests it would take minutes.
    (tmp_path / "sitecustomize.py").write_text("import os\nos.nice = lambda by: 0\n")
    env = {**os.environ, "DRIFTLINE_CACHE": str(cache), "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, "-m", "driftline", "--lake", str(tmp_path / "lake"), "query", "select 1 as a"]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=300)
    assert ran.stderr == ""
    deadline = time.monotonic() + 600
    while len(found := sorted((cache / "classes").glob("*.jsa"), key=lambda file: -file.stat().st_size)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path / "lake")],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    assert f"-XX:SharedArchiveFile={found[0]}" in ran.stdout.splitlines()
    assert "sharing" in ran.stdout.splitlines()[-1]

    # Damaged inside, it keeps Java from starting: the command goes on without it.
    for archive in found:
        damage(archive)
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    assert "1" in ran.stdout
    assert not found[0].exists()
    altered = [*argv[:-2], "alter", "alter table if exists a.b drop column x"]
    ran = subprocess.run(
        altered, check=False, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stdout) == (0, "a.b  nothing to change\n"), ran.stderr
    assert not found[1].exists()
    assert not list(tmp_path.glob("hs_err*"))


def damage(archive: Path) -> None:
    size = archive.stat().st_size
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(size // 4)
        file.write(bytes(size // 2))
