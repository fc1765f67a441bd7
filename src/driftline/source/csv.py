"""CSV: a column is typed only if every text in it is what its typed value prints as (rules 2.3)."""

from __future__ import annotations

import csv
import gzip
import uuid
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from driftline.core.types import BOOLEAN, DATE, DOUBLE, LONG, TIMESTAMP, TIMESTAMP_NTZ, Primitive
from driftline.engine import FILES, literally
from driftline.errors import DataError, UsageError
from driftline.observe.numbers import EXACT
from driftline.route.convert import convert, from_text
from driftline.route.sql import name, spark_type
from driftline.source.base import rejected_columns
from driftline.source.files import ROW_FILE
from driftline.source.typed import TypedFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The narrowest first. What prints back is typed: "007" and "1.50" stay text.
_CANDIDATES = (BOOLEAN, LONG, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ)


def csv_frames(spark: SparkSession, files: Sequence[str], *, strings: bool) -> TypedFrames:
    """CSV files with a header line each, as one batch; files with the same header are read together.

    ``strings``: every cell stays text. Rows with too few or too many cells are rejected.
    """
    by_header: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        by_header.setdefault(_header(file), []).append(file)
    frames, bad, bad_count = [], None, 0
    for header, group in by_header.items():
        if not header:
            continue
        broken = f"__broken_{uuid.uuid4().hex}"
        ddl = ", ".join(f"{name(column)} string" for column in (*header, broken))
        cells = (
            spark.read.schema(ddl)
            .options(
                header=True, multiLine=True, escape='"', columnNameOfCorruptRecord=broken, columnPruning=False
            )
            .csv([literally(file) for file in group])
            # Spark refuses a query for the broken rows alone, and so does one that it can reduce to that.
            .where(f"length(coalesce({name(header[0])}, '')) >= 0")
        )
        good = cells.where(f"{name(broken)} is null").drop(broken)
        rejected = _rejected(cells, broken)
        if (count := rejected.count()) > 0:
            bad = rejected if bad is None else bad.union(rejected)
            bad_count += count
        frames.append((group[0], good if strings else _typed(good)))
    return TypedFrames(frames, bad, bad_count, conf=FILES, files=files)


def _header(file: str) -> tuple[str, ...]:
    try:
        with _open(file) as lines:
            header = tuple(next(csv.reader(lines), ()))
            for _ in lines:  # Spark would turn bytes that are not UTF-8 into U+FFFD, without a word.
                pass
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: byte {error.object[error.start]:#x} is not UTF-8", hint="convert the file to UTF-8"
        ) from error
    except (OSError, EOFError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise UsageError(f"{file}: two columns are named {twice[0]!r}", hint="rename one in the header")
    return header


def _open(file: str) -> IO[str]:
    if file.endswith((".gz", ".gzip")):
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return open(file, encoding="utf-8-sig", newline="")


def _typed(cells: DataFrame) -> DataFrame:
    """The same cells, each column in the type that all its texts print as."""
    checks = [
        f"coalesce(bool_and({_is(name(column), t)}), false) as {name(f'{i}_{t.name}')}"
        for i, column in enumerate(cells.columns)
        for t in _CANDIDATES
    ]
    filled = [f"count({name(column)}) as {name(f'{i}_cells')}" for i, column in enumerate(cells.columns)]
    answer = cells.selectExpr(*checks, *filled).head()
    assert answer is not None
    out = []
    for i, column in enumerate(cells.columns):
        type_ = next((t for t in _CANDIDATES if answer[f"{i}_{t.name}"]), None)
        typed = "string" if type_ is None else spark_type(type_)
        x = name(column)
        out.append(f"try_cast({x} as {typed}) as {x}" if answer[f"{i}_cells"] else f"null as {x}")
    return cells.selectExpr(*out)


def _is(x: str, t: Primitive) -> str:
    """Whether a text is null, or what its value of ``t`` prints as. A double's column may hold whole numbers."""
    if t.name in ("date", "timestamp", "timestamp_ntz"):
        from driftline.core.types import STRING

        return f"{x} is null or {convert(from_text(x, t, 'on'), t, STRING, None)} <=> {x}"
    printed = f"cast(try_cast({x} as {spark_type(t)}) as string) <=> {x}"
    if t == DOUBLE:
        whole = f"abs(try_cast({x} as bigint)) <= {EXACT} and cast(try_cast({x} as bigint) as string) <=> {x}"
        finite = f"{x} not in ('NaN', 'Infinity', '-Infinity')"
        return f"{x} is null or ({finite} and ({printed} or coalesce({whole}, false)))"
    return f"{x} is null or {printed}"


def _rejected(cells: DataFrame, broken: str) -> DataFrame:
    from pyspark.sql import functions as F

    return cells.where(f"{name(broken)} is not null").select(
        *rejected_columns(
            raw=F.col(name(broken)),
            reason=F.lit("not as many cells as the header"),
            source=F.expr(ROW_FILE),
        )
    )
