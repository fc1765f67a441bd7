"""Debezium's engine over a database, as a process: it writes the messages of changes to a file."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from servers import mariadb, postgres
from servers.jars import class_path

SECONDS = 240


def of_postgres(server: postgres.Postgres, table: str) -> dict[str, object]:
    """The connector's settings for one table of a PostgreSQL."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.port": server.port,
        "database.user": postgres.USER,
        "database.password": "none",
        "database.dbname": postgres.USER,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": table,
    }


def of_mariadb(server: mariadb.MariaDb, table: str) -> dict[str, object]:
    """The connector's settings for one table of a MariaDB with a binary log."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.port": server.port,
        "database.user": mariadb.USER,
        "database.password": mariadb.PASSWORD,
        "database.server.id": 7,
        "database.include.list": mariadb.DATABASE,
        "table.include.list": f"{mariadb.DATABASE}.{table}",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "driver.yearIsDateType": "false",  # else the year 0 stops a snapshot
        "bigint.unsigned.handling.mode": "precise",  # else 2^63 and more are sent as negative numbers
    }


class Debezium:
    """A connector with these ``settings``. It can be run again, and goes on from where it was."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self._properties = folder / "debezium.properties"
        self._offsets, self._history = folder / "offsets.dat", folder / "history.dat"
        common = {
            "name": "changes",
            "topic.prefix": "changes",
            "database.hostname": "127.0.0.1",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": self._offsets,
            "offset.flush.interval.ms": 0,
            "schema.history.internal.file.filename": self._history,
            "skipped.operations": "none",  # truncates are sent too
            "converter.schemas.enable": "true",
        }
        lines = (f"{name}={value}\n" for name, value in {**common, **settings}.items())
        self._properties.write_text("".join(lines))

    def forget(self) -> None:
        """Has the next run begin with a snapshot again."""
        self._offsets.unlink()
        self._history.unlink(missing_ok=True)

    @staticmethod
    def java() -> Path | None:
        """The Java of the machine's JDK, as the engine is driven by a source file; None without one."""
        compiler = shutil.which("javac")
        return Path(compiler).resolve().with_name("java") if compiler else None

    def write(self, messages: Path, until: str) -> None:
        """Appends messages to a file, until one has this text. RuntimeError if none does."""
        source = Path(__file__).with_name("Debezium.java")
        files = [str(source), str(self._properties), str(messages)]
        command = [str(self.java()), "-cp", class_path("debezium"), *files]
        done = subprocess.run([*command, until, str(SECONDS)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Debezium did not end at {until}: {done.stderr[-3000:]}")
