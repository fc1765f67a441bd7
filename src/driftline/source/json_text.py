"""Texts of JSON, checked and routed: what files and columns of JSON share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.types import Struct, dotted
from driftline.observe.json_lines import JsonObserver, reason
from driftline.observe.numbers import tag_numbers
from driftline.observe.walk import Expect
from driftline.route import Source, select
from driftline.route.sql import literal, name
from driftline.source.base import REJECTED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LINES = f"text string, {REJECTED}"
_COLUMNS: dict[str, str] = dict(tuple(pair.split()) for pair in LINES.split(", "))  # type: ignore[misc]
_BATCH = 16 * 2**20  # bytes of text in one Arrow batch


class Origin(NamedTuple):
    """Where one record came from: a line of a file, or an offset of a topic's partition."""

    source: str | None = None
    line: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


def reader_options() -> dict[str, str]:
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


def ddl_of(parsed: Source) -> str:
    fields = [f"{name(key)} {child.ddl}" for key, child in parsed.fields.items()]
    return ", ".join(fields or [f"`__none_{uuid.uuid4().hex}` string"])


def from_json(text: str, parsed: Source) -> str:
    """SQL of the record of a text."""
    options = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in reader_options().items() if k != "lineSep")
    return f"from_json({text}, {literal(ddl_of(parsed))}, map({options}))"


def routed(
    texts: DataFrame,
    plan: Plan,
    parsed: Source,
    struct: Struct,
    settings: Settings,
    carried: str | None = None,
) -> DataFrame:
    """The texts that are records, parsed and routed. ``carried``: a column that goes along as it is, by its name."""
    along = [] if carried is None else [name(carried)]
    record = texts.where("text is not null").selectExpr(f"{from_json('text', parsed)} as r", *along)
    columns = select(struct, plan.route, parsed, settings, row="r")
    ways = (name(f.name) if f.name == carried else sql for f, sql in zip(struct.fields, columns, strict=True))
    return selected(record, list(ways), struct)


def selected(frame: DataFrame, columns: Sequence[str], struct: Struct) -> DataFrame:
    return frame.selectExpr(
        *(f"{sql} as {name(f.name)}" for sql, f in zip(columns, struct.fields, strict=True))
    )


def completed(frame: DataFrame, parsed: Source, columns: Sequence[str], struct: Struct) -> DataFrame:
    """The columns of a parsed frame, in any order: of most, which are as they should be, there may be thousands."""
    from pyspark.sql import functions as F

    if not parsed.fields.keys() <= {f.name for f in struct.fields}:
        return selected(frame, columns, struct)
    other = {f.name: sql for f, sql in zip(struct.fields, columns, strict=True) if sql != name(f.name)}
    return frame.withColumns({column: F.expr(sql) for column, sql in other.items()})


def rejected_lines(lines: DataFrame | None, everything: str | None) -> DataFrame | None:
    """Of checked lines those that are no records; or all, for the reason ``everything``."""
    if lines is None:
        return None
    if everything is None:
        return lines.where("text is null").drop("text")
    return lines.selectExpr(
        "coalesce(raw, text) as raw",
        "raw_bytes",
        f"coalesce(reason, {literal(everything)}) as reason",
        *(column for column in _COLUMNS if column not in ("text", "raw", "raw_bytes", "reason")),
    )


@dataclass(frozen=True, slots=True)
class Check:
    """What lines are checked against: ``known`` of the table, the ``judge``, if one is asked, and the ``tag`` of
    numbers, if they are tagged."""

    known: Expect
    settings: Settings
    judge: Judge | None
    tag: str | None

    def verdict(self) -> Callable[[bytes, Origin], str | Conflict | None]:
        """A function that says why a line is no record of the table's; None if it is."""
        if self.judge is None:
            return lambda line, _: reason(line)
        observer = JsonObserver(self.known, self.settings, self.judge)
        return lambda line, origin: observer.look(line, origin.source or "", origin.line or 0)


def checked(lines: Iterable[tuple[Origin, bytes]], check: Check) -> Iterator[pa.RecordBatch]:
    """Each record's text, tagged if asked for, or the reason why it is none; the columns are `LINES`."""
    verdict = check.verdict()
    rows: list[tuple[Any, ...]] = []
    size = 0
    for origin, raw in lines:
        if not raw.strip():
            continue
        why = verdict(raw, origin)
        rows.append(_accepted(raw, check.tag, origin) if why is None else _rejected(raw, why, origin))
        size += len(raw)
        if size >= _BATCH:
            yield _record_batch(rows)
            rows, size = [], 0
    if rows:
        yield _record_batch(rows)


def rejects(texts: Iterable[tuple[Origin, bytes, str]]) -> pa.RecordBatch:
    """Texts that are no records, each with its reason, as `LINES`."""
    return _record_batch([_rejected(raw, why, origin) for origin, raw, why in texts])


def _accepted(raw: bytes, tag: str | None, origin: Origin) -> tuple[Any, ...]:
    text = raw.decode()
    return (tag_numbers(text, tag) if tag else text), None, None, None, None, None, None, *origin


def _rejected(raw: bytes, why: str | Conflict, origin: Origin) -> tuple[Any, ...]:
    told = (
        (why, None, None, None)
        if isinstance(why, str)
        else (why.why, dotted(why.path), why.table_type, why.incoming_type)
    )
    try:
        return None, raw.decode(), None, *told, *origin
    except UnicodeDecodeError:
        return None, raw.decode(errors="backslashreplace"), raw, *told, *origin


def _record_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    arrow = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
    columns = [
        pa.array(values, arrow[type_])
        for values, type_ in zip(zip(*rows, strict=True), _COLUMNS.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, list(_COLUMNS))
