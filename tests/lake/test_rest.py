"""The rest over both formats: typed sources, limits that fail, what waits and is promoted."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.lake import Lake
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


def test_typed_values_wait_with_their_types(either: Lake, table_name: str, tmp_path: Path) -> None:
    table = either.table(table_name)
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


def test_what_is_beyond_fails_where_it_is_to(either: Lake, table_name: str, tmp_path: Path) -> None:
    table = either.table(table_name)
    file = tmp_path / "wide.jsonl"
    file.write_text('{"a": 1}\n{"a": 2, "b": 3}\n')
    with pytest.raises(DataError, match=r"b: .* max_fields = 1"):
        table.ingest(file, settings={"max_fields": "1", "beyond": "fail"})
    assert not table.format.load().exists


def test_verify_finds_what_waits(either: Lake, table_name: str, tmp_path: Path) -> None:
    table = either.table(table_name)
    files = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    files[0].write_text('{"id": 1, "items": [{"x": 1}], "n": 5}\n')
    files[1].write_text(
        '{"id": 2, "items": [{"x": 1, "y": [1, null]}, null, {"y": 2.50}], "n": "five"}\n'
        '{"id": 3, "new": {"a.b": 1e400, "c": [[]]}, "n": {"k": null, "l": true}}\n'
    )
    table.ingest(files[0], settings={"new_fields": "hold", "max_columns": "4", "dates": "off"})
    result = table.ingest(files[1])
    assert (result.rows_written, result.rows_quarantined) == (2, 0)
    proven(table, files)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": 3, "new": {"a.b": 1e400, "c": [[0]]}, "n": {"k": null, "l": true}}\n')
    verdict = table.verify([str(other)], "json")
    assert (verdict.ok, [m.path for m in verdict.mismatches]) == (False, ["new", "new"])
