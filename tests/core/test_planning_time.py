"""Planning takes time in proportion to what a batch changes: calls are counted, as seconds depend on the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from driftline.convert.kernels import convert
from driftline.convert.types import arrow_type
from driftline.core.changes import AddColumn, apply
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import DOUBLE, LONG, STRING, Field, Schema, SourceLocation, Struct
from driftline.core.settings.csv import Signs
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.table import TableSettings
from driftline.ingest.result import Result
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.readers.csv.cells import columns
from driftline.readers.csv.cut import Piece
from driftline.readers.csv.tally import ColumnTally, tallied
from driftline.readers.csv.types import type_of, types_of

WIDE = TableSettings(max_columns=1_000_000, max_fields=None)
FIELDS = 6  # of a struct


def in_columns(count: int) -> Iterable[dict[str, Any]]:
    for number in range(count):
        yield {f"c{number}": 1}


def in_structs(count: int) -> Iterable[dict[str, Any]]:
    for number in range(count // FIELDS):
        yield {f"s{number}": {f"f{i}": i for i in range(FIELDS)}}


def in_lists(count: int) -> Iterable[dict[str, Any]]:
    for number in range(count // FIELDS):
        yield {f"l{number}": [{f"f{i}": i for i in range(FIELDS)}]}


def in_maps(count: int) -> Iterable[dict[str, Any]]:
    for number in range(count // FIELDS):
        keys = [f"{key:032x}" for key in range(3)]
        yield {f"m{number}": {key: {f"f{i}": i for i in range(FIELDS)} for key in keys}}


def drifting(count: int) -> Iterable[dict[str, Any]]:
    for number in range(count // 4):
        yield {"s": {f"f{number}": 1}}
        yield {"s": {f"f{number}": "x"}}
        yield {"s": {f"f{number}": [1.5]}}


KINDS = [in_columns, in_structs, in_lists, in_maps, drifting]


def shape_of(records: Iterable[dict[str, Any]], schema: Schema) -> RecordShape:
    observer = JsonObserver(expect(schema, WIDE), WIDE)
    observer.feed([json.dumps(record).encode() for record in records], "batch", 1)
    return observer.result().shape


def calls(function: Callable[[], object]) -> int:
    """The calls that ``function`` makes, of Python's functions and of built-in ones."""
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings", [WIDE, TableSettings(max_columns=100), TableSettings(max_fields=3)], ids=str
)
@pytest.mark.parametrize("records", KINDS)
def test_planning_of_four_times_the_columns_takes_four_times_the_calls(
    records: Callable[[int], Iterable[dict[str, Any]]], settings: TableSettings
) -> None:
    few, many = (shape_of(records(count), Schema()) for count in (250, 1_000))

    assert calls(lambda: plan(Schema(), many, settings)) < 5 * calls(lambda: plan(Schema(), few, settings))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("records", KINDS)
def test_planning_of_sixteen_times_the_columns_takes_sixteen_times_the_calls(
    records: Callable[[int], Iterable[dict[str, Any]]],
) -> None:
    few, many = (shape_of(records(count), Schema()) for count in (250, 4_000))

    assert calls(lambda: plan(Schema(), many, WIDE)) < 20 * calls(lambda: plan(Schema(), few, WIDE))


def test_scalar_column_takes_few_calls() -> None:
    shape = shape_of(in_columns(100), Schema())
    table = plan(Schema(), shape, WIDE).schema

    assert calls(lambda: plan(Schema(), shape, WIDE)) < 100 * 200
    assert calls(lambda: plan(table, shape, WIDE)) < 100 * 150


def test_scalar_field_without_room_takes_few_calls() -> None:
    shape, narrow = shape_of(in_columns(1_000), Schema()), TableSettings(max_columns=100)

    # Planned twice: without the limit, and without the fields beyond it.
    assert calls(lambda: plan(Schema(), shape, narrow)) < 1_000 * 350


def test_report_of_what_waits_takes_calls_in_proportion() -> None:
    def reporting(count: int) -> Callable[[], object]:
        shape = shape_of(in_columns(count), Schema())
        result = Result("s.t", "", 1, 1, 0, route=plan(Schema(), shape, WIDE).route)
        return lambda: result.with_rest({f"c{number}": 1 for number in range(count)}, FieldSettings())

    assert calls(reporting(1_000)) < 5 * calls(reporting(250))


def test_columns_appended_to_many_structs_take_calls_in_proportion() -> None:
    def appending(count: int) -> Callable[[], object]:
        structs = (
            Field(f"s{i}", Struct((Field("a", LONG, id=2 * i + 2),)), id=2 * i + 1) for i in range(count)
        )
        schema = Schema(Struct(tuple(structs)))
        changes = [AddColumn((f"s{i}",), Field("b", LONG)) for i in range(count)]
        return lambda: apply(schema, changes)

    assert calls(appending(1_000)) < 5 * calls(appending(250))


@pytest.mark.parametrize("records", [in_columns, in_structs, in_lists, in_maps])
def test_admission_of_one_record_takes_no_more_calls_in_a_wider_table(
    records: Callable[[int], Iterable[dict[str, Any]]],
) -> None:
    def admitting(count: int) -> int:
        wide = plan(Schema(), shape_of(records(count), Schema()), WIDE).schema
        check = AdmissionCheck([wide], [wide], TableSettings(max_columns=count))
        known, unknown = (
            shape_of([record], Schema()) for record in (next(iter(records(count))), {"n": {"a": 1}})
        )
        check.conflict(known), check.conflict(unknown)  # the table is looked at once
        return calls(lambda: (check.conflict(known), check.conflict(unknown)))

    assert admitting(1_000) < 1.5 * admitting(250)


@pytest.mark.parametrize("text", ["1", "1.5", "x", "2024-01-02", "true"])
def test_column_of_one_row_takes_few_calls(text: str) -> None:
    texts = pa.array([text])
    type_ = type_of([types_of(texts)])
    values = columns(Piece(f"{text}\n".encode(), 1, plain=True), [arrow_type(type_)])[0]
    batch = pa.RecordBatch.from_arrays(values, ["c"])
    observer = ArrowObserver(Struct((Field("c", type_),)), expect(Schema(), WIDE), "batch")

    typing, observing = calls(lambda: types_of(texts)), calls(lambda: observer.feed(batch))
    assert typing < 70
    assert observing < 80


@pytest.mark.parametrize("text", ["v0", "word", "12 rooms", "007"])
def test_tally_of_one_text_takes_few_calls(text: str) -> None:
    texts = pa.array([text])

    def tally() -> ColumnTally:
        return tallied(texts, ColumnTally(), Signs(), lambda row: SourceLocation("", row))

    tally()  # expressions are compiled once
    assert calls(tally) < 120


@pytest.mark.parametrize(
    "number", [1.0, 1.5, -0.0, 0.001, 1e-7, 9999999.5, 37925513756.57103, 1e15, 1e22, float("nan")]
)
def test_sample_of_a_double_is_the_text_that_a_column_gets(number: float) -> None:
    values = pa.array([number])
    observer = ArrowObserver(Struct((Field("c", DOUBLE),)), expect(Schema(), WIDE), "batch")
    observer.feed(pa.RecordBatch.from_arrays([values], ["c"]))

    (profile,) = observer.result().shape.fields["c"].facets.values()
    assert profile.sample == convert(values, DOUBLE, STRING)[0].as_py()
