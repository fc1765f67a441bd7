"""CSV files, over both formats: types by all texts, quotes and line ends as they are written, and what is no row set aside."""

from __future__ import annotations

import gzip
import os
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from driftline.errors import DataError
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.readers.csv import reader as csv_source
from driftline.tasks import run


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def types(table: Table) -> dict[str, str]:
    return {f.name: str(f.type) for f in table.schema().schema.struct.fields}


def csv(folder: Path, text: str, name: str = "in.csv") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def proven(table: Table, *files: Path) -> None:
    """Every record of the files is in the table or in its quarantine, and no other."""
    verdict = table.verify([str(file) for file in files], "csv", exactly=True)
    assert verdict.ok, verdict.to_dict()


def rejects(table: Table) -> list[tuple[str, str, int]]:
    rows = quarantine.of(table.format).read().orderBy("source", "line").collect()
    return [(row.raw, row.reason, row.line) for row in rows]


def test_a_column_is_typed_where_every_text_prints_back(table: Table, tmp_path: Path) -> None:
    file = csv(
        tmp_path,
        "n,zip,price,ok,day,mixed,note,empty\n"
        '1,007,1.5,true,2024-02-29,1,"a ""quoted"", two\nlines",\n'
        "-20,123,2,false,2024-01-01,x,plain,\n"
        "9007199254740993,8,19.99,,,2.5,,\n",
    )
    assert table.ingest(file).rows_written == 3
    assert types(table) == {
        "n": "long", "zip": "string", "price": "double", "ok": "boolean", "day": "date", "mixed": "double", "mixed_string": "string", "note": "string"
    }  # fmt: skip
    rows = {r.zip: r for r in table.read().collect()}
    assert rows["007"].note == 'a "quoted", two\nlines' and rows["123"].price == 2.0
    proven(table, file)


def test_cells_as_strings(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, "a,b,c\n1,true,\n")
    table.ingest(file, strings=True)
    assert types(table) == {"a": "string", "b": "string", "c": "string"}
    proven(table, file)


def test_rows_of_another_length_wait_in_quarantine(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, 'a,b\n1,2\n"1\n",2,3\n4\n5,6\n')
    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (2, 2)
    why = "not as many cells as the header"
    assert rejects(table) == [('"1\n",2,3', why, 3), ("4", why, 5)]
    proven(table, file)


def test_files_with_other_headers_are_one_batch(table: Table, tmp_path: Path) -> None:
    files = [
        csv(tmp_path, "a,b\n1,x\n", "1.csv"),
        csv(tmp_path, "b,c\ny,2024-01-01\n", "2.csv"),
        csv(tmp_path, "a,b\n2.5,z\n", "3.csv"),
        csv(tmp_path, "", "4.csv"),
        csv(tmp_path, "c,d\n", "5.csv"),
    ]
    assert table.ingest(tmp_path).rows_written == 3
    assert types(table) == {"a": "double", "b": "string", "c": "date"}
    proven(table, *files)


def test_records_as_they_are_written(table: Table, tmp_path: Path) -> None:
    texts = [
        "\n\r\na,b\n1,blank lines\n",
        "\ufeffa,b\r\n2,byte order mark\r\n",
        "a,b\n3,CRLF\r\n",
        "a,b\r\n4,LF\n",
        "a,b\r5,CR\r",
        'a,b\n6,"x\r\ny\r"\r\n7,""\n',
        'a,b\n8,5" pipe\n9,"a\\"b"\n10,"q" \n',
    ]
    files = [csv(tmp_path, text, f"{i}.csv") for i, text in enumerate(texts)]
    result = table.ingest(tmp_path)
    assert (result.rows_written, result.rows_quarantined) == (10, 0)
    assert {row.a: row.b for row in table.read().collect()} == {
        1: "blank lines", 2: "byte order mark", 3: "CRLF", 4: "LF", 5: "CR", 6: "x\r\ny\r", 7: None,
        8: '5" pipe', 9: '"a\\"b"', 10: '"q" ',
    }  # fmt: skip
    proven(table, *files)


def test_a_blank_line_is_a_row_of_one_column(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, "b\nx\n\ny\n")
    assert table.ingest(file).rows_written == 3
    proven(table, file)


