"""Counts all values of a table with Spark: every column, also in lists and maps, at any depth.

There is one pass for each depth of lists, over as many columns at once as Spark handles well. Lists of one
depth are exploded side by side, so that a pass reads each row once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from driftline.core.columns.siblings import drifted_fields
from driftline.core.columns.statistics import Numbers, TableStatistics, Value, shown
from driftline.core.planning.plan import facet_of
from driftline.core.planning.policies.preserve import takes
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    peel,
)
from driftline.runtime.spark_conf import INTERPRETED, LOOK, configured
from driftline.sql.quoting import name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from driftline.formats.base import CatalogTable


@dataclass(frozen=True, slots=True)
class Siblings:
    """A field's columns in one struct, narrow before wide.

    Attributes:
        path: the path of the struct, and the field's key.
        keys: the same by keys of the data.
    """

    path: Path
    columns: tuple[Field, ...]
    keys: Path = ()

    @property
    def places(self) -> tuple[Path, ...]:
        """The paths of the columns."""
        return tuple((*self.path[:-1], c.name) for c in self.columns)

    def below(self, column: Field) -> list[Field]:
        """The columns whose values go into ``column``, too, or may."""
        return [
            c
            for c in self.columns
            if c is not column and (goes(c, column, self.columns) or may_go(c, column))
        ]

    @property
    def groups(self) -> list[tuple[Field, ...]]:
        """Each column alone, followed by each pair with an earlier column.

        The columns of a pair take each other's values.
        """
        out: list[tuple[Field, ...]] = []
        for i, column in enumerate(self.columns):
            twins = [c for c in self.columns[:i] if c in self.below(column) and column in self.below(c)]
            out += [(column,), *((twin, column) for twin in twins)]
        return out


def drifted(schema: Schema, mark: str) -> Iterator[Siblings]:
    """The fields that have several columns, parents first."""
    for place in drifted_fields(schema, mark):
        yield Siblings(place.path, narrow_first(place.columns), place.keys)


def narrow_first(columns: Sequence[Field]) -> tuple[Field, ...]:
    """Order the columns so that each follows those whose values it takes too."""
    count = [sum(goes(column, c, columns) for column in columns if column is not c) for c in columns]
    order = sorted(range(len(columns)), key=lambda i: (count[i], i))
    return tuple(columns[i] for i in order)


def goes(column: Field, target: Field, among: Sequence[Field]) -> bool:
    """True if values of one column's type are in the other column too."""
    if any(
        isinstance(m := peel(c.type)[1], Map) and not isinstance(m.key, Primitive) for c in (column, target)
    ):
        return False
    narrow, wide = facet_of(column.type), facet_of(target.type)
    if not isinstance(peel(target.type)[1], Struct):
        return takes(wide, narrow)
    # All records are in the record column of the largest dimension; another one has those of its own only.
    largest = max(peel(c.type)[0] for c in among if isinstance(peel(c.type)[1], Struct))
    return wide.dim == largest and takes(wide, narrow)


def may_go(column: Field, target: Field) -> bool:
    """True if numbers of one column are in the other too, where they came as JSON's and are exact in both."""
    narrow, wide = facet_of(column.type), facet_of(target.type)
    bases = [base.name if isinstance(base := facet.base, Primitive) else "" for facet in (narrow, wide)]
    by_value = bases[0] in ("float", "decimal") and bases[1] in ("long", "double")
    return by_value and narrow.dim <= wide.dim and not (takes(wide, narrow) or takes(narrow, wide))


@dataclass(frozen=True, slots=True)
class Own:
    """Values that came in the type of these columns: more than one where each takes the other's values."""

    columns: tuple[Field, ...]
    values: int | None
    about: bool = False


def own_values(siblings: Siblings, values: Mapping[int, int | None]) -> list[Own]:
    """The own values of each column, in files that have the columns.

    Args:
        values: all values, by column id.

    >>> from driftline.core.schema.types import LONG, STRING
    >>> both = Siblings(("a",), (Field("a", LONG, 1), Field("a_string", STRING, 2)))
    >>> [(o.columns[0].name, o.values) for o in own_values(both, {1: 3, 2: 5})]
    [('a', 3), ('a_string', 2)]
    """
    out: list[Own] = []
    present = [c for c in siblings.columns if c.id in values]
    twins = {
        group[0].id: group
        for group in siblings.groups
        if len(group) == 2 and all(c in present for c in group)
    }
    paired = {c.id for group in twins.values() for c in group}
    for column in present:
        if column.id in twins:
            out += _twins(*twins[column.id], values)
        elif column.id not in paired:
            lower = [o for o in out if all(goes(c, column, siblings.columns) for c in o.columns)]
            # How many numbers are in both columns, their counts do not tell.
            shared = values[column.id] != 0 and any(values[c.id] != 0 for c in present if may_go(c, column))
            out.append(Own((column,), None) if shared else _less(column, values[column.id], lower))
    return out


