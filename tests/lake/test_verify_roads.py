"""Lawful acts of the road in that `verify` once took for a loss, over both formats."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from driftline.errors import UsageError
from driftline.lake import Lake, check
from lake.formats import is_embedded

pytestmark = pytest.mark.usefixtures("columns_first", "both_roads")

BATCHES = [
    # A list column is younger than the first lists; -0.0 keeps its sign.
    ['{"id": 1, "f": "2026-01-01T00:00:00Z", "tags": [], "s": {"y": []}}'],
    [
        '{"id": 2, "f": "x", "tags": [], "x": -0.0, "s": {"y": [1]}}',
        '{"id": 3, "tags": ["a", null], "x": 0.0, "s": {"y": []}}',
        '{"id": 3, "tags": ["a", null], "x": 0.0, "s": {"y": []}}',
    ],
    # An instant, by rule, and a text: the number itself has no column of its own.
    ['{"id": 4, "f": 9223372036854775807, "z": [-0.0, 1.5]}', '{"id": 5, "f": 1767225600, "tags": [[], ["b"]]}'],
]  # fmt: skip


@pytest.mark.nightly
def test_nothing_lawful_is_taken_for_a_loss(
    lake: Lake, tmp_path: Path, table_name: str, both_roads: list[str]
) -> None:
    table, files = lake.table(table_name), []
    for i, lines in enumerate(BATCHES):
        files.append(tmp_path / f"{i}.jsonl")
        files[-1].write_text("\n".join(lines) + "\n")
        table.ingest([str(files[-1])])
    paths = [str(file) for file in files]

    verdict = table.verify(paths, "json", exactly=True)
    assert (verdict.mismatches, verdict.records, verdict.extra) == ((), 6, 0)

    table.ingest(paths[:1], again=True)
    doubled = table.verify(paths, "json", exactly=True)
    assert (doubled.missing, doubled.extra, len(doubled.mismatches)) == (0, 1, 1)
    assert table.verify(paths, "json").ok
    if is_embedded(lake) and find_spec("duckdb_extension_iceberg") is not None:
        assert both_roads == [], "what is small takes no Spark"


@pytest.mark.nightly
def test_expectation_says_nothing_of_a_file_that_the_table_took_before(
    lake: Lake, tmp_path: Path, table_name: str
) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    file.write_text('{"id": 1, "price": -1}\n')
    table.ingest(file)
    expected = "'driftline.expect.price' = 'price >= 0 else quarantine'"
    lake.alter(f"ALTER TABLE {table_name} SET TBLPROPERTIES ({expected})")

    assert table.verify(file, exactly=True).ok
    file.write_text('{"id": 1, "price": -2}\n')  # which it did not take
    assert table.verify(file).missing == 1


@pytest.mark.nightly
def test_dates_beyond_the_years_of_python_are_compared(lake: Lake, tmp_path: Path, table_name: str) -> None:
    days = [-719_163, 2_932_897, -2_000_000, 5_000_000]  # 0000-12-31, 10000-01-01
    micros = [-62_135_596_800_000_001, 253_402_300_800_000_000, -(10**17), 10**18]
    records = {
        "id": pa.array(range(4)),
        "day": pa.array(days, pa.int32()).cast(pa.date32()),
        "at": pa.array(micros).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(micros).cast(pa.timestamp("us")),
    }
    table, file = lake.table(table_name), tmp_path / "a.parquet"
    for rows in (
        pa.table(records),
        pa.table(records | {"day": records["day"].cast(pa.string())}).slice(0, 2),
    ):
        pq.write_table(rows, file)
        table.ingest([str(file)])
        assert table.verify([str(file)]).ok

    other = pa.array([day + 1 for day in days[:2]] + days[2:], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table(records | {"day": other}), file)
    verdict = table.verify([str(file)])
    assert (verdict.missing, {mismatch.path for mismatch in verdict.mismatches}) == (2, {"day"})


def test_a_cell_whose_quotes_end_before_it_does(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, file = lake.table(table_name), tmp_path / "a.csv"
    file.write_text('id,text,more\n1,"a\\"b",x\n2,"a ""b""","c,d"\n')
    table.ingest([str(file)])

    verdict = table.verify([str(file)], "csv", exactly=True)
    assert verdict.ok, verdict.to_dict()


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.jsonl", "[ ]"), ("a.csv", "id,v\n")])
def test_feed_without_a_record_yet_has_nothing_missing(
    lake: Lake, tmp_path: Path, table_name: str, name: str, text: str
) -> None:
    table, file = lake.table(table_name), tmp_path / name
    file.write_text(text)
    table.ingest([str(file)])

    verdict = table.verify([str(file)], exactly=True)
    assert (verdict.records, verdict.missing, verdict.extra, verdict.ok) == (0, 0, 0, True)

    file.write_text('{"id": 1}\n' if name == "a.jsonl" else "id,v\n1,2\n")
    with pytest.raises(UsageError, match="there is no table"):
        table.verify([str(file)])


