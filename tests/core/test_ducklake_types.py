"""DuckLake without Spark: the tables of types, as the docs print them, promotions, and what is not installed."""

from __future__ import annotations

import re
import sys
import uuid
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.random_steps import Json
from core.table_in_memory import TableInMemory
from driftline.convert import Converter
from driftline.convert.declared import Declared
from driftline.core.changes import Refused, evolved
from driftline.core.history.restoring import restoration
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import Facet
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP_NTZ,
    UUID,
    VARIANT,
    Field,
    List,
    Primitive,
    Schema,
    Struct,
    decimal,
    fixed,
)
from driftline.core.settings.properties import from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, SetupError
from driftline.formats.ducklake import types
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.files import describe
from driftline.formats.open import EmbeddedLake, located
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.operations.alter import parse
from driftline.runtime import duckdb as engine
from driftline.sql.quoting import spark_type
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct

PAGE = (Path(__file__).parents[2] / "docs" / "ducklake.md").read_text()


def rows(heading: str) -> dict[str, str]:
    """The rows of the table under this heading, without its signs of code."""
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return {
        cells[0].strip(" `"): cells[1].strip().replace("`", "")
        for line in table
        if len(cells := line.strip("|").split("|")) == 2
    }


BOTH = {name: str(type_.ours) for name, type_ in types.TYPES.items() if type_.ours is not None}
REFUSED = {name: type_.refused for name, type_ in types.TYPES.items() if type_.refused}
READ = [name for name in types.TYPES if name not in BOTH and name not in REFUSED]
PROMOTIONS = {name: type_.promotions for name, type_ in types.TYPES.items() if type_.promotions}


def test_the_docs_have_the_tables() -> None:
    both = rows("| DuckLake | driftline |\n|---|---|\n| `boolean`")
    assert {k: v for k, v in both.items() if k in BOTH} == BOTH
    assert set(both) == {*BOTH, "decimal(p,s)", "struct`, `list`, `map"}
    spark_names = {name: types.spark_name(types.read_type(name), "t.a") for name in READ}
    assert rows("| DuckLake | Spark reads |") == spark_names
    assert rows("| DuckLake | why |") == REFUSED
    assert rows("| driftline | why |") == types.UNWRITTEN
    promoted = {k: tuple(re.split(", ", v)) for k, v in rows("| from | to |").items()}
    assert {k: v for k, v in promoted.items() if not k.startswith("decimal")} == PROMOTIONS


def test_sql_knows_the_types_that_only_ducklake_has() -> None:
    for name in (*READ, *REFUSED):
        type_ = types.read_type(name)
        assert spark_type(type_) == types.written_as(type_)


def test_a_type_is_itself_again() -> None:
    for name in (*BOTH, *READ, *REFUSED, "decimal(9,2)"):
        assert types.write_type(types.read_type(name), "t.a") == name
    assert types.read_type("timestamp_us") == types.read_type("TIMESTAMP")


@pytest.mark.parametrize("type_", [TIME, UUID, VARIANT, fixed(3), Primitive("enum")])
def test_what_ducklake_cannot_hold_is_refused(type_: Primitive) -> None:
    with pytest.raises(DataError, match=r"t\.a: a DuckLake table has no column of type"):
        types.write_type(type_, "t.a")


@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"Spark cannot read DuckLake's {name}"):
        types.spark_name(types.read_type(name), "t.a")


def test_every_promotion_and_no_other() -> None:
    names = [*BOTH, *READ, "decimal(9,2)", "decimal(18,2)", "decimal(18,4)"]
    allowed = {(a, b) for a in names for b in names if a != b and types.promotes(a, b)}
    assert allowed == {(a, b) for a, many in PROMOTIONS.items() for b in many} | {
        ("decimal(9,2)", "decimal(18,2)")
    }


# The seed's table of promotions, and DuckDB's names of the types.
SEED = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "uint64"),
    "uint16": ("uint32", "uint64"),
    "uint32": ("uint64",),
    "float32": ("float64",),
}
SQL = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint8": "UTINYINT",
    "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "float32": "REAL", "float64": "DOUBLE",
    "boolean": "BOOLEAN", "varchar": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP_NTZ",
}  # fmt: skip


@pytest.mark.parametrize("before", SQL)
@pytest.mark.parametrize("after", SQL)
@pytest.mark.parametrize("path", ["a", "s.a"])
def test_the_table_of_promotions_cell_by_cell(before: str, after: str, path: str) -> None:
    column = Field("a", types.read_type(before), 2)
    table = Definition(Schema(Struct((column, Field("s", Struct((replace(column, id=3),)), 1)))))
    (statement,) = parse(f"ALTER TABLE t ALTER {path} SET TYPE {SQL[after]}")
    changes = [clause.change for clause in statement.clauses]
    if before == after or after in SEED.get(before, ()):
        made = evolved(table, changes)[0].schema.find(tuple(path.split(".")))
        assert made is not None and isinstance(made.type, Primitive)
        assert types.write_type(made.type, "t.a") == after
    else:
        with pytest.raises(Refused, match=r"cannot become") as refused:
            evolved(table, changes)
        assert isinstance(refused.value.error, DataError)