def rewritten_values(siblings: Siblings, values: Mapping[int, int | None]) -> list[Own]:
    """A column's own values in rewritten files.

    Their rows may be older than a column, or folded into one since: a column's values are certainly its own
    only if no column beside it has values that go there.
    """
    present = [c for c in siblings.columns if c.id in values]
    return [
        Own((c,), None if any(values.get(b.id, 0) != 0 for b in siblings.below(c)) else values[c.id])
        for c in present
    ]


def _less(column: Field, values: int | None, lower: Sequence[Own]) -> Own:
    if values is None or any(o.values is None for o in lower):
        return Own((column,), None)
    lower_values = sum(o.values or 0 for o in lower)
    # A value that is not exact in the wider column is not in it: then there are more than what is left.
    inexact = any(o.about or _inexact(c, column) for o in lower for c in o.columns if o.values)
    return Own((column,), max(values - lower_values, 0), inexact)


def _inexact(narrow: Field, wide: Field) -> bool:
    names = [t.name if isinstance(t := peel(c.type)[1], Primitive) else "" for c in (narrow, wide)]
    return names[1] in ("long", "double") and names[0] not in ("boolean", "int", "float", names[1])


def _twins(first: Field, second: Field, values: Mapping[int, int | None]) -> list[Own]:
    """Timestamps and longs, say: a value may be in both columns, whichever it was."""
    a, b = values[first.id], values[second.id]
    if a is None or b is None:
        return [Own((first,), None), Own((second,), None)]
    both = min(a, b)
    shares = [
        Own((first,), a - both, bool(both)),
        Own((second,), b - both, bool(both)),
        Own((first, second), both, True),
    ]
    return [o for o in shares if o.values]


# Wide tables are counted in several passes: the code that Spark compiles for one grows with its columns.
_AT_ONCE = 120  # columns in a pass, where it is compiled
_AT_ONCE_INTERPRETED = 500
_FEW = 5_000  # records: for fewer of a wide table, a pass is compiled longer than it would be interpreted
_TEXT = 200  # characters of a sample or a bound
_NUMBERS = ("boolean", "int", "long", "float", "double", "decimal")
_WITHOUT_BOUNDS = ("variant", "unknown")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Link:
    """A list or a map, by its quoted steps from the row, or from the element that it is in."""

    steps: tuple[str, ...]
    map: bool = False

    def sql(self, root: str) -> str:
        """SQL of the list, or of the map's entries as a list, from ``root``."""
        array = _joined(root, self.steps)
        return f"map_entries({array})" if self.map else array


Chain: TypeAlias = tuple[Link, ...]
Roots: TypeAlias = Mapping[Chain, str]


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """The position of a column's values.

    Attributes:
        chain: leads through lists to the element.
        steps: lead on from there.
        inside: the id of the innermost list; None for the rows themselves.
    """

    path: Path
    id: int
    type: Type
    chain: Chain
    steps: tuple[str, ...]
    inside: int | None

    def sql(self, roots: Roots) -> str:
        """SQL of the column, from the root of its innermost list."""
        return _joined(roots[self.chain], self.steps)


@dataclass(frozen=True, slots=True)
class Exact:
    """The counts of a scan.

    Attributes:
        own: by field, the values that came in the type of each of its columns, and one of them.
    """

    records: int
    numbers: Mapping[int, Numbers]
    own: Mapping[Path, Sequence[tuple[Own, str | None]]]


