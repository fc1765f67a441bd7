"""A Hive Metastore, from the jars that Spark brings, with a Derby database of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from servers.jars import java
from servers.process import Process, ServerProcess, free_port

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:{folder}/metastore;create=true",
    "hive.metastore.warehouse.dir": "{folder}/warehouse",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",  # wants a library that Spark has not
}
_LOGGING = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c: %m%n
"""


class HiveMetastore(ServerProcess):
    """A metastore over Thrift on 127.0.0.1, whose files are in ``folder``; ``settings`` of Hive's go over its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self._settings = {**_SETTINGS, **(settings or {})}
        self.port = free_port()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def start(self) -> None:
        (self.folder / "warehouse").mkdir(parents=True)
        logging = self.folder / "hive-log4j2.properties"  # by this name it is looked for
        logging.write_text(_LOGGING)
        runner = java()
        settings = "".join(
            f"<property><name>{name}</name><value>{value.format(folder=self.folder)}</value></property>"
            for name, value in self._settings.items()
        )
        (self.folder / "hive-site.xml").write_text(f"<configuration>{settings}</configuration>")
        self._process = Process(
            [runner, "-Xmx512m", "-cp", f"{self.folder}:{_jars()}/*",
             "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)],
            self.folder / "hive.log",
            "Started the new metaserver",
            cwd=self.folder,
        )  # fmt: skip


def _jars() -> Path:
    """The jars of the Spark with the newest Hive of those that this Python finds: from 2.3.10 on a metastore refuses a
    commit that would overwrite another one, and Spark 3.5 brings an earlier one.
    """
    found = [jar for place in sys.path for jar in Path(place).glob("pyspark/jars/hive-metastore-*.jar")]
    return max(found, key=lambda jar: [int(digits) for digits in re.findall(r"\d+", jar.name)]).parent
