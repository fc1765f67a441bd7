"""Sources as the check reads them: independent of the readers that ingest."""

from __future__ import annotations

import gzip
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.readers.json.documents import is_document, records_of
from driftline.verify import files, in_memory, json_texts
from driftline.verify.comparison import pair
from driftline.verify.csv import cells, rows
from driftline.verify.files import FilePart, SourcePlace, parts, read
from driftline.verify.frames import alike
from driftline.verify.values import Cell, Misquoted


def records(path: Path, content: bytes, fmt: str = "json") -> list[tuple[str, Any]]:
    """The records with their lines; for what is none, its text."""
    path.write_bytes(content)
    found = [r for part in parts([str(path)], fmt) for r in read(part)]
    return [(str(r.place).removeprefix(f"{path}:"), r.raw if r.record is None else r.record) for r in found]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b'{"a": 1}\n{"a": 1.50}\n', [("1", {"a": 1}), ("2", {"a": Decimal("1.50")})], id="lines"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}\r\n\n \t\r\n{"a": 2}', [("1", {"a": 1}), ("4", {"a": 2})], id="BOM, CR, blank"),
        pytest.param(b'{"a": "x\xe2\x80\xa8y"}\n', [("1", {"a": "x\u2028y"})], id="only a line feed ends a line"),
        pytest.param(b'{"a": 1, "a": 2}', [("1", {"a": 2})], id="the last of duplicate keys"),
        pytest.param(b'oops\n{"a": 1}\n[1]\n7', [("1", b"oops"), ("2", {"a": 1}), ("3", b"[1]"), ("4", b"7")], id="malformed"),
        pytest.param(b'{"a": "\xff"}\n{"a": 1}', [("1", b'{"a": "\xff"}'), ("2", {"a": 1})], id="not UTF-8"),
        pytest.param(b'{"a": "\\ud800"}', [("1", b'{"a": "\\ud800"}')], id="a lone surrogate"),
        pytest.param(b'{"a": "\\ud83d\\ude00"}', [("1", {"a": "\U0001f600"})], id="a pair of surrogates"),
        pytest.param(b'{"a": NaN}\n{"a": Infinity}', [("1", b'{"a": NaN}'), ("2", b'{"a": Infinity}')], id="not JSON"),
        pytest.param(b'{\n "a": 1\n}\n', [("1", {"a": 1})], id="one object over lines"),
        pytest.param(b'[{"a": 1},\n {"a": 2}, 3]', [("1", {"a": 1}), ("2", {"a": 2}), ("2", b"3")], id="an array"),
        pytest.param(b"[]", [], id="an empty array"),
        pytest.param(b'["\xff", {"a": 1}]', [("1", b'"\xff"'), ("1", {"a": 1})], id="an array with text that is not UTF-8"),
        pytest.param(b'\n{"a":\n NaN}', [("2", b'{"a":\n NaN}')], id="one object that is not JSON"),
        pytest.param(b'{\n"a": 1\n}{\n"a": 2\n} {"a": 3}', [("1", {"a": 1}), ("3", {"a": 2}), ("5", {"a": 3})], id="objects joined"),
        pytest.param(b'{"a": 1}\n{"a":\n 2}', [("1", {"a": 1}), ("2", {"a": 2})], id="an object over lines behind a line"),
        pytest.param(b'{\n"a": [1\n2]\n}', [("1", b'{\n"a": [1\n2]\n}')], id="an object with a fault"),
        pytest.param(b'[\n{"a": 1},\n{"a" 2}\n]', [("1", b'[\n{"a": 1},\n{"a" 2}\n]')], id="an array with a fault"),
        pytest.param(b'[{"a": 1},\n{"a": ]', [("1", b'[{"a": 1},\n{"a": ]')], id="a broken array"),
        pytest.param(b'{"a": 1\n{"a": 2}', [("1", b'{"a": 1'), ("2", {"a": 2})], id="a broken first line"),
        pytest.param(b"", [], id="empty"),
    ],
)  # fmt: skip
def test_json(tmp_path: Path, content: bytes, expected: list[tuple[str, Any]]) -> None:
    assert records(tmp_path / "a.jsonl", content) == expected
    assert records(tmp_path / "a.jsonl.gz", gzip.compress(content)) == expected


