"""A JVM without Spark: Iceberg's own classes in a process that starts in a quarter of the time."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Self

from driftline.errors import NeedsSpark, SetupError
from driftline.runtime import temporary
from driftline.runtime.class_data import FOLDERS, Archive, flags
from driftline.runtime.failure import is_cut_off
from driftline.runtime.jars import cache_folder, cached_jars
from driftline.runtime.java import check_limits, default_memory, find_java

# The jars by the beginnings of their names: of the cache, and of Spark's own.
_OURS = ("org.apache.iceberg_iceberg-spark-runtime-", "org.xerial_sqlite-jdbc-")
_SPARKS = ("py4j-", "hadoop-client-", "slf4j-api-", "jcl-over-slf4j-", "commons-logging-", "jackson-")
_LOGGING = ("log4j-",)
# Its own warnings go to standard error: standard output begins with the port.
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+DisplayVMOutputToStderr",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)
_SERVER = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
_LAST = 5.0  # seconds from the end of Java's connections to its own


# A class path of its own, and so an archive of its own: under Spark's path of 300 jars the same takes twice
# as long.
def class_path() -> list[Path]:
    """The jars. Raises NeedsSpark while they are not in the cache, or where settings add folders to them."""
    spark, cached = find_spec("pyspark"), cached_jars()
    if spark is None or spark.origin is None or not cached:
        raise NeedsSpark("the jars are yet to be downloaded")
    if any(os.environ.get(name) for name in FOLDERS):
        raise NeedsSpark("settings of Hadoop's may say where files are")
    names = (*_SPARKS, *(_LOGGING if _debugs() else ()))
    sparks = sorted(Path(spark.origin).with_name("jars").glob("*.jar"))
    return [
        *(jar for jar in cached if jar.name.startswith(_OURS)),
        *(jar for jar in sparks if jar.name.startswith(names)),
    ]


def archive() -> Archive | None:
    """The archive of the classes; None if Java cannot use one. Raises NeedsSpark, as `class_path` does."""
    return Archive.of(cache_folder(), find_java(), class_path())


# It runs Iceberg's own commit at a quarter of the CPU of a Spark session. To write metadata from Python would
# be quicker still, but a second implementation of commits could cost a table.
class BareJava:
    """A Java with Iceberg's classes, which ends with this process at the latest.

    Raises NeedsSpark where it cannot start; SetupError if there is no Java.
    """

    def __init__(self, options: Sequence[str] | None = None) -> None:
        """Start it, without waiting for it. ``options``: of Java, by default those to use its archive."""
        jars, java = class_path(), find_java()
        self.archive = Archive.of(cache_folder(), java, jars)
        taken = flags(self.archive) if options is None else options
        # Java leaves nothing there when it is killed, and SQLite's library is unpacked there.
        check_limits(temporary.folder())
        self._temporary = TemporaryDirectory(prefix="java-", dir=temporary.folder())
        argv = [
            str(java.home / "bin" / "java"),
            *("-cp", os.pathsep.join(map(str, jars)), f"-Xmx{default_memory()}"),
            *(f"-Djava.io.tmpdir={self._temporary.name}", *_OPTIONS, *_log_options(), *taken, *_SERVER),
        ]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if _debugs() else subprocess.DEVNULL,
            text=True,
            # Ctrl-C is not for it: a commit under way comes to its end
            start_new_session=True,
        )

    def gateway(self) -> Any:
        """The way to its classes, once it has started. Raises NeedsSpark if it does not start."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        quiet_py4j()
        port, token = (self._out.readline().strip() for _ in range(2))
        if not port.isdecimal():
            self._remove_archive()
            raise NeedsSpark("Java did not start")
        # Java's objects go when it ends, which is soon.
        parameters = GatewayParameters(
            port=int(port), auth_token=token, auto_convert=True, enable_memory_management=False
        )
        return JavaGateway(gateway_parameters=parameters)

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @contextmanager
    def watched(self, lost: str) -> Iterator[None]:
        """Inside, an error that comes of its end becomes a SetupError with the hint ``lost``."""
        try:
            yield
        except Exception as error:
            if is_cut_off(error):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LAST)
            code = self._process.poll()
            if code is None:
                raise
            if code == -signal.SIGABRT:  # it crashed
                self._remove_archive()
            raise SetupError("Java, in which Iceberg runs, stopped unexpectedly", lost) from error

    def _remove_archive(self) -> None:
        """Have the next Java do without the archive, whose contents Java does not check."""
        if self.archive is not None:
            self.archive.remove()

    # Killed once all is answered: its orderly end takes 0.3 s.
    def end(self) -> int:
        """Have it end in order; returns its exit code."""
        self._close_pipes()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it at once: what it was asked for has been answered."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()
        self._temporary.cleanup()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _debugs() -> bool:
    return bool(os.environ.get("DRIFTLINE_DEBUG"))


def _log_options() -> list[str]:
    if not _debugs():
        return []
    config = Path(__file__).with_name("log4j2.properties").as_uri()
    return [f"-Dlog4j2.configurationFile={config}", "-Ddriftline.log=warn"]


def quiet_py4j() -> None:
    """Silence py4j's log when the JVM exits; the error is still raised."""
    if not _debugs():
        logging.getLogger("py4j").setLevel("CRITICAL")
        logging.getLogger().addFilter(_not_py4j)


def _not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
