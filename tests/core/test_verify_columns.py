"""Whole columns first: what fingerprints say is held, the check of single values holds, too."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import reduce
from operator import add, itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from core.random_steps import Json, steps
from core.shapes import schema
from core.table_in_memory import TableInMemory
from core.test_convert_sound import plain
from driftline.convert import arrow_schema
from driftline.core.schema.naming import MARK
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Struct
from driftline.verify.comparison import TOTALS, Comparison, Terms
from driftline.verify.expected import PRESENCE, WIDTH, ColumnShape, ExpectedRows, copies_in, fingerprints
from driftline.verify.files import FilePart, Read, SourcePlace, read
from driftline.verify.json_texts import parse
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import ValueSettings
from driftline.verify.whole_columns import (
    OTHER,
    RECORD,
    ROW,
    Fingerprinter,
    by_part,
    scattered,
    standing,
    unmatched,
)

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
DRIFTED = "a: long, a_string@a: string, a_double@a: double, a_record@a: {b: long}, a_array_long@a: long[1]"
NESTED = "s: {x: double, t: timestamp, l: {y: string}[1]}, m: long[2]"

HELD: list[tuple[str, dict[str, Any], str]] = [
    ("a: long", {}, "{}"),
    ("a: long", {"a": -(2**63)}, f'{{"a": {-(2**63)}}}'),
    ("a: int", {"a": 5}, '{"a": 5}'),
    ("a: boolean", {"a": True}, '{"a": true}'),
    ("a: double", {"a": 1.5}, '{"a": 1.50}'),
    ("a: double", {"a": 5.0}, '{"a": 5}'),
    ("a: double", {"a": 0.1}, '{"a": 0.10000000000000001}'),
    ("a: double", {"a": 0.8444218515250481}, '{"a": 0.8444218515250481}'),
    ("a: double", {"a": 1e23}, '{"a": 1e23}'),
    ("a: double", {"a": -0.0}, '{"a": -0.0}'),
    ("a: string", {"a": "é\n\x00"}, r'{"a": "é\n\u0000"}'),
    ("a: string", {"a": ""}, '{"a": ""}'),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00:00.000Z"}'),
    ("a: timestamp, a_string@a: string", {"a_string": "noon"}, '{"a": "noon"}'),
    ("a: timestamp, a_string@a: string", {"a_string": "2024-02-30T12:00:00Z"}, '{"a": "2024-02-30T12:00:00Z"}'),
    ("a: timestamp_ntz, a_date@a: date", {"a_date": date(2024, 1, 2)}, '{"a": "2024-01-02"}'),
    (DRIFTED, {"a": 5}, '{"a": 5}'),
    (DRIFTED, {"a_double": 5.0}, '{"a": 5.0}'),
    (DRIFTED, {"a": 5, "a_double": 5.0, "a_string": "5"}, '{"a": 5}'),
    (DRIFTED, {"a_double": 5.5, "a_string": "5.50"}, '{"a": 5.50}'),
    (DRIFTED, {"a": -(2**63), "a_string": str(-(2**63))}, f'{{"a": {-(2**63)}}}'),
    ("a: boolean, a_long@a: long, a_string@a: string", {"a": True, "a_long": 1, "a_string": "true"}, '{"a": true}'),
    ("s: {a: double, a_string@a: string}", {"s": {"a": 5.0, "a_string": "5"}}, '{"s": {"a": 5}}'),
    ("a: date, a_string@a: string", {"a": date(2024, 1, 2), "a_string": "2024-01-02"}, '{"a": "2024-01-02"}'),
    (DRIFTED, {"a_string": "5"}, '{"a": "5"}'),
    (DRIFTED, {"a_record": {"b": 5}}, '{"a": {"b": 5}}'),
    (DRIFTED, {"a_array_long": [5, None]}, '{"a": [5, null]}'),
    (NESTED, {"s": {"x": 1.0, "t": NOON, "l": [{"y": "a"}, None, {"y": None}]}},
     '{"s": {"l": [{"y": "a"}, null, {}], "x": 1.0, "t": "2024-01-02T12:00:00Z"}}'),
    (NESTED, {"m": [[1, None], [], None]}, '{"m": [[1, null], [], null], "s": null}'),
    ("a: long, b: decimal(9,2), m: {*: long}, c: timestamp, c_long@c: long", {"a": 1}, '{"a": 1}'),
]  # fmt: skip

NOT_CERTAIN: list[tuple[str, dict[str, Any], str]] = [
    # Held, but not as it is written
    ("a: long", {"a": 1}, '{"a": true}'),
    ("a: string", {"a": "1"}, '{"a": 1}'),
    ("a: long, b: {*: long}", {"a": 1, "b": {"c": 1}}, '{"a": 1, "b": {"c": 1}}'),
    # Lost
    ("a: double", {"a": 9007199254740992.0}, '{"a": 9007199254740993}'),
    ("a: double", {"a": 0.12345678901234568}, '{"a": 0.1234567890123456789}'),
    ("a: double", {"a": 0.1}, '{"a": 0.1000000000000000000001}'),
    ("a: double", {"a": 1234567890123456.8}, '{"a": 12345678901234567890e-4}'),
    ("a: double", {"a": 0.0}, '{"a": 1e-400}'),
    ("a: double", {"a": 5e-324}, '{"a": 4e-324}'),
    ("a: double", {"a": 0.0}, '{"a": -0.0}'),
    ("a: double", {}, '{"a": 1e400}'),
    ("a: long", {}, '{"a": 1}'),
    ("a: long", {"a": 1}, '{"a": 2}'),
    ("a: long", {"a": 1}, "{}"),
    ("a: long", {"a": 1}, '{"a": 1, "b": 2}'),
    ("a: long", {}, f'{{"a": {2**63}}}'),
    ("a: int", {}, f'{{"a": {2**31}}}'),
    ("a: string", {"a": "ab"}, '{"a": "a"}'),
    ("a: string, b: string", {"a": "a", "b": "b"}, '{"a": "ab", "b": ""}'),
    ("a: string, b: string", {"a": "a"}, '{"b": "a"}'),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02 12:00:00Z"}'),
    ("a: timestamp", {}, '{"a": "2024-02-30T12:00:00Z"}'),
    ("a: timestamp", {}, '{"a": "noon"}'),
    ("a: date", {}, '{"a": "noon"}'),
    (NESTED, {"s": {}}, "{}"),
    (NESTED, {"s": {"l": []}}, '{"s": {}}'),
    (NESTED, {"m": [[1], [2]]}, '{"m": [[1, 2]]}'),
    (NESTED, {"m": [[1, 2], []]}, '{"m": [[1], [2]]}'),
    (NESTED, {"s": {"l": [{"y": "ab"}, {"y": "c"}]}}, '{"s": {"l": [{"y": "a"}, {"y": "bc"}]}}'),
    (DRIFTED, {"a": 5, "a_string": "5"}, '{"a": "5"}'),
    (DRIFTED, {"a": 5, "a_string": "6"}, '{"a": 5}'),
    (DRIFTED, {"a_double": 5.5, "a_string": "5.6"}, '{"a": 5.5}'),
    (DRIFTED, {"a_double": -0.0, "a_string": "0.0"}, '{"a": -0.0}'),
    (DRIFTED, {"a_double": 0.1, "a_string": "0.1"}, '{"a": 0.10000000000000001}'),
    (DRIFTED, {"a_double": 0.1, "a_string": "0.10000000000000001"}, '{"a": 0.1}'),
    (DRIFTED, {"a": 2**53 + 1, "a_double": 2.0**53}, f'{{"a": {2**53 + 1}}}'),
    ("a: boolean, a_string@a: string", {"a": True, "a_string": "1"}, '{"a": true}'),
    # No record
    ("a: long", {"a": 1}, '{"a": 1} x'),
    ("a: long", {"a": 1}, "[1]"),
    ("a: string", {"a": "\ufffd"}, r'{"a": "\ud800"}'),
    ("a: string", {"a": "\ufffd"}, r'{"a": "\udc00"}'),
]  # fmt: skip


def keys(struct: Struct, batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    """The fingerprints of rows."""
    record, shapes = shaped(struct)
    names = [*record.columns, *(f.name for f in struct.fields if f.name not in record.columns)]
    copies = copies_in(record)
    found = [fingerprints(shapes, [b.column(name) for name in names], b.num_rows, copies) for b in batches]
    return cut(b"".join(found))


def shaped(struct: Struct) -> tuple[TableStruct, list[ColumnShape]]:
    record = TableStruct.of(struct)
    shapes = [ColumnShape(PRESENCE) if shape is None else shape for shape in ColumnShape.of_all(record)]
    return record, shapes + [ColumnShape(PRESENCE)] * (len(struct.fields) - len(shapes))


def expected(struct: Struct, lines: Sequence[bytes]) -> list[bytes | None]:
    """The fingerprints of records; None where it is not certain what row one is."""
    found = ExpectedRows(*shaped(struct)).of_lines(lines)
    assert sorted([*found.places, *found.others]) == list(range(len(lines)))
    by_place = dict(zip(found.places, cut(found.fingerprints), strict=True))
    return [by_place.get(place) for place in range(len(lines))]


def cut(text: bytes) -> list[bytes]:
    return [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]


def of_case(columns: str, row: dict[str, Any], line: str) -> tuple[bytes, bytes | None]:
    struct = schema(columns).struct
    batch = pa.RecordBatch.from_pylist([row], arrow_schema(struct))
    return keys(struct, [batch])[0], expected(struct, [line.encode()])[0]


@pytest.mark.parametrize("case", HELD, ids=str)
def test_what_stands_as_it_is_written_is_held(case: tuple[str, dict[str, Any], str]) -> None:
    of_row, of_record = of_case(*case)
    assert of_row == of_record


@pytest.mark.parametrize("case", NOT_CERTAIN, ids=str)
def test_what_is_lost_or_not_as_it_is_written_is_not(case: tuple[str, dict[str, Any], str]) -> None:
    of_row, of_record = of_case(*case)
    assert of_row != of_record


def test_keys_that_are_left_out_are_not_compared() -> None:
    struct = schema("a: long, s: {b: string, c: long}[1]").struct
    row = {"a": 1, "s": [{"c": 2}]}
    line = b'{"a": 1, "s": [{"c": 2, "b": {"x": [1.5]}}], "d": null}'
    paths = [["s", "b"], ["d"]]
    record, shapes = shaped(struct)

    found = ExpectedRows(record, shapes, paths).of_lines([line])
    assert cut(found.fingerprints) == keys(struct, [pa.RecordBatch.from_pylist([row], arrow_schema(struct))])
    assert ExpectedRows(record, shapes, paths[:1]).of_lines([line]).others == [0]


@pytest.mark.parametrize(
    "odd", [b'{"a": 1} {"a": 2}', b'{"a":\n1}', b"", b"null", b'{"a": "x"}', b'{"a": 1}\n{"a": 2}']
)
def test_lines_are_decoded_together_as_each_is_alone(odd: bytes) -> None:
    # Values that share a line, and one over two lines, are as many as lines.
    struct, lines = schema("a: long").struct, [b'{"a": %d}' % i for i in range(300)]
    lines[100:100] = [odd, b'{"a":\n 7}', b'{"a": 8}{"a": 9}']

    alone = [expected(struct, [line])[0] for line in lines]
    assert expected(struct, lines) == alone
    assert alone.count(None) >= 1


@pytest.mark.parametrize("block", range(4))
def test_what_fingerprints_hold_single_values_hold(block: int) -> None:
    held = records = 0
    for seed in range(block * 25, block * 25 + 25):
        table, lines = TableInMemory(), {}
        for step in steps(seed):
            if isinstance(step, Json):
                lines |= enumerate(step.lines, len(table.sources))
            table.take(step)
        struct = table.schema.struct
        if not table.rows or not lines:
            continue
        rows = [row for batch in table.rows for row in plain(batch, struct)]
        by_key: dict[bytes, list[int]] = {}
        for place, key in enumerate(keys(struct, table.rows)):
            by_key.setdefault(key, []).append(place)
        for line, key in zip(lines.values(), expected(struct, [*lines.values()]), strict=True):
            for place in by_key.get(key, ()) if key is not None else ():
                assert differences(TableStruct.of(struct), rows[place], parse(line)) == [], f"seed {seed}"
        found = expected(struct, [*lines.values()])
        held += sum(key in by_key for key in found)
        records += len(found)
    assert held > records * 0.05, (held, records)


def some_record(rng: Random) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": rng.randrange(4),
        "x": rng.choice([0.5, 0.1, 2, None]),
        "s": {
            "at": rng.choice(["2024-01-02T12:00:00Z", "2024-01-02T12:00:00.5Z", "noon"]),
            "n": rng.randrange(2),
        },
        "l": rng.choice([[], [{"p": "a"}], [{"p": "a"}, {"p": "b"}], [None]]),
        "q": rng.choice([1, 1, 1, 2, "1", True, {"v": 1}, [1], 2**60]),
    }
    return {key: value for key, value in record.items() if rng.random() < 0.9}


def tampered(records: Sequence[dict[str, Any]], rng: Random) -> list[dict[str, Any]]:
    """The records with something lost or changed, or as they are."""
    out, i = list(records), rng.randrange(len(records))
    match rng.randrange(6):
        case 0:
            del out[i]
        case 1:
            out[i] = some_record(rng)
        case 2:
            out.append(out[i])
        case 3:
            out[i] = {key: value for key, value in out[i].items() if key != rng.choice("slq")}
        case 4:
            j = rng.randrange(len(records))
            x, y = out[i].get("q"), out[j].get("q")
            out[i], out[j] = {**out[i], "q": y}, {**out[j], "q": x}
    return out


def unheld(comparison: Comparison, lines: Iterable[bytes], rows: Iterable[dict[str, Any]]) -> int:
    """The number of records that no row holds, by their values."""
    reads = [Read(SourcePlace("source", 0, line), parse(text)) for line, text in enumerate(lines)]
    keyed = sorted([*comparison.keyed_records(reads), *comparison.keyed_rows(rows)], key=itemgetter(0))
    return next(int(found[1]) for kind, found in comparison.compared(keyed) if kind == TOTALS)


@pytest.mark.parametrize("seed", range(60))
def test_a_loss_is_found_either_way(seed: int) -> None:
    rng, table = Random(seed), TableInMemory()
    records = [some_record(rng) for _ in range(rng.randrange(2, 12))]
    lines = Json(records).lines
    table.take(Json(tampered(records, rng)))
    struct = table.schema.struct
    rows = [row for batch in table.rows for row in plain(batch, struct)]
    comparison = Comparison.by(
        Terms(json.dumps(to_json(table.schema)), MARK, 0, ValueSettings(), "json", (), {}, False)
    )

    of_records, of_rows = expected(struct, lines), keys(struct, table.rows)
    equal = Counter(of_rows) & Counter(key for key in of_records if key is not None)
    left = [line for line, key in zip(lines, of_records, strict=True) if key is None or not taken(equal, key)]
    equal = Counter(key for key in of_rows if key in of_records)
    others = [row for row, key in zip(rows, of_rows, strict=True) if key not in equal]

    assert (unheld(comparison, left, others) == 0) == (unheld(comparison, lines, rows) == 0)


def taken(counts: Counter[bytes], key: bytes) -> bool:
    """Takes one of them, where one is left."""
    counts[key] -= 1
    return counts[key] >= 0


@pytest.mark.parametrize("buckets", [1, 3])
def test_each_record_is_matched_once(buckets: int) -> None:
    rng = Random(buckets)
    for _ in range(50):
        records, rows = (
            [rng.randrange(12).to_bytes(WIDTH, "little") for _ in range(rng.randrange(20))] for _ in range(2)
        )
        others = range(100, 100 + rng.randrange(3))
        pieces = [
            *scattered(RECORD, b"".join(records), standing(7, range(len(records))), buckets),
            *scattered(OTHER, b"", standing(8, others), buckets),
            *scattered(ROW, b"".join(rows), b"", buckets),
        ]
        found = [unmatched(piece for bucket, piece in pieces if bucket == i) for i in range(buckets)]

        at = by_part(b"".join(x.places for x in found))
        assert sum(x.records for x in found) == len(records) + len(others)
        assert at.pop(8, set()) == set(others)
        lone, alone = Counter(records) - Counter(rows), Counter(rows) - Counter(records)
        assert Counter(records[i] for i in at.pop(7, ())) == lone
        assert Counter(cut(b"".join(x.alone for x in found))) == only(alone, set(rows) - set(records))
        assert sum(x.surplus for x in found) == only(alone, set(records)).total()


def only(counts: Counter[bytes], keys: Iterable[bytes]) -> Counter[bytes]:
    return Counter({key: n for key, n in counts.items() if key in keys})


def test_tasks_tell_what_is_left_of_files_and_rows(tmp_path: Path) -> None:
    table, file = TableInMemory(), tmp_path / "a.jsonl"
    records = [
        {"id": i, "q": "two" if i % 7 == 0 else i, "m": {"at": "2024-01-02T12:00:00Z"}} for i in range(40)
    ]
    table.take(Json(records[:30] + records[:1]))
    file.write_bytes(b"\n\n".join([*Json(records).lines, b"broken"]))
    size = file.stat().st_size
    parts = [FilePart(str(file), "json", at, min(at + 500, size), 500) for at in range(0, size, 500)]
    (batch,) = table.rows
    names = tuple(batch.schema.names)[::-1]
    terms = Terms(json.dumps(to_json(table.schema)), MARK, 0, ValueSettings(), "json", (), {}, False)
    of_tasks = pickle.loads(pickle.dumps(Fingerprinter(terms, (*names, "more"), 2)))
    more = pa.array([1 if i == 5 else None for i in range(batch.num_rows)])
    rows = pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in names), more], [f"c{i}" for i in range(len(names) + 1)]
    )

    pieces = [*of_tasks.of_parts(list(enumerate(parts)))]
    for made in of_tasks.of_rows([rows.slice(0, 10), rows.slice(10)]):
        pieces += [(x["bucket"], (ROW, x["keys"], b"")) for x in made.to_pylist()]
    found = reduce(add, (unmatched(piece for bucket, piece in pieces if bucket == i) for i in range(2)))
    texts_left = [
        text.record["id"] if text.record else text.raw
        for number, lines in by_part(found.places).items()
        for text in read(parts[number], lines)
    ]
    assert (found.records, found.surplus) == (41, 1)
    assert texts_left == [5, *range(30, 40), b"broken"]

    alone = pa.Table.from_batches(of_tasks.chosen(found.alone, False, [rows]))
    assert [ids for column in alone.columns for ids in column.to_pylist() if ids == 5] == [5, 5]
    own = b"".join(keys for _, (kind, keys, _) in pieces if kind == RECORD)
    assert pa.Table.from_batches(of_tasks.chosen(own, True, [rows])) == alone
    (equal,) = of_tasks.equal_rows(own, [rows])
    assert (equal["others"].to_pylist(), len(equal["keys"][0].as_py())) == ([1], 30 * WIDTH)


def test_empty_lists_may_come_without_offsets() -> None:
    """Java leaves them out where an array has no elements, and Arrow's kernels read them all the same."""
    inner_type = pa.list_(pa.string())
    texts = pa.Array.from_buffers(pa.string(), 0, [None, None, pa.py_buffer(b"")])
    inner = pa.Array.from_buffers(inner_type, 0, [None, None], children=[texts])
    bare = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), inner)
    shape = ColumnShape(pa.list_(inner_type), (ColumnShape(inner_type, (ColumnShape(pa.string()),)),))
    assert fingerprints([shape], [bare], 2) == fingerprints([shape], [pa.array([[], []], bare.type)], 2)
