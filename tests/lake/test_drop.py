"""`drop`: a table leaves its catalog with all that belongs to it, and nothing of another goes."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from driftline.core.schema.naming import QUARANTINE
from driftline.errors import UsageError
from driftline.formats.lakes import Catalog, DroppedFolder
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake, Table
from driftline.runtime.disk import local
from lake.ducklake_peer import run
from lake.formats import catalog_file, database

WITH_REJECT = '{"id": 1}\n{"id": "x", "a": 1}\n{\n'


def filled(lake: Lake, name: str, folder: Path) -> Table:
    """A table with a row, a sibling and a quarantined line."""
    folder.mkdir(exist_ok=True)
    (folder / "1.jsonl").write_text(WITH_REJECT)
    table = lake.table(name)
    table.ingest(folder / "1.jsonl", again=True)
    return table


def files_in(folders: tuple[str, ...]) -> int:
    return sum(path.is_file() for folder in folders for path in local(folder).rglob("*"))


def test_dropped_table_is_gone_with_its_quarantine_and_can_be_made_again(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = filled(lake, table_name, tmp_path / "in")

    dropped = table.drop()

    assert dropped.tables == (table_name, table_name + QUARANTINE)
    assert not {table_name, table_name + QUARANTINE} & set(lake.format.tables())
    with pytest.raises(UsageError, match=f"no table {table_name}"):
        lake.table(table_name).drop()
    assert files_in(dropped.folders) == dropped.files > 0

    again = filled(lake, table_name, tmp_path / "in")
    assert again.read().count() == 2
    assert again.quarantine().waiting == 1


def test_dry_run_of_a_drop_changes_nothing(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = filled(lake, table_name, tmp_path / "in")

    dropped = table.drop(dry_run=True)

    assert (dropped.tables, dropped.is_done) == ((table_name, table_name + QUARANTINE), False)
    assert repr(dropped).splitlines()[0] == f"to drop  {table_name}"
    assert repr(dropped).endswith("stay: dry run, nothing is changed")
    assert table.read().count() == 2


@pytest.mark.iceberg_only("a DuckLake purges no table alone")
def test_purge_deletes_the_files_of_the_table_and_no_other(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    other = filled(lake, f"{table_name}_other", tmp_path / "in")
    table = filled(lake, table_name, tmp_path / "in")

    purged = table.drop(purge=True)

    assert purged.files > 0
    assert files_in(purged.folders) == 0
    assert not any(local(folder).exists() for folder in purged.folders)
    assert other.read().count() == 2


@pytest.mark.iceberg_only("a DuckLake purges no table alone")
@pytest.mark.parametrize("where", ["location", "write.data.path"])
def test_purge_is_refused_if_files_of_another_table_lie_in_the_folder(
    lake: Lake, table_name: str, tmp_path: Path, where: str
) -> None:
    table = filled(lake, table_name, tmp_path / "in")
    folder = table.drop(dry_run=True).folders[0]
    inner = f"{folder}/inner"
    full = lake.format.sql_name(f"{table_name}_inner")
    clause = f"location '{inner}'" if where == "location" else f"tblproperties ('{where}' = '{inner}')"
    lake.sql(f"create table {full} (id bigint) using iceberg {clause}")

    with pytest.raises(UsageError, match=f"the files of {table_name}_inner lie in the folder of"):
        table.drop(purge=True)

    assert table.read().count() == 2


@pytest.mark.iceberg_only("a DuckLake purges no table alone")
def test_purge_after_an_error_between_catalog_and_files_leaves_no_table_without_files(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, table_name, tmp_path / "in")

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("driftline.formats.iceberg.catalog.delete_by_hadoop", fails)
        with pytest.raises(KeyboardInterrupt):
            table.drop(purge=True)

    assert not {table_name, table_name + QUARANTINE} & set(lake.format.tables())


@pytest.mark.ducklake_only("Iceberg purges")
def test_ducklake_refuses_to_purge_and_names_the_way(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = filled(lake, table_name, tmp_path / "in")

    with pytest.raises(UsageError, match="keeps the files of a dropped table") as refusal:
        table.drop(purge=True)

    assert "ducklake_expire_snapshots" in str(refusal.value.hint)
    assert table.read().count() == 2


def test_view_goes_with_its_table(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = filled(lake, table_name, tmp_path / "in")
    view = table.view()
    assert view.in_catalog

    assert table.drop().view == view.name

    catalog: Catalog = lake.format
    if catalog.own_views is not None:
        assert catalog.own_views.get(view.name) is None
    else:
        assert not lake.spark.catalog.tableExists(catalog.sql_name(view.name))


@pytest.mark.ducklake_only("DuckDB reads no Iceberg lake of ours by its catalog")
def test_duckdb_sees_no_dropped_table_and_reads_the_snapshot_before(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = filled(lake, table_name, tmp_path / "in")
    (before,) = run(database(lake), "SELECT max(snapshot_id) FROM ducklake_snapshots('lk')")[0]
    table.drop()

    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        run(database(lake), f"SELECT * FROM lk.{table_name}")
    assert run(database(lake), f"SELECT count(*) FROM lk.{table_name} AT (VERSION => {before})") == [(2,)]
    run(database(lake), f"CREATE TABLE lk.{table_name} AS SELECT 1 AS id")
    assert lake.table(table_name).read().count() == 1


def embedded(lake: Lake) -> EmbeddedLake:
    """The lake, as it is read without Spark."""
    if (catalog := database(lake)) is not None:
        return EmbeddedLake(Path(catalog.data).parent, f"{catalog.kind}:{catalog.target}")
    return EmbeddedLake(catalog_file(lake).parent)


def of_table(lake: Lake, name: str, *, delete: bool = False) -> list[DroppedFolder]:
    return [each for each in embedded(lake).dropped(delete=delete) if each.table.startswith(name)]


@pytest.mark.embedded_only("only a lake in a folder lists what was dropped")
def test_files_of_a_dropped_table_are_listed_and_deleted_when_it_is_asked_for(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    dropped = filled(lake, table_name, tmp_path / "in").drop()

    listed = of_table(lake, table_name)

    assert {each.table for each in listed} <= {table_name, table_name + QUARANTINE}
    assert table_name in {each.table for each in listed}
    assert all(each.at.startswith("20") and each.files and each.size for each in listed)
    assert all(local(each.folder).is_dir() for each in listed)
    assert files_in(dropped.folders) == dropped.files
    assert of_table(lake, table_name, delete=True) == listed
    # Older snapshots of a DuckLake have the files.
    is_held = database(lake) is not None
    assert {each.is_held for each in listed} == {is_held}
    assert (of_table(lake, table_name) == listed) is is_held
    assert (files_in(dropped.folders) == dropped.files) is is_held


@pytest.mark.embedded_only("only a lake in a folder lists what was dropped")
@pytest.mark.iceberg_only("older snapshots of a DuckLake have the files")
def test_folder_of_a_dropped_table_that_another_uses_is_left_alone(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    dropped = filled(lake, table_name, tmp_path / "in").drop()
    again = filled(lake, table_name, tmp_path / "in")

    assert of_table(lake, table_name, delete=True) == []
    assert again.read().count() == 2

    purged = again.drop(purge=True)
    assert files_in((*dropped.folders, *purged.folders)) == 0
    assert of_table(lake, table_name) == []
