"""An S3 server, and an Iceberg REST catalog whose tables are in it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from driftline.runtime.file_io import properties
from servers.process import Server
from servers.rest import Rest
from servers.s3 import S3


class Lakehouse(Server):
    """The catalog's tables are at ``warehouse``; all files of both servers in ``folder``."""

    warehouse = "s3://lake/tables"

    def __init__(self, folder: Path, s3_port: int = 0, rest_port: int = 0) -> None:
        self.s3 = S3(folder / "s3", s3_port)
        self._rest = (folder / "rest", rest_port)
        self._running = ExitStack()

    @property
    def settings(self) -> str:
        """Its settings in driftline.toml."""
        return f"""\
lake = "{self.warehouse}"

[catalog]
type = "rest"
uri = "{self.rest.uri}"

[store.s3]
endpoint = "{self.s3.endpoint}"
access_key = "${{STORE_KEY}}"
secret_key = "${{STORE_SECRET}}"
"""

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the environment that the settings name."""
        return {"STORE_KEY": self.s3.access_key, "STORE_SECRET": self.s3.secret_key}

    @property
    def reach(self) -> dict[str, str]:
        """The properties by which Iceberg's FileIO gets to the tables."""
        return properties(self.warehouse, self.s3.options)

    def start(self) -> None:
        with ExitStack() as started:
            started.enter_context(self.s3)
            self.s3.bucket("lake")
            folder, port = self._rest
            self.rest = started.enter_context(Rest(folder, port, self.warehouse, self.reach))
            self._running = started.pop_all()

    def stop(self) -> None:
        self._running.close()
