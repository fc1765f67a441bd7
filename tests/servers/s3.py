"""An S3 server: versitygw, which keeps its buckets as folders. Go builds it the first time, into the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from servers.go import built_by_go
from servers.process import Process, Server, free_port

VERSION = "v1.8.0"


class S3(Server):
    """A server with authentication, for one user; all else is in ``folder``. It can be stopped and started again."""

    access_key, secret_key, region = "driftline", "a-secret-of-the-tests", "us-east-1"

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The options that reach it, in the words of ``[store.s3]``."""
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same as the environment says it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def bucket(self, name: str) -> str:
        """A new bucket, as its URI."""
        self.system().create_dir(name)
        return f"s3://{name}"

    def put(self, uri: str, data: bytes) -> None:
        """Writes an object."""
        with self.system().open_output_stream(uri.partition("://")[2], compression=None) as file:
            file.write(data)

    def system(self) -> Any:
        """Arrow's file system on it, which may make buckets."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        program = built()
        if program is None:
            raise RuntimeError("there is no Go to build an S3 server with: apt-get install golang")
        buckets = self.folder / "buckets"
        buckets.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command = [str(program), "--port", f"127.0.0.1:{self.port}", "--region", self.region]
        self._process = Process(
            [*command, "posix", str(buckets)], self.folder / "s3.log", ready=self.endpoint, env=env
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def built() -> Path | None:
    """The server's program; None where there is no Go."""
    return built_by_go("github.com/versity/versitygw/cmd/versitygw", VERSION)