def test_an_undone_promotion_stays_wide() -> None:
    narrow, wide = (Schema(Struct((Field("a", types.read_type(name), 1),))) for name in ("uint8", "uint32"))
    plan = restoration(Definition(wide), Definition(narrow), [narrow, wide])
    assert plan.after.schema == wide
    assert plan.stays == ("a stays uint32: files may hold values that uint8 cannot",)


def test_names_for_spark() -> None:
    names = [types.spark_name(t, "a") for t in (BOOLEAN, INT, LONG, STRING, decimal(9, 2))]
    assert names == ["boolean", "int", "bigint", "string", "decimal(9,2)"]


def test_an_extension_that_is_not_installed() -> None:
    with (
        pytest.raises(SetupError, match="has no extension 'no_such_one'") as failed,
        engine.instance("no_such_one"),
    ):
        pass
    assert failed.value.hint == "pip install 'driftline[ducklake]'"


def test_a_lake_where_duckdb_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (tmp_path / "catalog.ducklake").touch()
    for opened in (EmbeddedLake(tmp_path, "duckdb").names, lambda: located("ducklake", "duckdb", tmp_path)):
        with pytest.raises(SetupError, match=r"DuckDB is not installed\.") as failed:
            opened()
        assert "'driftline[ducklake]' for a DuckLake" in str(failed.value.hint)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "data").write_text("a file")
    with pytest.raises(SetupError, match="cannot make the folder"):
        CatalogDatabase.of("sqlite", tmp_path / "lake").make()


def test_bounds_of_days_are_in_order_whatever_their_year(tmp_path: Path) -> None:
    """The lowest of row groups is no lowest text: years have more than four digits, or are before Christ."""
    days = [-719_163, 0, 2_932_897, -735_000, 2**31 - 1]
    pq.write_table(
        pa.table({"d": pa.array(days, pa.int32()).cast(pa.date32())}), tmp_path / "a", row_group_size=1
    )
    (file,) = describe(f"{tmp_path}/", ["a"], Schema(Struct((Field("d", DATE, 1),))))
    assert (file.stats[1].low, file.stats[1].high) == ("0044-08-22 (BC)", "infinity")


def test_file_with_a_timestamp_that_duckdb_cannot_print_has_no_bounds(tmp_path: Path) -> None:
    inner = pa.array([[1], None], pa.list_(pa.field("element", pa.int64())))
    for name, first in (("far", -(2**63)), ("near", 0)):
        table = pa.table({"t": pa.array([first, None], pa.timestamp("us")), "l": inner})
        pq.write_table(table, tmp_path / name)
    fields = (Field("t", TIMESTAMP_NTZ, 1), Field("l", List(LONG, 3), 2))
    far, near = describe(f"{tmp_path}/", ["far", "near"], Schema(Struct(fields)))
    assert (far.rows, near.rows) == (2, 2)
    assert far.stats == {n: replace(stats, low=None, high=None) for n, stats in near.stats.items()}
    assert near.stats[1].low == "1970-01-01 00:00:00"


UUID_TEXT = "12345678-1234-5678-1234-567812345678"
DAY, SECOND, MILLI = "2024-01-02", "2024-01-02T03:04:05", "2024-01-02T03:04:05.006"
# A column's type, what records have in its field, what the column holds, and the types of the columns beside it.
TAKEN: list[tuple[str, list[Any], list[Any], set[str]]] = [
    ("int8", [127, -128, None], [127, -128, None], set()),
    ("int8", [5, 128], [5, None], {"long"}),
    ("int8", [5, -129], [5, None], {"long"}),
    ("int8", [True], [1], set()),
    ("int8", [1.5, 2], [None, 2], {"double"}),
    ("int8", ["x", 2], [None, 2], {"string"}),
    ("int16", [32767, -32768], [32767, -32768], set()),
    ("int16", [32768], [None], {"long"}),
    ("uint8", [255, 0], [255, 0], set()),
    ("uint8", [256, -1, 7], [None, None, 7], {"long"}),
    ("uint16", [65535], [65535], set()),
    ("uint16", [65536], [None], {"long"}),
    ("uint32", [2**32 - 1], [2**32 - 1], set()),
    ("uint32", [2**32, 1], [None, 1], {"long"}),
    ("uint64", [2**64 - 1, 2**63, 0], [2**64 - 1, 2**63, 0], set()),
    ("uint64", [-1, 1], [None, 1], {"long", "decimal(20, 0)"}),
    ("uint64", [2**64, 1], [None, 1], {"decimal(38, 0)"}),
    ("timestamp_s", [SECOND, DAY], [datetime(2024, 1, 2, 3, 4, 5), datetime(2024, 1, 2)], set()),
    ("timestamp_s", [SECOND, MILLI], [datetime(2024, 1, 2, 3, 4, 5), None], {"timestamp_ntz"}),
    ("timestamp_ms", [MILLI], [datetime(2024, 1, 2, 3, 4, 5, 6000)], set()),
    ("timestamp_ms", [MILLI + "007"], [None], {"timestamp_ntz"}),
    ("timestamp_ms", [SECOND + "Z"], [None], {"timestamp", "string"}),
    ("uuid", [UUID_TEXT, None], [uuid.UUID(UUID_TEXT).bytes, None], set()),
    ("uuid", ["x", UUID_TEXT], [None, uuid.UUID(UUID_TEXT).bytes], {"string"}),
    ("uuid", [UUID_TEXT.replace("1", "A")], [None], {"string"}),
    ("json", [{"a": [1, None]}, [], "x", 1.50, True, None], ['{"a":[1,null]}', "[]", '"x"', "1.5", "true", None], set()),
    ("int128", [1], [None], {"long"}),
    ("timestamp_ns", [SECOND], [None], {"timestamp_ntz"}),
]  # fmt: skip


