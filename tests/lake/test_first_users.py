"""Data as people have it on their first day, taken in by what the messages say and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from driftline.core.settings.declarations import SETTINGS
from driftline.core.settings.properties import as_properties
from driftline.errors import DataError
from driftline.ingest.result import Result
from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


_FLAGS = {flag.name or name.replace("_", "-"): name for name, s in SETTINGS.items() if (flag := s.flag)}
_SWITCHES = {name for name, setting in SETTINGS.items() if setting.values == ("true", "false")}
_VALUE = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+"


def pasted(*messages: str) -> dict[str, str]:
    """The settings that messages propose: lines for `driftline.toml`, flags, and arguments of Python.

    What is detected, or stands in parentheses, is in use already.
    """
    settings: dict[str, str] = {}
    for message in (message for message in messages if "detected" not in message):
        if re.match(r"[\w.\"`-]+ = ", message):
            settings |= {
                key.removeprefix("driftline."): value
                for key, value in as_properties(tomllib.loads(message)).items()
            }
        for flag, value in re.findall(rf"(?<!\()--([a-z-]+)(?: (?!--)({_VALUE}))?", message):
            if name := _FLAGS.get(flag):  # else one of another command
                settings[name] = "true" if name in _SWITCHES else shlex.split(value)[0]
        settings |= dict(re.findall(r"\b(\w+)=\"([^\"]*)\"", message))
    return settings


def hints(result: Result) -> list[str]:
    return list(result.to_dict()["hints"])


@pytest.mark.nightly
@pytest.mark.iceberg_only("of the source alone")
def test_what_a_german_excel_saves_is_typed_by_pasting_what_the_report_says(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "Umsätze.csv"
    rows = "".join(f"{n};Müller & Söhne;0{n}.03.2026;{n}.234,50;{n},5;WAHR\n" for n in range(1, 10))
    file.write_bytes(f"sep=;\nKunden-Nr.;Name;Datum;Umsatz;Satz;aktiv\n{rows}".encode("cp1252"))

    with pytest.raises(DataError, match="is not UTF-8") as refused:
        lake.table(f"{table_name}_0").ingest(file)
    settings = pasted(str(refused.value.hint))
    assert set(settings) == {"encoding"}

    for attempt in range(1, 4):
        table = lake.table(f"{table_name}_{attempt}")
        result = table.ingest(file, settings=settings)
        assert (result.rows_written, result.rows_quarantined) == (9, 0)
        more = pasted(*hints(result))
        if more.items() <= settings.items():
            break
        settings |= more
    types = {f.name: str(f.type) for f in table.schema().schema.struct.fields}
    assert types == {
        "Kunden-Nr_": "long",
        "Name": "string",
        "Datum": "date",
        "Umsatz": "double",
        "Satz": "double",
        "aktiv": "string",
    }
    assert table.verify(file, exactly=True).ok


PENGUINS = (
    "species,island,bill_length_mm,body_mass_g,sex,year\n"
    + "Adelie,Torgersen,39.1,3750,male,2007\n" * 30
    + "Adelie,Torgersen,NA,NA,NA,2007\nGentoo,Biscoe,50,5700,female,2009\n"
)
AIR_TRAVEL = '"Month", "1958", "1959", "1960"\n"JAN",  340,  360,  417\n"FEB",  318,  342,  391\n\n'
STATISTICS = (
    '"Name",     "Sex", "Age", "Height (in)", "Weight (lbs)"\n'
    '"Alex",       "M",   41,       74,      170\n"Bert, Jr",   "M",   42,       68,      166\n'
)
EXPORT = ",,,\r\n,,,\r\n,Region,Units,Price\r\n,North,12,1.5\r\n,,,\r\n,South,7,2\r\n"
TITLED = "Sales 2025,,\r\n,,\r\nregion,units,price\r\nNorth,12,1.5\r\nSouth,7,2\r\n"
INVOICES = 'no;net;paid\nA-1;"1.234,50";01.02.2026\nA-2;99,00;15.02.2026\nA-3;-;28.02.2026\n'


@pytest.mark.parametrize(
    ("text", "types"),
    [
        pytest.param(
            PENGUINS,
            {
                "species": "string", "island": "string", "bill_length_mm": "double", "body_mass_g": "long",
                "sex": "string", "year": "long",
            },
            id="words for null among numbers",
        ),
        pytest.param(
            AIR_TRAVEL, {"Month": "string", "1958": "long", "1959": "long", "1960": "long"}, id="blanks"
        ),
        pytest.param(
            STATISTICS,
            {"Name": "string", "Sex": "string", "Age": "long", "Height (in)": "long", "Weight (lbs)": "long"},
            id="blanks and quotes",
        ),
        pytest.param(EXPORT, {"Region": "string", "Units": "long", "Price": "double"}, id="below row 1"),
        pytest.param(TITLED, {"region": "string", "units": "long", "price": "double"}, id="a padded title"),
        pytest.param(
            INVOICES, {"no": "string", "net": "double", "paid": "date"}, id="another country's numbers and dates"
        ),
    ],
)  # fmt: skip
def test_a_file_that_follows_its_printed_hints_has_typed_columns(
    lake: Lake, table_name: str, tmp_path: Path, text: str, types: Mapping[str, str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(text.encode())
    settings: dict[str, str] = {}
    for attempt in range(4):
        table = lake.table(f"{table_name}_{attempt}")
        result = table.ingest(file, settings=settings)
        more = pasted(*hints(result))
        if more.items() <= settings.items():
            break
        settings |= more

    fields = table.schema().schema.struct.fields
    columns = {f.name: str(f.type) for f in fields if not f.name.startswith("column_")}
    assert columns == types, (settings, result)
    assert table.verify(file, exactly=True).ok


@pytest.mark.parametrize(("name", "path"), [("items", "data.items"), ("my 'items'", "data.my 'items'")])
def test_a_nested_dump_becomes_rows_by_the_flag_that_the_report_prints(
    table: Table, lake: Lake, tmp_path: Path, name: str, path: str
) -> None:
    file = tmp_path / "dump.json"
    items = [
        {"id": n, "tags": [{"k": "a", "v": n}], "at": None, "by": {"mail": f"{n}@x.example"}}
        for n in range(20)
    ]
    file.write_text(json.dumps({"next": None, "data": {name: items, "total": 20}}, indent=2))

    first = table.ingest(file)
    assert first.rows_written == 1
    settings = pasted(*hints(first))
    assert settings == {"records": path}
    again = lake.table(f"{table.name}_rows")
    assert again.ingest(file, settings=settings).rows_written == 20
    assert again.verify(file, exactly=True).ok


@pytest.mark.nightly
@pytest.mark.iceberg_only("of the source alone")
def test_one_array_of_many_megabytes_is_a_record_for_each_element(table: Table, tmp_path: Path) -> None:
    file, count = tmp_path / "export.json", 60_000
    with file.open("w") as out:
        out.write("[\n")
        for n in range(count):
            out.write(
                json.dumps({"id": n, "text": "x" * 150, "drifts": n if n % 7 else str(n)})
                + ("," * (n < count - 1))
                + "\n"
            )
        out.write("]\n")
    assert file.stat().st_size > 10_000_000

    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (count, 0)
    assert table.verify(file, exactly=True).ok
