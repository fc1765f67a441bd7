"""The tables of a pattern from each kind of source: each is as if its records had come alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from openpyxl import Workbook
from pyarrow import orc

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table

ONE, TWO_BATCHES, TWO_FILES = [[range(1, 11)]], [[range(1, 5)], [range(5, 11)]], [[range(1, 5), range(5, 11)]]


def content(table: Table) -> tuple[list[str], list[str], list[tuple[str, int, str]]]:
    """The columns of a table, its rows, and what waits in its quarantine."""
    found = [
        json.dumps(row.asDict(recursive=True), sort_keys=True, default=str) for row in table.read().collect()
    ]
    quarantine, waiting = f"{table.name}__quarantine", []
    if quarantine in table.lake.format.tables():
        rejects = table.lake.sql(
            f"SELECT source, line, reason FROM {table.lake.format.sql_name(quarantine)}"
        ).collect()
        waiting = [(Path(row.source).name, row.line, row.reason) for row in rejects]
    return str(table.schema()).split("\n")[1:], sorted(found), sorted(waiting)


def assert_as_alone(lake: Lake, space: str, names: list[str]) -> None:
    """Each table is that of the same name in whose place `_alone` stands for its folder."""
    for name in names:
        dealt = content(lake.table(f"{space}.{name}"))
        columns, rows, waiting = content(lake.table(f"{space}.{name}_alone"))
        assert dealt == (columns, [row.replace(f"/{name}_alone/", "/all/") for row in rows], waiting)


CSV = [
    "event;n;at;note;only",
    "push;1;2026-03-02;x;",
    'ping;007;later;"a; ""b""\nc";TRUE',
    "Push;2,5;;;",
    "push;3;4",
    ";4;;;",
    "ping;8;2026-03-02;y;false",
    "# no record",
    "push;1.000,5;2026-03-03;z;",
    'ping;9;;"never closed;',
    "7,0;1;;;",
]
OF_CSV = {"push": (1, 3, 8), "ping": (2, 6), "_other": (4, 5, 9), "7": (10,)}


@pytest.mark.parametrize(
    "batches",
    [ONE, pytest.param(TWO_BATCHES, marks=pytest.mark.nightly), TWO_FILES],
)
def test_types_of_csv_are_judged_table_by_table(
    lake: Lake, space: str, tmp_path: Path, batches: list[list[range]]
) -> None:
    settings: dict[str, Any] = {
        "delimiter": ";", "decimal": ",", "thousands": ".", "comment": "#", "metadata": "file,line",
    }  # fmt: skip
    tables = lake.fan_out(f"{space}.{{event}}")
    for number, batch in enumerate(batches):
        named = {f"{number}{part}.csv": lines for part, lines in enumerate(batch)}
        folders = {"all": tuple(range(1, 11)), **{f"{name}_alone": of for name, of in OF_CSV.items()}}
        for folder, chosen in folders.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            for name, lines in named.items():
                blank = ["\n" * CSV[line].count("\n") for line in lines]
                text = [CSV[line] if line in chosen else "" for line in lines]
                text = [here or gone for here, gone in zip(text, blank, strict=True)]
                (tmp_path / folder / name).write_text("\n".join([CSV[0], *text]) + "\n")
            files = [tmp_path / folder / name for name in named]
            if folder == "all":
                tables.ingest(files, **settings)
            elif any(line in chosen for lines in batch for line in lines):
                lake.table(f"{space}.{folder}").ingest(files, **settings)
    assert_as_alone(lake, space, list(OF_CSV))
    verdict = tables.verify(
        [tmp_path / "all" / file.name for file in (tmp_path / "all").iterdir()], exactly=True
    )
    assert verdict.ok and (verdict.records, verdict.found, verdict.quarantined) == (9, 7, 2)


def test_files_of_csv_are_read_once_by_one_dialect(lake: Lake, space: str, tmp_path: Path) -> None:
    first = tmp_path / "day=3" / "a.csv"
    first.parent.mkdir()
    first.write_text("Kind,n\npush,1\n,NA\nping,x\n")
    folded = lake.fan_out(f"{space}_f.{{kind}}_{{day}}")
    result = folded.ingest(first, names="fold", nulls="NA", max_record_bytes=9)
    assert [of_table.table for of_table in result.results] == [
        f"{space}_f.{name}" for name in ("push_3", "_other", "ping_3")
    ]
    push = lake.table(f"{space}_f.push_3").read().collect()
    assert [row.asDict() for row in push] == [{"Kind": "push", "n": 1, "day": 3}]
    assert folded.verify(first, exactly=True).ok
    by_file = lake.fan_out(f"{space}.{{_file.stem}}")
    other = tmp_path / "b.csv"
    other.write_bytes(b"a,b\n1,2\n3,\xff\n")
    with pytest.raises(DataError, match=r"b\.csv:3: byte 0xff is not UTF-8"):
        by_file.ingest(other)
    by_file.ingest(other, encoding="latin1")
    rows = lake.table(f"{space}.b").read().orderBy("a").collect()
    assert [tuple(row) for row in rows] == [(1, 2, "2"), (3, None, "ÿ")]
    with pytest.raises(UsageError, match="b has encoding = iso8859-1, and the files are read once"):
        by_file.ingest(first.with_name("b.csv").write_text("a,b\n5,6\n") and first.with_name("b.csv"))
    for name in [name for name in lake.format.tables() if name.startswith(f"{space}_f.")]:
        if not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)


def test_numbers_in_cells_name_tables_whatever_signs_another_table_has(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    plain, comma = tmp_path / "a.csv", tmp_path / "b.csv"
    plain.write_text("kind;n\n0;2,5\n1.50;3\n")
    comma.write_text("kind;n\n1,50;7,25\n")
    tables = lake.fan_out(f"{space}.{{kind}}")
    tables.ingest(plain, settings=lambda name: {"decimal": ","} if name.endswith(".0") else {})
    tables.ingest(comma, decimal=",")
    assert sorted(row.n for row in lake.table(f"{space}.0").read().collect()) == [2.5]
    verdict = tables.verify([plain, comma], exactly=True)
    assert verdict.ok and [of.records for of in verdict.verdicts.values()] == [1, 2]


def test_a_capture_deals_lines_that_are_added_to_files_of_csv(lake: Lake, space: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "in" / "a.csv", tmp_path / "in"
    folder.mkdir()
    tables, numbers = lake.fan_out(f"{space}.{{event}}"), []
    for text in ("event,n\na,1\n", "b,2\na,x\n"):
        with file.open("a") as opened:
            opened.write(text)
        query = tables.capture(
            folder, name="c", checkpoint=tmp_path / "c", changed_files="append", metadata="line"
        )
        assert query.awaitTermination(120)
    for name in "ab":
        rows = lake.table(f"{space}.{name}").read().collect()
        numbers += [(name, row["_source"]["line"]) for row in rows]
    assert sorted(numbers) == [("a", 2), ("a", 4), ("b", 3)]


TYPED = pa.schema({
    "event": pa.string(), "by": pa.struct({"id": pa.int64(), "at": pa.string()}), "n": pa.decimal128(9, 2),
    "other": pa.list_(pa.int64()), "day": pa.date32(),
})  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"event": "a", "by": {"id": 1}, "n": Decimal("1.50"), "day": date(2026, 3, 2)},
    {"event": "b", "by": {"at": "x"}, "other": [1, 2]},
    {"event": "A", "n": Decimal("2.25")},
    {"event": None, "day": date(2026, 3, 3)},
    {"event": "a", "by": {"id": 2}},
    {"event": "b"},
]
OF_TYPED = {"a": (0, 2, 4), "b": (1, 5), "_other": (3,)}
AVRO = {
    "event": "string", "n": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "other": {"type": "array", "items": "long"}, "day": {"type": "int", "logicalType": "date"},
}  # fmt: skip


def filled(rows: Sequence[dict[str, Any]]) -> pa.Schema:
    """The declared columns and fields that have a value among rows."""
    inside = {key for row in rows for key in row.get("by") or ()}
    by = pa.struct([f for f in TYPED.field("by").type if f.name in inside])
    names = {key for row in rows for key, value in row.items() if value is not None}
    return pa.schema([f if f.name != "by" else f.with_type(by) for f in TYPED if f.name in names])


def typed(lake: Lake, kind: str, file: Path, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> Any:
    """Rows as data of a kind."""
    file.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist([dict(row) for row in rows], schema)
    if kind == "frame":
        nested = table.to_pylist()
        by = ", ".join(
            f"{f.name}: {'bigint' if f.type == pa.int64() else 'string'}"
            for f in (schema.field("by").type if "by" in schema.names else ())
        )
        types = {
            "event": "string",
            "by": f"struct<{by}>",
            "n": "decimal(9,2)",
            "other": "array<bigint>",
            "day": "date",
        }
        return lake.spark.createDataFrame(nested, ", ".join(f"{name} {types[name]}" for name in schema.names))
    if kind == "orc":
        orc.write_table(table, str(file))
        return file
    fields = []
    for f in schema:
        of_field: Any = AVRO.get(f.name)
        if f.name == "by":
            inside = [
                {"name": x.name, "type": ["null", "long" if x.type == pa.int64() else "string"]}
                for x in f.type
            ]
            of_field = {"type": "record", "name": "by", "fields": inside}
        fields.append({"name": f.name, "type": ["null", of_field]})
    with file.open("wb") as opened:
        fastavro.writer(opened, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())
    return file


@pytest.mark.parametrize(
    ("kind", "cuts"),
    [
        ("avro", [(0, 6)]), ("orc", [(0, 6)]), ("frame", [(0, 6)]),
        *(
            pytest.param(kind, [(0, 2), (2, 6)], marks=pytest.mark.nightly) for kind in ("avro", "orc", "frame")
        ),
    ],
)  # fmt: skip
def test_declared_columns_are_those_that_a_table_fills(
    lake: Lake, space: str, tmp_path: Path, kind: str, cuts: list[tuple[int, int]]
) -> None:
    tables, came = lake.fan_out(f"{space}.{{event}}"), []
    for start, end in cuts:
        all_rows = ROWS[start:end]
        came.append(typed(lake, kind, tmp_path / "all" / f"{start}.{kind}", all_rows, TYPED))
        result = tables.ingest(came[-1])
        assert (result.rows_read, result.rows_quarantined) == (end - start, 0)
        for name, places in OF_TYPED.items():
            rows = [ROWS[place] for place in places if start <= place < end]
            file = tmp_path / f"{name}_alone" / f"{start}.{kind}"
            if rows:
                lake.table(f"{space}.{name}_alone").ingest(typed(lake, kind, file, rows, filled(rows)))
    assert_as_alone(lake, space, list(OF_TYPED))
    if kind != "frame":
        verdict = tables.verify(came, exactly=True)
        assert verdict.ok and (verdict.records, verdict.found) == (6, 6)
        with pytest.raises(DataError, match="all tables have the files already"):
            tables.ingest(came)


def test_a_field_of_avro_that_was_renamed_fills_the_column_of_its_earlier_name_in_each_table(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    tables, files = lake.fan_out(f"{space}.{{event}}"), [tmp_path / "1.avro", tmp_path / "2.avro"]
    for file, name, aliases in zip(files, ("old", "new"), ([], ["old"]), strict=True):
        inside = {"name": name, "type": "long", "aliases": aliases}
        nested = {"name": "by", "type": {"type": "record", "name": "by", "fields": [inside]}}
        fields = [{"name": "event", "type": "string"}, inside, nested]
        rows = [{"event": event, name: 1, "by": {name: 2}} for event in ("a", "b")]
        with file.open("wb") as opened:
            fastavro.writer(
                opened, {"type": "record", "name": "r", "fields": fields}, rows[: 1 if name == "old" else 2]
            )
        tables.ingest(file)
    a, b = (lake.table(f"{space}.{name}").read() for name in "ab")
    assert [row.asDict(True) for row in a.collect()] == [{"event": "a", "old": 1, "by": {"old": 2}}] * 2
    assert [row.asDict(True) for row in b.collect()] == [{"event": "b", "new": 1, "by": {"new": 2}}]
    assert tables.verify(files, exactly=True).ok


def test_a_capture_deals_the_rows_of_a_streaming_frame(lake: Lake, space: str, tmp_path: Path) -> None:
    for number in range(2):
        rows = [("a", number, None), ("b", None, "x")]
        frame = lake.spark.createDataFrame(rows, "event string, n int, note string").coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
        stream = lake.spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
        query = lake.fan_out(f"{space}.{{event}}").capture(stream, name="s", checkpoint=tmp_path / "c")
        assert query.awaitTermination(120)
    a, b = (lake.table(f"{space}.{name}").read().orderBy("n" if name == "a" else "note") for name in "ab")
    assert [row.asDict() for row in a.collect()] == [{"event": "a", "n": 0}, {"event": "a", "n": 1}]
    assert [row.asDict() for row in b.collect()] == [{"event": "b", "note": "x"}] * 2


SHEET: list[list[Any]] = [
    ["Event", "n", "at", "only"],
    ["a", 1, date(2026, 3, 2), None],
    ["b", "x", datetime(2026, 3, 2, 10), True],
    [None, None, None, None],
    ["A", 2.5, date(2026, 3, 3), "NA"],
    [None, 4, None, None],
]
OF_SHEET = {"a": (1, 4), "b": (2,), "_other": (5,)}


@pytest.mark.parametrize(
    "cuts", [[[(1, 6)]], [[(1, 3), (3, 6)]], pytest.param([[(1, 3)], [(3, 6)]], marks=pytest.mark.nightly)]
)
def test_dates_of_a_sheet_are_judged_table_by_table(
    lake: Lake, space: str, tmp_path: Path, cuts: list[list[tuple[int, int]]]
) -> None:
    tables = lake.fan_out(f"{space}.{{event}}")
    settings: dict[str, Any] = {"names": "fold", "nulls": "NA", "header": "yes", "metadata": "file,line"}
    folders = {"all": (1, 2, 4, 5), **{f"{name}_alone": rows for name, rows in OF_SHEET.items()}}
    for number, batch in enumerate(cuts):
        for folder, chosen in folders.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            files = []
            for part, (start, end) in enumerate(batch):
                workbook = Workbook()
                for row in (0, *range(start, end)):
                    workbook.active.append(SHEET[row if row in (0, *chosen) else 3])
                files.append(tmp_path / folder / f"{number}{part}.xlsx")
                workbook.save(files[-1])
            if folder == "all":
                tables.ingest(files, **settings)
            elif any(start <= row < end for row in chosen for start, end in batch):
                lake.table(f"{space}.{folder}").ingest(files, **settings)
    assert_as_alone(lake, space, list(OF_SHEET))
    verdict = tables.verify(sorted((tmp_path / "all").iterdir()), exactly=True)
    assert verdict.ok and {name: of.records for name, of in verdict.verdicts.items() if of.records} == {
        f"{space}.{name}": len(numbers) for name, numbers in OF_SHEET.items()
    }  # fmt: skip
    lost = Workbook()
    lost.active.append(SHEET[0])
    lost.active.append(["b", "x", datetime(2026, 3, 2), True])
    lost.save(tmp_path / "lost.xlsx")
    (missing,) = tables.verify(tmp_path / "lost.xlsx").verdicts[f"{space}.b"].mismatches
    assert Path(missing.place).name == "lost.xlsx:2"


def test_lists_of_records_inside_documents_are_dealt_record_by_record(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    kinds = {"a": ("a", "A"), "b": ("b",), "_other": (None,)}
    records = [
        {"event": "a", "n": 1}, {"event": "b", "at": "2026-03-02"}, {"event": "A", "n": "x"}, {"n": 2},
    ]  # fmt: skip
    settings: dict[str, Any] = {"records": "data.list", "metadata": "file"}
    tables = lake.fan_out(f"{space}.{{event}}")
    for folder, chosen in {
        "all": ("a", "A", "b", None),
        **{f"{k}_alone": v for k, v in kinds.items()},
    }.items():
        (tmp_path / folder).mkdir()
        files = [tmp_path / folder / f"{number}.json" for number in range(3)]
        for file, part in zip(files, (records[:3], records[2:], None), strict=True):
            listed = None if part is None else [r for r in part if r.get("event") in chosen]
            is_no_list = part is None and None in chosen
            text = {"data": {"list": "none" if is_no_list else listed or []}, "page": 1}
            file.write_text(json.dumps(text, indent=1))
        if folder == "all":
            assert tables.ingest(files, **settings).results[0].excluded == {"page": 2}
        else:
            lake.table(f"{space}.{folder}").ingest(files, **settings)
    assert_as_alone(lake, space, list(kinds))
    assert tables.verify([tmp_path / "all" / f"{number}.json" for number in range(3)], exactly=True).ok
