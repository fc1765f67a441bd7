"""`promote` over both formats, where it is easily wrong: odd paths, lists, maps, several types, other writers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from driftline.errors import DataError, UsageError
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.lake import Lake, Table
from lake.formats import declare
from lake.proof import proven

FIRST = [
    {"id": 1, "m": {"2024-01-01": {"u": 1}, "2024-01-02": {"u": 2}}, "items": [{"x": 1}]},
]
SECOND = [
    {"id": 2, "a.b": {"c d": 1}, "q\"'t": "it's", "new": {"deep": {"x": 1}}, "m": {"2024-01-03": {"v": 7}}},
    {"id": 3, "items": [{"x": 2, "z": {"k": 1}}, {"z": {"k": "t"}}]},
]
THIRD = [
    {"id": 4, "a.b": {"c d": "text"}, "new": {"deep": {"x": "s"}}, "m": {"2024-01-04": {"v": "w"}, "x": {"u": 5}}},
    {"id": 5, "`": [1, [2]], "items": [{"z": {"k": None}}, {"x": None, "z": {"l": 2}}]},
]  # fmt: skip
FOURTH = [{"id": 6, "new": {"deep": {"w": [1.5]}}, "a.b": {"c d": 2}}]


def held(table: Table, folder: Path, settings: Mapping[str, str], *batches: Sequence[object]) -> list[Path]:
    """The table with a batch of each, new fields held."""
    files = []
    for number, records in enumerate(batches):
        files.append(folder / f"{number}.jsonl")
        files[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
        table.ingest(files[-1], settings={"new_fields": "hold", **settings})
    return files


def by_id(table: Table) -> dict[int, Row]:
    return {row.id: row for row in table.read().collect()}


def plain(value: Any) -> Any:
    """Rows as dicts, without nulls."""
    match value:
        case Row():
            return plain(value.asDict())
        case dict():
            return {key: plain(item) for key, item in value.items() if item is not None}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


@pytest.mark.nightly
def test_promoted_one_after_the_other(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Odd keys, keys of maps, fields below others that were promoted, values of several types; on format v3."""
    table = lake.table(table_name)
    settings = {"format_version": "3"} if isinstance(lake.format, IcebergCatalog) else {}
    files = held(table, tmp_path, settings, FIRST, SECOND, THIRD)
    before = table.state().schema
    waiting = {one.path: (one.values, one.first is not None) for one in table.stats().rest}
    assert waiting == {
        "`a.b`": (2, True), "m.value.v": (2, True), "items.element.z": (3, True), "new": (2, True),
        "q\"'t": (1, True), "````": (1, True),
    }  # fmt: skip
    with pytest.raises(DataError, match="nothing in the rest at or below"):
        table.promote("`a.b`.`c d`")
    assert table.promote("`a.b`", "m.value.v", "````", dry_run=True).values == {
        "`a.b`": 2, "m.value.v": 2, "````": 1,
    }  # fmt: skip
    table.promote("`a.b`", "m.value.v", "````")
    assert "2 values got columns" in str(table.promote("new"))
    with pytest.raises(DataError, match=r"nothing in the rest at or below new\nthere is items.element.z, q"):
        table.promote("new")
    files += more(table, tmp_path, FOURTH)
    assert {one.path: one.values for one in table.stats().rest}["new.deep.w"] == 1
    table.promote("new.deep")
    rows = {id_: plain(row) for id_, row in by_id(table).items()}
    assert rows[2]["m"] == {"2024-01-03": {"v": "7", "v_long": 7}}
    assert rows[6]["new"] == {"deep": {"w": [1.5]}}
    table.promote(everything=True)
    assert all(row._rest is None for row in by_id(table).values())
    proven(table, files)
    assert [e.by for e in table.history().entries if e.by == "promote"] == ["promote"] * 4
    table.undo()
    assert {id_ for id_, row in by_id(table).items() if row._rest} == {2, 3, 5}
    proven(table, files)
    with pytest.raises(DataError, match="would hide values"):  # of the batch that came meanwhile
        table.undo(to=before.id)


def more(table: Table, folder: Path, records: Sequence[object]) -> list[Path]:
    file = folder / "more.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    table.ingest(file)
    return [file]


@pytest.mark.nightly
def test_objects_beside_a_typed_map_are_of_a_map(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """No batch has both; in the rest they meet before there is a column."""
    table = lake.table(table_name)
    held(table, tmp_path, {}, [{"id": 1}], [{"id": 2, "m": {"k": "x"}}])
    table.ingest(pa.table({"id": [3], "m": pa.array([[("k", 7)]], pa.map_(pa.string(), pa.int64()))}))
    table.promote("m")
    rows = by_id(table)
    assert (rows[2].m_map_string, rows[3].m) == ({"k": "x"}, {"k": 7})


@pytest.mark.nightly
def test_promoted_while_others_write(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """A batch comes between the look and the commit, and a promote between a batch's plan and its commit."""
    table = lake.table(table_name)
    files = held(table, tmp_path, {}, [{"id": 1}], [{"id": 2, "new": 1}])
    once = [True]

    def ingests(step: str) -> None:
        if step == "committing" and once:
            once.clear()
            files.extend(more(table, tmp_path, [{"id": 3, "new": 2, "other": True}]))

    assert table.promote("new", progress=ingests).values == {"new": 2}
    rows = by_id(table)
    assert {id_: (row.new, row._rest) for id_, row in rows.items()} == {
        1: (None, None), 2: (1, None), 3: (2, {"other": "true"}),
    }  # fmt: skip

    def promotes(step: str) -> None:
        if step == "committing" and not once:
            once.append(True)
            table.promote(everything=True)

    files.append(tmp_path / "last.jsonl")
    files[-1].write_text('{"id": 4, "other": false}\n')
    table.ingest(files[-1], progress=promotes)
    assert {id_: (row.other, row._rest) for id_, row in by_id(table).items()}[4] == (False, None)
    proven(table, files)


def test_nothing_to_promote(lake: Lake, table_name: str, tmp_path: Path) -> None:
    empty, table = lake.table(f"{table_name}_empty"), lake.table(table_name)
    with pytest.raises(UsageError, match="there is no table"):
        empty.promote("a")
    declare(empty, "a bigint")
    with pytest.raises(DataError, match="nothing to promote: the table has no rest"):
        empty.promote(everything=True)
    held(table, tmp_path, {}, [{"id": 1}], [{"id": 2, "new": 1}])
    table.format.delete("id", "2")
    with pytest.raises(DataError, match="nothing to promote"):
        table.promote(everything=True)
    with pytest.raises(UsageError, match=r"is not a path of the rest"):
        table.promote("a..b")
    with pytest.raises(UsageError, match="no path given"):
        table.promote()
