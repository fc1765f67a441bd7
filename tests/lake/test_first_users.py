"""Data as people have it on their first day, taken in by what the messages say and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from driftline.core.settings.properties import as_properties
from driftline.errors import DataError
from driftline.ingest.result import Result
from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def pasted(*messages: str) -> dict[str, str]:
    """The settings in messages: lines for `driftline.toml`, flags with their values, and arguments of Python."""
    settings: dict[str, str] = {}
    for message in messages:
        if re.match(r"[\w.\"`-]+ = ", message):
            settings |= {
                key.removeprefix("driftline."): value
                for key, value in as_properties(tomllib.loads(message)).items()
            }
        for flag, value in re.findall(r"--([a-z-]+) ((?:'[^']*'|\"[^\"]*\"|[^\s'\"])+)", message):
            settings[flag.replace("-", "_")] = shlex.split(value)[0]
        settings |= dict(re.findall(r"\b(\w+)=\"([^\"]*)\"", message))
    return settings


def hints(result: Result) -> list[str]:
    return list(result.to_dict()["hints"])


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
        more = pasted(*(hint for hint in hints(result) if "detected" not in hint))
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