def test_records_in_lists_of_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"d": {"r": [{"a": 1.50},\n 7]}}\n{"error": 1}\n{"d": {"r": null}}')
    (part,) = parts([str(path)], "json", records=("d", "r"))
    found = [(r.place.line, r.raw if r.record is None else r.record) for r in read(part)]
    assert found == [(1, {"a": Decimal("1.50")}), (2, b"7"), (3, b'{"error": 1}')]


def test_nested_deeper_than_python_reads_is_malformed(tmp_path: Path) -> None:
    for depth in (501, 100_000):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        assert [raw for _, raw in records(tmp_path / "a.jsonl", deep)] == [deep]


def test_a_file_by_its_uri(tmp_path: Path) -> None:
    path = tmp_path / "a b.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')

    found = [r for start in (0, 3) for r in read(FilePart(str(path), "json", start, start + 3 + start * 4))]

    assert [(r.place.line, r.record) for r in found] == [(1, {"a": 1}), (1, {"a": 2})]
    assert str(found[1].place) == f"{path!s}:2"


def test_a_file_in_pieces_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    content = b'\xef\xbb\xbf{"a": 1}\n\n{"a": "two"}\nbad\n{"a": 333333}\n{"a": 4}'
    whole = records(path, content)

    for size in range(1, len(content)):
        monkeypatch.setattr(files, "_CHUNK", size)
        pieces = [
            r for at in range(0, len(content), size) for r in read(FilePart(str(path), "json", at, at + size))
        ]
        assert [(str(r.place).removeprefix(f"{path}:"), r.record or r.raw) for r in pieces] == whole
        assert records(path, content) == whole


