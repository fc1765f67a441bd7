"""A lake that an earlier version made goes on: its rows, its quarantine, and a capture that it left in the middle of a batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.lake import DuckLake
from driftline.lake import Lake, Table
from driftline.runtime.session import catalog_settings
from lake.earlier import moved
from lake.formats import FORMATS


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    earlier = tmp_path_factory.mktemp("earlier")
    moved(earlier, "earlier")
    return earlier


@pytest.fixture(params=FORMATS)
def old(request: pytest.FixtureRequest, spark: SparkSession, earlier: Path) -> Lake:
    place = earlier / request.param / "lake"
    if request.param == "ducklake":
        return Lake(spark, "lake", DuckLake(spark, CatalogDatabase.of("sqlite", place)))
    for key, value in catalog_settings(place, "earlier", {}).items():
        if key.startswith("spark.sql.catalog."):
            spark.conf.set(key, value)
    return Lake.attach(spark, "earlier")


def rows(table: Table) -> list[str]:
    return sorted(row[0] for row in table.read().selectExpr("to_json(struct(*))").collect())


@pytest.mark.nightly
def test_it_goes_on(old: Lake, earlier: Path) -> None:
    place = earlier / ("ducklake" if isinstance(old.format, DuckLake) else "iceberg")
    expected: dict[str, list[str]] = json.loads((place / "rows.json").read_text())
    events, captured = old.table("shop.events"), old.table("shop.captured")
    assert {t.name: rows(t) for t in (events, captured)} == expected

    # The same data once more bring no other column, and the same rows.
    before = {name: old.table(name).schema().to_dict() for name in ("shop.events", "shop.rows")}
    counts = [old.table("shop.rows").ingest(place / "rows.csv").rows_written]
    for file in ("first.jsonl", "second.jsonl"):
        result = events.ingest(place / file)
        assert result.to_dict()["changes"] == []
        counts += [result.rows_written, result.rows_quarantined]
    assert counts == [2, 4, 1, 2, 1]
    assert {name: old.table(name).schema().to_dict() for name in before} == before
    # A column that came later takes its type of the values that are sent again.
    again = [row.replace(',"day_string":"2026-01-02"', "") for row in rows(events)]
    assert sorted(again) == sorted(expected["shop.events"] * 2)
    assert events.verify([str(place / "first.jsonl"), str(place / "second.jsonl")], "json").ok

    # What waited in quarantine goes in, once the table takes it.
    assert events.quarantine().waiting == 4
    replay = events.replay(settings={"policies.strict": "preserve"})
    assert (replay.written, replay.stay) == (2, 2)
    assert events.stats(exact=True).to_dict()["columns"]
    assert events.history().to_dict()

    # The capture brings again the batch that was in, which is passed over, then what is new.
    (place / "in" / "2.json").write_text('{"k": 4, "v": "b"}\n')
    captured.capture(place / "in", name="old", checkpoint=place / "checkpoint").awaitTermination()
    assert [json.loads(row)["k"] for row in rows(captured) if row not in expected["shop.captured"]] == [4]
    assert len(rows(captured)) == len(expected["shop.captured"]) + 1
    assert captured.quarantine().waiting == 1
    assert captured.verify([str(file) for file in sorted((place / "in").iterdir())], "json", exactly=True).ok
