"""Debezium's engine over a PostgreSQL, as a process: it writes the messages of changes to a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from servers.jars import class_path
from servers.postgres import USER, Postgres

SECONDS = 240


class Debezium:
    """A connector for one table. It can be run again, and goes on from where it was."""

    def __init__(self, folder: Path, postgres: Postgres, database: str, table: str) -> None:
        self.folder = folder
        self._properties = folder / "debezium.properties"
        settings = {
            "name": "changes",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "topic.prefix": "changes",
            "database.hostname": "127.0.0.1",
            "database.port": postgres.port,
            "database.user": USER,
            "database.password": "none",
            "database.dbname": database,
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "table.include.list": table,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": folder / "offsets.dat",
            "offset.flush.interval.ms": 0,
            "skipped.operations": "none",  # truncates are sent too
            "converter.schemas.enable": "true",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

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