def test_a_quote_that_is_never_closed_spoils_its_line_alone(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, 'a,b\n1,x\n2,"y\n' + "3,z\n" * 1000 + '4,"u"\n')
    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (1002, 1)
    assert rejects(table) == [('2,"y', "a quote is never closed", 3)]
    proven(table, file)


def test_columns_without_a_name_of_their_own_are_kept_and_marked(table: Table, tmp_path: Path) -> None:
    first = csv(tmp_path, ",a,a,\n0,x,p,\n1,y,q,\n", "1.csv")
    second = csv(tmp_path, "sep=;\n;a;a\nz;x;2\n3;y\n", "2.csv")
    result = table.ingest(first)
    assert (result.rows_written, dict(result.dropped_names)) == (2, {})
    assert types(table) == {"column_1": "long", "a": "string", "a_2": "string"}
    docs = {f.name: f.doc for f in table.schema().schema.struct.fields}
    assert docs == {
        "column_1": "column 1 has no name",
        "a": None,
        "a_2": "column 3 has the name of column 2",
    }
    assert result.hints == (
        f"{first}: column 1 has no name: it is column_1; column 3 has the name of column 2: it is a_2",
    )
    assert table.ingest(second).rows_written == 1
    assert rejects(table) == [("3;y", "not as many cells as the header", 4)]
    assert {f.name: f.doc for f in table.schema().schema.struct.fields}["column_1_string"] == (
        "upsolver_evolved_from:column_1"
    )
    proven(table, first, second)


def test_names_that_differ_only_in_case(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, "a,A\n1,x\n")
    assert table.ingest(file).rows_written == 1
    assert types(table) == {"A": "string", "a_long": "long"}
    proven(table, file)


def test_names_of_files(table: Table, tmp_path: Path) -> None:
    names = ["2026-03-02T10:00:00.csv", "a b%20c.csv", "c[1]*?{x}.csv", "日本語.csv"]
    files = [csv(tmp_path, f"a,b\n{i},x\n{i}\n", name) for i, name in enumerate(names)]
    for file in files:
        assert table.ingest(file).rows_written == 1
    kept = quarantine.of(table.format).read().collect()
    assert {row.source for row in kept} == {str(file) for file in files}
    proven(table, *files)


def test_a_number_goes_into_a_column_that_was_declared_for_it(table: Table, tmp_path: Path) -> None:
    hints = {"hints.amount": "decimal(10,2)"}
    files = [
        csv(tmp_path, "amount,b\n1.50,w\n19.9,x\n,\n", "1.csv"),
        csv(tmp_path, "amount,b\n3,y\n", "2.csv"),
        csv(tmp_path, "amount,b\n1.505,z\n", "3.csv"),
    ]
    for file in files:
        table.ingest(file, settings=hints)
    assert types(table) == {
        "amount": "decimal(10, 2)",
        "b": "string",
        "amount_double": "double",
        "amount_string": "string",
    }
    rows = table.read().orderBy("b").collect()
    assert [str(row.amount) for row in rows] == ["None", "1.50", "19.90", "3.00", "None"]
    proven(table, *files)


def test_numbers_and_booleans_as_people_write_them(table: Table, tmp_path: Path) -> None:
    files = [
        csv(tmp_path, "id,price,paid,v\n1,19.90,TRUE,1.10\n2,0.00,false,2\n3,12345678.90,True,3\n", "1.csv"),
        csv(tmp_path, 'id,price,paid,v\n4,5,FALSE,x\n5,-0.50,tRUE,1.10\n6,"7.0",true,x"y\n', "2.csv"),
        csv(tmp_path, "id,price,paid,v\n7,9.x0,no,2\n", "3.csv"),
    ]
    for file in files:
        table.ingest(file)

    assert types(table) == {
        "id": "long",
        "price": "double",
        "paid": "boolean",
        "v": "double",
        "v_string": "string",
        "price_string": "string",
        "paid_string": "string",
    }
    rows = table.read().orderBy("id").collect()
    assert [row.price for row in rows] == [19.9, 0.0, 12345678.9, 5.0, -0.5, 7.0, None]
    assert [row.paid for row in rows] == [True, False, True, False, True, True, None]
    assert [(row.v, row.v_string) for row in rows][3:5] == [(None, "x"), (1.1, "1.1")]
    proven(table, *files)


