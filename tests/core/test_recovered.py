"""Metadata files that a power cut has left: the embedded Iceberg catalog goes back to those before."""

from __future__ import annotations

import gzip
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from driftline.formats.iceberg.offline import recovered

WHOLE = b'{"format-version": 2, "location": "s3://a/b"}\n'
CUT = {
    "empty": b"",
    "half": WHOLE[:20],
    "zeros at its end": WHOLE[:20] + bytes(20),
    "zeros within it": WHOLE[:10] + bytes(10) + WHOLE[20:],
    "gone": None,
}


def catalog(lake: Path, *rows: tuple[str, Path | None, Path | None]) -> None:
    """A catalog as Iceberg's JDBC catalog makes it."""
    with closing(sqlite3.connect(lake / "catalog.db")) as database, database:
        database.execute(
            "create table iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location, iceberg_type)"
        )
        places = [[name, *(place and f"file:{place}" for place in places)] for name, *places in rows]
        database.executemany("insert into iceberg_tables values ('lake', 's', ?, ?, ?, 'TABLE')", places)


def locations(lake: Path) -> dict[str, list[str | None]]:
    """The names of each table's two metadata files."""
    with closing(sqlite3.connect(lake / "catalog.db")) as database:
        rows = database.execute(
            "select table_name, metadata_location, previous_metadata_location from iceberg_tables"
        )
        return {name: [place and Path(place).name for place in places] for name, *places in rows}


def put(path: Path, content: bytes | None) -> Path:
    if content is not None:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_a_cut_metadata_file_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    before, cut = put(tmp_path / "1.metadata.json", WHOLE), put(tmp_path / "2.metadata.json", content)
    catalog(tmp_path, ("t", cut, before), ("other", before, None))

    with caplog.at_level(logging.WARNING):
        assert recovered(tmp_path, "lake")

    assert locations(tmp_path) == {"t": ["1.metadata.json", None], "other": ["1.metadata.json", None]}
    assert str(cut) in caplog.text and str(before) in caplog.text
    assert not recovered(tmp_path, "lake"), "there is nothing more to go back from"


def test_a_cut_packed_metadata_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    packed = gzip.compress(WHOLE)
    before = put(tmp_path / "1.gz.metadata.json", packed)
    catalog(tmp_path, ("t", put(tmp_path / "2.gz.metadata.json", packed[:-12]), before))

    assert recovered(tmp_path, "lake")
    assert locations(tmp_path) == {"t": ["1.gz.metadata.json", None]}


def test_cut_metadata_file_of_a_moved_lake_is_looked_for_where_it_lies_now(tmp_path: Path) -> None:
    put(tmp_path / "1.metadata.json", WHOLE)
    put(tmp_path / "2.metadata.json", b"")
    home = tmp_path / "gone"
    catalog(tmp_path, ("t", home / "2.metadata.json", home / "1.metadata.json"))

    assert not recovered(tmp_path, "lake")
    assert recovered(tmp_path, "lake", lambda path: path.replace(str(home), str(tmp_path)))
    assert locations(tmp_path) == {"t": ["1.metadata.json", None]}


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_a_table_whose_first_metadata_file_is_cut_was_never_made(
    tmp_path: Path, content: bytes | None
) -> None:
    catalog(tmp_path, ("t", put(tmp_path / "0.metadata.json", content), None))

    assert recovered(tmp_path, "lake")
    assert locations(tmp_path) == {}


def test_what_no_power_cut_leaves_stays(tmp_path: Path) -> None:
    whole, other = put(tmp_path / "1.metadata.json", WHOLE), put(tmp_path / "2.metadata.json", WHOLE)
    empty, gone = put(tmp_path / "3.metadata.json", b""), tmp_path / "4.metadata.json"
    catalog(
        tmp_path,
        ("whole", other, whole),
        ("both_cut", empty, gone),
        ("elsewhere", gone, None),  # a lake that was moved
        ("folder_elsewhere", tmp_path / "gone" / "1.metadata.json", None),
        ("elsewhere_too", gone, tmp_path / "5.metadata.json"),
    )
    before = locations(tmp_path)

    assert not recovered(tmp_path, "lake")
    assert locations(tmp_path) == before
