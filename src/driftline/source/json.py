"""JSON text: files of lines or documents, and a string column of a DataFrame.

Observed in Python tasks, read by Spark's own JSON reader. Where that is not enough (malformed lines, documents,
numbers whose text matters) the lines come through Python once more, checked and tagged: the careful road.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from driftline.core.routes import Plan, Settings
from driftline.core.types import Schema, Struct
from driftline.engine import CASE, FILES
from driftline.observe.json_files import Split, observe_split, read_split, splits_of
from driftline.observe.json_lines import JsonObserver, reason
from driftline.observe.numbers import tag_numbers
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import expect
from driftline.route import Source, json_source, select
from driftline.route.source import has_twins, tags_needed
from driftline.route.sql import literal, name
from driftline.source.base import REJECTED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SMALL = 8 * 2**20  # bytes that are observed faster here than by starting a Python worker
_BATCH = 16 * 2**20  # bytes of text in one Arrow batch
_LINES = f"text string, {REJECTED}"


@dataclass(slots=True)
class JsonFiles:
    """Files of JSON lines, or documents, as one batch."""

    spark: SparkSession
    files: Sequence[str]
    splits: list[Split] = field(default_factory=list)
    careful: bool = False
    checked: DataFrame | None = None
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        self.splits = [split for file in self.files for split in splits_of(file)]
        observe = partial(observe_split, expect(schema, settings.mark), settings)
        if _here(self.spark, sum(s.length for s in self.splits)):
            seen = [observe(split) for split in self.splits]
        else:
            seen = self._in_tasks(observe)
        self.splits, whole = _numbered(self.splits, seen)
        self.careful = self.careful or whole.tally.careful
        return whole

    def _in_tasks(self, observe: Callable[[Split], Observation]) -> list[Observation]:
        """Each split observed; one task a core, because starting a Python task costs as much as ten megabytes."""
        sc = self.spark.sparkContext
        shares = _shared(self.splits, sc.defaultParallelism)
        parts = sc.parallelize(shares, len(shares)).map(partial(_observe_share, observe)).collect()
        by_place = dict(pair for part in parts for pair in part)
        return [by_place[i] for i in range(len(self.splits))]

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        if not (self.careful or tag):
            frame = self.spark.read.schema(_ddl(parsed)).options(**_options()).json(list(self.files))
            return _selected(frame, select(struct, plan.route, parsed, settings), struct)
        shares = _shared(self.splits, 2 * self.spark.sparkContext.defaultParallelism)
        self.checked = self.spark.range(0, len(shares), 1, len(shares)).mapInArrow(
            partial(_read_shares, shares, tag), _LINES
        )
        return _routed(self.checked, plan, parsed, struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return _rejected(self.checked, everything)

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


@dataclass(slots=True)
class JsonColumn:
    """A DataFrame's string column of JSON text; each text is a record."""

    frame: DataFrame
    column: str
    checked: DataFrame | None = None
    careful: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The frame's own plan runs under these too: it keeps its way with case, unless the keys need another.
        spark = self.frame.sparkSession
        self.conf = {**FILES, CASE: str(spark.conf.get(CASE))}

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        import pickle

        texts = self.frame.select(name(self.column))
        seen = texts.mapInArrow(
            partial(_observe_texts, expect(schema, settings.mark), settings, self.column), "seen binary"
        ).collect()
        whole = merge_observations(pickle.loads(row.seen) for row in seen)  # noqa: S301  our own bytes
        self.careful = self.careful or whole.tally.careful
        return whole

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        texts = self.frame.selectExpr(f"{name(self.column)} as text")
        if has_twins(parsed):
            self.frame.sparkSession.conf.set(CASE, "true")
        if self.careful or tag:
            self.checked = texts = texts.mapInArrow(partial(_check_texts, tag, self.column), _LINES)
        return _routed(texts, plan, parsed, struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return _rejected(self.checked, everything)

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


# What both share ---------------------------------------------------------------------------------------------


def _here(spark: SparkSession, size: int) -> bool:
    """Whether observing in this process is as good as in a task: little text, and the files are on this machine."""
    return size <= _SMALL and str(spark.sparkContext.master).startswith("local")


_Share = list[tuple[int, Split]]


def _shared(splits: Sequence[Split], tasks: int) -> list[_Share]:
    """The splits, with their places, dealt out to so many tasks, the largest first to the least laden."""
    shares: list[_Share] = [[] for _ in range(max(1, min(tasks, len(splits))))]
    laden = [0] * len(shares)
    for i, split in sorted(enumerate(splits), key=lambda s: -s[1].length):
        least = laden.index(min(laden))
        shares[least].append((i, split))
        laden[least] += split.length
    return shares


def _observe_share(observe: Callable[[Split], Observation], share: _Share) -> list[tuple[int, Observation]]:
    return [(i, observe(split)) for i, split in share]


def _numbered(splits: list[Split], seen: Sequence[Observation]) -> tuple[list[Split], Observation]:
    """Lines counted within each split become lines of the file."""
    out, shifted = [], []
    file, line = "", 1
    for split, one in zip(splits, seen, strict=True):
        line = line if split.path == file else 1
        file = split.path
        out.append(split.at_line(line))
        shifted.append(one.shifted(line - 1))
        line += one.lines
    return out, merge_observations(shifted)


def _options() -> dict[str, str]:
    return {
        "mode": "FAILFAST",
        "lineSep": "\n",
        "encoding": "UTF-8",
        "allowNonNumericNumbers": "false",
        # A column of the data may have Spark's default name for this one.
        "columnNameOfCorruptRecord": f"__corrupt_{uuid.uuid4().hex}",
        "maxNestingDepth": "100000",
        "maxNumLen": "2000000000",
        "maxStringLen": "2000000000",
    }


def _ddl(parsed: Source) -> str:
    fields = [f"{name(key)} {child.ddl}" for key, child in parsed.fields.items()]
    return ", ".join(fields or [f"`__none_{uuid.uuid4().hex}` string"])


def _routed(texts: DataFrame, plan: Plan, parsed: Source, struct: Struct, settings: Settings) -> DataFrame:
    """The texts that are records, parsed and routed."""
    good = texts.where("text is not null")
    options = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in _options().items() if k != "lineSep")
    record = good.selectExpr(f"from_json(text, {literal(_ddl(parsed))}, map({options})) as r")
    return _selected(record, select(struct, plan.route, parsed, settings, row="r"), struct)


