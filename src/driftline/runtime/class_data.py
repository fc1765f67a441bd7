"""Archives of loaded Java classes, which halve the start time of a JVM.

There is one for Spark, which takes 190 MB of the cache, and one for Iceberg alone, which takes 20. A
background process makes them once for each Java, pyspark and set of jars. Without it everything works, only
slower. Java crashes on a truncated archive, so its size is part of its name.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage

from driftline.runtime.disk import Bounds, delete_file, delete_folder
from driftline.runtime.java import Java

# The JRE wheel of 21 has no archive of its own, on which ours would build
JAVAS = (17,)
SPACE = 2**30  # bytes that are to be free for making one
DAY = 24 * 3600  # seconds
UNUSED = 7 * DAY  # after which an archive is removed
# These put folders on the class path, of which Java makes no archive.
FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive for one Java and class path; it need not be there."""

    folder: Path
    key: str
    java: Path

    @classmethod
    def of(cls, cache: Path, java: Java, jars: Sequence[Path], spark: Path | None = None) -> Archive | None:
        """The archive for the ``jars``, and those of ``spark``, its home; None if Java cannot use one."""
        folder = cache / "classes"
        if java.major not in JAVAS or any(os.environ.get(name) for name in FOLDERS):
            return None
        if not (java.home / "lib" / "server" / "classes.jsa").is_file() or set(str(folder)) & set(':"\\'):
            return None
        sparks = sorted((spark / "jars").glob("*.jar")) if spark is not None else []
        files = [java.home / "release", *jars, *sparks]
        # Java looks at just these, and passes over an archive of others.
        stamps = [(str(file), (s := file.stat()).st_size, s.st_mtime_ns) for file in files if file.is_file()]
        return cls(folder, sha256(repr(stamps).encode()).hexdigest()[:16], java.home)

    def file(self) -> Path | None:
        """The archive, if it is there and whole."""
        for file in self.folder.glob(f"{self.key}-*.jsa"):
            with suppress(OSError, ValueError):
                if file.stat().st_size == int(file.stem.partition("-")[2]):
                    return file
        return None

    def flags(self) -> list[str]:
        """The options with which Java uses it; empty if there is none."""
        file = self.file()
        if file is None:
            return []
        with suppress(OSError):
            os.utime(file)  # a sign of use
        # Java's crash report belongs here, not in the user's working directory.
        crash = self.folder / "crash.log"
        return [
            f"-XX:SharedArchiveFile={file}",
            f"-XX:ErrorFile={crash}",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
        ]

    def wanted(self) -> bool:
        """True if it should be made: not if it exists, was tried today, or has no room."""
        if self.file() is not None:
            return False
        try:
            self.folder.mkdir(exist_ok=True)
            if self._failed.exists() and time.time() - self._failed.stat().st_mtime < DAY:
                return False
            return os.access(self.folder, os.W_OK) and disk_usage(self.folder).free > SPACE
        except OSError:
            return False

    def make(self, run: Callable[[Path, Path], bool]) -> None:
        """Make the archive, which takes half a minute; of several processes, only one does.

        ``run``: does the work of commands in a Java that writes its classes to a file when it ends, with a
        lake in a folder of its own; returns False if that failed.
        """
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            self._tidy()
            if not self.wanted():
                return
            # Until it is made: what dies on the way is not tried again at once
            self._failed.touch()
            draft = self.folder / f"{self.key}.draft"
            if run(draft, self.folder / "lake"):
                with draft.open("rb") as written:
                    os.fsync(written.fileno())
                draft.replace(self.folder / f"{self.key}-{draft.stat().st_size}.jsa")
                delete_file(self._failed, self._bounds)
            self._tidy()

    def remove(self) -> bool:
        """Remove it, for a day at least; False if there is none.

        Java does not check its contents, so it may be why Spark did not start.
        """
        file = self.file()
        if file is not None:
            with suppress(OSError):
                self._failed.touch()
                delete_file(file, self._bounds)
        return file is not None

    @property
    def _bounds(self) -> Bounds:
        return Bounds((str(self.folder),))

    @property
    def _failed(self) -> Path:
        return self.folder / f"{self.key}.failed"

    def _tidy(self) -> None:
        """Remove leftovers of dead processes, and archives that are broken or long unused."""
        delete_folder(self.folder / "lake", self._bounds)
        for file in self.folder.glob("*.*"):
            unused = time.time() - file.stat().st_mtime > UNUSED
            if unused or file.suffix == ".draft" or (file.match(f"{self.key}-*.jsa") and file != self.file()):
                delete_file(file, self._bounds)


_missing: list[Archive] = []  # those that this process's Java could have used


def flags(archive: Archive | None) -> list[str]:
    """The options with which Java uses the archive; empty if there is none."""
    options = [] if archive is None else archive.flags()
    if archive is not None and not options:
        _missing.append(archive)
    return options


def make_soon() -> None:
    """Start a process in the background that makes the missing archives."""
    for archive in _missing[:1]:  # it makes all of them
        if archive.wanted():
            with suppress(OSError):
                subprocess.Popen(
                    # Not the user's own Java: it would hold the terminal's pipes as it ends, and print
                    # warnings.
                    [sys.executable, "-P", "-m", "driftline.cli.class_data"],
                    cwd=archive.folder,
                    env={**os.environ, "JAVA_HOME": str(archive.java)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
