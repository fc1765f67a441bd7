"""Batches of patches, from their lines to a table of Parquet files, against a dictionary, without Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from core.patches import PatchOracle, differences, patches
from core.shapes import batch as shape_of
from core.shapes import schema
from core.test_upsert import FilesTable
from driftline.convert import arrow_schema
from driftline.core.planning.patchable import not_mergeable, variant_in
from driftline.core.schema.naming import MARK
from driftline.core.settings.properties import as_properties, from_properties
from driftline.keys.patch_fields import presence_of_lines, presence_of_rows, presence_of_table

PATCH = {"key": "id", "merge": "patch", "delete_when": "op = 'd'"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])
@pytest.mark.parametrize("beyond", ["10000", "6"], ids=["columns", "rest"])
def test_a_table_is_what_a_dictionary_says(tmp_path: Path, seed: int, ordered: bool, beyond: str) -> None:
    chance, table, oracle = random.Random(seed), FilesTable(tmp_path), PatchOracle(ordered=ordered)
    given = {
        **PATCH,
        "order_by": "seq" if ordered else "",
        "maps": "auto",
        "max_columns": beyond,
        "beyond": "rest",
    }
    settings = from_properties(as_properties(given))
    stream = patches(chance, 250)
    while stream:
        batch, stream = stream[: (size := chance.randrange(1, 40))], stream[size:]
        counts, malformed = table.ingest(batch, settings)
        assert (counts, malformed, counts.total) == (oracle.take(batch), 0, len(batch))
        rows = {row["id"]: row for row in table.rows()}
        assert len(rows) == len(table.rows())
        assert rows.keys() == oracle.rows.keys()
        assert {
            key: found for key, row in rows.items() if (found := differences(row, oracle.rows[key]))
        } == {}


@pytest.mark.parametrize(
    ("line", "presence"),
    [
        (b'{"b": null, "a": {"x": [1], "y": {}}}', '{"a":{"x":1,"y":{}},"b":0}'),
        (b'{"a": 1, "a": {"x": null}}', '{"a":{"x":0}}'),
        ('{"a": 1e999, "ü\\"": "t"}'.encode(), '{"a":1,"ü\\"":1}'),
        (b'{"a": [], "b": [null, [ ]], "c": [0], "d": ["null"]}', '{"a":0,"b":0,"c":1,"d":1}'),
        (b"{}", "{}"),
    ],
)
def test_the_presence_of_lines(line: bytes, presence: str) -> None:
    assert presence_of_lines([line]).to_pylist() == [presence]


ROW_TYPES = schema("id: long, s: {a: long, b: string}, m: map<string, {x: long}>, l: long[1]").struct
ROWS = [
    {"id": 1, "s": {"a": 1, "b": None}, "m": [("k", {"x": None}), ("z", None)], "l": []},
    {"id": None, "s": None, "m": None, "l": None},
]


def test_the_presence_of_columns() -> None:
    rows = pa.Table.from_pylist(ROWS, arrow_schema(ROW_TYPES))
    (batch,) = rows.to_batches()

    assert presence_of_rows(batch, ROW_TYPES).to_pylist() == [
        '{"id":1,"l":1,"m":{"k":{"x":0},"z":0},"s":{"a":1,"b":0}}',
        '{"id":0,"l":0,"m":0,"s":0}',
    ]
    assert presence_of_table(ROW_TYPES.fields, rows, MARK).to_pylist() == [
        '{"id":1,"l":1,"m":{"k":{},"z":0},"s":{"a":1}}',
        "{}",
    ]
    assert presence_of_rows(batch.slice(1), ROW_TYPES).to_pylist() == ['{"id":0,"l":0,"m":0,"s":0}']


@pytest.mark.parametrize(
    ("columns", "objects", "refused"),
    [
        ("a: {x: long}, b: {x: long}[1]", "a: {x: long}", None),
        ("a: {x: long}, a_list@a: {x: long}[1]", "a: {x: long}", None),
        ("a: {x: long}[1]", "a: {x: long}", ("a",)),
        ("a: {x: long}[1], a_string@a: string", "a: {x: long}", ("a",)),
        ("s: {a: {x: long}[1]}", "s: {a: {x: long}}", ("s", "a")),
        ("m: map<string, {x: long}[1]>", "m: map<string, {x: long}>", ("m", "value")),
        ("s: {a: {x: long}[1]}[1]", "s: {a: {x: long}}[1]", None),
    ],
)
def test_object_among_lists_of_objects_is_refused(
    columns: str, objects: str, refused: tuple[str, ...] | None
) -> None:
    conflicts = list(not_mergeable(schema(columns).struct, shape_of(objects), MARK))

    assert [conflict.path for conflict in conflicts] == ([] if refused is None else [refused])
    assert all(conflict.incoming_type == "record" for conflict in conflicts)


@pytest.mark.parametrize(
    ("columns", "path"),
    [
        ("a: variant", ("a",)),
        ("s: {v@w: variant}", ("s", "w")),
        ("m: map<string, map<string, variant>>", ("m", "value", "value")),
        ("m: map<string, {v: variant}>", ("m", "value", "v")),
        ("l: {v: variant}[1]", None),
    ],
)
def test_variant_that_patches_would_merge_is_found(columns: str, path: tuple[str, ...] | None) -> None:
    assert variant_in(schema(columns).struct, MARK) == path


def test_object_among_lists_of_objects_waits_and_the_rest_of_the_batch_goes_in(tmp_path: Path) -> None:
    table, settings = FilesTable(tmp_path), from_properties(as_properties(PATCH))
    table.ingest([{"id": 1, "f": [{"x": 1}]}], settings)
    batch = [
        {"id": 1, "f": {"x": 2, "new": 1}},
        {"id": 2, "f": {"x": 3}},
        {"id": 1, "v": 4},
        {"id": 3, "f": [{"x": 5}]},
    ]
    counts, malformed = table.ingest(batch, settings)

    assert (malformed, counts.updated, counts.inserted) == (2, 1, 1)
    assert {row["id"]: (row["f"], row["v"]) for row in table.rows()} == {
        1: ([{"x": 1}], 4),
        3: ([{"x": 5}], None),
    }


def test_a_field_that_is_excluded_later_stays(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    table.ingest([{"id": 1, "w": 1, "n": {"x": 1, "y": 1}}], from_properties(as_properties(PATCH)))
    settings = from_properties(as_properties({**PATCH, "exclude": ["w", "n.x"]}))
    table.ingest([{"id": 1, "w": 2, "n": {"x": 2, "y": 2}}], settings)

    assert [(row["w"], row["n"]) for row in table.rows()] == [(1, {"x": 1, "y": 2})]
