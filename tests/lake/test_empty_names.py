"""Values of empty keys over both formats: dropped and counted, or kept in the rest, where verify finds them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.lake import Lake
from lake.proof import proven

LINES = [
    '{"": 1, "id": 1, "s": {"": 2.50, "x": 1}}',
    '{"id": 2, "items": [{"": "a"}, {"n": 1, "": {"z": [1]}}], "by_day": {"": 5, "2024-01-01": 6, "2024-01-02": 7}}',
    '{"id": 3, "only": {"": true}, "": null}',
]
REST = {
    1: {"``": "1", "s.``": "2.50"},
    2: {"items[0].``": '"a"', "items[1].``": '{"z":[1]}'},
    3: {"only": '{"":true}'},
}


@pytest.mark.nightly
def test_values_of_empty_keys_are_kept_where_they_are_to_be(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    file, typed, other = tmp_path / "0.jsonl", tmp_path / "1.parquet", tmp_path / "2.jsonl"
    file.write_text("\n".join(LINES) + "\n")
    dropping = table.ingest(file, settings={"maps": "auto"}, dry_run=True)
    assert dict(dropping.dropped_names) == {'""': 2, 's.""': 1, 'items.""': 2, 'only.""': 1}
    result = table.ingest(file, settings={"empty_names": "keep", "maps": "auto"})
    assert (result.rows_written, dict(result.dropped_names)) == (3, {})
    assert result.rest == {"``": 1, "s.``": 1, "items.element.``": 2, "only": 1}
    rows = {row.id: row for row in table.read().collect()}
    assert {id_: row["_rest"] for id_, row in rows.items()} == REST
    assert rows[2]["by_day"] == {"": 5, "2024-01-01": 6, "2024-01-02": 7}
    proven(table, file)

    records = [{"id": 4, "": b"\x00", "s": {"": 3, "x": 2}, "t": [{"": "u"}]}]
    fields = {"id": pa.int64(), "": pa.binary(), "s": pa.struct([("", pa.int64()), ("x", pa.int64())])}
    schema = pa.schema([*fields.items(), ("t", pa.list_(pa.struct([("", pa.string())])))])
    pq.write_table(pa.Table.from_pylist(records, schema), typed)
    assert (table.ingest(typed).rest).keys() == {"``", "s.``", "t"}
    table.ingest([{"id": 5, "s": {"": "v"}}])
    assert table.verify([{"id": 5, "s": {"": "v"}}]).ok
    assert not table.verify([{"id": 5, "s": {"": "w"}}]).ok
    proven(table, typed, "parquet")
    assert table.verify([str(file)], "json").ok

    for lost in (
        LINES[0].replace('"": 1', '"": 9'),
        LINES[1].replace('"a"', '"b"'),
        LINES[2].replace("true", "false"),
    ):
        other.write_text(lost + "\n")
        assert not table.verify([str(other)], "json").ok, lost
    with pytest.raises(DataError, match="an empty key gets no column"):
        table.promote("s.``")
    before = table.state().schema.struct
    table.promote(everything=True)
    assert [f.name for f in table.state().schema.struct.fields] == [f.name for f in before.fields]
    rows = {row.id: row for row in table.read().collect()}
    assert {id_: rows[id_]["_rest"] for id_ in REST} == REST
    proven(table, file)
    proven(table, typed, "parquet")
