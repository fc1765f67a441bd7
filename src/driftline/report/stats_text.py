"""Text about a table's statistics, for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from driftline.core.columns.file_sizes import MANY
from driftline.core.columns.statistics import TREND, SeenIn, Value, to_minute
from driftline.core.planning.own_columns import field_of
from driftline.core.schema.schema_json import outline
from driftline.core.schema.text import noun
from driftline.core.schema.types import dotted
from driftline.report.lines import Hanging, clean, shell, size
from driftline.stats.lake import PatternStats, by_pattern
from driftline.stats.model import (
    ColumnStatistics,
    DriftedField,
    ExpectationOverTime,
    Stats,
    TypeShare,
    origin,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_WAITING = 5  # paths of the rest
_PARTITIONS = 5  # of the largest
_PARTITION = 60  # characters of a partition
WIDE = 60  # columns: of a wider table only what drifted is shown
_BARS = "▁▂▃▄▅▆▇█"
_NARROW = 100  # characters of a line
_TYPE, _DATE = 15, 10  # characters
_VALUE = 24  # characters of a bound or a sample
_NAMED_BY = 40  # characters of the values that named a table
_COUNTS = (">records", ">columns", ">drifted", ">quarantine", ">rest", "last commit")
# What is cut where there is little room, and what part of it each gets.
_TEXTS = {"drifted field": 2, "sample": 2, "column": 2, "min": 1, "max": 1, "expectation": 1, "condition": 2}


def stats(table: Stats, *, all_columns: bool = False) -> Iterator[RenderableType]:
    """The table in one line, what drifted, and its columns."""
    yield _heading(table)
    yield from _notes(table)
    yield from _files(table)
    if table.drifted:
        yield Text()
        yield _Drifted(table.drifted)
    yield from _waiting(table)
    for waiting in table.waiting[:5]:
        line = Text.assemble(("quarantine  ", "yellow"), f"{waiting.records:,} × {clean(waiting.reason)}")
        yield Hanging(line.append(f"  {_cut(waiting.sample, 60)}", "dim"), 2, 6)
    if table.split is not None:
        command, by = table.split.command(table.table), f"by {table.split.records:,} of its rows"
        line = Text.assemble(("split  ", "cyan"), (clean(command), "bold"))
        yield Hanging(line.append(f" would make {table.split.outcome}, {by}"), 2, 6)
    if table.expectations:
        yield Text()
        yield _Expectations(table.expectations)
    yield Text()
    if all_columns or table.leaves <= WIDE:
        yield _Columns(table)
    else:
        yield Text.assemble(
            f"{table.leaves:,} columns: --all lists them, ",
            ("driftline stats TABLE PATH…", "bold"),
            " some of them",
        )
    yield _LeftOut()


def _waiting(table: Stats) -> Iterator[RenderableType]:
    """The rest by path, and how to promote it."""
    for entry in table.rest[:_WAITING]:
        line = Text.assemble(("rest  ", "yellow"), f"{entry.values:,} × {clean(entry.path)}")
        if entry.first is not None:
            line.append(f"  since {_seen(entry.first)}", "dim")
        yield Hanging(line.append(f"  {_cut(clean(entry.sample), 60)}", "dim"), 2, 6)
    if len(table.rest) > _WAITING:
        yield Text(f"  and {len(table.rest) - _WAITING} paths more in the rest: --json has them", "dim")
    path = next((entry.path for entry in table.rest if "" not in field_of(entry.path)), None)
    if path is not None:
        yield Text(
            f"  driftline promote {shell(table.table)} {shell(path)} makes columns of it, --all of everything",
            "dim",
        )


def lake(
    tables: Sequence[Stats], *, all_tables: bool = False, more: str = "its `tables`"
) -> Iterator[RenderableType]:
    """A line for each table of a lake, and one for all that a pattern made.

    Args:
        tables: by name.
        all_tables: with a line for each of those, too.
        more: where a reader finds them otherwise.
    """
    grid = _table("table", *_COUNTS)
    shown = tables if all_tables else list(by_pattern(tables))
    for row in shown:
        if isinstance(row, PatternStats):
            title = f"{clean(row.pattern)}  {len(row.tables)} tables"
            narrowest, widest = row.leaves
            columns = _number(widest) if narrowest == widest else f"{_number(narrowest)}–{_number(widest)}"
            grid.add_row(title, *_counts(row, columns))
        else:
            grid.add_row(clean(row.table), *_counts(row, _number(row.leaves)))
    yield grid
    if len(shown) < len(tables):
        yield Text(f"the tables of a pattern have one line: see {more}", "dim")


def of_pattern(tables: Sequence[Stats]) -> Iterator[RenderableType]:
    """A line for each table of a pattern, with the values that named it."""
    grid = _table("table", "named by", *_COUNTS)
    for table in tables:
        named_by = " and ".join(", ".join(text or "" for text in values) for values in table.named_by)
        grid.add_row(clean(table.table), _cut(named_by, _NAMED_BY), *_counts(table, _number(table.leaves)))
    yield grid


def _counts(row: Stats | PatternStats, columns: str) -> tuple[str, ...]:
    """The cells of `_COUNTS`."""
    commit = "" if row.at is None else to_minute(row.at)
    numbers = (row.drifted_fields, row.quarantined, row.waiting_values)
    return (_number(row.records), columns, *map(_number, numbers), commit)


def percent(share: float | None) -> str:
    """A share as people read it: never 0 % or 100 % unless it is.

    >>> percent(0.9996), percent(0.5), percent(0.0001), percent(1), percent(None)
    ('>99 %', '50 %', '<1 %', '100 %', '?')
    """
    if share is None:
        return "?"
    if 0 < share < 0.005:
        return "<1 %"
    if 0.995 <= share < 1:
        return ">99 %"
    return f"{share * 100:.0f} %"


def _heading(table: Stats) -> Text:
    counts = [
        f"{'at most ' * table.at_most}{_number(table.records)} {noun(table.records or 0, 'record')}",
        _many(table.batches, "batch", "batches"),
        _many(table.leaves, "column", "columns"),
        _many(table.drifted_fields, "drifted field", "drifted fields"),
    ]
    if table.quarantined:
        counts.append(f"{table.quarantined:,} in quarantine")
    return Text.assemble((clean(table.table), "bold"), f"  {', '.join(counts)}")


def _notes(table: Stats) -> Iterator[Text]:
    if not table.exact:
        yield Text("  from metadata; ? = unknown, --exact counts it", "dim")
    if table.deleted:
        yield Text(
            f"  {table.deleted:,} deleted rows are still in the columns' numbers; not with --exact", "dim"
        )


def _files(table: Stats) -> Iterator[RenderableType]:
    """The data files, those that a compaction gathers, and the largest partitions, where there are many."""
    sizes = table.sizes
    if table.files is None or not (table.files >= MANY or sizes.partitions):
        return
    partitions = f" in {_many(sizes.partitions, 'partition', 'partitions')}" if sizes.partitions else ""
    line = Text(f"  {_many(table.files, 'file', 'files')}{partitions}, {size(table.bytes)}")
    if sizes.small:
        line.append(f", {sizes.small:,} small: ", "yellow")
        line.append(f"driftline compact {shell(table.table)} gathers them", "dim")
    yield line
    if sizes.partitions > 1:
        grid = _table("partition", ">files", ">small", ">size")
        for of_place in sizes.largest[:_PARTITIONS]:
            small = f"{of_place.small:,}" if of_place.small else ""
            name = _cut(of_place.partition or "none", _PARTITION)
            grid.add_row(name, f"{of_place.files:,}", small, size(of_place.bytes))
        yield Padding(grid, (0, 0, 0, 2))


@dataclass(frozen=True, slots=True)
class _Drifted:
    """Each drifted field with its types; in little space without counts, bars and times."""

    fields: Sequence[DriftedField]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < _NARROW
        heads = ["drifted field", "type", ">values", "share", "sample", "since", "column"]
        if narrow:
            heads.remove(">values")
        rows = [
            _part_cells(dotted(field.path) if i == 0 else "", part, narrow)
            for field in self.fields
            for i, part in enumerate(field.parts)
        ]
        yield _fitted(heads, rows, options.max_width)


def _part_cells(field: str, part: TypeShare, narrow: bool) -> dict[str, Text | str]:
    """The cells of one type of a drifted field, by column head."""
    share = percent(part.share) if part.share or (narrow and part.records is None) else ""
    if narrow and share and not (part.records is None or part.at_least):
        share = "~" * part.about + share
    return {
        "drifted field": Text(clean(field), "bold yellow"),
        "type": _cut(part.name, 30),
        ">values": _values(part),
        "share": f"{share:>5}" if narrow or not share else f"{bar(part.share)} {share:>5}",
        "sample": Text(_cut(part.sample or "", _VALUE), "dim"),
        "since": _seen(part.first)[: _DATE if narrow else None],
        "column": Text(", ".join(clean(path[-1]) for path in part.columns), "cyan"),
    }


@dataclass(frozen=True, slots=True)
class _Expectations:
    """Each expectation with its violations; in little space without trends and times of day."""

    expectations: Sequence[ExpectationOverTime]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < _NARROW
        heads = ["expectation", "else", ">violations", ">share", "last", "trend", "condition"]
        if narrow:
            heads.remove("trend")
        rows = [_expectation_cells(expectation, narrow) for expectation in self.expectations]
        yield _fitted(heads, rows, options.max_width)


def _expectation_cells(expectation: ExpectationOverTime, narrow: bool) -> dict[str, Text | str]:
    """The cells of one expectation, by column head."""
    last = expectation.last
    return {
        "expectation": Text(clean(expectation.name), "bold"),
        "else": expectation.action or "",
        ">violations": _number(expectation.violations),
        ">share": "" if expectation.share is None else percent(expectation.share),
        "last": "" if last is None else to_minute(last.at)[: _DATE if narrow else None],
        "trend": Text(spark(expectation.trend[-TREND:]), "yellow"),
        "condition": "no longer expected" if expectation.condition is None else clean(expectation.condition),
    }


class _LeftOut:
    """In little space: what stands in a wider terminal only."""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < _NARROW:
            yield Text(
                f"  {_NARROW} columns of a terminal have room for counts by type, times and trends", "dim"
            )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Each column with its numbers; in little space without trends and times of day."""

    stats: Stats

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < _NARROW
        numbers = [">values", ">density", *([">distinct"] if self.stats.exact else [])]
        last = [] if narrow and self.stats.exact else ["last seen"]
        heads = ["column", "type", *numbers, "min", "max", *last, *([] if narrow else ["trend"])]
        shown = {column.path for column in self.stats.columns}
        rows = [_column_cells(column, column.path[:-1] in shown, narrow) for column in self.stats.columns]
        yield _fitted(heads, rows, options.max_width)


