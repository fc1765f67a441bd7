"""Expectations: what becomes of records that do not meet them, from each source and into both formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from driftline.errors import DataError
from driftline.ingest import pipeline
from driftline.ingest.result import AuditError
from driftline.lake import Lake, Table
from driftline.report.findings import findings

EXPECT = {
    "named": "name is not null",
    "price": "price >= 0 else quarantine",
    "small": "price < 100 else quarantine",
}
RECORDS: list[dict[str, Any]] = [
    {"id": 1, "price": 5, "name": "a"},
    {"id": 2, "price": -1, "name": None},
    {"id": 3, "price": 500, "name": "c"},
    {"id": 4, "price": 7, "name": None},
]
OUTCOMES = {
    "named": {"violations": 2, "else": "warn"},
    "price": {"violations": 1, "else": "quarantine"},
    "small": {"violations": 1, "else": "quarantine"},
}


def json_lines(folder: Path, records: Sequence[Mapping[str, Any]], name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def csv(folder: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / "a.csv"
    rows = [",".join("" if v is None else str(v) for v in record.values()) for record in records]
    path.write_text("\n".join([",".join(records[0]), *rows]) + "\n")
    return path


def parquet(folder: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(records)), folder / "a.parquet")
    return folder / "a.parquet"


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(row.id for row in lake.table(table).read().select("id").collect())


def reasons(lake: Lake, table: str) -> list[str]:
    return sorted(group.reason for group in lake.table(table).quarantine().groups)


SOURCES: dict[str, Callable[[Lake, Path], Any]] = {
    "json": lambda _, folder: json_lines(folder, RECORDS),
    "csv": lambda _, folder: csv(folder, RECORDS),
    "parquet": lambda _, folder: parquet(folder, RECORDS),
    "dicts": lambda *_: RECORDS,
    "arrow": lambda *_: pa.Table.from_pylist(RECORDS),
    "frame": lambda lake, _: lake.spark.createDataFrame(
        [tuple(record.values()) for record in RECORDS], "id int, price int, name string"
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_records_of_each_source_are_set_aside_or_counted(
    lake: Lake, table_name: str, tmp_path: Path, source: str
) -> None:
    table = lake.table(table_name)

    result = table.ingest(SOURCES[source](lake, tmp_path), expect=EXPECT)

    assert (result.rows_read, result.rows_written, result.rows_quarantined) == (4, 2, 2)
    outcomes = result.to_dict()["expect"]
    counted = {name: {key: part[key] for key in ("violations", "else")} for name, part in outcomes.items()}  # type: ignore[literal-required]
    assert counted == OUTCOMES
    assert ids(lake, table_name) == [1, 4]
    assert reasons(lake, table_name) == ["expect price", "expect small"]
    assert outcomes["price"]["sample"] == '{"price": -1}'
    place = {"json": ":2", "csv": ":3", "parquet": ":2", "dicts": ":2"}.get(source, "")
    assert outcomes["price"]["seen_in"].endswith(place)
    assert "expect price: 1 record not as expected" in str(result)


def test_expectations_stay_with_the_table_and_are_asked_of_each_batch(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    table.ingest(json_lines(tmp_path, RECORDS[:1]), expect=EXPECT)

    # The second batch of a file is read by a plan at once.
    second = table.ingest(json_lines(tmp_path, [{"id": 5, "price": -3, "name": "e", "more": 1}], "b.jsonl"))
    assert (second.rows_written, second.rows_quarantined) == (0, 1)
    third = table.ingest(
        json_lines(tmp_path, [{"id": 6, "price": -3, "name": "f"}], "c.jsonl"), settings={"expect.price": ""}
    )
    assert (third.rows_written, third.rows_quarantined) == (1, 0)
    # A record that is set aside makes no column.
    assert "more" not in table.read().columns
    assert ids(lake, table_name) == [1, 6]
    assert set(third.to_dict()["expect"]) == {"named", "small"}


def test_a_batch_fails_whole_where_a_record_must_not_be(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    expect = {"price": "price >= 0 else fail"}
    table.ingest(json_lines(tmp_path, RECORDS[:1]), expect=expect)

    with pytest.raises(
        DataError, match=r'expectation price: 1 record not as expected; .*b.jsonl:2: {"price": -1}'
    ):
        table.ingest(json_lines(tmp_path, [*RECORDS[2:3], RECORDS[1]], "b.jsonl"))

    assert ids(lake, table_name) == [1]
    assert table.stats().batches == 1


def test_records_set_aside_are_no_conflict_under_fail(lake: Lake, table_name: str, tmp_path: Path) -> None:
    result = lake.table(table_name).ingest(json_lines(tmp_path, RECORDS), expect=EXPECT, on_conflict="fail")

    assert (result.rows_written, result.rows_quarantined) == (2, 2)


def test_of_a_delete_nothing_is_expected(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(
        [{"id": 1, "price": 5}, {"id": 2, "price": 6}], key="id", delete_when="gone = true", expect=EXPECT
    )

    result = table.ingest([{"id": 1, "price": -5, "gone": True}, {"id": 2, "price": -6}])

    assert (result.by_key.deleted, result.rows_quarantined) == (1, 1)
    assert ids(lake, table_name) == [2]
    assert result.expect["named"].count == 1


@pytest.mark.nightly
def test_a_replay_asks_by_the_settings_of_then(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(json_lines(tmp_path, RECORDS), expect=EXPECT)

    again = table.replay()
    assert (again.written, again.back) == (0, 2)
    table.ingest(
        json_lines(tmp_path, RECORDS[:1], "b.jsonl"), settings={"expect.price": "", "expect.small": ""}
    )
    table.replay()

    assert ids(lake, table_name) == [1, 1, 2, 3, 4]


def test_a_dry_run_finds_records_that_are_not_expected(lake: Lake, table_name: str, tmp_path: Path) -> None:
    result = lake.table(table_name).ingest(json_lines(tmp_path, RECORDS), dry_run=True, expect=EXPECT)

    found = [
        (finding.kind, finding.path, finding.line) for finding in findings(result) if finding.kind == "expect"
    ]
    assert found == [("expect", "named", 2), ("expect", "price", 2), ("expect", "small", 3)]


def test_a_field_that_no_record_has_is_told(lake: Lake, table_name: str, tmp_path: Path) -> None:
    result = lake.table(table_name).ingest(json_lines(tmp_path, RECORDS), expect={"x": "pric >= 0"})

    assert "expect.x: no record has the field pric" in result.hints
    assert result.rows_written == 4


def over_time(table: Table) -> dict[str, tuple[int, int, list[int]]]:
    """The violations of each expectation, in records of so many, by batch."""
    return {
        one.name: (one.violations, one.records, [batch.violations for batch in one.batches])
        for one in table.stats().expectations
    }


@pytest.mark.nightly
def test_violations_are_told_over_time(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    # The first batch is refused whole and makes no table, and a batch of nothing else adds no row.
    table.ingest([{"id": 0, "price": -1, "name": None}], expect=EXPECT)
    assert over_time(table) == {"named": (1, 1, [1]), "price": (1, 1, [1]), "small": (0, 0, [])}
    second = table.ingest(RECORDS)
    table.ingest([{"id": 5, "price": -2, "name": "e"}])
    table.ingest([{"id": 6, "price": 2, "name": "f"}], expect={"small": "", "price": "price >= 1"})

    assert over_time(table) == {
        "named": (3, 5, [1, 2, 0]),
        "price": (3, 6, [1, 1, 1, 0]),
        "small": (1, 4, [1, 0]),
    }
    # Those that wait are not counted again, nor is a batch that was only planned or audited.
    table.replay()
    table.ingest(RECORDS, dry_run=True)
    with pytest.raises(AuditError):
        table.ingest(RECORDS, audit=True, at_most=0)
    stats = table.stats()
    named, price, small = stats.to_dict()["expectations"]
    assert (price["condition"], price["else"], price["violations"]) == ("price >= 1", "warn", 3)
    assert (small["condition"], small["else"], small["share"]) == (None, None, 0.25)
    assert small["last"] is not None and small["last"]["batch"] == second.batch
    assert (named["violations"], named["share"]) == (3, 0.6)
    assert "price        warn" in str(stats)


def test_an_undone_batch_takes_its_violations_along(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(
        RECORDS[:2], key="id", merge="keep", expect={"price": "price < 10", "named": "name is not null"}
    )
    table.ingest(RECORDS)
    assert over_time(table) == {"named": (3, 6, [1, 2]), "price": (1, 4, [1])}

    table.undo(yes=True)

    assert {name: counts[:2] for name, counts in over_time(table).items()} == {
        "named": (1, 2),
        "price": (0, 0),
    }


def test_violations_of_two_writers_add_up(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    table.ingest(RECORDS[:1], expect={"price": "price > 0"})
    commit, others = pipeline.commit_all, [{"id": 9, "price": -9}]

    def other_first(*args: Any) -> None:
        if others:
            lake.table(table_name).ingest([others.pop()])
        commit(*args)

    monkeypatch.setattr(pipeline, "commit_all", other_first)
    table.ingest(RECORDS)

    assert over_time(table)["price"][:2] == (2, 5)


def change(lsn: int, op: str, before: Any, after: Any) -> dict[str, Any]:
    """A message of Debezium's."""
    return {"op": op, "before": before, "after": after, "source": {"connector": "postgresql", "lsn": lsn}}