def test_csv(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfid,text\r\n1,"a ""b"", c"\r\n\r\n007,\n2,"two\nlines"\n3\n4,x,y\n5,\xff\n6,last'

    assert records(tmp_path / "a.csv", content, "csv") == [
        ("2", {"id": "1", "text": 'a "b", c'}),
        ("4", {"id": "007", "text": ""}),
        ("5", {"id": "2", "text": "two\nlines"}),
        ("7", b"3"),
        ("8", b"4,x,y"),
        ("9", b"5,\xff"),
        ("10", {"id": "6", "text": "last"}),
    ]
    assert cells(b'4,x,"y z"') == [Cell("4"), Cell("x"), Cell("y z")]


def test_csv_in_pieces_is_the_same_text() -> None:
    text = 'a,b\r\n1,"x ""y""\r\n,z"\n\n2,"p\n3,q\r4,"s\n"t\r\n\r5,""\r\n"6"7,"c\nd"e\r8,"'
    whole = list(rows([text]))
    assert len(whole) > 9
    for size in range(1, len(text)):
        assert list(rows(text[at : at + size] for at in range(0, len(text), size))) == whole
        assert list(rows([text[:size], "", text[size:]])) == whole


def test_csv_lines_end_as_they_like_and_a_quote_that_is_never_closed_spoils_its_line(tmp_path: Path) -> None:
    content = b'\n\r\na,b\r\n1,"x\r\ny"\n2,"p\n3,q\r4,"s\n"t\r\n\n5,""'

    assert records(tmp_path / "a.csv", content, "csv") == [
        ("4", {"a": "1", "b": "x\r\ny"}),
        ("6", b'2,"p'),
        ("7", {"a": "3", "b": "q"}),
        ("8", b'4,"s'),
        ("9", b'"t'),
        ("11", {"a": "5", "b": ""}),
    ]
    assert records(tmp_path / "a.csv", b"a\n\n1\n", "csv") == [("2", {"a": ""}), ("3", {"a": "1"})]


def test_a_cell_whose_quotes_end_before_it_is_also_what_is_written(tmp_path: Path) -> None:
    content = b'a,b,c\n"x\\"y",2,"3"\n"x ""y""",",",\n"1"2,"p"r,z"\n'

    first, second, third = (
        list(record.values()) for _, record in records(tmp_path / "a.csv", content, "csv")
    )

    assert first == ['x\\y"', "2", "3"]
    assert isinstance(first[0], Misquoted) and first[0].written == '"x\\"y"'
    assert [type(cell) for cell in [*first[1:], *second]] == [Cell] * 5
    assert [getattr(cell, "written", cell) for cell in third] == ['"1"2', '"p"r', 'z"']


def test_typed_files_of_one_schema_are_known_by_their_heads(tmp_path: Path) -> None:
    def parquet(name: str, type_: pa.DataType, **metadata: str) -> str:
        pq.write_table(
            pa.table({"a": pa.array([1], type_)}).replace_schema_metadata(metadata), tmp_path / name
        )
        return str(tmp_path / name)

    def avro(name: str, type_: str) -> str:
        with (tmp_path / name).open("wb") as out:
            fastavro.writer(
                out, {"type": "record", "name": "r", "fields": [{"name": "a", "type": type_}]}, []
            )
        return str(tmp_path / name)

    spark = "org.apache.spark.sql.parquet.row.metadata"
    one, same, wide = parquet("1", pa.int32()), parquet("2", pa.int32(), pandas="x"), parquet("3", pa.int64())
    named = parquet("4", pa.int32(), **{spark: "{}"})
    (tmp_path / "broken").write_bytes(b"no file")
    broken = str(tmp_path / "broken")
    assert alike([one, wide, same, named, broken], "parquet") == [[one, same], [wide], [named], [broken]]

    one, same, wide = avro("1", "int"), avro("2", "int"), avro("3", "long")
    assert alike([one, wide, same, broken], "avro") == [[one, same], [wide], [broken]]
    assert alike([one, same], "orc") == [[one], [same]]


def test_places_are_ordered_as_in_the_source() -> None:
    places = [SourcePlace("b"), SourcePlace("a", 99, 1), SourcePlace("a", 0, 2), SourcePlace("a", 0, 1)]

    assert sorted(places) == places[::-1]


@pytest.mark.parametrize(
    ("records", "rows", "held", "missing", "left"),
    [
        ([2], [3], {(0, 0)}, [0], [1]),
        ([3], [2], {(0, 0)}, [1], [0]),
        ([1, 1], [1, 1], {(0, 0), (0, 1), (1, 0)}, [0, 0], [0, 0]),
        ([1, 1, 1], [1, 1, 1], {(0, 0), (0, 1), (1, 1), (1, 2), (2, 0)}, [0, 0, 0], [0, 0, 0]),
        ([2, 2], [3, 1], {(0, 0), (0, 1), (1, 0)}, [0, 0], [0, 0]),
        ([1, 1], [1, 1], {(0, 0), (1, 0)}, [0, 1], [0, 1]),
        ([1], [], set(), [1], []),
    ],
)
def test_each_row_holds_one_record(
    records: list[int], rows: list[int], held: set[tuple[int, int]], missing: list[int], left: list[int]
) -> None:
    """``held``: pairs of a record and a row."""
    for how in (1, 2):
        assert pair(records, rows, lambda row, record: how * ((record, row) in held))[:2] == (missing, left)  # noqa: B023


def test_a_row_that_holds_a_record_wholly_is_taken_before_others() -> None:
    wholly = {(0, 1), (1, 0)}

    assert pair([1, 1], [1, 1], lambda row, record: 1 + ((record, row) in wholly)) == (
        [0, 0],
        [0, 0],
        {(0, 1): 1, (1, 0): 1},
    )


ARRAY = b'\xef\xbb\xbf [{"a": 1},\n {"a": "}\\\\\\"[,\xc3\xa9"} ,\n\n {"a": [{"b": []}]}, -12.50, "x"\n]\n'
OBJECTS = b'\n{\n "a": 1\n}\n{\n "a": {\n  "b": 2\n }\n}\n{\n "a": \n}\n{"a": 3}\n'
VALUES = b'{"a": 1}\r{"a": {"b": 2}}{"a": 2} \r{"a": oops}{}\r{"a": [3]}\n{"a": 4}'
LINES = b'\xef\xbb\xbf{"a": 1}\r\n\noops {"a"\n{"a": "\xff"}\n{"a": [2]}'


@pytest.mark.parametrize("text", [ARRAY, OBJECTS, VALUES, LINES], ids=["array", "objects", "values", "lines"])
def test_what_is_held_of_a_packed_file_changes_nothing(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "a.json.gz", gzip.compress(text)
    whole = records(path, data)
    assert len(whole) >= 4

    # As much as tells what the file is, and more.
    for held in range(24, len(text) + 2):
        monkeypatch.setattr(json_texts, "HELD", held)
        for block in (1, 2, 7):
            monkeypatch.setattr(json_texts, "_BLOCK", block)
            assert records(path, data) == whole


def test_objects_on_one_line_are_cut_as_the_road_cuts_them(tmp_path: Path) -> None:
    texts = [read.raw for read in json_texts.of_file(BytesIO(VALUES), 100)]
    assert texts == list(records_of(VALUES))


@pytest.mark.parametrize(
    "text",
    [
        b'[{"a": 1},\n{"a" 2},\n{"a": 3}]\n',
        b'[{"a" 1},\n{"a": 2},\n{"a": 3}]\n',
        b'[{\n "a": 1\n}, {\n "a" 2\n}]\n',
        b'[{"a": 1},\n{"a": 2}\n',
        b'[oops\n{"a": 1}\n',
        b'[1]\n{"a": 1}\n',
    ],
)
def test_array_with_a_fault_is_cut_as_the_road_cuts_it(tmp_path: Path, text: bytes) -> None:
    found = [read.raw for read in json_texts.of_file(BytesIO(text), 100)]
    assert found == (list(records_of(text)) if is_document(text, whole=True) else text.splitlines())


def test_a_long_array_that_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_texts, "HELD", 8)
    monkeypatch.setattr(json_texts, "_BLOCK", 4)
    text = b'[{"a": 1},\n{"a": oops},\n{"a": 3}]\n{"a": 4}\n{"a": "\\'

    assert records(tmp_path / "a.json", text) == [
        ("1", {"a": 1}), ("2", b'{"a": oops}'), ("3", {"a": 3}), ("4", {"a": 4}), ("5", b'{"a": "\\'),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["lines", "objects", "array", "values", "one line", "csv"])
def test_a_packed_file_is_read_in_bounded_memory(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, record = tmp_path / "a.json.gz", b'{"a": "' + b"x" * 100_000 + b'"}'
    if kind == "csv":
        record = b"1,'" + b"x" * 100_000 + b'","\n"'
    record = b"{\n" + record[1:-1] + b"\n}" if kind == "objects" else record
    record = b"x" * 100_000 if kind == "one line" else record
    around = {"array": (b"[", b","), "values": (b"", b"\r"), "one line": (b'{"a": "', b"")}
    before, after = around.get(kind, (b"", b"\n"))
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(before)
        for _ in range(300):
            out.write(record + after)
        out.write(b"7]" if kind == "array" else b"")
    monkeypatch.setattr(json_texts, "HELD", 2**20)
    part = FilePart(str(path), "csv" if kind == "csv" else "json", longest=2**20)

    tracemalloc.start()
    found = [r.reason for r in read(part)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 16 * 2**20  # of 30 MB
    if kind == "one line":
        assert found == [f"longer than {2**20} bytes"]
    else:
        assert found[:299] == [""] * 299


def test_objects_over_several_lines_are_records(tmp_path: Path) -> None:
    text = b'{\n "a": 1\n}\n{\n "a": {\n  "b": "}\\n{"\n }\n}\n\n{\n "a": \n}\n{"a": 3}\n'
    assert records(tmp_path / "a.jsonl", text) == [
        ("1", {"a": 1}), ("4", {"a": {"b": "}\n{"}}), ("10", b'{\n "a": \n}'), ("13", {"a": 3}),
    ]  # fmt: skip


def test_periods_and_intervals_of_pandas_are_what_the_rules_make_of_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "month": pd.period_range("2026-01", periods=2, freq="M"),
            "between": pd.interval_range(0, 2),
        }
    )
    (file,) = in_memory.write(frame, tmp_path)
    expected = [
        {"month": f"2026-0{n + 1}", "between": {"left": n, "right": n + 1, "closed": "right"}}
        for n in range(2)
    ]
    assert [read.record for read in in_memory.read(file)] == expected
    table = pa.Table.from_pandas(frame)
    (file,) = in_memory.write(table, tmp_path)
    assert [read.record for read in in_memory.read(file)] == expected


def test_value_of_a_type_that_verify_does_not_know_is_named_with_its_place(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": {"b": [1, Fraction(1, 3)]}}]
    with pytest.raises(
        DataError, match=r"^a\.b: row 1 has a value of the type Fraction, which verify cannot compare"
    ):
        in_memory.write(rows, tmp_path)
