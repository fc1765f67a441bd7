"""The settings of one table, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from driftline.core.schema.naming import MAX_KEY
from driftline.core.schema.types import INT, LONG, STRING, TIMESTAMP, Field, Path, Primitive
from driftline.core.settings.condition import Expectation
from driftline.core.settings.csv import Dialect
from driftline.core.settings.declarations import default
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.row_key import RowKey

# Where a record stood, as a quarantine has it, except that it calls the file `source`.
PLACE = {"file": STRING, "line": LONG, "topic": STRING, "partition": INT, "offset": LONG}


_FIELDS = {name: Field(name, type_) for name, type_ in (PLACE | {"batch": STRING, "time": TIMESTAMP}).items()}


def parse_metadata(text: str) -> tuple[str, ...]:
    """Return the fields of `_source` that the setting names.

    >>> parse_metadata("time, file")
    ('file', 'time')

    Raises ValueError.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in _FIELDS:
            raise ValueError(f"there is no metadata {name!r}: name some of {', '.join(_FIELDS)}")
    return tuple(name for name in _FIELDS if name in names)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """A table's settings, as the planner and the observer need them; by default those of a new table.

    Attributes:
        dates: "on", "off" or "instant" (rules 2.2).
        mark: the prefix of an evolved column's doc.
        max_columns: the limit of the table's leaf columns.
        max_fields: the limit of fields in one struct of a record; None for no limit.
        max_key: the characters of the longest key that gets a column.
        beyond: values beyond these limits go to the "rest", to "quarantine", or "fail".
        keep_empty_names: values of the empty key go to the rest; otherwise they are dropped.
        on_conflict: "quarantine" or "fail".
        table_may_fail: an error of a table of a pattern has its records wait in its quarantine.
        allow_rewrite: the `widen` policy may rewrite columns.
        max_record_bytes: the limit of a record's text.
        fields: the settings of paths.
        csv: the CSV dialect.
        hive: folders in paths, such as `day=2026-01-01/`, are columns.
        records: the path of the list of records in each JSON document; empty if a document is one record.
        extended_json: records of JSON are MongoDB's Extended JSON.
        sheet: the sheet of workbooks; empty for the only one.
        as_text: types that the table's format lacks, whose values become text.
        row_key: the row key; None if each record is a row.
        metadata: the fields of the column `_source`.
        expect: the expectations of records, by name.
        compacts: small files are written anew behind batches.
    """

    dates: str = default("dates")
    mark: str = default("mark")
    max_columns: int = int(default("max_columns"))
    max_fields: int | None = int(default("max_fields"))
    max_key: int = MAX_KEY
    beyond: str = default("beyond")
    keep_empty_names: bool = default("empty_names") == "keep"
    on_conflict: str = default("on_conflict")
    table_may_fail: bool = default("on_table_error") == "quarantine"
    allow_rewrite: bool = default("allow_rewrite") == "true"
    max_record_bytes: int = int(default("max_record_bytes"))
    fields: FieldSettings = field(default_factory=FieldSettings)
    csv: Dialect = field(default_factory=Dialect)
    hive: bool = default("hive") == "auto"
    records: Path = ()
    extended_json: bool = False
    sheet: str = ""
    as_text: frozenset[Primitive] = frozenset()
    row_key: RowKey | None = None
    metadata: tuple[str, ...] = ()
    expect: tuple[Expectation, ...] = ()
    compacts: bool = default("compact") == "auto"