def _selected(frame: DataFrame, columns: Sequence[str], struct: Struct) -> DataFrame:
    return frame.selectExpr(
        *(f"{sql} as {name(f.name)}" for sql, f in zip(columns, struct.fields, strict=True))
    )


def _rejected(checked: DataFrame | None, everything: str | None) -> DataFrame | None:
    if checked is None:
        return None
    columns = ["raw", "raw_bytes", "reason", "source", "line"]
    if everything is None:
        return checked.where("text is null").select(*columns)
    return checked.selectExpr(
        "coalesce(raw, text) as raw",
        "raw_bytes",
        f"coalesce(reason, {literal(everything)}) as reason",
        "source",
        "line",
    )


# Python tasks ------------------------------------------------------------------------------------------------


def _read_shares(
    shares: Sequence[_Share], tag: str | None, ids: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for i in batch.column(0).to_pylist():
            for _, split in shares[i]:
                yield from _checked(read_split(split), tag, split.path)


def _check_texts(tag: str | None, column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lines = ((None, text.encode()) for text in batch.column(0).to_pylist() if text is not None)
        yield from _checked(lines, tag, column)


def _checked(
    lines: Iterable[tuple[int | None, bytes]], tag: str | None, source: str
) -> Iterator[pa.RecordBatch]:
    """Each record's text, tagged if asked for, or the reason why it is none."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for line, raw in lines:
        if not raw.strip():
            continue
        why = reason(raw)
        rows.append(_row(line, raw, why, tag, source))
        size += len(raw)
        if size >= _BATCH:
            yield _record_batch(rows)
            rows, size = [], 0
    if rows:
        yield _record_batch(rows)


def _row(line: int | None, raw: bytes, why: str | None, tag: str | None, source: str) -> tuple[Any, ...]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None, raw.decode(errors="backslashreplace"), raw, why, source, line
    if why is not None:
        return None, text, None, why, source, line
    return (tag_numbers(text, tag) if tag else text), None, None, None, source, line


def _record_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    types = [pa.string(), pa.string(), pa.binary(), pa.string(), pa.string(), pa.int64()]
    names = ["text", "raw", "raw_bytes", "reason", "source", "line"]
    columns = [pa.array(values, t) for values, t in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names)


def _observe_texts(
    known: Any, settings: Settings, column: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    observer = JsonObserver(known, settings)
    line = 1
    for batch in batches:
        texts = batch.column(0).to_pylist()
        observer.feed([b"" if text is None else text.encode() for text in texts], column, line)
        line += len(texts)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])
