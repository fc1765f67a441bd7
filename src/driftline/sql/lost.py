"""SQL for the values that folding columns into one would lose, and for values in the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from driftline.core.columns.folding import TEMPORARY, FieldSite, Resolution
from driftline.core.columns.siblings import Fields, MergedField, families, spelled
from driftline.core.columns.statistics import SeenIn, SeenInJson
from driftline.core.planning.own_columns import is_type_key, rest_column, spelled_field, steps
from driftline.core.schema.types import STRING, List, Map, Path, Primitive, Schema, Struct, Type, peel
from driftline.core.support import as_json
from driftline.sql.casts import convert
from driftline.sql.fold import Fold
from driftline.sql.quoting import bind, literal, name, variable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Folding:
    """A resolution as SQL over the rows of a table of ``struct``."""

    struct: Struct
    resolution: Resolution
    fold: Fold

    def rows(self, remainder: dict[Path, list[str]]) -> list[str]:
        """The table's columns, and the new ones: the folded one, and the leftovers of the columns in
        ``remainder``.
        """
        return [f"{sql} as {name(n)}" for n, sql in self._fields(self.struct, (), "", remainder)]

    def folds(self) -> str:
        """An array with one struct for each record that has the field: ``n`` is the site's number, ``lost``
        has a boolean for each of its columns, ``sample`` is a value that is lost.
        """
        return " || ".join(
            self._entries_below(self.struct, site.parent, "", self._fold(i, site))
            for i, site in enumerate(self.resolution.sites)
        )

    def _fields(
        self, struct: Struct, path: Path, prefix: str, remainder: dict[Path, list[str]]
    ) -> Iterator[tuple[str, str]]:
        for f in struct.fields:
            yield f.name, self._value(f.type, (*path, f.name), prefix + name(f.name), remainder)
        for site in self.resolution.sites:
            if site.parent == path:
                folded = self._one(site, prefix)
                yield TEMPORARY, folded
                for i, c in enumerate(site.folded):
                    if c.name in remainder[path]:
                        x = prefix + name(c.name)
                        yield f"{TEMPORARY}_{i}", f"if({self._lost(c.type, x, folded)}, {x}, null)"

    def _value(self, type_: Type, path: Path, x: str, remainder: dict[Path, list[str]]) -> str:
        if not any(site.parent[: len(path)] == path for site in self.resolution.sites):
            return x
        match type_:
            case Struct():
                fields = ", ".join(
                    f"{sql} as {name(n)}" for n, sql in self._fields(type_, path, f"{x}.", remainder)
                )
                return f"if({x} is null, null, struct({fields}))"
            case List(element):
                e = variable()
                return f"transform({x}, {e} -> {self._value(element, (*path, 'element'), e, remainder)})"
            case Map(_, value):
                k, v = variable("k"), variable("v")
                return f"transform_values({x}, ({k}, {v}) -> {self._value(value, (*path, 'value'), v, remainder)})"
        raise AssertionError(type_)

    def _one(self, site: FieldSite, prefix: str) -> str:
        columns = [(c, prefix + name(c.name)) for c in site.folded]
        return self.fold.field(columns, self.resolution.merged)

    def _fold(self, number: int, site: FieldSite) -> Callable[[str], str]:
        def entry(prefix: str) -> str:
            """SQL of an array with the record's struct, empty where the record does not have the field."""
            folded = self._one(site, prefix)
            columns = [(c.type, prefix + name(c.name)) for c in site.folded]
            has_value = " or ".join(f"{x} is not null" for _, x in columns)

            def entry_of(folded_value: str) -> str:
                """SQL of the record's struct, for its folded value."""
                lost = [self._lost(t, x, folded_value) for t, x in columns]
                texts = (f"if({no}, {_text(t, x)}, null)" for no, (t, x) in zip(lost, columns, strict=True))
                listed = f"array({', '.join(lost)})"
                sample = f"coalesce({', '.join(texts)})"
                return f"named_struct('n', {number}, 'lost', {listed}, 'sample', {sample})"

            # Bound to a name, as the SQL of a fold is long, and each column asks for it.
            return f"if({has_value}, array({bind(folded, entry_of)}), array())"

        return entry

    def _entries_below(self, type_: Type, path: Path, x: str, entry: Callable[[str], str]) -> str:
        """The entries of all records at the path; ``x`` empty: the row."""
        match type_:
            case Struct():
                if not path:
                    return entry(f"{x}." if x else "")
                f = type_.get(path[0])
                assert f is not None
                nested = f"{x}.{name(path[0])}" if x else name(path[0])
                return self._entries_below(f.type, path[1:], nested, entry)
            case List(element):
                return self._flat(x, element, path, entry)
            case Map(_, value):
                return self._flat(f"map_values({x})", value, path, entry)
        raise AssertionError(type_)

    def _flat(self, array: str, element: Type, path: Path, entry: Callable[[str], str]) -> str:
        e = variable()
        entries = f"if({e} is null, array(), {self._entries_below(element, path[1:], e, entry)})"
        return f"coalesce(flatten(transform({array}, {e} -> {entries})), array())"

    def _lost(self, type_: Type, x: str, folded: str) -> str:
        """SQL that is true if a column's value ``x`` holds anything that its ``folded`` value lacks."""
        to = self.resolution.merged
        # It is the folded value.
        if spelled(type_) == spelled(to.type):
            return "false"
        if to.value is not None and isinstance(type_, Struct):
            value = to.value
            lost = (
                _lost_value(
                    column.type, f"{x}.{name(column.name)}", f"{folded}[{literal(family.key)}]", value
                )
                for family in families([type_], self.fold.mark)
                for column in family.columns
            )
            return f"coalesce({' or '.join(lost)}, false)"
        if to.value is not None:
            assert isinstance(type_, Map)
            k = variable("k")
            lost_value = _lost_value(type_.value, f"{x}[{k}]", f"{folded}[{k}]", to.value)
            return f"coalesce(exists(map_keys({x}), {k} -> {lost_value}), false)"
        return _lost_value(type_, x, folded, to)


