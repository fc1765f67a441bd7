"""Counts the values of columns, at any depth, by reading rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from driftline.core.schema.types import List, Map, Path, Schema, Struct, Type, dotted
from driftline.formats.base import CatalogTable, Draft, State
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.quoting import name, variable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ValueCount:
    """The number of values in a column; ``before``: at the time it was dropped, None if unknown."""

    path: str
    count: int
    before: int | None = None


@dataclass(slots=True)
class ColumnCounter:
    """Counts the values of columns, over several tries: of rows that others have appended since the last
    one, and of no others, as all of them would take longer than the next commit takes to come.
    """

    table: CatalogTable
    state: State | None = None
    appended: DataFrame | None = None
    _hidden: dict[Path, ValueCount] = field(default_factory=dict)
    _back: dict[Path, ValueCount] = field(default_factory=dict)

    def refresh(self) -> None:
        """Note the changes that others have made since."""
        before, self.state = self.state, self.table.load()
        fits = before is not None and before.fits(self.state)
        self.appended = self.table.appended(before, self.state) if before is not None and fits else None
        if self.appended is None:
            self._hidden, self._back = {}, {}

    def hidden(
        self,
        schema: Schema,
        paths: Sequence[Path],
        stated: Callable[[], Mapping[Path, int]] = dict,
    ) -> tuple[ValueCount, ...]:
        """The number of values the table has in the columns.

        ``stated``: returns numbers that metadata state of the present rows, which are not read then.
        """
        new = [path for path in paths if path not in self._hidden]
        numbers = stated() if new else {}
        unknown = [path for path in new if path not in numbers]
        counted = {path: ValueCount(dotted(path), numbers[path]) for path in new if path in numbers}
        counted |= _by_path(unknown, count_values(self.rows, schema, unknown))
        if (appended := self.appended) is not None:
            old = [path for path in paths if path in self._hidden]
            more = _by_path(old, count_values(lambda: appended, schema, old))
            counted |= {p: replace(v, count=v.count + self._hidden[p].count) for p, v in more.items()}
        self._hidden = counted
        return tuple(counted[path] for path in paths)

    def back(self, draft: Draft, schema: Schema, paths: Sequence[Path]) -> tuple[ValueCount, ...]:
        """The number of values in columns that return: appended rows have none."""
        new = [path for path in paths if path not in self._back]
        self._back |= _by_path(new, count_values(draft.read, schema, new))
        return tuple(self._back[path] for path in paths)

    def rows(self) -> DataFrame:
        """The rows of the table, as it was last looked at."""
        assert self.state is not None
        if self.table.readable(self.state.schema) != self.state.schema:
            return self.table.read_readable()
        return self.table.transaction(self.state).read()


def _by_path(paths: Sequence[Path], counts: Sequence[ValueCount]) -> dict[Path, ValueCount]:
    return dict(zip(paths, counts, strict=True))


def count_values(
    read: Callable[[], DataFrame], schema: Schema, paths: Sequence[Path]
) -> tuple[ValueCount, ...]:
    """Count the values of columns in one pass over the rows that ``read`` returns, if there are columns."""
    if not paths:
        return ()
    struct: Type = schema.struct
    rows = read()
    with configured(rows.sparkSession, PLAIN):
        row = rows.selectExpr(
            *(f"sum({_count(struct, path, '')}) as c{i}" for i, path in enumerate(paths))
        ).head()
    assert row is not None
    return tuple(ValueCount(dotted(path), int(row[i] or 0)) for i, path in enumerate(paths))


def _count(type_: Type, path: Path, x: str) -> str:
    """SQL for how many values of the column at ``path`` the value
    ``x`` of this type holds; x empty: the row.
    """
    if not path:
        return f"if({x} is null, 0L, 1L)"
    match type_:
        case Struct():
            field = type_.get(path[0])
            assert field is not None
            inner = f"{x}.{name(path[0])}" if x else name(path[0])
            return _count(field.type, path[1:], inner)
        case List():
            return _summed(x, type_.element, path[1:])
        case Map():
            return _summed(f"map_values({x})", type_.value, path[1:])
    raise AssertionError(path)


def _summed(array: str, element: Type, path: Path) -> str:
    total, item = variable("n"), variable("x")
    return (
        f"coalesce(aggregate({array}, 0L, ({total}, {item}) -> {total} + {_count(element, path, item)}), 0L)"
    )