@pytest.mark.nightly
def test_file_is_judged_by_the_dialect_that_it_was_ingested_by(
    lake: Lake, tmp_path: Path, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    first, second, third = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text("id,total\n1,19.90\n2,7.5\n")
    second.write_text("id;total\n3;2.469,50\n4;19,9\n")
    third.write_text("sold in May\nid,total\n5,1.5\n")
    table.ingest([str(first)])
    table.ingest([str(second)], settings={"thousands": "."})
    table.ingest([str(third)], settings={"thousands": "", "decimal": ".", "skip_lines": "1"})

    files = [str(file) for file in (first, second, third)]
    with monkeypatch.context() as patch:
        patch.setattr(check, "_readings", lambda *_: pytest.fail("the ledger has the files"))
        verdict = table.verify(files, exactly=True)
        assert (verdict.records, verdict.missing, verdict.extra, verdict.mismatches) == (5, 0, 0, ())

    renamed = first.rename(tmp_path / "renamed.csv")
    verdict = table.verify([str(renamed), *files[1:]], exactly=True)
    assert (verdict.records, verdict.missing, verdict.extra) == (5, 0, 0), "by any reading of the table"
    renamed.write_text("id,total\n1,19.91\n2,7.5\n")
    assert table.verify([str(renamed), *files[1:]]).missing == 1


def test_file_of_a_capture_is_judged_by_the_dialect_of_its_batch(
    lake: Lake, tmp_path: Path, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = lake.table(table_name), tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id;total\n1;1,5\n")
    table.capture(str(folder), name="c", settings={"decimal": ","}).awaitTermination()
    (folder / "b.csv").write_text("id;total\n2;2.5\n")
    table.capture(str(folder), name="c", settings={"decimal": "."}).awaitTermination()

    monkeypatch.setattr(check, "_readings", lambda *_: pytest.fail("the ledger has the files"))
    verdict = table.verify(str(folder), exactly=True)

    assert (verdict.records, verdict.missing, verdict.extra) == (2, 0, 0)


def test_file_is_judged_by_its_dialect_after_alter_has_set_another(
    lake: Lake, tmp_path: Path, table_name: str
) -> None:
    table, file = lake.table(table_name), tmp_path / "a.csv"
    file.write_text("id;total\n1;1.234\n2;7.5\n")
    table.ingest(str(file))
    lake.alter(f"ALTER TABLE {table_name} SET TBLPROPERTIES ('driftline.thousands' = '.')")

    assert table.verify(str(file), exactly=True).ok


def test_workbooks_are_read_at_the_sheet_of_their_batch(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, files = lake.table(table_name), []
    for number, title in enumerate(("May", "June")):
        book = Workbook()
        book.active.title = title
        for row in (("id", "total"), (number, number + 0.5)):
            book.active.append(row)
        book.create_sheet("Notes").append(["n"])
        files.append(str(tmp_path / f"{title}.xlsx"))
        book.save(files[-1])
        table.ingest(files[-1], settings={"sheet": title})

    verdict = table.verify(files, exactly=True)

    assert (verdict.records, verdict.missing, verdict.extra) == (2, 0, 0)


@pytest.mark.nightly
def test_records_that_all_wait_are_in_quarantine(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    file.write_text("broken\n{\n")
    table.ingest([str(file)])

    verdict = table.verify([str(file)], exactly=True)
    assert (verdict.quarantined, verdict.missing, verdict.extra) == (2, 0, 0)
    file.write_text("broken\nworse\n")
    assert table.verify([str(file)]).missing == 1


@pytest.mark.nightly
def test_drift_and_losses_among_equal_columns(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    lines = [
        '{"id": 1, "q": 1, "at": "2026-01-01T00:00:00Z", "s": {"x": [0.1, null], "y": true}}',
        '{"id": 2, "q": "two", "l": [{"a": "x"}, null, {}], "m": {}}',
        '{"id": 3, "q": {"n": 3}, "at": "noon", "l": []}',
        '{"id": 4, "q": 12345678901234567890.5, "s": {"x": [1e-400]}}',
        '{"id": 4, "q": 1, "id": 5}',
        "broken",
    ]
    file.write_text("\n".join(lines) + "\n")
    table.ingest([str(file)])

    assert table.verify([str(file)], exactly=True).to_dict() == {
        "ok": True, "records": 6, "found": 5, "quarantined": 1, "missing": 0, "mismatches": [], "extra": 0
    }  # fmt: skip
    file.write_text("\n".join([*lines, lines[0], lines[1].replace("two", "three")]) + "\n")
    verdict = table.verify([str(file)])
    assert (verdict.records, verdict.found, verdict.quarantined, verdict.missing) == (8, 5, 1, 2)
    file.write_text("\n".join(lines[1:]) + "\n")
    assert (table.verify([str(file)]).ok, table.verify([str(file)], exactly=True).extra) == (True, 1)


OID = "5d505646cf6d4fe581014ab{}"
DUMP = [
    {
        "_id": {"$oid": OID.format(0)},
        "n": {"$numberLong": "9007199254740993"},
        "price": {"$numberDecimal": "1234567890123456.789012345678901234"},
        "at": {"$date": {"$numberLong": "1772366400123"}},
        "far": {"$date": {"$numberLong": "253402300800000"}},
        "lines": [{"sku": {"$uuid": "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1"}, "qty": {"$numberInt": "2"}}],
    },
    {
        "_id": {"$oid": OID.format(1)},
        "n": {"$numberDouble": "NaN"},
        "price": {"$numberDecimal": "1E-6176"},
        "at": {"$date": "2026-03-01T12:00:00.000+0100"},
        "odd": {"$numberLong": "many"},
        "strict": {"$numberInt": "1"},
    },
    {"_id": {"$oid": OID.format(2)}, "strict": {"$oid": OID.format(2)}},  # waits
]


@pytest.mark.nightly
def test_dump_of_extended_json_is_read_as_values(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, lines, array = lake.table(table_name), tmp_path / "a.jsonl", tmp_path / "b.json"
    lines.write_text("\n".join(map(json.dumps, DUMP)))
    array.write_text(json.dumps(DUMP, indent=1))

    proposed = table.ingest(str(lines), dry_run=True).hints
    table.ingest(str(lines), policies={"strict": "strict"}, hints={"strict": "long"}, extended_json=True)
    result = table.ingest(str(array))

    assert "9 fields hold MongoDB's Extended JSON: --extended-json reads it as values" in proposed
    assert (result.rows_written, result.rows_quarantined) == (2, 1)
    rows = sorted((row.asDict(recursive=True) for row in table.read().collect()), key=itemgetter("_id"))
    assert [row["_id"] for row in rows] == [OID.format(n) for n in (0, 0, 1, 1)]
    assert (rows[0]["n_long"], rows[2]["n"], rows[2]["odd"]) == (2**53 + 1, "NaN", {"$numberLong": "many"})
    assert rows[0]["price_decimal_38_18"] == Decimal("1234567890123456.789012345678901234")
    assert (rows[2]["price"], rows[0]["far"]) == ("1E-6176", "10000-01-01T00:00:00Z")
    assert rows[0]["lines"] == [{"sku": "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1", "qty": 2}]
    assert str(table.state().schema.find(("at",)).type) == "timestamp"
    files = [str(lines), str(array)]
    verdict = table.verify(files, exactly=True)
    assert (verdict.records, verdict.missing, verdict.quarantined, verdict.extra) == (6, 0, 2, 0)
    table.ingest(str(lines), extended_json=False, again=True)  # by the other reading, the objects themselves
    assert table.verify(str(array)).ok
    lines.write_text(json.dumps(DUMP[0] | {"n": {"$numberLong": "9007199254740992"}}))
    assert table.verify(str(lines)).missing == 1


def test_rows_of_a_dump_are_known_by_their_values(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    of_key = [{"_id": {"$oid": OID.format(n % 2)}, "n": {"$numberInt": str(n)}} for n in range(3)]
    file.write_text("\n".join(map(json.dumps, of_key)))
    table.ingest(str(file), key="_id", delete_when="n = 1", extended_json=True)

    assert [tuple(row) for row in table.read().select("_id", "n").collect()] == [(OID.format(0), 2)]
    verdict = table.verify(str(file))
    assert (verdict.missing, verdict.deleted) == (0, 1)
