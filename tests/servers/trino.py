"""A Trino server, which reads Iceberg's tables from their metadata files: put together out of its jars, as Maven Central
has the whole of it only up to version 476.
"""

from __future__ import annotations

import json
from contextlib import closing
from glob import glob
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from zipfile import ZipFile

from py4j.java_gateway import GatewayParameters, JavaGateway

from driftline.runtime.java import USUAL_PLACES, inspect
from servers.gateway import JavaServer
from servers.jars import class_path
from servers.process import free_port

VERSION = "483"
_JAVA = 25


class Trino(JavaServer):
    """A server of one node on 127.0.0.1, whose files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        java = _java()
        configuration = self._configure()
        node = {"environment": "test", "id": "one", "data-dir": str(self.folder), "bind-ip": "127.0.0.1",
                "internal-address": "127.0.0.1"}  # fmt: skip
        options = ["-Xmx1500m", "-XX:TieredStopAtLevel=1", "--add-modules=jdk.incubator.vector",
                   f"-Dconfig={configuration}", *(f"-Dnode.{key}={value}" for key, value in node.items())]  # fmt: skip
        port, token = self.launch("trino.log", class_path("trino-main"), java, options)
        with closing(
            JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        ) as gateway:
            gateway.jvm.io.trino.server.Server().start(VERSION)

    def _configure(self) -> Path:
        configuration = self.folder / "etc"
        _write(configuration / "config.properties", {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.port),
            "discovery.uri": self.url,
            "catalog.config-dir": str(configuration / "catalog"),
            "plugin.dir": str(self._plugins()),
            "query.max-memory": "300MB",
        })  # fmt: skip
        _write(configuration / "catalog/lake.properties", {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "TESTING_FILE_METASTORE",
            "hive.metastore.catalog.dir": str(self.folder / "catalog"),
            "fs.hadoop.enabled": "true",  # which also reads folders of this machine
            "iceberg.register-table-procedure.enabled": "true",
        })  # fmt: skip
        return configuration / "config.properties"

    def _plugins(self) -> Path:
        """The folder of the plugin for Iceberg, as it is in a release."""
        plugin = self.folder / "plugin/iceberg"
        plugin.mkdir(parents=True)
        for jar in glob(class_path("trino-iceberg")):
            (plugin / Path(jar).name).symlink_to(jar)
        (plugin / "hdfs").symlink_to(Path(class_path("trino-hdfs")).parent)
        with ZipFile(plugin / "services.jar", "w") as services:
            services.writestr(
                "META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n"
            )
        return plugin.parent


def _java() -> str:
    """A Java that the server runs on, of this machine: the small ones that come as wheels lack a module."""
    for place in USUAL_PLACES:
        for home in glob(place):
            program = Path(home, "bin/java")
            found = inspect(program, "")
            if found is not None and found.major >= _JAVA:
                return str(program)
    raise RuntimeError(f"there is no JDK {_JAVA} to run Trino on")


def rows(url: str, sql: str) -> list[dict[str, Any]]:
    """The rows of a statement, which the server at ``url`` runs. RuntimeError, if it refuses it."""
    found: list[list[Any]] = []
    columns: list[dict[str, Any]] = []
    page = _asked(Request(f"{url}/v1/statement", data=sql.encode(), headers={"X-Trino-User": "driftline"}))
    while True:
        if "error" in page:
            raise RuntimeError(page["error"]["message"])
        columns = page.get("columns") or columns
        found += page.get("data") or []
        if "nextUri" not in page:
            break
        page = _asked(Request(page["nextUri"]))
    return [
        {column["name"]: _value(column["typeSignature"], value) for column, value in zip(columns, row, strict=True)}
        for row in found
    ]  # fmt: skip


def _asked(request: Request) -> dict[str, Any]:
    with urlopen(request, timeout=60) as answer:
        page: dict[str, Any] = json.load(answer)
    return page


def _value(signature: dict[str, Any], value: Any) -> Any:
    """A value with the names of its structs' fields, which Trino sends as lists."""
    inner = [argument["value"] for argument in signature["arguments"]]
    match signature["rawType"]:
        case _ if value is None:
            return None
        case "row":
            return {
                field["fieldName"]["name"]: _value(field["typeSignature"], one)
                for field, one in zip(inner, value, strict=True)
            }
        case "array":
            return [_value(inner[0], one) for one in value]
        case "map":
            return {key: _value(inner[1], one) for key, one in value.items()}
        case _:
            return value


def _write(path: Path, properties: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