def exact(
    frame: DataFrame,
    schema: Schema,
    drifted: Sequence[Siblings],
    progress: Callable[[str], None] = lambda _: None,
) -> Exact:
    """Scan the rows of ``frame`` for the counts of all columns, and the own values of ``drifted`` fields.

    Args:
        progress: called with the present step.
    """
    places = list(_inside(schema.struct, (), (), (), None))
    with configured(frame.sparkSession, LOOK):
        progress("counting records")
        records = frame.count()
    few = records < _FEW and len(places) > _AT_ONCE
    at_once = _AT_ONCE_INTERPRETED if few else _AT_ONCE
    with configured(frame.sparkSession, INTERPRETED if few else LOOK):
        sizes: dict[int | None, int] = {None: records}
        numbers: dict[int, Numbers] = {}
        for chains, pass_items in _passes([(p.chain, p) for p in places], at_once):
            progress(f"counting values, {len(numbers)} of {len(places)} columns done")
            numbers |= _count(frame, chains, pass_items, sizes)
        by_path = {p.path: p for p in places}
        fields = [(by_path[s.places[0]].chain, s) for s in drifted]
        by_field: dict[Path, list[tuple[Own, str | None]]] = {}
        for chains, siblings in _passes(fields, at_once):
            progress("dividing the values of drifted fields by their types")
            by_field |= _divide(frame, chains, siblings, by_path)
    return Exact(records, numbers, by_field)


def _inside(
    type_: Type, parent: Path, chain: Chain, steps: tuple[str, ...], inside: int | None
) -> Iterator[ColumnPlace]:
    """The columns in a type, lists before what is in them."""
    match type_:
        case Struct(fields):
            for f in fields:
                yield from _place(f, parent, chain, (*steps, name(f.name)), inside)
        case List(_, element_id):
            (element,) = children(type_)
            yield from _place(element, parent, (*chain, Link(steps)), (), element_id)
        case Map(_, _, key_id, _):
            for side in children(type_):
                yield from _place(side, parent, (*chain, Link(steps, map=True)), (side.name,), key_id)


def _place(
    f: Field, parent: Path, chain: Chain, steps: tuple[str, ...], inside: int | None
) -> Iterator[ColumnPlace]:
    path = (*parent, f.name)
    yield ColumnPlace(path, f.id, f.type, chain, steps, inside)
    yield from _inside(f.type, path, chain, steps, inside)


def _joined(root: str, steps: Sequence[str]) -> str:
    return ".".join(filter(None, [root, *steps]))


def _passes(work: Sequence[tuple[Chain, T]], at_once: int) -> Iterator[tuple[list[Chain], list[T]]]:
    """Divide the work into passes: each of one depth, and not too large."""
    depths = sorted({len(chain) for chain, _ in work})
    for depth in depths:
        same = [(chain, item) for chain, item in work if len(chain) == depth]
        for start in range(0, len(same), at_once):
            pass_items = same[start : start + at_once]
            yield list(dict.fromkeys(chain for chain, _ in pass_items)), [item for _, item in pass_items]


def _unfolded(frame: DataFrame, chains: Sequence[Chain], paths: Iterable[Path]) -> tuple[DataFrame, Roots]:
    """One row for each element of the lists at the end of the chains, side by side, and the names of these.

    Args:
        paths: the columns to keep; all others are left out, for they make Spark slow.
    """
    frame = frame.select(*dict.fromkeys(name(path[0]) for path in paths))
    roots: dict[Chain, str] = {(): ""}
    for depth in range(1, len(chains[0]) + 1):
        chains_here = list(dict.fromkeys(chain[:depth] for chain in chains))
        called = {chain: f"x{i}" for i, chain in enumerate(chains_here)}
        # Zipped before they are exploded: one explode for each list would make rows of all combinations.
        arrays = [f"coalesce({c[-1].sql(roots[c[:-1]])}, array()) as {called[c]}" for c in chains_here]
        zipped = f"explode(arrays_zip({', '.join(called.values())})) as z"
        frame = frame.selectExpr(*arrays).selectExpr(zipped).selectExpr(*(f"z.{x}" for x in called.values()))
        roots = called
    return frame, roots


def _count(
    frame: DataFrame, chains: Sequence[Chain], places: Sequence[ColumnPlace], sizes: dict[int | None, int]
) -> dict[int, Numbers]:
    from pyspark.sql import functions as F

    rows, roots = _unfolded(frame, chains, [p.path for p in places])
    measures = [sql for i, place in enumerate(places) for sql in _measures(i, place.type, place.sql(roots))]
    row = rows.agg(*map(F.expr, measures)).first()
    assert row is not None
    for i, place in enumerate(places):
        if isinstance(place.type, List | Map):
            first = children(place.type)[0].id
            # Lists come before what is in them, so the next pass knows of how many elements its values are.
            sizes[first] = row[f"z{i}"] or 0
    return {p.id: _numbers(row, i, p.type, sizes[p.inside]) for i, p in enumerate(places)}


