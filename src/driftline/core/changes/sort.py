"""Sort terms as sort keys: columns through transforms, or expressions where the table's format has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from driftline.core.changes.values import SortTerm, Term
from driftline.core.schema.definition import IDENTITY, TAKES, SortExpression, SortField, SortKey
from driftline.core.schema.text import quoted
from driftline.core.schema.types import Schema
from driftline.errors import DataError

# The parts of a SortExpression, out of its text and the columns that there are.
PartsOf: TypeAlias = Callable[[str, Schema], tuple[str | int, ...]]


def sort_key(
    sort_term: SortTerm, schema: Schema, source_of: Callable[[Term], int], parts_of: PartsOf | None
) -> SortKey:
    """The sort key of a term; in a format with expressions a transform is the function of that name.

    ``source_of``: the id of a term's column. ``parts_of``: None if the format has no expressions. Raises
    DataError, UsageError for a term the table cannot be sorted by.
    """
    term = sort_term.term
    if isinstance(term, Term) and (parts_of is None or term.transform == IDENTITY):
        return SortField(source_of(term), term.transform, sort_term.descending, sort_term.nulls_first)
    if parts_of is None:
        raise DataError(
            f"an Iceberg table is sorted by columns and transforms of them, not by {term}",
            f"transforms are {', '.join(TAKES)}",
        )
    text = term if isinstance(term, str) else term.transform.of(".".join(map(quoted, term.path)))
    return SortExpression(parts_of(text, schema), sort_term.descending, sort_term.nulls_first)
