"""A server of Google Cloud Storage: fake-gcs-server, which keeps its buckets in memory, and lets everybody in. Go builds it
the first time, into the cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from servers.go import built_by_go
from servers.process import Process, Server, free_port

VERSION = "v1.56.1"


class Google(Server):
    """A server for anybody; its log is in ``folder``."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The options that reach it, in the words of ``[store.gs]``."""
        return {"endpoint": self.endpoint, "anonymous": "true", "project": "tests"}

    def bucket(self, name: str) -> str:
        """A new bucket, as its URI."""
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        urlopen(Request(f"{self.endpoint}/storage/v1/b?project=tests", body, headers)).close()
        return f"gs://{name}"

    def system(self) -> Any:
        """Arrow's file system on it."""
        from pyarrow.fs import GcsFileSystem

        return GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{self.port}", scheme="http")

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        program = built()
        if program is None:
            raise RuntimeError(
                "there is no Go to build a server of Google's store with: apt-get install golang"
            )
        command = [str(program), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
        self._process = Process(
            [*command, "-port", str(self.port), "-public-host", f"127.0.0.1:{self.port}"],
            self.folder / "google.log",
            ready="server started",
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def built() -> Path | None:
    """The server's program; None where there is no Go."""
    return built_by_go("github.com/fsouza/fake-gcs-server", VERSION)