def test_moments_as_databases_write_them(table: Table, tmp_path: Path) -> None:
    files = [
        csv(
            tmp_path,
            "id,at,utc\n1,2026-03-01 12:00:00,2026-03-01 12:00:00.50Z\n2,2026-03-01T12:00:00.5,\n",
            "1.csv",
        ),
        csv(tmp_path, "id,at,utc\n3,soon,2026-03-01T12:00:00+00:00\n", "2.csv"),
        csv(tmp_path, "id,at,utc\n4,2026-03-02 12:00:00.00,\n", "3.csv"),
    ]
    for file in files:
        table.ingest(file)

    assert types(table) == {
        "id": "long",
        "at": "timestamp_ntz",
        "utc": "timestamp",
        "at_string": "string",
    }
    texts = table.read().orderBy("id").selectExpr("at_string").collect()
    assert [row.at_string for row in texts] == [None, None, "soon", "2026-03-02T12:00:00"]
    proven(table, *files)


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ("on", ["date", "string", "timestamp"]),
        ("off", ["string", "string", "string"]),
        ("instant", ["date", "timestamp", "timestamp"]),
    ],
)
def test_dates_by_the_setting(table: Table, tmp_path: Path, dates: str, expected: list[str]) -> None:
    """As in JSON (rules 2.2): none, or instants with other offsets than UTC too."""
    text = "day,offset,at\n2026-03-01,2026-03-01T10:00:00+02:00,2026-03-01T10:00:00Z\n2026-03-02,2026-03-01 10:00:00.5-05:30,\n"
    file = csv(tmp_path, text)
    table.ingest(file, dates=dates)
    assert list(types(table).values()) == expected
    proven(table, file)
    if dates == "instant":
        instants = [
            row[0]
            for row in table.read().orderBy("day").selectExpr("cast(unix_micros(offset) as string)").collect()
        ]
        assert instants == ["1772352000000000", "1772379000500000"]


@pytest.mark.parametrize(
    "text", ["2026-03-01T10:00:00", "2026-03-01T10:00:00+24:00", "2026-02-30T10:00:00+02:00", "soon"]
)
def test_one_text_that_is_no_instant_leaves_the_column_text(table: Table, tmp_path: Path, text: str) -> None:
    file = csv(tmp_path, f"id,at\n1,2026-03-01T10:00:00+02:00\n2,{text}\n")
    table.ingest(file, dates="instant")
    assert types(table) == {"id": "long", "at": "string"}
    proven(table, file)


def test_offsets_of_a_later_file_go_into_the_column_of_instants(table: Table, tmp_path: Path) -> None:
    files = (
        csv(tmp_path, "id,at\n1,2026-03-01T10:00:00Z\n", "1.csv"),
        csv(tmp_path, "id,at\n2,2026-03-01T10:00:00+02:00\n", "2.csv"),
    )
    for file in files:
        table.ingest(file, dates="instant")
    assert types(table) == {"id": "long", "at": "timestamp"}
    proven(table, *files)


def test_files_without_rows(table: Table, tmp_path: Path) -> None:
    for text in ("", "\n", "a,b\n"):
        result = table.ingest(csv(tmp_path, text))
        assert (result.rows_read, result.rows_written, result.rows_quarantined) == (0, 0, 0)