def _column_cells(column: ColumnStatistics, nested: bool, narrow: bool) -> dict[str, Text | str]:
    """The cells of a column, by column head."""
    n = column.numbers
    title = Text(clean("  " * (len(column.path) - 1) + column.path[-1] if nested else dotted(column.path)))
    if origin(column) is not None:
        title.append(f" ← {clean(str(column.key))}", "yellow")
    return {
        "column": title,
        "type": _cut(outline(column.type), 24),
        ">values": ("≥" if n.at_least else "") + _number(n.values),
        ">density": ("≥" if n.at_least else "") + percent(n.density),
        ">distinct": _number(n.distinct) if n.distinct is not None else "",
        "min": _value(n.low, n.low_cut),
        "max": _value(n.high, n.high_cut),
        "last seen": _seen(n.last)[: _DATE if narrow else None],
        "trend": Text(spark(n.trend), "green"),
    }


def _fitted(heads: Sequence[str], rows: Sequence[Mapping[str, Text | str]], width: int) -> RenderableType:
    """The rows as a table. Where there is little room names, samples and bounds are cut, and long types."""
    table = _table(*heads)
    columns = dict(zip(heads, table.columns, strict=True))
    # rich shrinks numbers as readily as names, and drops the last columns, so the widths are computed here.
    widths = {
        head: max([cell_len(head.strip(">")), *(cell_len(str(row[head])) for row in rows)]) for head in heads
    }
    if sum(widths.values()) + 2 * len(heads) > width:
        if "type" in widths:
            widths["type"] = min(widths["type"], _TYPE)
        texts = sorted(
            (head for head in _TEXTS if head in widths), key=lambda head: widths[head] / _TEXTS[head]
        )
        room = width - 2 * len(heads) - sum(widths[head] for head in heads if head not in _TEXTS)
        for i, head in enumerate(texts):  # the shorter first, which may leave some of its part to the others
            part = room * _TEXTS[head] // sum(_TEXTS[later_head] for later_head in texts[i:])
            widths[head] = min(widths[head], max(part, 1))
            room -= widths[head]
    for head, column in columns.items():
        column.max_width = widths[head]
    for row in rows:
        table.add_row(*(row[head] for head in heads))
    return Padding(table, (0, 0, 0, 2))


