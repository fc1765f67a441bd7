"""Random changes, ingests, compactions and undos of a table, against a plain model of it by field id.

After each step Spark and pyiceberg read what the model says. `DRIFTLINE_RUNS=500` for a long run.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from core.shapes import schema as written
from core.test_alter_evolve import NAMES, change
from driftline.core.changes import AddColumn, ColumnChange, Refused, SetDefault, SetDoc, evolved
from driftline.core.schema.definition import Definition
from driftline.core.schema.naming import caseless, data_key
from driftline.core.schema.types import INT, Field, List, Map, Schema, Struct, Type, children
from driftline.core.schema.types import Path as ColumnPath
from driftline.errors import DriftlineError
from driftline.lake import Lake, Table
from driftline.sql.quoting import name, spark_type
from lake.formats import KEEPS_STRUCTS, by_pyiceberg

RUNS = int(os.environ.get("DRIFTLINE_RUNS", "6"))
STEPS = 6
START = written(
    "a: int, b: float, s: {x: int, y: string, t: {u: decimal(5, 2)}}, l: {p: int, q: string}[1], m: map<string, {v: int}>"
)
_COUNT = itertools.count()


@dataclass
class Model:
    """Rows as values by field id: a struct is a dict by id, a list a list, a map a dict by key."""

    schema: Schema
    rows: list[dict[int, Any]] = field(default_factory=list)
    past: list[Schema] = field(default_factory=list)

    def read(self) -> list[dict[str, Any]]:
        return [named(self.schema.struct, row) for row in self.rows]

    def forget(self) -> None:
        """Do what a compaction does: values of columns that are not in the schema are gone."""
        self.rows = [kept(self.schema.struct, row) for row in self.rows]


def named(type_: Type, value: Any) -> Any:
    """A value of the model, as readers see it."""
    if value is None:
        return None
    match type_:
        case Struct(fields):
            return {f.name: named(f.type, value.get(f.id, f.initial_default)) for f in fields}
        case List(element):
            return [named(element, v) for v in value]
        case Map(_, inner):
            return {k: named(inner, v) for k, v in value.items()}
        case _:
            return value


def kept(type_: Type, value: Any) -> Any:
    if value is None:
        return None
    match type_:
        case Struct(fields):
            return {f.id: kept(f.type, value.get(f.id, f.initial_default)) for f in fields}
        case List(element):
            return [kept(element, v) for v in value]
        case Map(_, inner):
            return {k: kept(inner, v) for k, v in value.items()}
        case _:
            return value


@st.composite
def value(draw: st.DrawFn, type_: Type) -> Any:
    """A value of the model."""
    if draw(st.integers(0, 4)) == 0:
        return None
    match type_:
        case Struct(fields):
            return {f.id: draw(value(f.type)) for f in fields}
        case List(element):
            return [draw(value(element)) for _ in range(draw(st.integers(1, 2)))]
        case Map(_, inner):
            return {k: draw(value(inner)) for k in draw(st.sets(st.sampled_from("km"), min_size=1))}
        case _:
            numbers = st.integers(0, 99)
            match type_.name:
                case "string":
                    return draw(numbers.map(lambda n: f"t{n}"))
                case "decimal":
                    return Decimal(draw(numbers)).scaleb(-type_.args[1])
                case "float" | "double":
                    return draw(numbers) / 4
                case _:
                    return draw(numbers)


def with_defaults(type_: Type, v: Any) -> Any:
    """The value that an ingest stores: the default where there is no value."""
    if v is None:
        return None
    match type_:
        case Struct(fields):
            return {
                f.id: f.write_default
                if v.get(f.id) is None and f.write_default is not None
                else with_defaults(f.type, v.get(f.id))
                for f in fields
            }
        case List(element):
            return [with_defaults(element, x) for x in v]
        case Map(_, inner):
            return {k: with_defaults(inner, x) for k, x in v.items()}
        case _:
            return v


def ddl(type_: Type) -> str:
    """The type with the keys of the data for names."""
    match type_:
        case Struct(fields):
            return f"struct<{','.join(f'{name(data_key(f))}:{ddl(f.type)}' for f in fields)}>"
        case List(element):
            return f"array<{ddl(element)}>"
        case Map(key, inner):
            return f"map<{spark_type(key)},{ddl(inner)}>"
        case _:
            return spark_type(type_)


def keyed(type_: Type, v: Any) -> Any:
    if v is None:
        return None
    match type_:
        case Struct(fields):
            return tuple(keyed(f.type, v.get(f.id)) for f in fields)
        case List(element):
            return [keyed(element, x) for x in v]
        case Map(_, inner):
            return {k: keyed(inner, x) for k, x in v.items()}
        case _:
            return v


def keys_are_apart(type_: Type) -> bool:
    keys = [caseless(data_key(f)) for f in children(type_)]
    names = {caseless(f.name) for f in children(type_)}
    marked = {caseless(data_key(f)) for f in children(type_) if data_key(f) != f.name}
    return (
        len(set(keys)) == len(keys)
        and not (marked & names)
        and all(keys_are_apart(f.type) for f in children(type_))
    )


def plain(value: Any) -> Any:
    """One form of what readers give; pyiceberg reads null lists and maps of structs as empty ones."""
    match value:
        case dict():
            return sorted((k, plain(v)) for k, v in value.items()) or None
        case [(_, _), *_]:
            return sorted((k, plain(v)) for k, v in value)
        case list():
            return [plain(v) for v in value] or None
        case Decimal():
            return value.normalize()
        case _:
            return value


def paths(of: Schema) -> list[tuple[ColumnPath, int]]:
    return [(path, f.id) for path, f in of.walk()]


@settings(
    max_examples=RUNS,
    deadline=None,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
@KEEPS_STRUCTS
@pytest.mark.iceberg_only("Spark and pyiceberg read it beside driftline")
def test_a_table_is_what_its_model_says(data: st.DataObject, lake: Lake, spark: SparkSession) -> None:
    table = lake.table(f"t.r{next(_COUNT)}")
    lake.sql("create namespace if not exists lake.t")
    columns = ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in START.struct.fields)
    lake.sql(
        f"create table lake.{table.name} ({columns}) using iceberg tblproperties ('format-version' = '3')"
    )
    model = Model(table.state().schema)
    ingest(data, model, table, spark)
    for _ in range(STEPS):
        undos = ["undo"] * 2 * bool(model.past)
        step = data.draw(st.sampled_from(["alter"] * 5 + ["ingest"] * 3 + ["compact"] + undos))
        if step == "ingest":
            ingest(data, model, table, spark)
        elif step == "alter":
            dice = Random(data.draw(st.integers(0, 2**32)))
            changes = several(model.schema, dice)
            try:
                table.alter(*changes)
            except DriftlineError as error:
                event("refused")
                note(f"refused: {error.message}")
                assert table.state().schema == model.schema
                continue
            for made in changes:
                event(f"{made.action}, depth {len(made.path)}")
            note(f"alter {changes}")
            if table.state().schema != model.schema:
                model.past.append(model.schema)
                model.schema = table.state().schema
        elif step == "undo":
            undo(model, table)
        elif model.rows:
            event("compacted")
            note("compact")
            lake.sql(
                f"call lake.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))"
            )
            model.forget()
        check(model, table)


def several(of: Schema, dice: Random) -> list[ColumnChange]:
    """Changes that can be made together, as far as that is known before; sometimes any."""
    if not dice.randrange(8):
        return [changed(of, dice) for _ in range(3)]
    out: list[ColumnChange] = []
    now = before = Definition(of, format_version=3)
    for _ in range(12):
        made = changed(now.schema, dice)
        with suppress(Refused):
            now = evolved(before, [*out, made])[0]
            out.append(made)
        if len(out) == 4:
            break
    return out or [SetDoc(("b",), "x")]


def changed(of: Schema, dice: Random) -> ColumnChange:
    if not dice.randrange(10):
        required = bool(dice.randrange(2))
        return AddColumn((), Field(dice.choice(NAMES), INT, 0, required, None, 5, 5))
    made = change(of, dice)
    return SetDefault(made.path, None) if isinstance(made, SetDefault) and dice.randrange(2) else made


def ingest(data: st.DataObject, model: Model, table: Table, spark: SparkSession) -> None:
    rows = [v for _ in range(data.draw(st.integers(1, 2))) if (v := data.draw(value(model.schema.struct)))]
    if not rows or not keys_are_apart(model.schema.struct):
        return
    event("ingested")
    note(f"ingest {rows}")
    frame = spark.createDataFrame(
        [keyed(model.schema.struct, v) for v in rows], ddl(model.schema.struct)[7:-1]
    )
    made = table.ingest(frame).changes
    for relaxed in made:  # only where a record has no value, and the column no default any longer
        column = model.schema.find(relaxed.path)
        assert relaxed.action == "relax" and column is not None
        assert column.required and column.write_default is None
    if made:
        model.past.append(model.schema)
        model.schema = table.state().schema
    model.rows += [with_defaults(model.schema.struct, v) for v in rows]


def undo(model: Model, table: Table) -> None:
    try:
        told = table.undo(yes=True)
    except DriftlineError as error:
        event("not undone")
        note(f"not undone: {error.message}")
        assert table.state().schema == model.schema
        return
    event("undone")
    note(f"undo {told.undone}")
    before, model.past = model.past[-1], [*model.past, model.schema]
    model.schema = table.state().schema
    assert paths(model.schema) == paths(before)


def check(model: Model, table: Table) -> None:
    expected = sorted(map(repr, map(plain, model.read())))
    by_spark = [row.asDict(recursive=True) for row in table.read().collect()]
    assert sorted(map(repr, map(plain, by_spark))) == expected
    assert sorted(map(repr, map(plain, by_pyiceberg(table).to_pylist()))) == expected
