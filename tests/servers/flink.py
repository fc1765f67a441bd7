"""Flink's SQL in a Java of its own, which reads Iceberg's tables from their metadata files."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject, is_instance_of

from servers.gateway import JavaServer
from servers.jars import class_path, java

VERSION = "2.1.1"
_OPENED = ("java.lang", "java.net", "java.nio", "java.util")  # by reflection


class Flink(JavaServer):
    """A Java with Flink on its class path, which Python calls; all else is in ``folder``."""

    def start(self) -> None:
        options = ["-Xmx1g", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
        self._port, self._token = self.launch("flink.log", class_path("flink"), java(), options)

    @property
    def address(self) -> str:
        """The address by which `rows` reaches it."""
        return f"{self._port}:{self._token.decode()}:{self.folder}"


def rows(address: str, metadata: str) -> list[dict[str, Any]]:
    """The rows of the table with this ``metadata`` file, as the Flink at an `address` reads them."""
    port, token, folder = address.split(":", 2)
    warehouse = Path(folder, "warehouse")
    name = f"t{len(list(warehouse.glob('of/*')))}"
    # A Hadoop catalog finds the metadata by these names; what it names lies where it was.
    place = warehouse / "of" / name / "metadata"
    place.mkdir(parents=True)
    shutil.copy(metadata, place / "v1.metadata.json")
    (place / "version-hint.text").write_text("1")
    parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
    with closing(JavaGateway(gateway_parameters=parameters)) as gateway:
        api = gateway.jvm.org.apache.flink.table.api
        tables = api.TableEnvironment.create(api.EnvironmentSettings.inBatchMode())
        tables.executeSql(
            f"create catalog lake with ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = '{warehouse}')"
        )
        result = tables.executeSql(f"select * from lake.`of`.{name}").collect()
        found = []
        while result.hasNext():
            found.append(_value(gateway, result.next()))
    return found


def _value(gateway: JavaGateway, value: Any) -> Any:
    """A value of Java's as one of Python."""
    if not isinstance(value, JavaObject):
        return value
    if is_instance_of(gateway, value, "org.apache.flink.types.Row"):
        return {name: _value(gateway, value.getField(name)) for name in value.getFieldNames(True)}
    if is_instance_of(gateway, value, "java.util.Map"):
        return {entry.getKey(): _value(gateway, entry.getValue()) for entry in value.entrySet()}
    return [_value(gateway, one) for one in value]
