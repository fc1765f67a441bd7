"""Prints the rows of a query as they stream in: JSON lines, or paged tables.

Each row comes as JSON, which Spark itself writes: numbers with all their digits, instants in UTC, bytes as
base64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from driftline.core.schema.types import STRING, TIMESTAMP, TIMESTAMP_NTZ
from driftline.errors import UsageError
from driftline.report.lines import Hanging, clean
from driftline.sql.casts import convert
from driftline.sql.quoting import each, literal, name, variable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

RowJson: TypeAlias = dict[str, Any]  # by column
LIMIT = 100  # rows that a terminal gets unasked
ENDLESS = 100_000  # characters of a line in a file or a pipe: nothing is cut there
PAGE = 500  # rows that share their columns' widths
GAP = 3  # characters between columns
NARROW = 8  # characters that a column needs at least, beside others


class QueryResult(Protocol):
    """The rows of a query."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of its columns."""
        ...

    def json(self, names: Sequence[str], limit: int) -> Iterator[str]:
        """Each row as a JSON object with these ``names``, at most ``limit`` of them (0: all)."""
        ...


class SparkRows:
    """The result of a query of Spark's."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.columns: Sequence[str] = frame.columns

    def json(self, names: Sequence[str], limit: int) -> Iterator[str]:
        """Each row as Spark writes it."""
        return _json(self._frame.limit(limit) if limit else self._frame, names)


class DuckDBRows:
    """The result of a query of DuckDB's."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches = batches
        self.columns: Sequence[str] = batches.schema.names

    def json(self, names: Sequence[str], limit: int) -> Iterator[str]:
        """Each row, its values as Spark writes them."""
        from driftline.report.row_json import row_objects  # late: Spark's rows do without Arrow

        rows = chain.from_iterable(row_objects(batch, names) for batch in self._batches)
        return islice(rows, limit or None)


class Json:
    """Each row as one JSON object a line, at most ``limit`` of them (0: all)."""

    def __init__(self, rows: QueryResult, limit: int) -> None:
        twice = sorted({c for c in rows.columns if rows.columns.count(c) > 1})
        if twice:
            raise UsageError(f"two columns of the result are named {twice[0]!r}", hint="rename one with AS")
        self._rows = _with_first(rows.json(rows.columns, limit))

    def show(self, _: Console) -> None:
        """Print each row as it arrives."""
        for line in self._rows:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class Pages:
    """The rows as tables of a page each, at most ``limit`` rows (0: all)."""

    def __init__(self, rows: QueryResult, limit: int) -> None:
        self._names = [clean(c) for c in rows.columns]
        self._limit = limit
        numbered = [str(i) for i in range(len(rows.columns))]
        self._rows = _with_first(rows.json(numbered, limit + 1 if limit else 0))

    def show(self, console: Console) -> None:
        """Print page after page, and a remark if there are no rows, or more than the limit."""
        shown = islice(self._rows, self._limit or None)
        count, cut = 0, False
        while page := [_cells(row) for row in islice(shown, PAGE)]:
            count += len(page)
            table, page_cut = _page(self._names, page, console)
            cut |= page_cut
            _print(table, console)
        if cut:
            console.print("… is cut to the terminal's width; --json prints whole values", style="dim")
        if not count and self._names:
            console.print(f"no rows ({', '.join(self._names)})", style="dim")
        elif next(self._rows, None) is not None:
            console.print(f"the first {self._limit} rows; --limit N shows more, --limit 0 all", style="dim")


def _with_first(rows: Iterator[str]) -> Iterator[str]:
    """Fetch the first row now, so that an error of the query comes before any output."""
    return chain(list(islice(rows, 1)), rows)


