"""An S3 server: versitygw, which keeps its buckets as folders. Go builds it the first time, into the cache."""

from __future__ import annotations

import os
from typing import Any

from servers.go import GoServer
from servers.process import Process


class S3(GoServer):
    """A server with authentication, for one user; all else is in ``folder``. It can be stopped and started again."""

    title = "an S3 server"
    module, version = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"

    access_key, secret_key, region = "of-the-tests", "a-secret-of-the-tests", "us-east-1"

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
        buckets = self.folder / "buckets"
        buckets.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command = [self._required_program(), "--port", f"127.0.0.1:{self.port}", "--region", self.region]
        self._process = Process(
            [*command, "posix", str(buckets)], self.folder / "s3.log", ready=self.endpoint, env=env
        )
