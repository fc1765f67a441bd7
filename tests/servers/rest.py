"""An Iceberg REST catalog: the parts of Iceberg's own test server, put together through py4j.

Its own `main` would listen on all interfaces, and would need the libraries of three clouds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway

from driftline.runtime.jars import bundles, find_jars
from servers.gateway import JavaServer
from servers.jars import class_path, java


class Rest(JavaServer):
    """A catalog that keeps its tables in ``folder``, or at ``warehouse``, the URI of a folder in a store: ``reach``
    has the properties by which its FileIO gets there.
    """

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        warehouse: str | None = None,
        reach: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.port = port
        self._warehouse = warehouse or str(self.folder)
        self._reach = dict(reach or {})

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        jars = os.pathsep.join([class_path("rest"), *_libraries(self._warehouse)])
        port, token = self.launch(
            "rest.log", jars, java(), ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        )
        parameters = GatewayParameters(
            port=port, auth_token=token, auto_convert=True, enable_memory_management=False
        )
        with closing(JavaGateway(gateway_parameters=parameters)) as gateway:
            server = _server(gateway, self._properties(), self.port)
            server.start()
            self.port = int(server.getURI().getPort())

    def _properties(self) -> dict[str, str]:
        in_store = "://" in self._warehouse
        return {
            "uri": f"jdbc:sqlite:{self.folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": self._warehouse,
            **({"io-impl": "org.apache.iceberg.io.ResolvingFileIO"} if in_store else {}),
            **self._reach,
        }


def _libraries(warehouse: str) -> list[str]:
    """The further libraries that the server needs for a store, out of driftline's own cache."""
    more = bundles({"warehouse": warehouse})
    names = [package.split(":")[1] for package in more]
    return (
        [str(jar) for jar in find_jars(more=more) if any(name in jar.name for name in names)] if more else []
    )


def _server(gateway: JavaGateway, properties: Mapping[str, str], port: int):
    java, iceberg, jetty = gateway.jvm.java, gateway.jvm.org.apache.iceberg, gateway.jvm.org.eclipse.jetty
    catalog = iceberg.jdbc.JdbcCatalog()
    catalog.setConf(gateway.jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("rest", dict(properties))
    adapter = iceberg.rest.RESTCatalogAdapter(catalog)
    handler = jetty.ee10.servlet.ServletContextHandler()
    handler.addServlet(jetty.ee10.servlet.ServletHolder(iceberg.rest.RESTCatalogServlet(adapter)), "/*")
    server = jetty.server.Server(java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(handler)
    return server
