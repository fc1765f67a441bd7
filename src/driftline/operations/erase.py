"""Erases rows for good: from the table, its quarantine and its past, with the files that have them.

The quarantine comes first: else a replay could bring a record back. Then the table is written anew without
the rows, its older snapshots end, and the files that nothing names since are deleted. Each step can be done
again, so an erase that was broken off is finished by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from driftline.core.schema.naming import QUARANTINE, data_key
from driftline.core.schema.types import Schema
from driftline.core.support import as_json
from driftline.errors import no_table
from driftline.formats.base import CatalogTable, Moved
from driftline.formats.commit import Retry, rewriting
from driftline.formats.lakes import Catalog, EndedSnapshots, Expiry
from driftline.ingest.rewrite import check_readable
from driftline.operations.arrow_rows import explaining_condition
from driftline.quarantine import table as quarantine
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.quoting import name as quoted
from driftline.sql.quoting import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Split = Callable[[DataFrame], tuple[DataFrame, DataFrame]]

# A word's neighbours: a number or name that merely contains the text is another one.
_INSIDE = r"[\p{L}\p{N}_]"


class ErasedJson(TypedDict):
    """An `Erased`, in JSON."""

    table: str
    rows: int
    quarantined: int
    snapshots: int
    snapshots_of_lake: bool
    files: int
    remaining: int
    unnamed: list[str]
    not_reached: list[str]
    proved: bool
    done: bool


@dataclass(frozen=True, slots=True, repr=False)
class Erased(Shown):
    """The rows that were erased, or would be.

    Attributes:
        rows: the number of the table's rows.
        quarantined: the number of records in quarantine.
        snapshots: the number of older snapshots, which end; ``of_lake``: they are those of all tables.
        files: the number of files that were deleted.
        remaining: the number of rows and records that the condition is true of afterwards.
        unnamed: files in the table's folders that no snapshot has, of batches under way or of failed ones.
        not_reached: where rows may be that an erase does not reach.
        is_done: False of a dry run.
    """

    table: str
    rows: int
    quarantined: int
    snapshots: int
    of_lake: bool
    not_reached: tuple[str, ...]
    files: int = 0
    remaining: int = 0
    unnamed: tuple[str, ...] = ()
    is_done: bool = False

    @property
    def is_proved(self) -> bool:
        """True if no file in the table's folders has a row that the condition is true of."""
        return self.is_done and not self.remaining and not self.unnamed

    def to_dict(self) -> ErasedJson:
        """The form that JSON output has."""
        return as_json(
            ErasedJson, self, snapshots_of_lake=self.of_lake, proved=self.is_proved, done=self.is_done
        )


def erase(
    catalog: Catalog,
    table: CatalogTable,
    where: str,
    captures: Sequence[str],
    *,
    dry_run: bool,
    progress: Callable[[str], None],
) -> Erased:
    """Erase the rows that a condition is true of.

    Args:
        catalog: the lake.
        table: its table.
        where: the condition, in Spark's SQL.
        captures: those that write to the table.
        dry_run: only count.
        progress: called with the name of each step.

    Raises:
        UsageError: there is no such table or column, or a branch or tag holds older rows.
        DataError: a column cannot be read, so its rows cannot be written anew.
    """
    # The condition is recorded nowhere: it names what is to be forgotten.
    state = table.load()
    if not state.exists:
        raise no_table(table.name)
    rejects = quarantine.of(table)
    parts = [_Part(table, catalog.expiry(table.name), _by_columns(where))]
    if rejects.load().exists:
        # First: a replay could bring its records back into a table that has none of the rows.
        parts.insert(0, _Part(rejects, catalog.expiry(rejects.name), _by_records(where, state.schema)))
    with configured(table.spark, PLAIN), explaining_condition(table.name, state.schema.struct):
        for part in parts:
            part.expiry.check()
            part.expiry.check_unheld()
            check_readable(part.table, part.table.load().schema)
        progress("counting")
        erased = _counted(parts, captures)
        if dry_run:
            return erased
        retry = Retry(table.name, progress)
        for part in parts:
            progress("writing")
            retry.run(part.rewrite)
        progress("deleting")
        expired = sum((retry.run(part.expiry.run) for part in parts), EndedSnapshots())
        progress("checking")
        return _proved(parts, erased, expired)


@dataclass(frozen=True, slots=True)
class _Part:
    """A table that has some of the rows. ``split``: rows into those that stay, and those that go."""

    table: CatalogTable
    expiry: Expiry
    split: Split

    def count(self) -> int:
        """The number of rows that go."""
        return self.split(self.table.read())[1].count()

    def rewrite(self) -> None:
        """Write the table anew without the rows, if it has any, or has files with rows that were deleted."""
        state = self.table.load()
        with rewriting(self.table, state, Retry(self.table.name)) as rewrite:
            if self.split(rewrite.rows)[1].isEmpty() and not self.expiry.has_removed_rows():
                return
            ids = self.table.row_ids("false")

            def staying(rows: DataFrame) -> DataFrame:
                """The rows that stay, with their ids."""
                return self.split(rows.selectExpr("*", *ids))[0]

            def check(appended: DataFrame) -> None:
                """Raise Moved if others have meanwhile appended a row that goes."""
                if not self.split(appended)[1].isEmpty():
                    raise Moved(f"others have appended rows to {self.table.name} that are to be erased")

            rewrite.rows = self.split(rewrite.rows)[0]
            # The condition stands nowhere: it names what is to be forgotten.
            rewrite.replace(staying, {"driftline.erase": "true"}, check)