def _measures(i: int, type_: Type, x: str) -> Iterator[str]:
    yield f"count({x}) as n{i}"
    yield f"first({_text(type_, x)}, true) as s{i}"
    if isinstance(type_, List | Map):
        # Outside of ANSI mode, `size` of null is -1.
        yield f"sum(if({x} is null, null, size({x}))) as z{i}"
    elif isinstance(type_, Primitive) and type_.name not in _WITHOUT_BOUNDS:
        yield f"approx_count_distinct({x}) as d{i}"
        for side, extreme in (("l", f"min({x})"), ("h", f"max({x})")):
            yield f"{extreme if type_.name in _NUMBERS else _text(type_, extreme)} as {side}{i}"


def _numbers(row: Row, i: int, type_: Type, records: int) -> Numbers:
    values, sample = row[f"n{i}"], row[f"s{i}"]
    if not isinstance(type_, Primitive) or type_.name in _WITHOUT_BOUNDS or not values:
        return Numbers(
            values,
            records,
            sample=sample,
            distinct=0 if isinstance(type_, Primitive) and not values else None,
        )
    # The estimate of distinct values may exceed the number of all values.
    low, high = (shown(row[f"{side}{i}"], type_) for side in "lh")
    return Numbers(
        values, records, False, low, high, _is_cut(low), _is_cut(high), min(row[f"d{i}"], values),
        _sample(sample, type_),
    )  # fmt: skip


def _is_cut(value: object) -> bool:
    # Spark has cut it, or it is exactly so long: then the bound only looks less exact than it is.
    return isinstance(value, str) and len(value) == _TEXT


def _text(type_: Type, x: str) -> str:
    """A value as text, not too long."""
    if not isinstance(type_, Primitive) or type_.name == "variant":
        return f"left(to_json({x}), {_TEXT})"
    if type_.name in ("binary", "fixed"):
        return f"left(base64({x}), {_TEXT})"
    return f"left(cast({x} as string), {_TEXT})"


def _divide(
    frame: DataFrame, chains: Sequence[Chain], fields: Sequence[Siblings], places: Mapping[Path, ColumnPlace]
) -> dict[Path, list[tuple[Own, str | None]]]:
    from pyspark.sql import functions as F

    rows, roots = _unfolded(frame, chains, [path for s in fields for path in s.places])
    measures = []
    for i, siblings in enumerate(fields):
        sql = {
            c.id: places[path].sql(roots) for c, path in zip(siblings.columns, siblings.places, strict=True)
        }
        for k, group in enumerate(siblings.groups):
            is_own = _own(siblings, group, sql)
            text = _text(group[0].type, sql[group[0].id])
            measures += [
                f"count_if({is_own}) as n{i}_{k}",
                f"first(if({is_own}, {text}, null), true) as s{i}_{k}",
            ]
    row = rows.agg(*map(F.expr, measures)).first()
    assert row is not None
    return {
        siblings.path: [
            (Own(group, row[f"n{i}_{k}"]), _sample(row[f"s{i}_{k}"], group[0].type))
            for k, group in enumerate(siblings.groups)
            if row[f"n{i}_{k}"] or len(group) == 1
        ]
        for i, siblings in enumerate(fields)
    }


def peek(frames: Sequence[tuple[DataFrame, Siblings, Field]], schema: Schema) -> list[str | None]:
    """For each column, a value of its frame that is its own; None without any.

    All are looked up in one job, which stops at the first value.
    """
    places = {p.path: p for p in _inside(schema.struct, (), (), (), None)}
    looks = []
    for i, (frame, siblings, column) in enumerate(frames):
        chain = places[siblings.places[0]].chain
        rows, roots = _unfolded(frame, [chain], siblings.places)
        sql = {
            c.id: places[path].sql(roots) for c, path in zip(siblings.columns, siblings.places, strict=True)
        }
        text = _text(column.type, sql[column.id])
        looks.append(
            rows.where(_own(siblings, (column,), sql)).selectExpr(f"{i} as i", f"{text} as value").limit(1)
        )
    if not looks:
        return []
    with configured(frames[0][0].sparkSession, LOOK):
        samples = {row["i"]: row["value"] for row in reduce(lambda a, b: a.union(b), looks).collect()}
    return [_sample(samples.get(i), column.type) for i, (_, _, column) in enumerate(frames)]


