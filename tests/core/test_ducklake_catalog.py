"""Catalogs that are not to be had: each says why, and what to do."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import duckdb
import pytest

from driftline.errors import SetupError
from driftline.formats.ducklake import catalog
from driftline.formats.ducklake.catalog import Catalog
from driftline.formats.ducklake.snapshot import latest


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    made = Catalog.of("duckdb", tmp_path)
    made.make()
    return made


def test_duckdb_beside_us_is_waited_for(lake: Catalog) -> None:
    with duckdb.connect() as beside:
        beside.execute(f"ATTACH '{lake.target}' AS mine")
        released = threading.Timer(0.5, lambda: beside.execute("DETACH mine"))
        released.start()
        begun = time.monotonic()
        assert lake.read(latest) == 0
        assert time.monotonic() - begun > 0.4
        released.join()


def test_duckdb_beside_us_that_keeps_it(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "BESIDE", 0.2)
    with duckdb.connect() as beside:
        beside.execute(f"ATTACH '{lake.target}' AS __ducklake_metadata_mine")  # as DuckLake's own ATTACH does
        for work in (
            lambda: lake.read(latest),
            lambda: lake.write(latest),
            lambda: lake.by_duckdb("SELECT 1"),
        ):
            with pytest.raises(SetupError, match="attached in this process, as mine") as told:
                work()
            assert told.value.hint is not None
            assert told.value.hint.startswith("DETACH mine there")
        beside.execute("DETACH __ducklake_metadata_mine")
        assert lake.read(latest) == 0


def test_a_file_of_duckdb_2(lake: Catalog) -> None:
    def mixed(word: int) -> int:
        return (
            word * 0xBF58476D1CE4E5B9 % 2**64
        )  # the checksum in front of a block is these, put together by xor

    file = Path(lake.target)
    whole = file.read_bytes()
    checksum, word = (int.from_bytes(whole[at : at + 8], "little") for at in (0, 8))
    assert whole[8:12] == b"DUCK"
    later = word % 2**32 + (999 << 32)  # the version of the storage, as DuckDB 2.0.1.dev writes it
    head = checksum ^ mixed(word) ^ mixed(later), later
    file.write_bytes(b"".join(n.to_bytes(8, "little") for n in head) + whole[16:])
    with pytest.raises(SetupError, match=r"made by DuckDB 2 or later, and DuckDB 1\."):
        lake.read(latest)


def test_a_catalog_of_specification_1_1(lake: Catalog) -> None:
    lake.write(lambda c: c.execute("UPDATE meta.ducklake_metadata SET value = '1.1' WHERE key = 'version'"))
    with pytest.raises(SetupError, match=r"version 1\.1, not 1\.0") as told:
        lake.read(latest)
    assert told.value.hint == "a newer driftline may know it"
