"""The field that would split a table best: one table of each of its values has the fewest cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import median

from driftline.core.schema.types import Path
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.table import TableSettings
from driftline.core.values import Malformed, parse
from driftline.ingest.assignment import MAX_TABLES
from driftline.ingest.deal import text_at
from driftline.sources.json_files import JsonFiles

_FIRST = 5000  # records that are looked at
_FEW = 30  # columns that are no burden in one table
_PRESENT = 0.95  # the share of records that have a field, at least
_SAVED = 0.5  # the share of cells that a split saves, at least
_RECORDS = 4  # of a table, on average, at least
_DEPTH = 2  # of fields that may split

Leaves = frozenset[Path]


@dataclass(frozen=True, slots=True)
class SplitByField:
    """A split of records by the values of a field.

    Attributes:
        columns: of a table, the median.
        cells: the share of the cells, records by columns, of one table for all.
    """

    field: Path
    tables: int
    columns: int
    cells: float


def advice(source: JsonFiles, settings: TableSettings, table: str) -> Iterator[str]:
    """Yield a hint at the pattern whose tables would have at most half of the cells, by the first records.

    Args:
        source: of the batch that is planned.
        settings: of the table.
        table: its name.
    """
    if source.workbooks or settings.records or settings.row_key is not None:
        return
    texts = (text for run in source.runs(settings) for text in run.lines if type(text) is bytes)
    first = list(islice(filter(None, map(_record, texts)), _FIRST))
    if split := best_split(first):
        namespace = table.rpartition(".")[0]
        yield (
            f"the pattern {namespace}.{{{spelled_path(split.field)}}} would make {split.tables} tables of {split.columns} "
            f"columns (median), with {split.cells:.0%} of the cells, by the first {len(first)} records"
        )


def best_split(records: Iterable[Mapping[str, object]], most: int = MAX_TABLES) -> SplitByField | None:
    """The split with the fewest cells; None if none saves half of them.

    Args:
        records: parsed JSON.
        most: tables that a split may make.
    """
    leaves = [(record, frozenset(_leaves(record, ()))) for record in records]
    counts = Counter(chain.from_iterable(shape for _, shape in leaves))
    if len(counts) < _FEW:
        return None
    frequent = [field for field, count in counts.items() if count >= _PRESENT * len(leaves)]
    splits = (_split(field, leaves, len(counts), most) for field in frequent if len(field) <= _DEPTH)
    possible = [split for split in splits if split is not None and split.cells <= _SAVED]
    return min(possible, key=lambda split: (split.cells, split.tables), default=None)


def _split(
    field: Path, leaves: Sequence[tuple[Mapping[str, object], Leaves]], width: int, most: int
) -> SplitByField | None:
    """A split by a field; None if too few records have it, or it has too many values.

    Args:
        field: of the records.
        leaves: the records, each with the paths of its leaves.
        width: the number of columns of one table for all.
        most: tables that a split may make.
    """
    of_values: dict[str | None, tuple[int, Leaves]] = {}
    for record, shape in leaves:
        value = text_at(record, field)
        count, union = of_values.get(value, (0, frozenset()))
        of_values[value] = (count + 1, union if shape <= union else union | shape)
        if len(of_values) > most:
            return None
    absent, _ = of_values.get(None, (0, frozenset()))
    if absent > (1 - _PRESENT) * len(leaves) or len(of_values.keys() - {None}) < 2:
        return None
    cells = sum(count * len(union) for count, union in of_values.values())
    if len(leaves) < _RECORDS * len(of_values):  # as a field that identifies records does
        return None
    columns = round(median(len(union) for _, union in of_values.values()))
    return SplitByField(field, len(of_values), columns, cells / (len(leaves) * width))


def _leaves(value: object, path: Path) -> Iterator[Path]:
    """The paths of a value's leaves that have a value; elements of lists have the path of their list."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for element in value:
            yield from _leaves(element, path)
    elif value is not None and path:
        yield path


def _record(text: bytes) -> Mapping[str, object] | None:
    try:
        return parse(text)
    except Malformed:
        return None