def _sample(text: str | None, type_: Type) -> str | None:
    if text is None or not isinstance(type_, Primitive):
        return text
    return str(shown(text, type_))


def _own(siblings: Siblings, group: Sequence[Field], sql: Mapping[int, str]) -> str:
    """SQL that is true if a row's value is the columns' own: they have one, and no narrower column has."""
    narrower = {c.id for column in group for c in siblings.below(column)} - {c.id for c in group}
    tests = [f"{sql[c.id]} is not null" for c in group]
    tests += [f"{sql[c.id]} is null" for c in siblings.columns if c.id in narrower]
    return " and ".join(tests)


PEEKS = 40  # columns that are looked into at most

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def samples(
    table: CatalogTable, schema: Schema, fields: Sequence[Siblings], statistics: TableStatistics
) -> dict[int, str]:
    """Samples by column id. Where bounds do not serve, a few values are read, of one batch each."""
    by_column, missing = by_bounds(fields, statistics)
    readable = {f.id for _, f in table.readable(schema).walk()}
    peeked = [m for m in missing if {c.id for c in m[0].columns} <= readable][:PEEKS]
    looked_up = peek(
        [(_batch(table, statistics, column), siblings, column) for siblings, column in peeked], schema
    )
    return by_column | {
        column.id: text for (_, column), text in zip(peeked, looked_up, strict=True) if text is not None
    }


def by_bounds(
    fields: Sequence[Siblings], statistics: TableStatistics
) -> tuple[dict[int, str], list[tuple[Siblings, Field]]]:
    """Samples by column id from bounds, and the columns with values for which bounds do not serve."""
    bounds: dict[int, str] = {}
    missing: list[tuple[Siblings, Field]] = []
    for siblings in fields:
        for column in siblings.columns:
            # A bound serves as a sample if no narrower column could hold it: then it came in this type.
            text = own_sample(column, siblings.below(column), statistics.firsts.get(column.id))
            if text is not None:
                bounds[column.id] = text
            elif statistics.counts.numbers(column.id).values != 0:
                missing.append((siblings, column))
    return bounds, missing


def _batch(table: CatalogTable, statistics: TableStatistics, column: Field) -> DataFrame:
    """The rows of the batch that brought the column; all rows if that is unknown."""
    snapshots = statistics.counts.snapshots
    place = statistics.counts.first_place(column.id)
    if place is None or place == 0 or not snapshots[place].born:
        return table.read_readable()
    appended = table.read_appended(snapshots[place - 1].id, snapshots[place].id)
    return table.read_readable() if appended is None else appended


def own_sample(column: Field, narrower: Sequence[Field], bounds: Numbers | None) -> str | None:
    """The lower or the upper bound, whichever none of the ``narrower`` columns could hold.

    None if neither is such.

    >>> from driftline.core.columns.statistics import Numbers
    >>> from driftline.core.schema.types import LONG, STRING
    >>> own_sample(Field("a_string", STRING), [Field("a", LONG)], Numbers(low="12", high="12 EUR"))
    '12 EUR'
    """
    if bounds is None:
        return None
    for value, cut in ((bounds.low, bounds.low_cut), (bounds.high, bounds.high_cut)):
        if value is not None and not any(_holds(c, value) for c in narrower):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return text + "…" * cut
    return None


def _holds(column: Field, value: Value) -> bool:
    """True if the column could have held a value that is written so."""
    type_ = peel(column.type)[1]
    text = str(value)
    if not isinstance(type_, Primitive):
        return False
    match type_.name:
        case "boolean":
            return text.lower() in ("true", "false")
        case "int" | "long":
            return bool(re.fullmatch(r"-?\d+", text)) and -(2**63) <= int(text) < 2**63
        case "float" | "double" | "decimal":
            return bool(_NUMBER.fullmatch(text))
        case "date" | "timestamp" | "timestamp_ntz":
            return bool(_DATE.match(text))
        case _:
            return False