def _table(*heads: str) -> Table:
    """A table with these heads; ``>`` in front of one aligns its column to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        name = head.removeprefix(">")
        table.add_column(name, justify="right" if name != head else "left", no_wrap=True)
    return table


def bar(share: float | None, width: int = 8) -> str:
    """A share as a bar.

    >>> bar(0.5, 4), bar(0.01, 4)
    ('██  ', '▏   ')
    """
    eighths = max(round((share or 0) * width * 8), 1 if share else 0)
    blocks, remainder = divmod(eighths, 8)
    return ("█" * blocks + ("▏▎▍▌▋▊▉"[remainder - 1] if remainder else "")).ljust(width)


def spark(trend: Sequence[float | None]) -> str:
    """The share of records with a value, batch by batch; a dot for none, a blank if unknown.

    >>> spark((0.0, 0.5, 1.0, None))
    '·▅█ '
    """
    return "".join(" " if v is None else "·" if v == 0 else _BARS[round(v * 7)] for v in trend)


def _values(part: TypeShare) -> str:
    return ("≥" if part.at_least else "~" if part.about else "") + _number(part.records)


def _value(value: Value | None, cut: bool) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _cut(f"{text}…" if cut else text, _VALUE)


def _seen(batch: SeenIn | None) -> str:
    return to_minute(batch.at) if batch else ""


def _number(n: int | None) -> str:
    return "?" if n is None else f"{n:,}"


def _cut(text: str, to: int) -> str:
    text = clean(text)
    return text if len(text) <= to else f"{text[: to - 1].rstrip('…')}…"


def _many(n: int, singular: str, plural: str) -> str:
    return f"{n:,} {noun(n, singular, plural)}"
