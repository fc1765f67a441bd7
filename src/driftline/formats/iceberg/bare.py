"""A table of the embedded lake in a JVM without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.config import DURABILITY
from driftline.core.schema.types import LONG, STRING, Field, Schema, Struct
from driftline.errors import NeedsSpark
from driftline.runtime.bare_java import BareJava
from driftline.runtime.session import embedded_catalog, make_lake, without_checksums
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.table import IcebergTable


@contextmanager
def alterable(lake: Path, catalog: str, name: str, *, durable: bool = True) -> Iterator[IcebergTable]:
    """A table of the lake in a folder, by its name. Raises NeedsSpark where Spark is to open it."""
    with BareJava() as java:
        from driftline.formats.iceberg.handle import IcebergHandle  # while Java starts
        from driftline.formats.iceberg.table import IcebergTable

        gateway = java.gateway()
        with java.watched(
            f"see the system log for the cause; `driftline history {name}` tells if it took place"
        ):
            properties = embedded_catalog(lake) | {DURABILITY: "full" if durable else "off"}
            opened = _bare_table(gateway, properties, catalog)
            yield IcebergTable(IcebergHandle(gateway, opened, name, lake))


@contextmanager
def rehearsed(lake: Path, options: Sequence[str]) -> Iterator[IcebergTable]:
    """A new table of a new lake, in a Java with these options, which ends in order: for its archive."""
    with BareJava(options) as java:
        from driftline.formats.iceberg.gateway import java_schema
        from driftline.formats.iceberg.handle import IcebergHandle
        from driftline.formats.iceberg.table import IcebergTable

        make_lake(lake)
        gateway = java.gateway()
        handle = IcebergHandle(gateway, _bare_table(gateway, embedded_catalog(lake), "lake"), "a.b", lake)
        row = Struct((Field("id", LONG, 1), Field("who", Struct((Field("name", STRING, 3),)), 2)))
        schema = java_schema(gateway.jvm, Schema(row))
        handle.java_catalog.createNamespace(handle.identifier.namespace())
        handle.java_catalog.createTable(handle.identifier, schema)
        yield IcebergTable(handle)
        java.end()


def _bare_table(gateway: Any, properties: Mapping[str, str], name: str) -> Callable[[], Any]:
    """Return a function that opens a catalog with these properties once, and returns Java's object for it."""

    @cache
    def opened() -> Any:
        """Open the catalog. Raises NeedsSpark if it does not open, which Spark's errors explain."""
        from py4j.protocol import Py4JJavaError

        catalogs = java_type(gateway.jvm, "org.apache.iceberg.CatalogUtil")
        configuration = java_type(gateway.jvm, "org.apache.hadoop.conf.Configuration")()
        without_checksums(gateway.jvm, configuration)
        try:
            try:
                return catalogs.buildIcebergCatalog(name, dict(properties), configuration)
            except Py4JJavaError:
                # JdbcCatalog adds a column to a new catalog without a lock: of two that do, one fails.
                return catalogs.buildIcebergCatalog(name, dict(properties), configuration)
        except Py4JJavaError as error:
            raise NeedsSpark("the catalog does not open") from error

    return opened