def taken(type_: str, *batches: list[Any]) -> TableInMemory:
    """A table whose column ``a`` DuckDB made, after batches of JSON, by whole columns and one by one."""
    table = TableInMemory(schema=Schema(Struct((Field("a", types.read_type(type_), 1, required=True),))))
    for values in batches:
        table.take(Json([{"a": value} for value in values]))
    return table


@pytest.mark.parametrize(("type_", "values", "held", "beside"), TAKEN)
def test_a_column_that_duckdb_made_takes_what_is_exact_there(
    type_: str, values: list[Any], held: list[Any], beside: set[str]
) -> None:
    table = taken(type_, values)
    first, *others = table.schema.struct.fields
    rows = pa.Table.from_batches(table.rows)
    assert rows.column("a").to_pylist() == held
    assert {str(f.type) for f in others} == beside
    assert first.type == types.read_type(type_)
    # NOT NULL stays where each record has a value that the column takes.
    assert first.required == (None not in held)
    for row, source in zip(rows.to_pylist(), table.sources, strict=True):
        shown = row | {"a": str(uuid.UUID(bytes=row["a"])) if type_ == "uuid" and row["a"] else row["a"]}
        assert differences(TableStruct.of(table.schema.struct), shown, source.for_verify) == []


def test_what_a_column_takes_does_not_depend_on_its_siblings() -> None:
    table = taken("int8", [5], [300], [6, 301])
    assert pa.Table.from_batches(table.rows).to_pydict() == {
        "a": [5, None, 6, None],
        "a_long": [None, 300, 6, 301],
    }


@pytest.mark.parametrize(("policy", "holds", "refused"), [("strict", [5], 1), ("widen", [5], 1)])
def test_a_value_outside_the_bounds_is_refused_alone(policy: str, holds: list[int], refused: int) -> None:
    schema = Schema(Struct((Field("a", types.read_type("int8"), 1),)))
    settings = from_properties({"driftline.policy": policy})
    observer = JsonObserver(expect(schema, settings), settings)
    observer.feed([b'{"a": 5}', b'{"a": 300}'], "batch", 1)
    (conflict,) = plan(schema, observer.result().shape, settings).conflicts
    assert conflict.inexact == Facet(0, types.read_type("int8"))


TYPED: list[tuple[str, pa.Array, list[Any], set[str]]] = [
    ("int8", pa.array([5, -128], pa.int64()), [5, -128], set()),
    ("int8", pa.array([5, 300], pa.int32()), [5, None], {"int"}),
    ("uint64", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1], set()),
    ("int16", pa.array([Decimal(7), None], pa.decimal128(9, 0)), [7, None], set()),
    ("timestamp_s", pa.array([10**9], pa.timestamp("us")), [datetime(1970, 1, 1, 0, 16, 40)], set()),
    ("timestamp_s", pa.array([1], pa.timestamp("ns")), [None], {"string"}),
    ("uuid", pa.array([b"0" * 16], pa.uuid()), [b"0" * 16], set()),
    ("json", pa.array(['{"a": 1}']), [None], {"string"}),
]


@pytest.mark.parametrize(("type_", "values", "held", "beside"), TYPED)
def test_typed_values_go_into_a_column_that_duckdb_made(
    type_: str, values: pa.Array, held: list[Any], beside: set[str]
) -> None:
    schema = Schema(Struct((Field("a", types.read_type(type_), 1),)))
    declared = Declared(pa.schema({"a": values.type}))
    columns = declared.read([values])
    observer = ArrowObserver(declared.struct, expect(schema, TableSettings()), "batch")
    observer.feed(columns)
    planned = plan(schema, observer.result().shape, TableSettings())
    converter = Converter(planned.schema.struct, planned.route, TableSettings())
    rows = converter.of_arrow(columns, declared.struct, json=False)
    assert rows.column("a").to_pylist() == held
    assert {str(f.type) for f in planned.schema.struct.fields[1:]} == beside
