"""The field that would split the records of a batch best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from driftline.core.schema.types import Path
from driftline.core.settings.table import TableSettings
from driftline.core.values import Malformed, parse
from driftline.ingest import split_by_field
from driftline.ingest.deal import text_at
from driftline.sources.json_files import JsonFiles

Leaves = frozenset[Path]


def advice(source: JsonFiles, settings: TableSettings, table: str, *, exists: bool) -> Iterator[str]:
    """Yield a hint at the pattern whose tables would have at most half of the cells, by the first records.

    Args:
        source: of the batch that is planned.
        settings: of the table.
        table: its name.
        exists: it has rows, which can be split.
    """
    if source.workbooks or settings.records or settings.row_key is not None:
        return
    texts = (text for run in source.runs(settings) for text in run.lines if type(text) is bytes)
    first = list(islice(filter(None, map(_record, texts)), split_by_field.FIRST))
    if split := best_split(first):
        pattern = f"{table.rpartition('.')[0]}.{{{split.spelled}}}"
        there = f"; `{split.command(table)}` makes them of rows that are there" if exists else ""
        yield f"the pattern {pattern} would make {split.outcome}, by the first {len(first)} records{there}"


def best_split(
    records: Iterable[Mapping[str, object]], most: int = split_by_field.MOST
) -> split_by_field.SplitByField | None:
    """The split with the fewest cells; None if none saves half of them.

    Args:
        records: parsed JSON.
        most: tables that a split may make.
    """
    leaves = [(record, frozenset(_leaves(record, ()))) for record in records]
    counts = Counter(chain.from_iterable(shape for _, shape in leaves))
    frequent = [field for field, count in counts.items() if split_by_field.is_frequent(count, len(leaves))]
    groups = (
        (field, _by_value(field, leaves, most)) for field in frequent if len(field) <= split_by_field.DEPTH
    )
    return split_by_field.best_of(groups, len(counts))


def _by_value(
    field: Path, leaves: Sequence[tuple[Mapping[str, object], Leaves]], most: int
) -> split_by_field.Groups:
    """The records of each value of a field; none if it has too many values.

    Args:
        field: of the records.
        leaves: the records, each with the paths of its leaves.
        most: tables that a split may make.
    """
    of_values: dict[str | None, tuple[int, Leaves]] = {}
    for record, shape in leaves:
        value = text_at(record, field)
        count, union = of_values.get(value, (0, frozenset()))
        of_values[value] = (count + 1, union if shape <= union else union | shape)
        if len(of_values) > most:
            return {}
    return {value: (count, len(union)) for value, (count, union) in of_values.items()}


def _leaves(value: object, path: Path) -> Iterator[Path]:
    """The paths of a value's leaves that have a value; elements of lists have the path of their list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for element in value:
            yield from _leaves(element, path)
    elif value is not None and path:
        yield path


def _record(text: bytes) -> Mapping[str, object] | None:
    try:
        return parse(text)
    except Malformed:
        return None
