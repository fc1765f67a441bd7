"""PostgreSQL from the machine's packages (Debian: ``postgresql``), with a cluster of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

from servers.process import Process, ServerProcess, free_port

USER = "postgres"  # of the databases
SYSTEM_USER = "nobody"  # runs it where we are root, as it refuses that
PACKAGES = Path("/usr/lib/postgresql")
PROGRAMS = ("initdb", "postgres", "createdb")


class Postgres(ServerProcess):
    """A server on 127.0.0.1. ``conninfo`` is what libpq takes, for a new database at each call of `database`.

    ``options``: settings of its own, `wal_level=logical`.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._count = 0

    @staticmethod
    def programs(packages: Path = PACKAGES) -> Path | None:
        """The folder of the newest server's programs; None where none has all that are needed."""
        packaged = sorted(packages.glob("*/bin"), key=lambda p: int(p.parts[-2]), reverse=True)
        initdb = shutil.which("initdb")
        folders = [*packaged, *([Path(initdb).parent] if initdb else [])]
        return next((f for f in folders if all((f / p).exists() for p in PROGRAMS)), None)

    def start(self) -> None:
        programs = self.programs()
        if programs is None:
            raise RuntimeError("there is no PostgreSQL: apt-get install postgresql")
        data = self.folder / "data"
        user = _user()
        if user:
            os.chown(self.folder, user["user"], user["group"])
            for parent in self.folder.parents:  # a folder of pytest's is for its owner only
                if parent.stat().st_uid == 0 and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o011)
        subprocess.run(
            [str(programs / "initdb"), "-D", str(data), "-U", USER, "--auth=trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **user,
        )
        self._process = Process(
            [str(programs / "postgres"), "-D", str(data), "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
             *chain.from_iterable(("-c", option) for option in self.options)],
            self.folder / "postgres.log",
            "ready to accept connections",
            **user,
        )  # fmt: skip
        self._bin = programs

    def database(self) -> str:
        """A new database, as ``postgres:`` of a lake's catalog."""
        self._count += 1
        name = f"lake{self._count}"
        subprocess.run(
            [str(self._bin / "createdb"), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, name],
            check=True,
            capture_output=True,
        )
        return f"postgres:dbname={name} host=127.0.0.1 port={self.port} user={USER}"

    def run(self, sql: str, database: str = USER) -> list[str]:
        """Runs statements, each a transaction, and returns the lines that they print."""
        command = [
            str(self._bin / "psql"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            USER,
            "-d",
            database,
        ]
        flags = ["-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run([*command, *flags], input=sql, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.splitlines()

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()


def _user() -> dict[str, Any]:
    """Another user of the system for a process, where we are root."""
    if os.getuid():
        return {}
    entry = pwd.getpwnam(SYSTEM_USER)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
