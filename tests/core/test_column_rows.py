"""Rows of declared types in a task: small batches are converted together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from driftline.convert import Converter
from driftline.core.planning.plan import Conflict, lean
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import Facet
from driftline.core.schema.types import INT, LONG, STRING, Field, Schema, SourceLocation, Struct
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import expect
from driftline.readers import task as shares
from driftline.readers.columnar.rows import ColumnGroup, OpenRows, Rows, RowsObserver, small_together
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms, Diverged

STRUCT = Struct((Field("a", LONG), Field("b", STRING)))


def rows_of(name: str, *numbers: int, nullable: bool = True) -> Rows:
    schema = pa.schema([pa.field("a", pa.int64(), nullable), pa.field("b", pa.string())])
    columns = [pa.array(numbers, pa.int64()), pa.array([f"{name}{n}" for n in numbers], pa.string())]
    rejects = [Reject(Origin(name, 9), b"x", "no row")] if 0 in numbers else []
    return Rows(pa.RecordBatch.from_arrays(columns, schema=schema), name, rejects)


def converted(rows: list[Rows]) -> tuple[list[list[int]], list[str]]:
    """The rows of each batch by their numbers, and the files of what is set aside."""
    terms = AdmissionTerms(expect(Schema(), TableSettings()), TableSettings())
    first = RowsObserver(STRUCT, "label", terms)
    for some in rows:
        first.feed(some)
    planned = plan(Schema(), first.result().shape, TableSettings())
    converter = Converter(planned.schema.struct, lean(planned.route), TableSettings())
    observer, aside, batches = RowsObserver(STRUCT, "label", terms), [], []
    task = OpenRows(terms, converter)
    for group in small_together(rows):
        accepted, rejects = task.observe(ColumnGroup(observer, group), None)
        aside += [] if rejects is None else [rejects]
        batches += task.convert(accepted)
    assert observer.result() == first.result()
    texts = [text for batch in batches for text in batch.column(1).to_pylist()]
    assert texts == [f"{some.source}{n}" for some in rows for n in some.batch.column(0).to_pylist()]
    return [batch.column(0).to_pylist() for batch in batches], [
        source for batch in aside for source in batch.column("source").to_pylist()
    ]


def test_rows_of_small_files_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_MANY", 4)
    files = [rows_of("f", 0, 1), rows_of("g"), rows_of("h", 2), rows_of("i", 3), rows_of("j", 0, 5, 6, 7, 8)]
    assert converted(files) == ([[0, 1, 2, 3], [0, 5, 6, 7, 8]], ["f", "j"])
    monkeypatch.setattr(shares, "_LARGE", 1)
    assert converted(files)[0] == [[0, 1], [2], [3], [0, 5, 6, 7, 8]]
    assert converted([]) == ([], [])


def test_rows_of_another_arrow_schema_stand_apart() -> None:
    files = [rows_of("f", 1), rows_of("g", 2, nullable=False), rows_of("h", 3, nullable=False)]
    assert converted(files) == ([[1], [2, 3]], [])


def test_rows_that_no_column_takes_diverge() -> None:
    terms = AdmissionTerms(expect(Schema(), TableSettings()), TableSettings())
    narrow = RowsObserver(Struct((Field("a", INT), Field("b", STRING))), "label", terms).result()
    planned = plan(Schema(), narrow.shape, TableSettings())
    task = OpenRows(terms, Converter(planned.schema.struct, lean(planned.route), TableSettings()))
    accepted, _ = task.observe(ColumnGroup(RowsObserver(STRUCT, "label", terms), [rows_of("f", 2**40)]), None)
    with pytest.raises(Diverged):
        list(task.convert(accepted))


def test_places_of_refused_rows_are_the_first_of_each_file() -> None:
    conflict = Conflict(("a",), "int", Facet(0, LONG), "why")
    terms = AdmissionTerms(expect(Schema(), TableSettings()), TableSettings(), (conflict,))
    observer, rows = OpenRows(terms, None), RowsObserver(STRUCT, "f", terms)
    for file in ("b", "a"):
        batch = replace(rows_of(file, 1, 2), lines=np.array([7, 8]))
        _, rejects = observer.observe(ColumnGroup(rows, [batch]), None)
        assert rejects is not None and len(rejects) == 2
    assert rows.result().tally.refused == {conflict.refuses: (SourceLocation("a", 7), SourceLocation("b", 7))}
