"""Catalogs for a lake: each starts its server in a folder, and yields Iceberg's properties of the catalog. The tables
are in the folder's `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from servers.hive import HiveMetastore
from servers.rest import Rest

# The metastore compares the table's metadata itself, from Hive 2.3.10 on; its tables of locks are not made here.
NO_LOCKS = {"spark.hadoop.iceberg.engine.hive.lock-enabled": "false"}
# By itself it refuses that the type of a column changes, so that a struct gets a field; Iceberg checks types itself.
ANY_TYPE = {"hive.metastore.disallow.incompatible.col.type.changes": "false"}


@contextmanager
def hive(folder: Path) -> Iterator[dict[str, str]]:
    with HiveMetastore(folder / "hive", ANY_TYPE) as server:
        yield {"type": "hive", "uri": server.uri, "warehouse": str(folder / "tables"), **NO_LOCKS}


@contextmanager
def rest(folder: Path) -> Iterator[dict[str, str]]:
    with Rest(folder / "tables") as server:
        yield {"type": "rest", "uri": server.uri}


CATALOGS: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {"hive": hive, "rest": rest}
