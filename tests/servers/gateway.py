"""A server inside a Java that Python calls."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from py4j.java_gateway import launch_gateway

from servers.process import Server


class JavaServer(Server):
    """A Java of its own, which ends with its standard input; its output and its files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, log: str, jars: str, java: str, options: Sequence[str]) -> tuple[int, bytes]:
        """Start Java; returns the port and the token by which py4j reaches it. ``log``: the name of its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / log).open("w") as output:
            port, token, self._process = launch_gateway(
                classpath=jars,
                java_path=java,
                javaopts=list(options),
                cwd=str(self.folder),
                redirect_stdout=output,
                redirect_stderr=output,
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
            )
        return port, token

    def stop(self) -> None:
        if self._process is not None and self._process.stdin:
            self._process.stdin.close()  # which ends it
            self._process.wait(20)
            self._process = None