def test_a_file_in_many_stretches(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read by a task that knows nothing of what stands before."""
    monkeypatch.setattr(csv_source, "_STRETCH", (1000, 1000))
    monkeypatch.setattr(run, "_SMALL", 0)
    lines = ["id,text", *(f'{i},"with, comma"' for i in range(500)), "short"]
    file = csv(tmp_path, "\n".join(lines))
    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (500, 1)
    assert rejects(table) == [("short", "not as many cells as the header", 502)]
    assert types(table) == {"id": "long", "text": "string"}
    proven(table, file)


def test_what_cannot_be_read_is_one_sentence(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for small in (run._SMALL, 0):  # where the driver is, and in a task
        monkeypatch.setattr(run, "_SMALL", small)
        (tmp_path / "in.csv.gz").write_bytes(
            gzip.compress(b"a\n" + os.urandom(3 * 2**20).hex().encode())[:-20]
        )
        with pytest.raises(DataError, match=r"^\S+/in\.csv\.gz: broken gzip"):
            table.ingest(tmp_path / "in.csv.gz")
        (tmp_path / "latin.csv").write_bytes("a\n\nü\n".encode("latin-1"))
        with pytest.raises(DataError, match=r"^\S+/latin\.csv:3: byte 0xfc is not UTF-8"):
            table.ingest(tmp_path / "latin.csv")


def test_semicolons(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, 'id;name;price\n1;"a;b";1,5\n2;c\n3;d, e;2\n')
    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (2, 1)
    assert types(table) == {"id": "long", "name": "string", "price": "string"}
    assert {r.name for r in table.read().collect()} == {"a;b", "d, e"}
    proven(table, file)


def test_a_file_of_windows_with_decimal_commas(table: Table, tmp_path: Path) -> None:
    text = "Größe;Preis;Menge;Summe\nÄpfel;1,50;1,5;1.000,50\nBäume;20,00;2;7\n"
    file = tmp_path / "in.csv"
    file.write_bytes(text.encode("cp1252"))
    with pytest.raises(DataError, match=r"in\.csv:1: byte 0xf6 is not UTF-8") as raised:
        table.ingest(file)
    assert 'encoding="cp1252"' in str(raised.value.hint)
    assert not table.format.load().exists
    settings = {"encoding": "cp1252", "decimal": ",", "hints": {"Preis": "decimal(10,2)"}}
    result = table.ingest(file, settings=settings)
    assert result.hints == (
        f"detected --delimiter ';' in {file}",
        f"--thousands . would make Summe numeric: {file} has decimal commas; for a column that is there: driftline resolve",
    )
    assert types(table) == {
        "Preis": "decimal(10, 2)",
        "Größe": "string",
        "Menge": "double",
        "Summe": "string",
    }
    rows = {row["Größe"]: row for row in table.read().collect()}
    assert (str(rows["Äpfel"].Preis), rows["Äpfel"].Menge, rows["Äpfel"].Summe) == ("1.50", 1.5, "1.000,50")
    proven(table, file)

    # The table keeps how they are written: a capture goes by it, and a file that is not is refused.
    more = tmp_path / "more"
    more.mkdir()
    (more / "1.csv").write_bytes(text.replace("1,50", "2,75").encode("cp1252") + b"\xdcbel;x\n")
    query = table.capture(str(more), name="files")
    assert query.awaitTermination(120)
    assert sorted(str(row.Preis) for row in table.read().collect()) == ["1.50", "2.75", "20.00", "20.00"]
    assert rejects(table) == [("Übel;x", "not as many cells as the header", 4)]
    proven(table, file, more / "1.csv")
    wrong = tmp_path / "wrong.csv"
    wrong.write_bytes(b"a;b\n1;\x81\n")
    with pytest.raises(DataError, match=r"wrong\.csv:2: byte 0x81 is not cp1252"):
        table.ingest(wrong)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_cells_are_judged_one_by_one_and_no_value_depends_on_the_order_of_batches(
    table: Table, tmp_path: Path, order: tuple[int, ...]
) -> None:
    cells = [["10.5", "11", "NA"], ["12,00 EUR", "13", "007"], ["x", "14.25", "-"]]
    files = [
        csv(
            tmp_path,
            "id,amount\n" + "".join(f'{i}{k},"{cell}"\n' for k, cell in enumerate(texts)),
            f"{i}.csv",
        )
        for i, texts in enumerate(cells, 1)
    ]
    for i in order:
        table.ingest(files[i])
    rows = table.read().collect()
    if order[0]:  # a first batch with one number of three cells is text
        assert types(table)["amount"] == "string"
    else:
        assert types(table) == {"id": "long", "amount": "double", "amount_string": "string"}
        assert {row.amount_string for row in rows if row.amount is None} == {
            "NA",
            "12,00 EUR",
            "007",
            "x",
            "-",
        }
        assert sorted(row.amount for row in rows if row.amount is not None) == [10.5, 11.0, 13.0, 14.25]
    proven(table, *files)


def test_changes_and_conflicts_are_told_with_their_lines(table: Table, tmp_path: Path) -> None:
    table.ingest(csv(tmp_path, "id,amount\n1,10.5\n", "1.csv"))
    report = table.ingest(csv(tmp_path, "id,amount\n2,11\n3,19 EUR\n", "2.csv"))
    (change,) = report.to_dict()["changes"]
    assert (change["path"], change["sample"]) == ("amount_string", "19 EUR")
    assert change["seen_in"] == f"{tmp_path / '2.csv'}:3"
    rows = pa.table({"id": [4, 5, 6], "amount": [None, None, "x"], "tags": [[], [1], [2]]})
    pq.write_table(rows, tmp_path / "3.parquet")
    report = table.ingest(tmp_path / "3.parquet")
    places = {change["path"]: change["seen_in"] for change in report.to_dict()["changes"]}
    assert places == {"tags": f"{tmp_path / '3.parquet'}:2"}
    report = table.ingest(csv(tmp_path, "id,amount,extra\n7,1,\n8,2,z\n", "4.csv"), policy="strict")
    assert rejects(table)[-1][2] == 3
    assert report.conflicts[0].location.line == 3


def test_null_texts_are_kept_for_later_batches_and_checked_by(table: Table, tmp_path: Path) -> None:
    first = csv(tmp_path, "id,bill\n1,39.1\n2,NA\n", "1.csv")
    later = csv(tmp_path, 'id,bill\n3,"NA"\n4,46.1\n', "2.csv")
    report = table.ingest(first, nulls="NA")
    assert "null: 1 cell NA (--null)" in report.hints
    table.ingest(later)
    assert types(table) == {"id": "long", "bill": "double"}
    proven(table, first, later)
    table.ingest(csv(tmp_path, "id,bill\n5,NA\n", "3.csv"), nulls="")
    assert {r.id: r.bill_string for r in table.read().where("id > 4").collect()} == {5: "NA"}
    proven(table, first, later, tmp_path / "3.csv")


@pytest.mark.nightly
def test_headers_in_another_letter_case_fill_the_columns_where_that_is_said(
    table: Table, tmp_path: Path
) -> None:
    monday = csv(tmp_path, "Customer,Total\na,1\n", "monday.csv")
    friday = csv(tmp_path, "customer,total\nb,2\n", "friday.csv")
    table.ingest(monday)
    plan = table.ingest(friday, dry_run=True)
    assert len(plan.changes) == 2
    hint = "2 headers differ from the table's only in letter case: --names fold fills those columns"
    assert hint in plan.hints
    assert not table.ingest(friday, names="fold", dry_run=True).changes
    report = table.ingest(friday, names="fold")
    assert "names: customer is Customer, total is Total (--names fold)" in report.hints
    book = Workbook()
    for row in (["CUSTOMER", "total"], ["c", 3]):
        book.active.append(row)
    book.save(tmp_path / "sunday.xlsx")
    table.ingest(tmp_path / "sunday.xlsx")
    assert types(table) == {"Customer": "string", "Total": "long"}
    assert {(r.Customer, r.Total) for r in table.read().collect()} == {("a", 1), ("b", 2), ("c", 3)}
    assert table.verify([str(monday), str(friday)], "csv").ok
    assert table.verify(tmp_path / "sunday.xlsx").ok
    assert not table.verify(csv(tmp_path, "CUSTOMER,Total\nz,2\n", "other.csv")).ok


def test_several_headers_and_delimiters_in_one_batch(table: Table, tmp_path: Path) -> None:
    files = [
        csv(tmp_path, "a;b\n1;x\n", "1.csv"),
        csv(tmp_path, "b,c\n'y,1',2.5\n", "2.csv"),
        csv(tmp_path, "a\tb\n2\tz\n", "3.csv"),
    ]
    assert table.ingest(files).rows_written == 3
    assert types(table) == {"a": "long", "b": "string", "c": "double"}
    assert sorted(row.b for row in table.read().collect()) == ["x", "y,1", "z"]
    proven(table, *files)


@pytest.mark.parametrize("tab", ["tab", r"\t", "\t"])
def test_a_tab_may_be_said_by_name(tab: str, table: Table, tmp_path: Path) -> None:
    """Cells may have commas then, which nothing else would tell from delimiters."""
    file = csv(tmp_path, "a,b\tc\n1,5\tx\n")
    assert table.ingest(file, settings={"delimiter": tab}).rows_written == 1
    assert types(table) == {"a,b": "string", "c": "string"}
    proven(table, file)


def test_files_as_spark_writes_them(table: Table, lake: Lake, tmp_path: Path) -> None:
    notes = ['say "hi", x', "C:\\dir", "a\\b, c", '"', "two\nlines \\", None]
    rows = [(i + 0.5, note) for i, note in enumerate(notes)]
    lake.spark.createDataFrame(rows, "price double, note string").coalesce(1).write.csv(f"{tmp_path / 'out'}")
    (file,) = (tmp_path / "out").glob("*.csv")
    result = table.ingest(file, settings={"header": "no"})
    assert (result.rows_written, result.rows_quarantined) == (len(rows), 0)
    assert result.hints == (f"detected --escape '\\' in {file}",)
    assert sorted(table.read().collect()) == sorted(rows, key=lambda row: row[0])
    # What the file tells holds for it alone; the setting holds for each.
    more = csv(tmp_path, '7.5,"x\\\\, y"\n')
    table.ingest(more, settings={"escape": "\\"})
    assert [row.column_2 for row in table.read().where("column_1 = 7.5").collect()] == ["x\\, y"]
    proven(table, file, more)


@pytest.mark.nightly
def test_german_numbers_below_titles(table: Table, tmp_path: Path) -> None:
    text = "Umsatz\n\n# in Euro\nid;n;preis\n1;1.234;1.234,50\n# spät\n2;5;2,5\n"
    first = csv(tmp_path, text, "1.csv")
    settings = {"skip_lines": "1", "comment": "#", "thousands": "."}
    assert table.ingest(first, settings=settings).rows_written == 2
    assert types(table) == {"id": "long", "n": "long", "preis": "double"}
    second = csv(tmp_path, text.replace("1;1.234;", "3;1.23;").replace("2,5", "nichts"), "2.csv")
    third = csv(tmp_path, text.replace("1;1.234;1", "4;12.345.678;-1") + "5\n", "3.csv")
    assert table.ingest(second).rows_written == 2
    assert table.ingest(third).rows_written == 2
    found = {row.id: (row.n, row.preis, row.n_string, row.preis_string) for row in table.read().collect()}
    assert found[3] == (None, 1234.5, "1.23", "1234.5")
    assert found[4] == (12345678, -1234.5, "12345678", "-1234.5")
    assert rejects(table) == [("5", "not as many cells as the header", 8)]
    proven(table, first, second, third)
    (tmp_path / "lost").mkdir()
    lost = csv(tmp_path / "lost", text.replace("1.234,50", "1.234,75"))
    assert not table.verify([str(lost)], "csv").ok


def test_verify_reads_older_files_by_the_pattern_they_had(table: Table, tmp_path: Path) -> None:
    days = {
        "a.csv": ("dd.MM.yyyy", "31.12.2025"),
        "b.csv": ("MM/dd/yyyy", "12/30/2025"),
        "c.csv": ("yyyyMMdd", "20260102"),
    }
    for name, (pattern, text) in days.items():
        (tmp_path / name).write_text(f"id,day\n1,{text}\n")
        table.ingest(tmp_path / name, settings={"hints": {"day": f"date('{pattern}')"}})
    proven(table, *(tmp_path / name for name in days))
    (tmp_path / "d.csv").write_text("id,day\n1,01.02.2026\n")
    assert not table.verify(tmp_path / "d.csv").ok


@pytest.mark.nightly
def test_dates_by_a_pattern(table: Table, tmp_path: Path) -> None:
    hints = {"day": "date('dd.MM.yyyy')", "at": 'timestamp("MM/dd/yyyy HH:mm")', "number": "date('yyyyMMdd')"}
    file = csv(
        tmp_path,
        "id,day,at,number\n1,01.03.2026,03/01/2026 12:30,20260301\n2,n/a,12:30,20260230\n3,1.3.2026,,\n4,,,20240229\n",
    )
    result = table.ingest(file, settings={"hints": hints})
    assert result.rows_written == 4
    assert types(table) == {
        "id": "long", "day": "date", "at": "timestamp_ntz", "number": "date",
        "day_string": "string", "at_string": "string", "number_string": "string",
    }  # fmt: skip
    rows = [r.asDict() for r in table.read().orderBy("id").collect()]
    assert [(r["day"], r["number"], r["at"]) for r in rows] == [
        (date(2026, 3, 1), date(2026, 3, 1), datetime(2026, 3, 1, 12, 30)), (None, None, None), (None, None, None), (None, date(2024, 2, 29), None),
    ]  # fmt: skip
    assert [(r["day_string"], r["at_string"], r["number_string"]) for r in rows[1:3]] == [
        ("n/a", "12:30", "20260230"), ("1.3.2026", None, None)
    ]  # fmt: skip
    proven(table, file)

    later = csv(tmp_path, "id,day\n5,2.3.2026\n6,31.12.2025\n", "later.csv")
    table.ingest(later)
    assert [r.day for r in table.read().where("id > 4").orderBy("id").collect()] == [None, date(2025, 12, 31)]
    proven(table, file, later)

    done = table.resolve("day", "date('d.M.yyyy')")
    assert (done.values, done.rest, done.samples) == (5, 1, ("n/a",))
    assert [r.day for r in table.read().where("id in (3, 5)").orderBy("id").collect()] == [
        date(2026, 3, 1), date(2026, 3, 2)
    ]  # fmt: skip
    proven(table, file, later)


@pytest.mark.nightly
def test_resolving_german_numbers(table: Table, tmp_path: Path) -> None:
    file = csv(tmp_path, 'id,price\n1,"1.234,56"\n2,"7,50"\n3,1.234\n4,1.23\n5,12\n')
    table.ingest(file)
    assert types(table)["price"] == "string"
    assert table.resolve("price", "decimal(10,2)", dry_run=True).rest == 3

    table.ingest(csv(tmp_path, "id\n6\n", "more.csv"), settings={"thousands": "."})
    done = table.resolve("price", "decimal(10,2)")
    assert (done.values, done.rest, done.samples) == (5, 1, ("1.23",))
    prices = [r.price for r in table.read().where("id < 6").orderBy("id").collect()]
    assert [None if p is None else str(p) for p in prices] == ["1234.56", "7.50", "1234.00", None, "12.00"]
    proven(table, file, tmp_path / "more.csv")


@pytest.mark.parametrize("kept", [{"thousands": "."}, {"decimal": ","}], ids=str)
def test_file_with_commas_between_cells_contradicts_a_decimal_comma_of_the_table(
    lake: Lake, table_name: str, tmp_path: Path, kept: dict[str, str]
) -> None:
    table = lake.table(table_name)
    first, second, third = (tmp_path / f"{n}.csv" for n in (1, 2, 3))
    first.write_text("id;total\n1;1234,50\n")
    second.write_text("id,total\n2,1.234\n")
    third.write_text('id,total\n3,"2,5"\n')
    table.ingest(first, settings=kept)

    with pytest.raises(DataError, match=r"2\.csv: ',' separates its cells, and is the decimal sign") as error:
        table.ingest(second)
    assert 'decimal="." thousands=""' in str(error.value)
    table.ingest(third)
    assert "keep=False" in str(error.value)
    table.ingest(second, settings={"decimal": ".", "thousands": ""}, keep=False)
    fourth = csv(tmp_path, "id;total\n4;7,25\n", "4.csv")
    table.ingest(fourth)
    rows = {row["id"]: row["total"] for row in table.read().collect()}
    assert rows == {1: 1234.5, 2: 1.234, 3: 2.5, 4: 7.25}
    proven(table, first, second, third, fourth)


def test_settings_not_kept_count_for_one_batch_and_for_verify(table: Table, tmp_path: Path) -> None:
    """Of a table's first batch, too, and of a date's pattern."""
    german = csv(tmp_path, "id;unit;day\n2;1.234,50;03.01.2024\n", "2.csv")
    plain = csv(tmp_path, "id,unit,day\n3,1.234,2024-01-05\n", "3.csv")
    hints = {"day": "date('dd.MM.yyyy')"}
    first = table.ingest(german, thousands=".", hints=hints, on_conflict="fail", keep=False)
    assert "thousands" not in first.settings
    table.ingest(plain)
    units = {r.id: (r.unit, str(r.day)) for r in table.read().collect()}
    assert units == {2: (1234.5, "2024-01-03"), 3: (1.234, "2024-01-05")}
    properties = table.format.load().properties
    assert properties["driftline.on-conflict"] == "fail"
    assert not properties.get("driftline.thousands")
    assert not properties.get("driftline.hints.day")
    proven(table, german, plain)
