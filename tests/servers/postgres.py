"""PostgreSQL from the machine's packages (Debian: ``postgresql``), with a cluster of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from servers.process import Process, Server, free_port

USER = "postgres"  # runs it where we are root, as it refuses that


class Postgres(Server):
    """A server on 127.0.0.1. ``conninfo`` is what libpq takes, for a new database at each call of `database`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: Process | None = None
        self._count = 0

    @staticmethod
    def programs() -> Path | None:
        """Where the newest server's programs are; None where there is none."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
        on_path = shutil.which("initdb")
        return found[-1].parent if found else Path(on_path).parent if on_path else None

    def start(self) -> None:
        programs = self.programs()
        if programs is None:
            raise RuntimeError("there is no PostgreSQL: apt-get install postgresql")
        data = self.folder / "data"
        if os.getuid() == 0:
            user = pwd.getpwnam(USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            for parent in self.folder.parents:  # a folder of pytest's is for its owner only
                if parent.stat().st_uid == 0 and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o011)
        subprocess.run(
            [*self._as(), str(programs / "initdb"), "-D", str(data), "-U", USER, "--auth=trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )
        self._process = Process(
            [*self._as(), str(programs / "postgres"), "-D", str(data), "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"],
            self.folder / "postgres.log",
            "ready to accept connections",
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

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()

    @staticmethod
    def _as() -> list[str]:
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []
