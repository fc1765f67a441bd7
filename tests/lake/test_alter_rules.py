"""Every case of tests/alter, run through `alter`. The fixtures say what; this file only runs and compares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest

from driftline.core.changes.text import sort_term
from driftline.core.changes.values import SortTerm, Term
from driftline.core.schema.definition import Definition
from driftline.core.schema.naming import marked_key
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Field, Schema, dotted
from driftline.errors import DriftlineError
from driftline.formats.iceberg.alteration import IcebergAlteration
from driftline.lake import Lake, Table
from lake.formats import VARIANTS, by_pyiceberg
from lake.test_rules import ISO, text

CASES = Path(__file__).parents[1] / "alter"
RULES = [
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "07",
    "08",
    "09",
    "10",
    "11",
    "12",
    "13",
    "14",
    "20",
    "21",
    "22",
    "23",
    "24",
    "25",
    "26",
    "27",
    "28",
    "29",
    "30",
    "31",
    "35",
    "36",
    "37",
    "38",
    "39",
    "40",
    "45",
    "46",
    "47",
    "50",
    "51",
    "52",
    "53",
    "54",
    "55",
    "56",
    "57",
    "58",
    "59",
    "60",
    "65",
    "66",
    "67",
    "70",
    "71",
    "72",
    "75",
    "76",
    "77",
    "78",
    "79",
    "80",
    "85",
    "86",
    "87",
    "88",
    "90",
    "91",
    "92",
    "93",
    "94",
    "95",
    "96",
    "97",
    "98",
    "99",
]


@dataclass
class Case:
    title: str
    options: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, str]] = field(
        default_factory=list
    )  # (insert, alter, upgrade or error) and its text
    schema: list[str] = field(default_factory=list)
    rows: list[str] | None = None


def read(file: Path) -> list[Case]:
    found: list[Case] = []
    into: list[str] = []
    together = False
    for line in map(str.rstrip, file.read_text().splitlines()):
        key, _, rest = line.partition(":")
        last, together = together, line.startswith("> ")
        if not line:
            continue
        if line.startswith("# "):
            found.append(Case(line[2:]))
            continue
        case, steps = found[-1], found[-1].steps
        if line.startswith("> "):
            before = f"{steps.pop()[1]};\n" if last else ""
            steps.append(("alter", before + line[2:]))
        elif line == "--upgrade":
            steps.append(("upgrade", ""))
        elif key in ("insert", "error"):
            steps.append((key, rest.strip()))
        elif line == "schema:":
            into = case.schema
        elif line == "rows:":
            into = case.rows = []
        elif key in ("table", "format", "partitioned", "partition", "sort"):
            case.options[key] = rest.strip()
        else:
            into.append(line)
    return found


DEFAULTS = pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 inserts null for DEFAULT")
HIVE = pytest.mark.hive_refuses("it has no columns without a type")
# What a case needs of Spark or of the catalog, by a word in it.
NEEDS = {
    "variant": VARIANTS,
    ", default)": DEFAULTS,
    "'v: unknown'": HIVE,
    ", v void": HIVE,
}


def cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*.txt")):
        for case in read(file) if file.stem != "engine" else []:
            marks = [mark for word, mark in NEEDS.items() if word in str(case)]
            yield pytest.param(case, id=f"{file.stem}: {case.title}", marks=marks)


def test_every_rule_is_shown_or_explained() -> None:
    titles = [case.values[0].title for case in cases()]
    explained = (CASES / "engine.txt").read_text().split()
    shown = [rule for title in titles for rule in re.findall(r"\bR(\d\d)\b", title)]
    told = [word[1:] for word in explained if re.fullmatch(r"R\d\d", word)]
    assert sorted({*shown, *told}) == RULES
    assert not {*shown} & {*told}


@pytest.mark.parametrize("case", [*cases()])
@pytest.mark.iceberg_only("a DuckLake's cases are in test_ducklake_alter.py")
def test_alter(case: Case, lake: Lake, table_name: str) -> None:
    table, options = lake.table(table_name), case.options
    lake.sql("create namespace if not exists lake.t")
    by = f"partitioned by ({options['partitioned']})" if "partitioned" in options else ""
    lake.sql(
        f"create table lake.{table_name} ({options['table']}) using iceberg {by} "
        f"tblproperties ('format-version' = '{options.get('format', 2)}')"
    )
    run(case, lake, table)
    now = IcebergAlteration(table.format.handle).before
    assert columns(now.schema) == case.schema
    if "partition" in options:
        shown = [f"{f.name} {f.transform.of(name(now, f.source))}" for f in now.partition]
        assert ", ".join(shown) == options["partition"]
    if "sort" in options:
        terms = [
            SortTerm(Term((name(now, f.source),), f.transform), f.descending, f.nulls_first) for f in now.sort
        ]
        assert ", ".join(map(sort_term, terms)) == options["sort"]
    if case.rows is not None:
        rows = table.read().selectExpr(f'to_json(struct(*), map("timestampFormat", "{ISO}")) as row')
        stored = [valued(json.loads(row.row, parse_float=Decimal)) for row in rows.collect()]
        expected = [json.loads(line, parse_float=Decimal) for line in case.rows]
        assert sorted(map(text, stored)) == sorted(map(text, expected))
        by_spark = [row.asDict(recursive=True) for row in table.read().collect()]
        assert sorted(map(plain, by_spark)) == sorted(map(plain, by_pyiceberg(table).to_pylist()))


def run(case: Case, lake: Lake, table: Table) -> None:
    upgrade = False
    for i, (kind, what) in enumerate(case.steps):
        if kind == "insert":
            lake.sql(f"insert into lake.{table.name} values {what}")
        elif kind == "upgrade":
            upgrade = True
        elif kind == "alter":
            sql = re.sub(r"\bTABLE t\b", f"TABLE {table.name}", what)
            after = case.steps[i + 1] if i + 1 < len(case.steps) else ("", "")
            version = table.state().version
            if after[0] == "error":
                with pytest.raises(DriftlineError, match=re.escape(after[1])):
                    lake.alter(sql, upgrade=upgrade)
                assert table.state().version == version
            else:
                assert lake.alter(sql, upgrade=upgrade).table == table.name
            upgrade = False


def name(of: Definition, column: int) -> str:
    return dotted(of.path_of(column) or ())


def columns(schema: Schema) -> list[str]:
    """A line for each column, and for each nested field that has more than a name and a type."""
    out = []
    for path, f in schema.walk():
        more = attributes(f, schema)
        if len(path) == 1:
            out.append(f"{f.name}: {type_name(f.type)}{more}")
        elif more and path[-1] != "key":
            out.append(dotted(path) + more)
    return out


def attributes(f: Field, schema: Schema) -> str:
    out = " required" * f.required + " identifier" * (f.id in schema.identifiers)
    key, doc = marked_key(f.doc), f.doc or ""
    if key is not None:
        out += f" <- {key}"
        doc = doc.partition("\n")[2]
    if f.write_default is not None:
        value = str(f.write_default).lower() if isinstance(f.write_default, bool) else f.write_default
        out += f" default {value}"
    elif f.initial_default is not None:
        out += f" old rows {f.initial_default}"
    return out + (f' "{doc}"' if doc else "")


def valued(value: Any) -> Any:
    """Without the nulls, which Spark writes for columns with a default."""
    if isinstance(value, dict):
        return {key: valued(v) for key, v in value.items() if v is not None}
    return [valued(v) for v in value] if isinstance(value, list) else value


def plain(value: Any) -> str:
    """One spelling for what two readers call by different names. pyiceberg reads null lists of structs as empty ones."""
    match value:
        case dict():
            return f"{{{', '.join(f'{k}: {plain(v)}' for k, v in sorted(value.items()))}}}"
        case [(_, _), *_]:  # a map, as Arrow has it
            return plain(dict(value))
        case list():
            return f"[{', '.join(map(plain, value))}]" if value else "None"
        case bytes() | bytearray():
            return value.hex()
        case _:
            return str(value).removesuffix("+00:00")
