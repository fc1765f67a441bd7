"""The rest over both formats: typed sources, limits that fail, what waits and is promoted."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.ingest import batch as ingest_batch
from driftline.lake import Lake
from driftline.report.findings import findings
from lake.proof import proven

MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678000, UTC)
TYPED = {
    "id": 1,
    "bytes": b"\x00\xff",
    "amount": Decimal("1.50"),
    "day": date(2024, 1, 2),
    "moment": MOMENT,
    "text": "2024-01-02",
    "items": [{"x": 1, "y": 2.5}, None],
}
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("bytes", pa.binary()),
        ("amount", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("items", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.float64())]))),
    ]
)


def test_typed_values_wait_with_their_types(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    pq.write_table(pa.table({"id": [0]}), tmp_path / "0.parquet")
    pq.write_table(pa.Table.from_pylist([TYPED], TYPES), tmp_path / "1.parquet")
    table.ingest(tmp_path / "0.parquet", settings={"new_fields": "hold"})
    result = table.ingest(tmp_path / "1.parquet")
    assert (result.rows_written, result.rows_quarantined) == (1, 0)
    (row,) = table.read().where("id = 1").collect()
    rest = dict(row._rest)
    items = rest.pop("items type")
    assert '"name": "y"' in items
    assert rest == {
        "bytes": '"AP8="',
        "bytes type": "binary",
        "amount": "1.5",
        "amount type": "decimal(9, 2)",
        "day": '"2024-01-02"',
        "day type": "date",
        "moment": '"2024-01-02T03:04:05.678Z"',
        "moment type": "timestamptz",
        "text": '"2024-01-02"',
        "text type": "string",
        "items": '[{"x":1,"y":2.5},null]',
    }
    proven(table, tmp_path / "1.parquet", "parquet")


def test_what_is_beyond_fails_where_it_is_to(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    file = tmp_path / "wide.jsonl"
    file.write_text('{"r": {"a": 1}}\n{"r": {"a": 2, "b": 3}}\n')
    with pytest.raises(DataError, match=r"b: .* max_fields = 1"):
        table.ingest(file, settings={"max_fields": "1", "beyond": "fail"})
    assert not table.format.load().exists


@pytest.mark.nightly
def test_what_has_no_room_takes_none_from_others(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Of JSON a record that is refused leaves no columns, of typed files one that has no row left."""
    narrow = {"max_columns": "3", "beyond": "quarantine"}
    table, typed = lake.table(table_name), lake.table(f"{table_name}_typed")
    records = [{"a": 1}, {"b": 1, "c": 1, "d": 1}, {"e": 1}, {"b": 2, "c": 2}]
    files = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for number, file in enumerate(files):
        file.write_text("".join(json.dumps(r) + "\n" for r in records[2 * number : 2 * number + 2]))
    for number, record in enumerate(records):
        pq.write_table(pa.Table.from_pylist([record]), tmp_path / f"{number}.parquet")
    for result, into in [
        (table.ingest(files, settings=narrow), table),
        (typed.ingest(sorted(tmp_path.glob("*.parquet")), settings=narrow), typed),
    ]:
        assert (result.rows_written, result.rows_quarantined) == (2, 2)
        assert [c.path for c in result.conflicts] == [("d",), ("c",)]
        assert [f.name for f in into.state().schema.struct.fields] == ["a", "e"]
    proven(table, files)
    proven(typed, sorted(tmp_path.glob("*.parquet")), "parquet")
    assert table.ingest(files[1], again=True, settings={"max_columns": "4"}).rows_written == 2


