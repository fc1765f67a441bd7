"""MariaDB from the machine's packages, with a database of its own.

Debian has it as ``mariadb-server-core``, and the client that `MariaDb.run` needs as ``mariadb-client-core``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from servers.process import Process, ServerProcess, free_port

DATABASE, USER, PASSWORD = "lake", "driftline", "of-the-tests"


class MariaDb(ServerProcess):
    """A server on 127.0.0.1, whose files are in ``folder``. ``options``: settings of its own, `log-bin=log`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder.absolute()
        self.options = options
        self.port = free_port()

    @staticmethod
    def programs() -> tuple[str, str] | None:
        """The server, and what makes its files; None where one of them is not there."""
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
        server, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
        return (server, install) if server and install else None

    @staticmethod
    def client() -> str | None:
        """The program that runs statements; None where there is none."""
        return shutil.which("mariadb")

    @property
    def url(self) -> str:
        """The database, as JDBC names it."""
        return f"jdbc:mysql://127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        programs = self.programs()
        if programs is None:
            raise RuntimeError("there is no MariaDB: apt-get install mariadb-server-core")
        server, install = programs
        self.folder.mkdir(parents=True)
        data, first = self.folder / "data", self.folder / "first.sql"
        first.write_text(
            f"create database {DATABASE};\n"
            f"create user {USER}@'127.0.0.1' identified by '{PASSWORD}';\n"
            f"grant all on *.* to {USER}@'127.0.0.1';\n"
        )
        user = ["--user=root"] if os.getuid() == 0 else []
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db", *user],
            check=True,
            capture_output=True,
        )
        self._process = Process(
            [server, "--no-defaults", f"--datadir={data}", f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--socket={self.folder}/socket", f"--init-file={first}", "--skip-name-resolve",
             *(f"--{option}" for option in self.options), *user],
            self.folder / "mariadb.log",
            "ready for connections",
        )  # fmt: skip

    def run(self, sql: str) -> list[str]:
        """Runs statements, each a transaction, and returns the lines that they print."""
        client = self.client()
        if client is None:
            raise RuntimeError("there is no client of MariaDB: apt-get install mariadb-client-core")
        done = subprocess.run(
            [client, "--no-defaults", "--host=127.0.0.1", f"--port={self.port}", f"--user={USER}",
             f"--password={PASSWORD}", "--default-character-set=utf8mb4", "--batch", "--raw", "--skip-column-names",
             DATABASE],
            input=sql, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.splitlines()