def test_of_a_message_the_row_that_it_brings_is_asked_once(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    rows = [{"id": n, "price": n, "name": "a"} for n in (1, 2, 5)]
    created = [change(row["id"], "c", None, row) for row in rows]
    table.ingest(created, key="id", envelope="debezium", expect=EXPECT)

    # An update that changes the key is two records: it goes in, or waits, whole.
    result = table.ingest(
        [
            change(11, "u", {"id": 1}, {"id": 3, "price": -1, "name": None}),
            change(12, "u", {"id": 2}, {"id": 4, "price": 7, "name": None}),
            change(13, "d", {"id": 5, "price": -5, "name": None}, None),
        ]
    )

    assert {name: one.count for name, one in result.expect.items()} == {"named": 2, "price": 1, "small": 0}
    assert result.rows_quarantined == 1
    assert reasons(lake, table_name) == ["expect price"]
    assert ids(lake, table_name) == [1, 4]


@pytest.mark.parametrize(("ending", "write"), [("parquet", pq.write_table), ("orc", orc.write_table)])
def test_each_row_of_a_typed_file_is_set_aside_once(
    lake: Lake, table_name: str, tmp_path: Path, ending: str, write: Callable[[pa.Table, str], None]
) -> None:
    x, y = [1, 12, 25, 3, 7, None], ["c", "c", None, None, "a", "a"]
    write(pa.table({"id": range(1, 7), "x": x, "y": y}), str(tmp_path / f"a.{ending}"))
    expect = {
        "a": "x < 10 else quarantine",
        "b": "x < 20 else quarantine",
        "c": "y is not null else quarantine",
    }

    result = lake.table(table_name).ingest(tmp_path, expect={**expect, "d": "y > 'b'", "e": "x < 5"})

    assert {name: one.count for name, one in result.expect.items()} == {
        "a": 2,
        "b": 0,
        "c": 1,
        "d": 2,
        "e": 3,
    }
    assert (result.rows_written, result.rows_quarantined) == (3, 3)
    assert ids(lake, table_name) == [1, 5, 6]


def test_an_empty_list_beside_a_list_that_was_set_aside_is_no_lost_value_to_verify(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    batches: list[list[dict[str, Any]]] = [
        [{"id": 1, "tags": "x", "price": 1}],
        [{"id": 2, "tags": [1], "price": -1}, {"id": 3, "tags": [], "price": 1}],
        [{"id": 4, "tags": [1], "price": 1}, {"id": 5, "tags": [], "price": 1}],
    ]
    files = [json_lines(tmp_path, records, f"{n}.jsonl") for n, records in enumerate(batches)]
    for file in files:
        table.ingest(file, expect={"price": "price >= 0 else quarantine"})
    assert [row.id for row in table.read().where("tags_array_long = array()").collect()] == [5]
    assert table.verify(files, exactly=True).ok
