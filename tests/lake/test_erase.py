"""`erase`: no file of a table has the rows any more, in either format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from driftline.core.schema.text import quoted
from driftline.errors import UsageError
from driftline.formats.base import CatalogTable, State
from driftline.formats.commit import Retry, Rewrite
from driftline.lake import Lake, Table
from driftline.operations import erase as erasing
from driftline.runtime.disk import local
from lake.ducklake_peer import run
from lake.formats import database

WHERE = "customer = 'c-4711'"
FIRST = """\
{"id": 1, "customer": "c-4711", "total": 10}
{"id": 2, "customer": "c-1", "total": 20}
{"id": "x", "customer": "c-4711", "total": 1
"""
SECOND = """\
{"id": 3, "customer": "c-4711", "total": "a lot"}
{"id": 4, "customer": "c-9", "total": 40}
"""


def ingested(table: Table, folder: Path, *texts: str) -> Table:
    """The table after one batch of each text."""
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        file = folder / f"{number}.jsonl"
        file.write_text(text)
        table.ingest(file, again=True)
    return table


def folders_of(table: Table) -> list[Path]:
    return [local(folder) for folder in table.drop(dry_run=True).folders]


def texts_in(folders: list[Path]) -> Iterator[tuple[Path, str]]:
    """The text of each file: of Parquet all values of text columns, of others their bytes."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.suffix != ".parquet":
            yield path, path.read_bytes().decode("latin-1")
            continue
        rows = pq.ParquetFile(path).read()
        texts = [str(column.to_pylist()) for column in rows.columns]
        yield path, "\n".join([*texts, str(pq.ParquetFile(path).metadata.to_dict())])


def holding(table: Table, text: str) -> list[Path]:
    return [path for path, content in texts_in(folders_of(table)) if text in content]


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


@pytest.mark.nightly
def test_erased_rows_are_in_no_file_of_the_table_and_its_quarantine(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", FIRST, SECOND)
    assert holding(table, "c-4711")
    assert table.quarantine().waiting == 1

    erased = table.erase(WHERE)

    assert (erased.rows, erased.quarantined, erased.is_proved) == (2, 1, True), repr(erased)
    assert erased.snapshots > 0
    assert erased.files > 0
    assert holding(table, "c-4711") == []
    assert ids(table) == [2, 4]
    assert table.quarantine().waiting == 0
    ingested(table, tmp_path / "in", '{"id": 5, "customer": "c-2", "total": 1}\n')
    assert ids(table) == [2, 4, 5]


def test_dry_run_of_an_erase_counts_and_changes_nothing(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", FIRST, SECOND)
    before = sorted(path for folder in folders_of(table) for path in folder.rglob("*"))

    erased = table.erase(WHERE, dry_run=True)

    assert (erased.rows, erased.quarantined, erased.is_done, erased.is_proved) == (2, 1, False, False)
    assert repr(erased).endswith("dry run: nothing is changed")
    assert sorted(path for folder in folders_of(table) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("where", "says"),
    [("custmer = 'c'", "no column custmer"), ("id =", "PARSE|Syntax|syntax"), ("id + 1", "DATATYPE|type")],
)
def test_condition_that_is_none_is_refused(
    lake: Lake, table_name: str, tmp_path: Path, where: str, says: str
) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", SECOND)

    with pytest.raises(UsageError, match=says):
        table.erase(where)

    assert ids(table) == [3, 4]


def test_value_that_only_a_deleted_row_has_is_erased(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    (tmp_path / "1.jsonl").write_text(SECOND)
    table.ingest(tmp_path / "1.jsonl", key="id", delete_when="gone = true")
    (tmp_path / "2.jsonl").write_text('{"id": 3, "gone": true}\n{"id": 5, "customer": "c-2"}\n')
    table.ingest(tmp_path / "2.jsonl")
    assert ids(table) == [4, 5]
    assert holding(table, "c-4711")

    erased = table.erase(WHERE)

    assert (erased.rows, erased.is_proved) == (0, True), repr(erased)
    assert holding(table, "c-4711") == []
    assert ids(table) == [4, 5]
    (tmp_path / "3.jsonl").write_text('{"id": 4, "customer": "c-8"}\n')
    table.ingest(tmp_path / "3.jsonl")
    assert ids(table) == [4, 5]


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake has no format version")
def test_rows_of_a_table_of_format_3_keep_their_ids(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    (tmp_path / "1.jsonl").write_text(FIRST)
    table.ingest(tmp_path / "1.jsonl", format_version=3, key="id", delete_when="gone = true")
    (tmp_path / "2.jsonl").write_text('{"id": 1, "gone": true}\n{"id": 5, "customer": "c-4711"}\n')
    table.ingest(tmp_path / "2.jsonl")
    query = f"select _row_id, id from {lake.format.sql_name(table_name)} where id = 2"
    before = lake.sql(query).collect()

    erased = table.erase(WHERE)

    assert (erased.rows, erased.is_proved) == (1, True), repr(erased)
    assert lake.sql(query).collect() == before
    assert holding(table, "c-4711") == []


@pytest.mark.nightly
@pytest.mark.ducklake_only("Iceberg keeps nothing of rows in its catalog")
def test_catalog_of_a_ducklake_has_no_bound_and_no_inlined_row_of_the_erased(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", FIRST, SECOND)
    catalog = database(lake)
    run(catalog, f"INSERT INTO lk.{table_name} (id, customer) VALUES (7, 'c-4711'), (8, 'd')")

    erased = table.erase(WHERE)

    assert erased.is_proved, repr(erased)
    assert ids(table) == [2, 4, 8]
    with_text = [
        name
        for name in catalog.read(lambda c: c.tables())
        if catalog.read(
            lambda c, name=name: c.rows(
                f"SELECT 1 FROM meta.{quoted(name)} t WHERE contains(CAST(t AS VARCHAR), 'c-4711')"
            )
        )
    ]
    assert with_text == []
    assert run(catalog, f"SELECT count(*) FROM lk.{table_name} WHERE customer = 'c-1'") == [(1,)]


@pytest.mark.iceberg_only("a DuckLake has no tags")
def test_table_with_a_tag_is_refused_before_anything_changes(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", SECOND)
    lake.sql(f"alter table {lake.format.sql_name(table_name)} create tag audit")

    with pytest.raises(UsageError, match="the tag audit holds older rows") as refusal:
        table.erase(WHERE)

    assert "DROP TAG `audit`" in str(refusal.value.hint)
    assert ids(table) == [3, 4]


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["rewrite", "end", "delete", "forget"])
@pytest.mark.iceberg_only("a DuckLake has other steps")
def test_second_erase_finishes_one_that_died_in_iceberg(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    places = {
        "rewrite": "driftline.formats.commit.commit",
        "end": "driftline.formats.iceberg.expiry.replace_metadata",
        "delete": "driftline.formats.iceberg.expiry.delete_all_by_file_io",
        "forget": "driftline.formats.iceberg.expiry.IcebergExpiry._forget",
    }
    check_that_a_second_finishes(
        ingested(lake.table(table_name), tmp_path / "in", FIRST, SECOND), places[step], monkeypatch
    )


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["rewrite", "end", "delete", "tidy"])
@pytest.mark.ducklake_only("Iceberg has other steps")
def test_second_erase_finishes_one_that_died_in_a_ducklake(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    places = {
        "rewrite": "driftline.formats.commit.commit",
        "end": "driftline.formats.ducklake.catalog.CatalogDatabase.by_duckdb",
        "delete": "driftline.formats.ducklake.expiry.delete_file",
        "tidy": "driftline.formats.ducklake.expiry.DuckLakeExpiry._tidy",
    }
    check_that_a_second_finishes(
        ingested(lake.table(table_name), tmp_path / "in", FIRST, SECOND), places[step], monkeypatch
    )


def check_that_a_second_finishes(table: Table, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an erase die where a function is called, and check that the next one leaves nothing."""

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, dies)
        with pytest.raises(KeyboardInterrupt):
            table.erase(WHERE)

    erased = table.erase(WHERE)

    assert erased.is_proved, repr(erased)
    assert holding(table, "c-4711") == []
    assert ids(table) == [2, 4]


@pytest.mark.nightly
def test_rows_that_another_writer_appends_meanwhile_stay_or_are_erased_too(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingested(lake.table(table_name), tmp_path / "in", FIRST)
    original = erasing.rewriting
    waiting = [
        '{"id": 6, "customer": "c-6"}\n{"id": 7, "customer": "c-4711"}\n',
        '{"id": 8, "customer": "c-8"}\n',
    ]

    @contextmanager
    def beside(target: CatalogTable, state: State, retry: Retry) -> Iterator[Rewrite]:
        """Have another writer append to the table while it is rewritten."""
        with original(target, state, retry) as rewrite:
            yield rewrite
            if waiting and target.name == table_name:
                ingested(lake.table(table_name), tmp_path / f"in{len(waiting)}", waiting.pop(0))

    monkeypatch.setattr(erasing, "rewriting", beside)

    erased = table.erase(WHERE)

    assert erased.is_proved, repr(erased)
    assert ids(table) == [2, 6, 8]
    assert holding(table, "c-4711") == []
