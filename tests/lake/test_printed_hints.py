"""Demo files of other tools, in shape: the hints that a report prints are all that it takes to type their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from driftline.lake import Lake

_FLAG = re.compile(r"(?<!detected )--(?!skip-empty)([a-z-]+) ('[^']*'|[^ '.]+|\.)")
_SWITCH = "--skip-empty"
_DECLARED = re.compile(r"hints\.(\w+) = \"([^\"]+)\"")


def arguments(hints: Sequence[str]) -> dict[str, Any]:
    """The arguments that hints propose; what is detected is in use already."""
    given: dict[str, Any] = {"skip_empty": True} if any(_SWITCH in hint for hint in hints) else {}
    for flag, text in (match for hint in hints for match in _FLAG.findall(hint)):
        given["nulls" if flag == "null" else flag.replace("-", "_")] = text.strip("'")
    declared = dict(match for hint in hints for match in _DECLARED.findall(hint))
    return given | ({"hints": declared} if declared else {})


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
    given: dict[str, Any] = {}
    for attempt in range(4):
        table = lake.table(f"{table_name}_{attempt}")
        result = table.ingest(file, **given)
        proposed = arguments(result.hints)
        if proposed.items() <= given.items():
            break
        given |= proposed

    fields = table.schema().schema.struct.fields
    assert {f.name: str(f.type) for f in fields if not f.name.startswith("column_")} == types, (given, result)
    assert table.verify([str(file)], "csv", exactly=True).ok
