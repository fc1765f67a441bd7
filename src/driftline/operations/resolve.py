"""`resolve`: folds the columns of a drifted field into one, in one commit.

Values that do not convert stay in a column of their own. The rows are rewritten with the new columns and
the old ones, and the old ones are dropped in the same commit, so `undo` takes a resolve back like any drop,
values included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from driftline.core.changes import AddColumn, diff
from driftline.core.columns.folding import Resolution, resolution
from driftline.core.history.entries import of_resolve
from driftline.core.planning.conversions import NUMBERS
from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import counted
from driftline.core.schema.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
    peel,
)
from driftline.core.settings.csv import Signs
from driftline.core.settings.fields import parse_path, spelled_path
from driftline.core.settings.properties import from_properties, resolved_as
from driftline.core.settings.table import TableSettings
from driftline.core.values import OFFSET_PATTERN
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.base import CatalogTable, Moved, State
from driftline.formats.commit import Retry, rewriting
from driftline.ingest.rewrite import check_readable
from driftline.operations.keyed import RememberedFold, check_resolved
from driftline.operations.replay import explaining
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.fold import Fold
from driftline.sql.lost import Folding
from driftline.sql.quoting import any_value

SAMPLES = 10
_SAMPLE = 200  # characters
_SHOWN = 3  # samples in an error


class FoldedColumnJson(TypedDict):
    """A column that was folded."""

    path: str
    type: str
    not_converted: int


class ResolvedJson(TypedDict):
    """A field that became one column, or would."""

    table: str
    field: str
    type: str
    dry_run: bool
    values: int
    converted: int
    not_converted: int
    samples: list[str]
    folded: list[FoldedColumnJson]
    untouched: list[str]
    columns: list[str]
    kept_in: list[str]
    snapshot: int | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class FoldedColumn:
    """A column that was folded. ``rest``: the number of its values that stay, or are dropped."""

    path: Path
    type: Type
    rest: int


@dataclass(frozen=True, slots=True, repr=False)
class Resolved(Shown):
    """A field that became one column, or would. ``values``: records that have the field; ``rest``: those of
    them whose value does not convert, with ``samples``; ``kept_in``: the columns that they stay in.
    """

    table: str
    field: Path
    type: Type
    dry_run: bool
    values: int
    rest: int
    samples: tuple[str, ...]
    folded: tuple[FoldedColumn, ...]
    beside: tuple[Path, ...]
    columns: tuple[Path, ...] = ()
    kept_in: tuple[Path, ...] = ()
    snapshot: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def converts_none(self) -> bool:
        """True if there are values, and nothing of any converts.

        Parts of a list, a map or a struct may, although the whole does not.
        """
        return isinstance(self.type, Primitive) and bool(self.values) and self.rest == self.values

    @property
    def is_cut(self) -> bool:
        """True if there may be other texts than the samples, which are different ones."""
        return self.rest > len(self.samples) >= SAMPLES

    def with_more(self, more: Resolved) -> Resolved:
        """With the counts of further rows."""
        return replace(
            self,
            values=self.values + more.values,
            rest=self.rest + more.rest,
            samples=tuple(sorted({*self.samples, *more.samples})[:SAMPLES]),
            folded=tuple(
                replace(c, rest=c.rest + m.rest) for c, m in zip(self.folded, more.folded, strict=True)
            ),
        )

    def to_dict(self) -> ResolvedJson:
        """The form that `--json` prints."""
        return {
            "table": self.table,
            "field": dotted(self.field),
            "type": type_name(self.type),
            "dry_run": self.dry_run,
            "values": self.values,
            "converted": self.values - self.rest,
            "not_converted": self.rest,
            "samples": list(self.samples),
            "folded": [
                {"path": dotted(c.path), "type": type_name(c.type), "not_converted": c.rest}
                for c in self.folded
            ],
            "untouched": [dotted(path) for path in self.beside],
            "columns": [dotted(path) for path in self.columns],
            "kept_in": [dotted(path) for path in self.kept_in],
            "snapshot": self.snapshot,
            "notes": list(self.notes),
        }


def resolve(
    table: CatalogTable,
    path: str,
    to: str,
    *,
    dry_run: bool = False,
    drop_rest: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Resolved:
    """Fold the columns of the field at ``path`` into one of type ``to``. If others change the table, it is
    planned again.

    ``drop_rest``: drop values that do not convert. Raises UsageError, DataError; the table is then as it was.
    """
    try:
        field, _ = parse_path(path), parse_hint(to)
    except ValueError as error:
        raise UsageError(str(error)) from error

    def attempt() -> Resolved:
        """Resolve in the table as it is now. Errors of Spark, but for conflicts, name the field."""
        state = table.load()
        if not state.exists:
            raise no_table(table.name)
        with explaining(f"{table.name}: {dotted(field)}"):
            return _resolve(table, state, _Request(field, to, dry_run, drop_rest), retry)

    retry = Retry(table.name, progress)
    with configured(table.spark, PLAIN):
        return retry.run(attempt)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to fold the columns of the field at ``path`` into one of type ``to``."""

    path: Path
    to: str
    dry_run: bool
    drop_rest: bool

    def record(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that record this in a table that has the ``properties``."""
        quote = "'" if "'" not in self.to else '"'
        text = f"{spelled_path(self.path)} --as {quote}{self.to}{quote}" + " --drop-rest" * self.drop_rest
        return resolved_as(self.path, self.to, properties) | of_resolve(text)

    def rest(
        self, plan: Resolution, preview: Resolved, for_deletes: Collection[Path] = ()
    ) -> dict[Path, list[str]]:
        """The columns that stay for what did not convert, by the struct that they are in.

        ``for_deletes``: those that remembered deletes need.
        """
        return {
            site.parent: [
                c.path[-1]
                for c in preview.folded
                if c.path[:-1] == site.parent and (c.rest or c.path in for_deletes) and not self.drop_rest
            ]
            for site in plan.sites
        }


def _resolve(table: CatalogTable, state: State, request: _Request, retry: Retry) -> Resolved:
    settings = from_properties(state.properties)
    check_resolved(table.name, settings.row_key, request.path, drop_rest=request.drop_rest)
    hint = parse_hint(request.to)
    plan = resolution(state.schema, request.path, hint.type, settings, pattern=hint.pattern)
    check_readable(table, state.schema)
    folding = Folding(state.schema.struct, plan, Fold(settings.mark))
    if request.dry_run:
        _check_unused(table, plan)
        retry.progress("looking")
        preview = _look(table.name, table.read(), folding, dry_run=True)
        row_ids = (table.new_row_ids,) if table.new_row_ids else ()
        return replace(preview, notes=(*row_ids, *_notes(preview, request.to, settings)))
    with rewriting(table, state, retry) as rewrite:
        # Behind the start of the transaction, which lets no one lay out the table anew.
        _check_unused(table, plan)
        retry.progress("looking")
        preview = _look(table.name, rewrite.rows, folding, dry_run=False)
        _check_converts(preview, request.to, settings)
        transaction = rewrite.transaction
        remembered = RememberedFold.of(plan, state.schema, settings.row_key)
        for_deletes = set() if remembered is None else remembered.kept(transaction.by_key())
        rest = request.rest(plan, preview, for_deletes)
        retry.progress("writing")
        transaction.evolve([AddColumn(parent, f) for parent, f in plan.before(state.schema, rest)])
        between = transaction.schema
        # A row with any value in these columns counts as changed: a follower of changes may read too much,
        # never too little.
        changed = any_value((*site.parent, c.name) for site in plan.sites for c in site.folded)
        columns = [*folding.rows(rest), *table.row_ids(changed)]

        def check(appended: DataFrame) -> None:
            """Count rows that others appended meanwhile. Raises Moved if they need other columns."""
            nonlocal preview
            preview = preview.with_more(_look(table.name, appended, folding, dry_run=False))
            if request.rest(plan, preview, for_deletes) != rest:
                raise Moved("values that others have appended meanwhile do not convert")

        summary = {"driftline.resolve": dotted(plan.path)}
        rewrite.replace(lambda rows: rows.selectExpr(*columns), summary, check)
        if remembered is not None:
            remembered.rewrite(transaction.by_key(), rest)
        after = plan.after(between, rest)
        transaction.evolve(diff(between, after))  # type: ignore[arg-type]
        transaction.set(replace(request, path=plan.path).record(state.properties))
        retry.progress("committing")
    resolved = _resolved(preview, plan, after, rest, transaction.snapshot)
    return replace(resolved, notes=tuple(_notes_on_offsets(resolved)))


def _look(table: str, rows: DataFrame, folding: Folding, *, dry_run: bool) -> Resolved:
    """Count the values that convert, and sample those that do not."""
    plan = folding.resolution
    values = rows.selectExpr(f"explode({folding.folds()}) as v")
    width = max(len(site.folded) for site in plan.sites)
    counts = {
        row.n: row
        for row in values.groupBy("v.n").agg(*_counts(width)).collect()  # one row a struct of the schema
    }
    columns = [
        FoldedColumn((*site.parent, c.name), c.type, int(counts[n][f"c{i}"]) if n in counts else 0)
        for n, site in enumerate(plan.sites)
        for i, c in enumerate(site.folded)
    ]
    lost = sum(int(row.lost) for row in counts.values())
    samples: list[str] = []
    if lost:
        texts = values.where("exists(v.lost, x -> x)").selectExpr(f"left(v.sample, {_SAMPLE}) as text")
        samples = sorted(row.text for row in texts.distinct().limit(SAMPLES).collect())
    return Resolved(
        table,
        plan.path,
        plan.merged.type,
        dry_run,
        sum(int(row.there) for row in counts.values()),
        lost,
        tuple(samples),
        tuple(columns),
        tuple((*site.parent, c.name) for site in plan.sites for c in site.beside),
    )


def _counts(width: int) -> list[Any]:
    return [
        F.count("*").alias("there"),
        F.expr("count_if(exists(v.lost, x -> x))").alias("lost"),
        *(F.expr(f"count_if(coalesce(get(v.lost, {i}), false))").alias(f"c{i}") for i in range(width)),
    ]


def _resolved(
    preview: Resolved, plan: Resolution, after: Schema, rest: dict[Path, list[str]], snapshot: int | None
) -> Resolved:
    columns: list[Path] = []
    beside: list[Path] = []
    for site in plan.sites:
        parent = after.find(site.parent)
        struct = parent.type if parent is not None else after.struct
        assert isinstance(struct, Struct)
        before = {f.name: f.id for f in site.struct.fields}
        new = [f for f in struct.fields if before.get(f.name) != f.id]
        columns.append((*site.parent, new[0].name))
        beside += [(*site.parent, f.name) for f in new[1:]]
    return replace(preview, columns=tuple(columns), kept_in=tuple(beside), snapshot=snapshot)


def _notes_on_offsets(preview: Resolved) -> Iterator[str]:
    """Note texts with offsets that a timestamp without a zone does not take."""
    if not any(peel(c.type)[1] == STRING for c in preview.folded):
        return
    if peel(preview.type)[1] == TIMESTAMP_NTZ and any(
        re.fullmatch(OFFSET_PATTERN, text) for text in preview.samples
    ):
        yield "a text with an offset is an instant, and timestamp_ntz has no zone: --as timestamptz converts it"


def _notes(preview: Resolved, asked: str, settings: TableSettings) -> Sequence[str]:
    """Return the notes of a dry run, in addition to its counts."""
    if preview.converts_none:
        return [_way_out(preview, asked, settings)]
    return list(_notes_on_offsets(preview))


def _check_converts(preview: Resolved, asked: str, settings: TableSettings) -> None:
    """Raise DataError where no value converts: the column would be empty. ``asked``: the type as a person
    wrote it.
    """
    if preview.converts_none:
        samples, type_ = " · ".join(preview.samples[:_SHOWN]), type_name(preview.type)
        values = counted(preview.values, "value")
        raise DataError(
            f"{preview.table}: {dotted(preview.field)}: none of {values} converts to {type_}: {samples}",
            _way_out(preview, asked, settings),
        )


def _way_out(preview: Resolved, asked: str, settings: TableSettings) -> str:
    """The next thing to try where no value converts."""
    to = peel(preview.type)[1]
    notes = list(_notes_on_offsets(preview))
    if notes:
        return notes[0]
    if to in (DATE, TIMESTAMP, TIMESTAMP_NTZ) and "'" not in asked:  # it has no pattern
        return "dates in another form need it as a pattern, as in --as \"date('dd.MM.yyyy')\""
    if isinstance(to, Primitive) and to.name in NUMBERS and settings.csv.signs == Signs():
        setting = "SET TBLPROPERTIES ('driftline.thousands' = '.')"
        return (
            f'numbers such as 1.234,50 convert after driftline alter "ALTER TABLE {preview.table} {setting}"'
        )
    return "driftline resolve --dry-run shows what converts to another type"


def _check_unused(table: CatalogTable, plan: Resolution) -> None:
    """Raise DataError where something else needs a column that would go."""
    definition = table.definition()
    for site in plan.sites:
        for column in site.folded:
            if (use := definition.use_of(column)) is not None:
                path = dotted((*site.parent, column.name))
                raise DataError(f"{table.name}: {path} cannot be folded: {use.why}", f"{use.way_out} first")
