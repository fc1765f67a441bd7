"""Records that delete, in a task: only their keys and orders are observed, and their rows are flagged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from core.tasks import run
from driftline.convert import Converter
from driftline.core.planning.plan import Conflict, lean
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import Facet
from driftline.core.schema.types import INT, LONG, STRING, Field, Map, Schema, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.keys.slices import DELETE_FLAG
from driftline.observe.expect import expect
from driftline.readers.columnar.parquet import PartReader, ReaderPart
from driftline.readers.columnar.rows import Rows, RowsObserver, together
from driftline.readers.deletes import DeleteFilter
from driftline.readers.json.rows import JsonRows, SplitReader
from driftline.readers.json.splits import splits_of
from driftline.readers.rejects import Origin
from driftline.readers.task import AdmissionTerms

SETTINGS = from_properties(
    as_properties({"key": "id, k.`a b`", "order_by": "k.at", "delete_when": "op = 'd' or k.gone = true"})
)


def filter_of(settings: TableSettings, schema: Schema | None = None) -> DeleteFilter:
    deletes = DeleteFilter.of(AdmissionTerms(expect(schema or Schema(), settings), settings))
    assert deletes is not None
    return deletes


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ('{"id": 1.50, "k": {"x": 1, "a b": "y", "at": 1e400}, "v": [], "op": "d"}',
         '{"id":1.50,"k":{"a b":"y","at":1e400}}'),
        ('{"op": "u", "k": {"gone": true}}', '{"k":{}}'),
        ('{"op": "u", "id": 1, "op": "\\u0064", "\\u0069d": 2}', '{"id":2}'),
        ('{"op": "d", "k": [1], "id": null}', '{"id":null,"k":[1]}'),
        ('{"op": "d", "k": null}', '{"k":null}'),
        ('{"op": "d", "k": "{", "n": 1e9999, "m": -123456789012345678901234567890}', '{"k":"{"}'),
        ('{"op": "d"}\r', "{}"),
        ('{"op": "u", "id": 1}', None),
        ('{"op": "u", "k": {"gone": "true"}}', None),
        ('{"op": {"d": "d"}, "k": [{"gone": true}]}', None),
        ('{"op": "D"}', None),
        ("", None),
        ("null", None),
        ('{"op": "d"', None),
        ('{"op": "d", "v": "\\ud800"}', None),
        ('{"op": "d", "v": ' + 101 * "[" + 101 * "]" + "}", None),
    ],
)  # fmt: skip
def test_a_line_that_deletes_is_cut(line: str, cut: str | None) -> None:
    texts, flags = filter_of(SETTINGS).lines([b'{"id": 0}', line.encode()])

    assert flags.tolist() == [False, cut is not None]
    assert texts == [b'{"id": 0}', (line if cut is None else cut).encode()]


def test_lines_of_a_file_that_delete_are_flagged_in_their_rows(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(
        b'{"id": 1, "k": {"a b": "x", "at": 1}, "v": 1}\n\n{"id": 2, "k": {"a b": "x", "at": 1}, "v": [], "op": "d"}\n'
        b'no record\n{"id": 3.5, "k": {"a b": "x", "at": 2}, "v": "drifted"}\n'
    )
    share = [(0, split) for split in splits_of(str(tmp_path / "f"))]
    terms = AdmissionTerms(expect(Schema(), SETTINGS), SETTINGS)
    _, _, reported = run(SplitReader([share], terms), 0)
    (part,) = reported.observed
    planned = plan(Schema(), part.observation.shape, SETTINGS)
    make = JsonRows.of(planned, planned.schema.struct, terms, part.observation)
    rows, rejects, reported = run(SplitReader([share], terms, make), 0)
    made = pa.Table.from_batches(rows).to_pylist()

    assert [(row["k"]["at"], row[DELETE_FLAG]) for row in made] == [(1, False), (1, True), (2, False)]
    assert "op" not in part.observation.shape.fields
    assert (len(rejects), reported.diverged) == (1, False)


def test_a_delete_has_what_a_column_requires() -> None:
    schema = Schema(Struct((Field("n", LONG, 1, required=True), Field("v", LONG, 2))))
    (text,), _ = filter_of(SETTINGS, schema).lines([b'{"id": 1, "n": 2, "v": 3, "op": "d"}'])

    assert json.loads(text) == {"id": 1, "n": 2}


def test_without_a_condition_nothing_is_looked_for() -> None:
    for settings in (TableSettings(), from_properties(as_properties({"key": "id"}))):
        assert DeleteFilter.of(AdmissionTerms(expect(Schema(), settings), settings)) is None


STRUCT = Struct(
    (
        Field("id", LONG),
        Field("k", Struct((Field("a b", STRING), Field("at", LONG), Field("gone", STRING)))),
        Field("op", STRING),
        Field("v", INT),
        Field("m", Map(STRING, LONG)),
    )
)


class Reader:
    """Rows in memory, in two batches."""

    struct, label = STRUCT, "f"

    def __init__(self, ops: Sequence[str | None]) -> None:
        some = pa.array([{"a b": "x", "at": n, "gone": "y"} for n in range(len(ops))])
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), ("k", some.type), ("op", pa.string()),
             ("v", pa.int32()), ("m", pa.map_(pa.string(), pa.int64()))]
        )  # fmt: skip
        numbers = list(range(len(ops)))
        columns = [numbers, some, ops, numbers, [{"x": 1}] * len(ops)]
        arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
        self.batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self.sizes, self.paths = (1,), ("f",)

    def rows(self, part: int) -> list[Rows]:  # type: ignore[override]
        return [
            Rows(b, "f", origin=lambda n: Origin("f", n)) for b in (self.batch.slice(0, 2), self.batch[2:])
        ]


def test_rows_that_delete_are_cut_and_flagged() -> None:
    reader = Reader(["c", "c", "d", None, "d"])
    known = Schema(Struct((Field("v", STRING, 1),)))
    settings = from_properties(
        as_properties(
            {"key": "id, k.`a b`", "order_by": "k.at", "delete_when": "op = 'd'", "policy": "preserve"}
        )
    )
    terms = AdmissionTerms(expect(known, settings), settings)
    parts = [ReaderPart(0, 0, 1)]
    _, _, reported = run(PartReader([reader], parts, [[0]], terms), 0)  # type: ignore[list-item]
    seen = together([reported.observed[0]], STRUCT, "f", terms)
    planned = plan(known, seen.shape, settings)
    converter = Converter(planned.schema.struct, lean(planned.route), settings)
    rows, _, _ = run(PartReader([reader], parts, [[0]], terms, converter), 0)  # type: ignore[list-item]
    made = pa.Table.from_batches(rows).to_pylist()

    assert seen.tally.records == len(made) == 5
    assert [row[DELETE_FLAG] for row in made] == [False, False, True, False, True]
    assert [row["id"] for row in made] == list(range(5))
    assert [row["k"]["at"] for row in made] == list(range(5))
    deleted = {"a b": "x", "at": 2, "gone": None}
    assert {key: made[2][key] for key in ("k", "op", "m")} == {"k": deleted, "op": None, "m": None}
    assert made[3]["k"]["gone"] == "y"


def test_of_rows_that_all_delete_no_type_is_left() -> None:
    for ops, fields in ((["d", "d", "d"], {"id", "k"}), (["d", "c", "d"], {"id", "k", "op", "v", "m"})):
        terms = AdmissionTerms(expect(Schema(), SETTINGS), SETTINGS)
        reader = PartReader([Reader(ops)], [ReaderPart(0, 0, 1)], [[0]], terms)  # type: ignore[list-item]
        _, _, reported = run(reader, 0)
        seen = together([reported.observed[0]], STRUCT, "f", terms)
        assert set(seen.shape.fields) == fields
        (record,) = (profile.record for profile in seen.shape.fields["k"].facets.values())
        assert record is not None
        assert ("gone" in record.fields) == ("v" in fields)


def test_a_delete_that_is_refused_waits_whole() -> None:
    no_key = Conflict(("k", "at"), "the order", Facet(0, LONG), "order: none", inexact=Facet(0, INT))
    terms = AdmissionTerms(expect(Schema(), SETTINGS), SETTINGS, conflicts=(no_key,))
    reader = Reader(["d", "c", "d"])
    some = reader.batch.column(1).to_pylist()
    some[0]["at"] = 2**40
    rows = Rows(reader.batch.set_column(1, reader.batch.schema.field(1), pa.array(some)), "f")
    observer = RowsObserver(STRUCT, "f", terms)
    fed = observer.feed(rows)
    (reject,) = observer.rejects(fed.rows, None)

    assert fed.deletes is not None
    assert list(zip(fed.accepted.column(0).to_pylist(), fed.deletes.to_pylist(), strict=True)) == [
        (1, False),
        (2, True),
    ]
    assert json.loads(reject.raw)["op"] == "d"
