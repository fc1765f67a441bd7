"""The ledger of source files that tables have taken: a table of our own beside those of the catalog.

Written in the transaction that takes the files. DuckLake and DuckDB do not look at it; a catalog gets it with
the first batch of files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from driftline.formats.base import REMEMBERED

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_NAME = "driftline_files"


def taken(connection: Connection, table: int, files: Collection[int]) -> set[int]:
    """The files among these, by their fingerprints, that the table with this id has taken."""
    import duckdb

    listed = ", ".join(map(str, files))
    try:
        rows = connection.rows(
            f"SELECT fingerprint FROM meta.{_NAME} WHERE table_id = {table} AND fingerprint IN ({listed})"
        )
    except duckdb.CatalogException:  # no batch of this lake has taken files yet
        return set()
    return {int(fingerprint) for (fingerprint,) in rows}


def remember(connection: Connection, table: int, snapshot: int, files: Sequence[int]) -> None:
    """Add the files to those that the table has taken; the oldest are dropped."""
    if not files:
        return
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS meta.{_NAME} "
        "(table_id BIGINT, number BIGINT, fingerprint BIGINT, snapshot_id BIGINT)"
    )
    row = connection.one(f"SELECT max(number) FROM meta.{_NAME} WHERE table_id = {table}")
    first = 1 if row is None or row[0] is None else int(row[0]) + 1
    entries = list(enumerate(files, first))
    forgotten = entries[-1][0] - REMEMBERED
    if forgotten > 0:
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table} AND number <= {forgotten}")
    rows = [f"({table}, {n}, {fingerprint}, {snapshot})" for n, fingerprint in entries if n > forgotten]
    connection.execute(f"INSERT INTO meta.{_NAME} VALUES {', '.join(rows)}")


def forget(connection: Connection, table: int, snapshot: int) -> None:
    """Drop the files that the table took in a snapshot."""
    if _NAME in connection.tables():
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table} AND snapshot_id = {snapshot}")
