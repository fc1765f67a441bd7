"""Opens lakes and tables: the only module that knows which table formats exist.

Each is imported when a lake of it is opened: DuckDB need not be installed for Iceberg.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from driftline.core.schema.naming import VIEW_SUFFIX
from driftline.errors import NeedsSpark, UsageError, no_table

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from driftline.formats.base import AlterableTable
    from driftline.formats.ducklake.catalog import CatalogDatabase
    from driftline.formats.home import DisplacedLake, Relocation
    from driftline.formats.lakes import Catalog, DroppedFolder, Location, OfflineTable, Orphan

# Of a lake: its folder, or the URI of one in a store
LakePath: TypeAlias = "str | os.PathLike[str]"
CATALOG = "lake"  # the catalog of a lake in a folder


def iceberg(spark: SparkSession, name: str) -> Catalog:
    """The Iceberg catalog that the session knows by this name, recovered if it is that of a lake in a folder.

    Raises SetupError if the catalog of such a lake cannot be read.
    """
    from driftline.formats.iceberg.catalog import IcebergCatalog
    from driftline.formats.iceberg.offline import recovered  # late: as all of a format
    from driftline.runtime.session import embedded_lake  # late: only what has a session needs it

    folder = embedded_lake(spark, name)
    if folder is not None and (folder / "catalog.db").is_file():
        recovered(folder, name)
    return IcebergCatalog(spark, name)


@dataclass(frozen=True, slots=True)
class EmbeddedLake:
    """A lake in a folder of this machine, or a DuckLake anywhere, read without Spark.

    ``ducklake``: its catalog, if it is a DuckLake; None for Iceberg. ``durable`` False: it is written without
    syncs.
    """

    folder: LakePath
    ducklake: str | None = None
    durable: bool = True

    def table(self, name: str) -> OfflineTable | None:
        """A table by ``namespace.table``; None if there is none, or if it takes Spark to read it."""
        if self.ducklake is not None:
            from driftline.formats.ducklake.statistics import OfflineDuckLakeTable

            return OfflineDuckLakeTable.of(self.database(), name)
        from driftline.formats.iceberg.offline import OfflineIcebergTable

        return OfflineIcebergTable.of(Path(self.folder), CATALOG, name)

    def names(self, *, views: bool = False) -> list[str] | None:
        """Its tables, and its ``views``; none if it has no catalog. None if it takes Spark to know."""
        if not self.exists():
            return []
        if self.ducklake is not None:
            from driftline.formats.ducklake.statistics import tables

            return [".".join(parts) for parts in tables(self.database(), views=views)]
        from driftline.formats.iceberg.offline import table_names

        return table_names(Path(self.folder), CATALOG, views=views)

    def versions(self) -> dict[str, str]:
        """Texts by table that change with each of its commits, for what remembers something of it."""
        if not self.exists():
            return {}
        if self.ducklake is not None:
            from driftline.formats.ducklake.snapshot import latest  # late: as all of a format

            snapshot = str(self.database().read(latest))
            return dict.fromkeys(self.names() or (), snapshot)
        from driftline.formats.iceberg.offline import table_versions  # late: as all of a format

        return table_versions(Path(self.folder), CATALOG)

    def folders(self) -> list[str]:
        """The folders of its files, each with a slash at its end."""
        own = [] if self.ducklake is None else [self.database().data]
        return [f"{str(self.folder).rstrip('/')}/", *own]

    def exists(self) -> bool:
        """True if there is a catalog; a server's is not asked."""
        if self.ducklake is not None:
            return self.database().exists()
        return Path(self.folder, "catalog.db").is_file()

    def displaced(self) -> DisplacedLake | None:
        """The lake, if it was made at another place; None if it was not, or is yet to be made."""
        if not self.exists():
            return None
        if self.ducklake is not None:
            return self.database().displaced()
        from driftline.formats.iceberg.relocating import displaced_lake  # late: as all of a format

        return displaced_lake(Path(self.folder))

    def check_open(self, *, writes: bool, notify: Callable[[str], None] | None = None) -> None:
        """Raise UsageError if the lake was copied or moved, and cannot be read, or written if it ``writes``.

        ``notify``: called with a line about a copy that is read.
        """
        elsewhere = self.displaced()
        if elsewhere is None:
            return
        # A moved Iceberg lake finds no file; a DuckLake finds those that came with its catalog.
        if writes or (self.ducklake is None and not elsewhere.is_copy):
            raise elsewhere.refusal()
        if notify is not None:
            notify(f"{elsewhere.refusal().message}: it can only be read")

    def settle(self, notify: Callable[[str], None] | None) -> None:
        """Record this place as the lake's home, unless it has one; a DuckLake's first commit does so.

        Raises as `check_open`, for a lake to be read.
        """
        self.check_open(writes=False, notify=notify)
        if self.ducklake is None:
            from driftline.formats.iceberg.relocating import record_home  # late: as all of a format

            record_home(Path(self.folder))

    def recover(self) -> None:
        """Go back to the last whole version of each table whose newest a power cut took, as `iceberg` does.

        Iceberg reads a metadata file that is cut twenty times, for a minute and a half, before it says so. A
        DuckLake's database recovers by itself.
        """
        if self.ducklake is None and self.exists():
            from driftline.formats.iceberg.offline import recovered  # late: as all of a format

            recovered(Path(self.folder), CATALOG)

    def alterable(self, name: str, *, renames: bool = False) -> AbstractContextManager[AlterableTable]:
        """A table by ``namespace.table``, to be altered. ``renames``: so that its view has to follow.

        Raises NeedsSpark where that takes Spark, UsageError as `check_open`.
        """
        self.check_open(writes=True)
        self.recover()
        names = self.names(views=True) if renames else []
        if names is None or f"{name}{VIEW_SUFFIX}" in names:
            raise NeedsSpark("its view is made anew")
        if self.ducklake is not None:
            from driftline.formats.ducklake.table import DuckLakeTable  # late: as all of a format

            return nullcontext(DuckLakeTable(None, self.database(), name))
        from driftline.formats.iceberg.bare import alterable

        return alterable(Path(self.folder), CATALOG, name, durable=self.durable)

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete files that no snapshot has, untouched for ``older_than`` seconds; returns them.

        Raises NeedsSpark, with nothing deleted, where that takes Spark; UsageError as `check_open`.
        """
        self.check_open(writes=True)
        self.recover()
        if self.ducklake is not None:
            from driftline.formats.ducklake.expiry import clean as of_ducklake  # late: as all of a format

            return of_ducklake(self.database(), older_than, dry_run=dry_run)
        from driftline.formats.iceberg.orphans import clean

        return clean(Path(self.folder), CATALOG, older_than, dry_run=dry_run, durable=self.durable)

    def in_duckdb(self, sql: str) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """DuckDB with the tables that the ``sql`` names."""
        if self.ducklake is not None:
            return self.database().queried()
        from driftline.formats.iceberg.duckdb_views import queried

        return queried(Path(self.folder), CATALOG, sql)

    def dropped(self, *, delete: bool = False) -> list[DroppedFolder]:
        """The dropped tables whose files are still there.

        ``delete``: delete these, but for those that older snapshots of a DuckLake have. Raises UsageError as
        `check_open`.
        """
        if not self.exists():
            return []
        self.check_open(writes=delete)
        if self.ducklake is not None:
            from driftline.formats.ducklake.expiry import dropped

            return self.database().read(dropped)
        from driftline.formats.iceberg import dropped as dropped_tables  # late: as all of a format

        return dropped_tables.dropped(Path(self.folder), CATALOG, delete=delete, durable=self.durable)

    def database(self) -> CatalogDatabase:
        """The catalog of a DuckLake."""
        from driftline.formats.ducklake.catalog import CatalogDatabase  # late: as all of a format

        assert self.ducklake is not None
        return CatalogDatabase.of(self.ducklake, self.folder, durable=self.durable)


def relocate(lake: EmbeddedLake | None, *, dry_run: bool) -> Relocation:
    """Make a moved lake whole at its place, or a copy a lake of its own. ``dry_run``: write nothing.

    Raises UsageError if it is where it was made, or is None, as one with a catalog of its own is; DataError
    if it lacks a file that its tables name.
    """
    if lake is None:
        raise UsageError(
            "only a lake in a folder can be relocated, and this one has a catalog of its own",
            "where its tables lie is for that catalog to change",
        )
    elsewhere = lake.displaced()
    if elsewhere is None:
        raise UsageError(f"{lake.folder} is no lake that was copied or moved", "there is nothing to relocate")
    if lake.ducklake is not None:
        from driftline.formats.ducklake import relocating as ducklake  # late: as all of a format

        return ducklake.relocate(lake.database(), elsewhere, dry_run=dry_run)
    from driftline.formats.iceberg import relocating as iceberg_lakes
    from driftline.formats.iceberg.offline import recovered

    folder = Path(lake.folder).resolve()
    # A power cut may have been the reason for the move.
    recovered(folder, CATALOG, iceberg_lakes.PathRewriter(elsewhere.home, str(folder), dry_run=True).moved)
    return iceberg_lakes.relocate(folder, elsewhere, dry_run=dry_run)


def relocate_table(lake: EmbeddedLake | None, table: str, to: Catalog, *, dry_run: bool) -> Relocation:
    """Copy a table of a lake in a folder into the catalog of another lake. ``dry_run``: write nothing.

    Raises UsageError where that is not possible, as for a DuckLake; else as `IcebergCatalog.adopt`.
    """
    from driftline.formats.iceberg.catalog import IcebergCatalog

    if lake is None:
        raise UsageError(
            f"only a table of a lake in a folder can be relocated, and {table} is in a catalog of its own",
            "Iceberg's rewrite_table_path and register_table copy a table between such catalogs",
        )
    if lake.ducklake is not None or not isinstance(to, IcebergCatalog):
        raise UsageError(
            "a DuckLake has the history of all its tables in one catalog, so none is relocated alone",
            "copy the whole lake, its catalog and its files, and relocate the copy: see docs/backup.md",
        )
    lake.check_open(writes=True)
    if not lake.exists():
        raise no_table(table)
    return to.adopt((Path(lake.folder), CATALOG), table, dry_run=dry_run)


def dropped(lake: EmbeddedLake | None, *, delete: bool) -> list[DroppedFolder]:
    """The tables that were dropped from a lake, and whose files are still there; none of other catalogs.

    Raises UsageError as `EmbeddedLake.dropped`, and if such a catalog's are to be deleted.
    """
    if lake is not None:
        return lake.dropped(delete=delete)
    if delete:
        raise UsageError(
            "the catalog of this lake keeps no list of dropped tables, so their files are not known",
            "`driftline drop` names the folders that it leaves, and with --purge it deletes their files",
        )
    return []


def rehearsed(folder: Path, options: Sequence[str]) -> AbstractContextManager[AlterableTable]:
    """A new table of a new embedded Iceberg lake, in a Java without Spark that has these options."""
    from driftline.formats.iceberg.bare import rehearsed

    return rehearsed(folder, options)


def _ducklake(catalog: str, folder: LakePath, *, durable: bool) -> Location:
    from driftline.formats.ducklake.lake import DuckLakeLocation

    return DuckLakeLocation.of(catalog, folder, durable=durable)


# Formats whose catalogs are not Spark's, by the word for them.
FORMATS: dict[str, Callable[..., Location]] = {"ducklake": _ducklake}


def located(format_: str, catalog: str, folder: LakePath, *, durable: bool = True) -> Location:
    """A lake of one of these formats. ``catalog``: as a person names it; ``folder``: the lake's, or its URI;
    ``durable`` False: it is written without syncs.

    Raises UsageError for a catalog that the format does not know.
    """
    return FORMATS[format_](catalog, folder, durable=durable)
