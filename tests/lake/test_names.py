"""Names that engines take for one: as Java compares them, character by character, and as Spark reads them."""

from __future__ import annotations

import json
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.core.schema.naming import caseless
from driftline.errors import DataError
from driftline.lake import Lake
from driftline.runtime.spark_conf import configured
from lake.ducklake_peer import run
from lake.formats import database, declare

# Pairs that are younger than Unicode 13, which the oldest Java here knows; Python may know them or not.
YOUNG = "\u0264\u019b\u1c89\u1c8a\u2c2f\u2c5f" + "".join(map(chr, range(0xA7C0, 0xA7E0)))


@pytest.mark.nightly
def test_every_character_as_java_compares_it(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    java, root = jvm.java.lang.Character, jvm.java.util.Locale.ROOT
    lang = jvm.org.apache.commons.lang3.StringUtils
    plane = [chr(c) for c in range(0x10000) if not 0xD800 <= c < 0xE000 and chr(c) not in YOUNG + "\n"]
    assert lang.equalsIgnoreCase("".join(plane), "".join(map(caseless, plane)))
    # No two classes are one to Java: what has a case stands for itself, and what has none is alone.
    keys = sorted({caseless(c) for c in plane})
    cased = [k for k in keys if k.upper() != k or k.lower() != k or unicodedata.category(k) in ("Lu", "Lt")]
    alone = "".join(k for k in keys if k not in cased)
    assert lang.upperCase(alone, root) == lang.lowerCase(alone, root) == alone
    for key in cased:
        assert chr(java.toLowerCase(java.toUpperCase(ord(key)))) == key
    # And what Spark's maps of lower case take for one is one here.
    lower = lang.lowerCase("\n".join(plane), root).split("\n")
    assert [caseless(c) for c in lower] == [caseless(c) for c in plane]


SUBSTITUTE = "spark.sql.variable.substitute"
RECORD = {"SINIF": 1, "s\u0131n\u0131f": 2, "\u0130": 3, "I": 4, "i\u0307": 5, "n": {"\u017f": 1, "S": 2}}


def lines(tmp_path: Path, *records: Any) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def test_any_session_reads_the_table(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, RECORD))
    table.ingest(lines(tmp_path, RECORD, {"Sinif": "x"}))
    place = table_name if database(lake) else f"lake.{table_name}"
    for case_sensitive in ("false", "true"):
        with configured(lake.spark, {"spark.sql.caseSensitive": case_sensitive}):
            assert len(lake.sql(f"select * from {place}").collect()) == 3
    row = lake.sql(f"select * from {place} where SINIF = 1").collect()[0].asDict(recursive=True)
    values = sorted(v for v in row.values() if isinstance(v, int))
    assert values == [1, 2, 3, 4, 5]
    assert sorted(v for v in row["n"].values() if v) == [1, 2]


def test_a_table_with_such_twins_goes_on(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    if database(lake) is None:
        declare(table, "SINIF bigint")
        table.format.handle.java().updateSchema().addColumn(
            "s\u0131n\u0131f", lake.spark._jvm.org.apache.iceberg.types.Types.LongType.get()
        ).commit()
    else:
        database(lake).make()
        run(
            database(lake),
            "CREATE SCHEMA IF NOT EXISTS lk.t",
            f"CREATE TABLE lk.{table_name} (SINIF bigint, s\u0131n\u0131f bigint)",
        )
    record = {"SINIF": 1, "s\u0131n\u0131f": 2}
    table.ingest(lines(tmp_path, record))
    table.ingest(lines(tmp_path, record, {**record, "new": 3}))
    with configured(lake.spark, {"spark.sql.caseSensitive": "true"}):
        assert [tuple(r)[:2] for r in table.read().collect()] == [(1, 2)] * 3
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN other bigint")
    with pytest.raises(DataError, match="SINIF"):
        lake.alter(f"ALTER TABLE {table_name} RENAME new TO s\u0131nIf")
    table.undo()
    lake.alter(f"ALTER TABLE {table_name} RENAME s\u0131n\u0131f TO class")
    assert [tuple(r)[:2] for r in table.read().collect()] == [(1, 2)] * 3


@pytest.mark.nightly
def test_what_spark_would_replace_in_sql(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """`${...}` stands for a setting in Spark's SQL, and may be in any name, any text and any default.

    Spark replaces it in a session that says so, and in a thread that has no active session.
    """
    with configured(lake.spark, {SUBSTITUTE: "true"}), ThreadPoolExecutor(1) as another_thread:
        another_thread.submit(_nothing_is_replaced, lake, table_name, tmp_path).result()


def _nothing_is_replaced(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    key, text = "${env:HOME}", "costs ${env:HOME}, ${system:user.home} and ${spark.app.name}"
    assert table.ingest(file := lines(tmp_path, {"id": 1, key: 1, "n": {key: 1}})).rows_written == 1
    assert table.verify(file).ok
    table.ingest(lines(tmp_path, {"id": 2, key: text, "n": {key: text}}))
    table.lake.alter(f"ALTER TABLE {table_name} ADD COLUMN word string DEFAULT '{text}'", upgrade=True)
    table.ingest(lines(tmp_path, {"id": 3}))
    rows = [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]
    assert [row["word"] for row in rows] == [text] * 3
    assert [row[key] for row in rows] == [1, None, None]
    assert [row[f"{key}_string"] for row in rows] == [None, text, None]
    assert rows[1]["n"][f"{key}_string"] == text
    assert {key, f"n.{key}"} <= {one.to_dict()["field"] for one in table.stats(exact=True).drifted}
    view = table.view()
    assert {one["field"] for one in view.to_dict()["fields"]} >= {key}
    table.resolve(f"`{key}`", "string")
    assert [row[key] for row in table.read().orderBy("id").collect()] == ["1", text, None]
    table.undo(yes=True)
    table.lake.alter(f"ALTER TABLE {table_name} DROP COLUMN `{key}`")
    assert table.undo().to_dict()["back"] == {key: 1}
    place = table_name if database(lake) else f"lake.{table_name}"
    with configured(lake.spark, {SUBSTITUTE: "false"}):
        assert lake.sql(f"select `{key}` from {place} where `{key}_string` = '{text}'").count() == 1


@pytest.mark.parametrize(
    ("hints", "first", "second"),
    [
        ({}, '{"items": [{"element": [{"id": 1}]}]}', '{"items": [{"id": 2, "element": [{"id": "x"}]}]}'),
        (
            {"items": "map<string, struct<value: struct<id: long>>>"},
            '{"items": {"a": {"value": {"id": 1}}}}',
            '{"items": {"a": {"id": {"n": 2}, "value": {"id": "x"}}}}',
        ),
    ],
    ids=["of a list's objects", "of a map's objects"],
)
def test_a_field_that_is_called_as_a_step_of_a_path_has_a_namesake_of_its_own_fields_beside_it(
    lake: Lake, table_name: str, tmp_path: Path, hints: dict[str, str], first: str, second: str
) -> None:
    table, files = lake.table(table_name), [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for file, line in zip(files, (first, second), strict=True):
        file.write_text(line)
        assert table.ingest(file, hints=hints).rows_written == 1
    assert table.verify(files, exactly=True).ok