def _counted(parts: Sequence[_Part], captures: Sequence[str]) -> Erased:
    """The rows that an erase would take, without changing anything."""
    rejects = [part for part in parts if part.table.name.endswith(QUARANTINE)]
    main = parts[-1]
    of_lake = main.expiry.of_lake
    snapshots = sum(len(part.expiry.expirable().ids) for part in ([main] if of_lake else parts))
    return Erased(
        main.table.name,
        main.count(),
        sum(part.count() for part in rejects),
        snapshots,
        of_lake,
        tuple(_not_reached(main.expiry, captures)),
    )


def _not_reached(expiry: Expiry, captures: Sequence[str]) -> Iterator[str]:
    """The places where rows may be that an erase does not reach."""
    yield "the files and topics that the rows came from"
    yield "copies and backups of the lake, and older versions of objects that a store keeps"
    yield "readers that have read older snapshots"
    for name in captures:
        yield f"capture {name}: a micro-batch under way, and what it reads again from its source"
    if expiry.remembers_deletes():
        yield "the keys of rows that a batch deleted, which the table remembers for late changes"
    if expiry.of_lake:
        yield "free pages of the catalog's database, until it is vacuumed or copied"


def _proved(parts: Sequence[_Part], erased: Erased, expired: EndedSnapshots) -> Erased:
    """With the count of all that the tables and their folders have now."""
    unnamed = [file.path for part in parts for file in part.expiry.unnamed()]
    return replace(
        erased,
        snapshots=expired.snapshots,
        files=expired.files,
        remaining=sum(part.count() for part in parts),
        unnamed=tuple(sorted({*unnamed, *expired.outside})),
        is_done=True,
    )


def _by_columns(where: str) -> Split:
    """Split rows by the condition over their columns; a row of which it is unknown stays."""

    def split(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        from pyspark.sql import functions as F

        goes = F.coalesce(F.expr(where), F.lit(False))
        return rows.where(~goes), rows.where(goes)

    return split


def _by_records(where: str, schema: Schema) -> Split:
    """Split rejected records by the condition over the table's columns that they would fill.

    Of a record that does not tell, such as a line that is no JSON or has another type there, the text counts:
    a comparison with ``=`` or ``in`` is true if the text contains the value as a word.
    """

    def split(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        from pyspark.sql import functions as F

        mark, row = "_driftline_goes", "_driftline_row"
        # Also the ids behind the columns, by which a row stays the one that it is.
        record = F.struct(*(F.col(quoted(column)) for column in rows.columns)).alias(row)
        columns = [f for f in schema.struct.fields if f.name.lower() in where.lower()]
        filled = [
            F.from_json("raw", f"{quoted(key)} {spark_type(f.type)}")[key].alias(f.name)
            for f in columns
            if (key := data_key(f))
        ]
        records = rows.select(record, _text_of(rows).alias("_driftline_text"), *filled)
        in_text = _in_text(where, F.col("_driftline_text"))
        goes = F.coalesce(F.expr(where), in_text, F.lit(False))
        marked = records.select(row, goes.alias(mark))
        return marked.where(f"not {mark}").select(f"{row}.*"), marked.where(mark).select(f"{row}.*")

    return split


def _text_of(rows: DataFrame) -> Column:
    """All text of a rejected record: as it came, and its key."""
    from pyspark.sql import functions as F

    # Any byte is a character of Latin-1, and those of ASCII are the same.
    texts = {"raw": "raw", "key": "key", "raw_bytes": "decode(raw_bytes, 'ISO-8859-1')"}
    texts["key_bytes"] = "decode(key_bytes, 'ISO-8859-1')"
    return F.concat_ws("\n", *(F.expr(sql) for column, sql in texts.items() if column in rows.columns))


def _in_text(where: str, text: Column) -> Column:
    """The condition over a text; null if it does more than compare columns with values."""
    from pyspark.sql import functions as F

    # A line that is no JSON has no columns. It goes if it contains the compared values as words; a
    # condition that does more than compare would be a guess there.
    try:
        condition = _of_node(parse_one(where, dialect=Spark), text)
    except SqlglotError:
        condition = None
    return F.lit(None).cast("boolean") if condition is None else condition


def _of_node(node: exp.Expr, text: Column) -> Column | None:
    match node:
        case exp.Paren():
            return _of_node(node.this, text)
        case exp.And() | exp.Or():
            first, second = _of_node(node.left, text), _of_node(node.right, text)
            if first is None or second is None:
                return None
            return first & second if isinstance(node, exp.And) else first | second
        case exp.EQ(this=exp.Column() | exp.Dot(), expression=exp.Literal()):
            return text.rlike(_word(node.expression.name))
        case exp.In(this=exp.Column() | exp.Dot(), expressions=values) if values:
            if all(isinstance(value, exp.Literal) for value in values):
                return text.rlike("|".join(_word(value.name) for value in values))
    return None


def _word(value: str) -> str:
    """A pattern of Java's that finds the value as a word of a text."""
    return f"(?<!{_INSIDE}){re.escape(value)}(?!{_INSIDE})"