def _lost_value(type_: Type, x: str, folded: str, to: MergedField) -> str:
    """SQL that is true if a plain value, or list of such, holds anything that ``folded`` lacks.

    Any other value is there whole or not at all.
    """
    dim, base = peel(type_)
    if to.base is None or not isinstance(base, Primitive) or dim > to.dim:
        return f"({x} is not null and {folded} is null)"
    lists = to.dim - dim
    return _exceeds(f"{'array(' * lists}{x}{')' * lists}", folded, to.dim)


def _exceeds(x: str, folded: str, dim: int) -> str:
    if not dim:
        return f"({x} is not null and {folded} is null)"

    def compared(v: str, w: str) -> str:
        """SQL, true where the list ``v`` has a value that ``w`` lacks."""
        e, f, b = variable(), variable(), variable()
        pairs = f"zip_with({v}, {w}, ({e}, {f}) -> {_exceeds(e, f, dim - 1)})"
        return f"coalesce(if({w} is null, {_has_value(v, dim)}, exists({pairs}, {b} -> {b})), false)"

    return bind(x, lambda v: bind(folded, lambda w: compared(v, w)))


def _has_value(x: str, dim: int) -> str:
    if not dim:
        return f"{x} is not null"
    e = variable()
    return f"exists({x}, {e} -> {_has_value(e, dim - 1)})"


def _text(type_: Type, x: str) -> str:
    return convert(x, type_, STRING, None) if isinstance(type_, Primitive) else f"to_json({x})"


MOST = 1_000  # paths
_SAMPLE = 200  # characters
_AT_ONCE = 10_000  # paths that a task counts before it reports them

Counts = dict[str, tuple[int, str]]  # by path: how many values, and one of them


class WaitingValuesJson(TypedDict):
    """Values that wait in the rest at one path."""

    path: str
    values: int
    sample: str
    first_seen: SeenInJson | None


@dataclass(frozen=True, slots=True)
class WaitingValues:
    """Values that wait at one ``path``, elements of lists as steps of the name ``element``, keys of maps of
    the name ``value``. ``sample``: one of them, as JSON text; ``first``: the batch that brought the first,
    None where that is not known.
    """

    path: str
    values: int
    sample: str
    first: SeenIn | None = None

    def to_dict(self) -> WaitingValuesJson:
        """The form that `--json` prints."""
        return as_json(WaitingValuesJson, self, first_seen=self.first)


def waiting(rows: DataFrame, schema: Schema, mark: str) -> tuple[WaitingValues, ...]:
    """The values waiting in rows of a table: at most `MOST` paths, those with most values first.

    ``mark``: the prefix of docs of evolved columns.
    """
    from pyspark.sql import functions as F

    column = rest_column(schema.struct)
    if column is None or column.name not in rows.columns:
        return ()
    entries = rows.select(name(column.name)).where(f"{name(column.name)} is not null")
    parts = entries.mapInArrow(
        partial(_counted, Fields([schema.struct], mark)), "path string, n long, sample string"
    )
    counted = parts.groupBy("path").agg(F.expr("sum(n) as n"), F.expr("min(sample) as sample"))
    most = counted.orderBy("n", "path", ascending=[False, True]).limit(MOST).collect()  # one row a path
    return tuple(WaitingValues(row["path"], row["n"], row["sample"]) for row in most)


def most_waiting(counts: Mapping[str, int], schema: Schema, mark: str) -> dict[str, int]:
    """The numbers of values that wait by field, as `waiting` finds them.

    Args:
        counts: by path in the rest.
        schema: of the table.
        mark: the prefix of docs of evolved columns.
    """
    fields, numbers = Fields([schema.struct], mark), Counter[str]()
    for path, number in counts.items():
        numbers[spelled_field(fields.path(steps(path)))] += number
    most = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return dict(most[:MOST])


def _counted(fields: Fields, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts: Counts = {}
    for batch in batches:
        for entries in batch.column(0).to_pylist():
            for path, text in entries or ():
                if not is_type_key(path):
                    _count(counts, spelled_field(fields.path(steps(path))), text[:_SAMPLE])
        if len(counts) > _AT_ONCE:
            yield _as_rows(counts)
            counts = {}
    yield _as_rows(counts)


def _count(counts: Counts, path: str, sample: str) -> None:
    number, least = counts.get(path, (0, sample))
    counts[path] = number + 1, min(least, sample)


def _as_rows(counts: Counts) -> pa.RecordBatch:
    import pyarrow as pa

    numbers, samples = [n for n, _ in counts.values()], [sample for _, sample in counts.values()]
    arrays = [
        pa.array(list(counts), pa.string()),
        pa.array(numbers, pa.int64()),
        pa.array(samples, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, ["path", "n", "sample"])