def test_verify_finds_what_waits(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    files = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    files[0].write_text('{"id": 1, "items": [{"x": 1}], "n": 5}\n')
    files[1].write_text(
        '{"id": 2, "items": [{"x": 1, "y": [1, null]}, null, {"y": 2.50}], "n": "five"}\n'
        '{"id": 3, "new": {"a.b": 1e400, "c": [[]]}, "n": {"k": null, "l": true}}\n'
    )
    table.ingest(files[0], settings={"new_fields": "hold", "max_columns": "4", "dates": "off"})
    # The tasks count what waits as they write it: no file is read again for the report.
    monkeypatch.setattr(ingest_batch, "waiting", None)
    planned = table.ingest(files[1], dry_run=True)
    assert (planned.held, planned.rest) == ({"items.element.y": None, "new": None}, {"n": None})
    assert [one.path for one in findings(planned) if one.kind == "rest"] == ["n", "items.element.y", "new"]
    result = table.ingest(files[1])
    assert (result.rows_written, result.rows_quarantined) == (2, 0)
    assert result.held == {"items.element.y": 2, "new": 1}
    assert result.rest == {"n": 1}
    assert result.to_dict()["held"] == result.held
    stats = table.stats()
    assert {one.path: (one.values, one.sample) for one in stats.rest} == {
        "items.element.y": (2, "2.50"),
        "new": (1, '{"a.b":1e400,"c":[[]]}'),
        "n": (1, '{"k":null,"l":true}'),
    }
    proven(table, files)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": 3, "new": {"a.b": 1e400, "c": [[0]]}, "n": {"k": null, "l": true}}\n')
    verdict = table.verify([str(other)], "json")
    assert (verdict.ok, [m.path for m in verdict.mismatches]) == (False, ["new", "new"])


@pytest.mark.nightly
def test_what_waits_is_promoted(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Old rows get the values, in lists and maps too; undo gives them back to the rest."""
    table = lake.table(table_name)
    files = [tmp_path / "0.jsonl", tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    files[0].write_text(
        '{"id": 1, "items": [{"x": 1}], "m": {"2024-01-01": {"u": 1}, "2024-01-02": {"u": 2}}}\n'
    )
    files[1].write_text(
        '{"id": 2, "items": [{"x": 2}, {"x": 3, "y": {"a.b": 1.5}}], "new": {"p": 1, "q": [1, "two"]}}\n'
        '{"id": 3, "m": {"2024-01-03": {"v": 7}}, "new": {"p": "x"}, "other": true}\n'
    )
    files[2].write_text('{"id": 4, "items": [{"y": {"a.b": 2}}], "new": {"p": 2}, "other": false}\n')
    table.ingest(files[0], settings={"new_fields": "hold"})
    table.ingest(files[1])
    before = table.state().schema
    planned = table.promote("new", "items.y", dry_run=True)
    assert planned.values == {"items.element.y": 1, "new": 2}
    assert table.state().schema == before
    with pytest.raises(DataError, match="nothing in the rest at or below nowhere"):
        table.promote("nowhere")
    done = table.promote("new", "items.y")
    assert [str(c.path) for c in done.changes] == [str(c.path) for c in planned.changes]
    rows = {row.id: row for row in table.read().collect()}
    assert rows[2]["items"][1]["y"]["a_b"] == 1.5
    assert rows[2]["items"][0] == (2, None)
    assert rows[2]["new"]["q"] == ["1", "two"]
    assert rows[3]["new"]["p"] == "x"
    assert rows[2]["_rest"] is None
    assert rows[3]["_rest"] == {"m.2024-01-03.v": "7", "other": "true"}
    proven(table, files[:2])
    assert table.history().entries[-1].by == "promote"
    table.undo()
    assert table.state().schema.struct == before.struct
    proven(table, files[:2])
    table.promote(everything=True)
    table.ingest(files[2])
    rows = {row.id: row for row in table.read().collect()}
    assert rows[3]["m"]["2024-01-03"]["v"] == 7
    assert all(row["_rest"] is None for row in rows.values())
    proven(table, files)


def test_typed_values_are_promoted_with_their_types(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    pq.write_table(pa.table({"id": [0]}), tmp_path / "0.parquet")
    pq.write_table(pa.Table.from_pylist([TYPED], TYPES), tmp_path / "1.parquet")
    table.ingest(tmp_path / "0.parquet", settings={"new_fields": "hold"})
    table.ingest(tmp_path / "1.parquet")
    table.promote(everything=True)
    types = {f.name: str(f.type) for f in table.state().schema.struct.fields}
    assert types["amount"] == "decimal(9, 2)"
    assert types["bytes"] == "binary"
    assert types["text"] == "string"
    assert types["items"] == "list<struct<x: int, y: double>>"
    (row,) = table.read().where("id = 1").collect()
    assert (bytes(row.bytes), row.amount, row.day) == (b"\x00\xff", Decimal("1.50"), date(2024, 1, 2))
    assert row["items"] == [(1, 2.5), None]
    proven(table, tmp_path / "1.parquet", "parquet")


@pytest.mark.nightly
def test_a_capture_holds_new_fields_and_a_view_leaves_the_rest(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.jsonl").write_text('{"id": 1, "n": 1}\n')
    query = table.capture(str(folder), name="c", settings={"new_fields": "hold"})
    assert query.awaitTermination(120)
    (folder / "1.jsonl").write_text('{"id": 2, "new": {"a": 1}, "n": "x"}\n{"id": 3}\n')
    assert table.capture(str(folder), name="c").awaitTermination(120)
    (folder / "2.jsonl").write_text('{"id": 4, "new": 5}\n')
    assert table.capture(str(folder), name="c").awaitTermination(120)
    rows = {row.id: row._rest for row in table.read().collect()}
    assert rows == {1: None, 2: {"new": '{"a":1}'}, 3: None, 4: {"new": "5"}}
    proven(table, sorted(folder.glob("*.jsonl")))
    view = table.view(make=False)
    assert "_rest" in view.select
