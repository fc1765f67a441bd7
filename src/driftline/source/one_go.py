"""JSON lines observed and read in one go, where what they hold is known well enough beforehand.

Each task decodes its lines as observing does. Those that hold nothing but the usual types are parsed by Arrow, the others
go on as text; and what was observed is told when the task ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from driftline.core.routes import Settings
from driftline.core.shape import RECORD, Facet, FieldShape, RecordShape
from driftline.core.types import BOOLEAN, DOUBLE, LONG, Primitive
from driftline.observe.json_files import Split, blocks
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.observe.walk import Expect
from driftline.route import Source
from driftline.route.source import TEXT
from driftline.route.sql import name
from driftline.source.json_text import ddl_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


_DEEPEST = 50  # levels; Arrow hands over 64


class Told(AccumulatorParam[dict[int, Observation]]):
    """What tasks tell: a task that runs twice tells the same."""

    def zero(self, value: dict[int, Observation]) -> dict[int, Observation]:
        return {}

    def addInPlace(  # noqa: N802  pyspark's name
        self, value1: dict[int, Observation], value2: dict[int, Observation]
    ) -> dict[int, Observation]:
        return {**value1, **value2}


@dataclass(frozen=True, slots=True)
class OneGo:
    """What the tasks need. ``splits``: by task, each with its number. ``expected``: what the plan was made for; a task that sees more has nothing to read any
    longer. ``usual``: how most records are parsed; ``other``: the column that has the text of the rest. ``told``: is given
    the observation of each split by its number."""

    splits: Sequence[Sequence[tuple[int, Split]]]
    expected: Observation
    usual: Source
    other: str
    known: Expect
    settings: Settings
    told: Accumulator[dict[int, Observation]]

    def frame(self, spark: SparkSession) -> DataFrame:
        """The records: the columns of ``usual``, and ``other``."""
        count = len(self.splits)
        columns = f"{ddl_of(self.usual)}, {name(self.other)} string"
        return spark.range(0, count, 1, count).mapInArrow(self.read, columns)

    def read(self, ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the shares of these numbers: as Arrow's parser gives them, or as text."""
        import pyarrow as pa

        schema = pa.schema([pa.field(key, arrow_type(child)) for key, child in self.usual.fields.items()])
        for batch in ids:
            for share in batch.column(0).to_pylist():
                for number, split in self.splits[share]:
                    observer = JsonObserver(self.known, self.settings, usual=self._usual)
                    for lines, others in self._expected(split, observer):
                        yield from _parsed(lines, others, schema, self.other)
                    self.told.add({number: observer.result()})

    def _expected(
        self, split: Split, observer: JsonObserver
    ) -> Iterator[tuple[Sequence[bytes], Sequence[int]]]:
        """The lines of a split, some at a time, with the places of those that are not of the usual types, for as long as
        all is as expected; but all are observed."""
        line, expected, learnt = 1, True, -1
        for lines, _ in blocks(split):
            others = observer.feed(lines, split.path, line)
            line += len(lines)
            if expected and observer.learnt != learnt:
                seen, learnt = observer.result(), observer.learnt
                expected = not seen.tally.malformed and self.expected.shape.covers(seen.shape)
            if expected:
                yield lines, others

    def _usual(self, shape: RecordShape) -> RecordShape:
        return limited(shape, self.usual)


def arrow_type(usual: Source, depth: int = 0) -> Any:
    """The Arrow type that holds a field; None where Arrow has none that it parses, and hands over."""
    import pyarrow as pa

    dim, made = usual.dim or 0, None
    if depth + dim > _DEEPEST:
        return None
    match usual.kind:
        case "record":
            below = {key: arrow_type(child, depth + dim + 1) for key, child in usual.fields.items()}
            made = pa.struct(list(below.items())) if below and None not in below.values() else None
        case "text":
            made = pa.string()
        case "typed":
            made = {BOOLEAN: pa.bool_(), LONG: pa.int64(), DOUBLE: pa.float64()}.get(usual.type)  # type: ignore[arg-type]
    for _ in range(dim) if made is not None else ():
        made = pa.list_(made)
    return made


def limited(shape: RecordShape, usual: Source) -> RecordShape:
    """What of a shape has the usual types."""
    out = RecordShape()
    for key, field in shape.fields.items():
        parsed = usual.fields.get(key)
        if parsed is not None:
            out.fields[key] = _limited(field, parsed)
        elif not field.facets and not field.empty_lists and not field.empty_record:
            out.fields[key] = field  # null and nothing else
    return out


def _limited(field: FieldShape, usual: Source) -> FieldShape:
    dim = usual.dim or 0
    facets = {
        facet: seen if seen.record is None else replace(seen, record=limited(seen.record, usual))
        for facet, seen in field.facets.items()
        if facet.dim == dim and not seen.ragged and _fits(facet, usual)
    }
    return replace(
        field,
        facets=facets,
        empty_lists=min(field.empty_lists, dim),
        empty_record=field.empty_record and usual.kind == "record" and not dim,
    )


def _fits(facet: Facet, usual: Source) -> bool:
    if usual.kind == "record":
        return facet.base == RECORD
    if not isinstance(facet.base, Primitive):
        return False
    if usual.kind == "text":
        return facet.base.name in TEXT
    return facet.base == usual.type or (usual.type == DOUBLE and facet.base == LONG)


def _parsed(
    lines: Sequence[bytes], others: Sequence[int], schema: pa.Schema, other: str
) -> Iterator[pa.RecordBatch]:
    """The records of some lines; ``others``: the places of those that are to stay text."""
    import pyarrow as pa
    from pyarrow import json

    usual = list(lines)
    for place in others:
        usual[place] = b""
    text = b"\n".join(usual)
    texts = [line for line in map(lines.__getitem__, others) if line.strip()]
    try:
        table = json.read_json(
            pa.BufferReader(text),
            json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (
        pa.ArrowInvalid
    ):  # there is none, or something that it does not take, such as a key that stands twice
        yield _texts([line for line in lines if line.strip()], schema, other)
        return
    yield from table.append_column(other, pa.nulls(len(table), pa.string())).to_batches()
    if texts:
        yield _texts(texts, schema, other)


def _texts(lines: Sequence[bytes], schema: pa.Schema, other: str) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [pa.nulls(len(lines), field.type) for field in schema]
    texts = pa.array([line.decode() for line in lines], pa.string())
    return pa.RecordBatch.from_arrays([*columns, texts], [*schema.names, other])