def _json(frame: DataFrame, names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    positions = [f"c{i}" for i in range(len(names))]
    columns = ", ".join(
        f"{literal(n)}, {_text(name(c), f.dataType)}"
        for n, c, f in zip(names, positions, frame.schema.fields, strict=True)
    )
    rows = frame.toDF(*positions).selectExpr(
        f"to_json(named_struct({columns}), map('ignoreNullFields', 'false'))"
    )
    for row in rows.toLocalIterator():
        yield row[0]


def _text(x: str, type_: DataType) -> str:
    """``x`` with what JSON has no type for as text, in the form that ingest writes it in, at any depth."""
    spark: Any = type_
    match type_.typeName():
        case "timestamp":
            return convert(x, TIMESTAMP, STRING, None)
        case "timestamp_ntz":
            return convert(x, TIMESTAMP_NTZ, STRING, None)
        case "array":
            return each(x, lambda v: _text(v, spark.elementType))
        case "map":
            k, v = variable("k"), variable("v")
            key, value = _text(k, spark.keyType), _text(v, spark.valueType)
            x = x if value == v else f"transform_values({x}, ({k}, {v}) -> {value})"
            return x if key == k else f"transform_keys({x}, ({k}, {v}) -> {key})"
        case "struct":
            members = [(f.name, x_f := f"{x}.{name(f.name)}", _text(x_f, f.dataType)) for f in spark.fields]
            if all(before == after for _, before, after in members):
                return x
            fields = ", ".join(f"{literal(n)}, {after}" for n, _, after in members)
            return f"if({x} is null, null, named_struct({fields}))"
        case kind if kind.startswith(("time(", "time", "interval")):
            return f"cast({x} as string)"
        case _:
            return x


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _cells(row: str) -> list[Text]:
    values = json.loads(row, parse_int=_Number, parse_float=_Number)
    return [_cell(value) for value in values.values()]


def _cell(value: Any) -> Text:
    match value:
        case None:
            return Text("null", "dim")
        case _Number():
            return Text(_digits(value), justify="right")
        case str():
            return Text(clean(value))
        case _:
            return Text(clean(_compact(value)))


def _digits(number: str) -> str:
    """The number, a long fraction without the zeros at its end.

    >>> _digits("19.50"), _digits("19.500000000000000000"), _digits("2.000000000000000000")
    ('19.50', '19.5', '2')
    """
    integer, _, fraction = number.partition(".")
    if len(fraction) <= 6 or not fraction.isdecimal():
        return number
    return f"{integer}.{fraction.rstrip('0')}".removesuffix(".")


def _compact(value: Any) -> str:
    """A nested value, its numbers as they were written."""
    match value:
        case dict():
            return (
                "{"
                + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_compact(v)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ", ".join(map(_compact, value)) + "]"
        case _Number():
            return _digits(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _print(page: RenderableType, console: Console) -> None:
    """Prints; in a file or a pipe without the blanks that fill the last column."""
    if console.is_terminal:
        console.print(page)
        return
    with console.capture() as lines:
        console.print(page)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in lines.get().splitlines())


def _page(names: list[str], rows: list[list[Text]], console: Console) -> tuple[RenderableType, bool]:
    """The rows as a table, and whether it cuts values."""
    natural = [max(cell_len(n), *(row[i].cell_len for row in rows)) for i, n in enumerate(names)]
    widths = _fair(natural, console.width - GAP * (len(names) - 1)) if console.is_terminal else natural
    if widths is None:
        return _upright(names, rows), False
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for i, n in enumerate(names):
        right = all(row[i].justify == "right" or row[i].style == "dim" for row in rows)
        out.add_column(
            Text(n), overflow="ellipsis", no_wrap=True, justify="right" if right else "left", width=widths[i]
        )
    for row in rows:
        out.add_row(*row)
    return out, widths != natural


def _fair(natural: list[int], room: int) -> list[int] | None:
    """Fit widths into ``room``: narrow columns keep theirs, wide ones share what remains. None: no room.

    >>> _fair([4, 50, 9, 80], 60)
    [4, 24, 9, 23]
    """
    if sum(natural) <= room:
        return natural
    widths = list(natural)
    remaining = room
    by_width = sorted(range(len(natural)), key=natural.__getitem__)
    for placed, i in enumerate(by_width):
        share = -(-remaining // (len(natural) - placed))
        widths[i] = min(natural[i], share)
        remaining -= widths[i]
        if widths[i] < min(natural[i], NARROW):
            return None
    return widths


def _upright(names: list[str], rows: list[list[Text]]) -> Group:
    """Too many columns for the terminal: one under the other."""
    width = max(map(cell_len, names))
    lines: list[Text | Hanging] = []
    for row in rows:
        for n, cell in zip(names, row, strict=True):
            lines.append(
                Hanging(Text.assemble((f"{n:{width}}  ", "bold"), Text(cell.plain, cell.style)), 0, width + 2)
            )
        lines.append(Text())
    return Group(*lines)
