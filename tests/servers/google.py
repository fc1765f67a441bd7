"""A server of Google Cloud Storage: fake-gcs-server, which keeps its buckets in memory, and lets everybody in. Go builds it
the first time, into the cache.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from servers.go import GoServer
from servers.process import Process


class Google(GoServer):
    """A server for anybody; its log is in ``folder``."""

    title = "a server of Google's store"
    module, version = "github.com/fsouza/fake-gcs-server", "v1.56.1"

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
        command = [self._required_program(), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
        self._process = Process(
            [*command, "-port", str(self.port), "-public-host", f"127.0.0.1:{self.port}"],
            self.folder / "google.log",
            ready="server started",
        )
