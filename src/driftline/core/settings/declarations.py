"""Declarations of all settings: what each decides, its values, its default and its flag.

Flags of commands, keyword arguments in Python, `driftline init` and the page of settings are made of them.
"""

# No `from __future__ import annotations`: the annotations are the declarations, and are read as values.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
)

from driftline.core.schema.naming import MARK

PREFIX = "driftline."

Policy: TypeAlias = Literal["preserve", "widen", "strict"]
EpochUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
Maps: TypeAlias = Literal["auto", "hint", "off"]
NewFields: TypeAlias = Literal["add", "hold"]
Envelope: TypeAlias = Literal["debezium", "debezium-unwrapped", "maxwell", "canal", "ogg", "dms", "auto"]


class Flag(NamedTuple):
    """The flag of `ingest`, `plan` and `capture` for a setting; without a ``name`` it has the setting's."""

    help: str
    metavar: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a table.

    Attributes:
        about: its purpose.
        default: its value where nothing is set; empty for none.
        older: its value for tables made before there was the setting, which go on as they did; None for the
            default.
        group: "csv" for the dialect, "files" for what else reads files, "layout" for what counts only where a
            table is made.
        flag: its flag; None if only ``--set`` states it.
        values: its possible values, from the type of its argument: None for any text, int for a whole number.
    """

    about: str
    default: str = ""
    older: str | None = None
    group: Literal["", "csv", "files", "layout"] = ""
    flag: Flag | None = None
    values: tuple[str, ...] | type[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSetting(Setting):
    """A setting of one path, such as `hints.amount`, or of one name.

    Attributes:
        example: a path or name, and a value.
    """

    example: tuple[str, str] = ("payload.amount", "decimal(18,2)")


# fmt: off
class SettingArguments(TypedDict, total=False):
    """The settings of ``--set`` and `driftline.toml`, each with the type that Python has for it.

    Mappings are by path, sequences are of paths. Of several types the first tells the values of the table's
    setting, the last those of a path's.
    """

    policy: Annotated[Policy, Setting(
        about="What to do with a value that does not fit.",
        default="preserve",
        flag=Flag("What to do with a value that does not fit. [default: the table's; preserve]"),
    )]
    on_conflict: Annotated[Literal["fail", "quarantine"], Setting(
        about="What to do with a record that is refused.",
        default="quarantine",
        flag=Flag("What to do with records that are refused. [default: the table's; quarantine]"),
    )]
    on_table_error: Annotated[Literal["fail", "quarantine"], Setting(
        about="Of tables of a pattern: what an error of the table itself does to its records: `fail`s the batch of all tables, or has them wait in its `quarantine`.",
        default="fail",
        flag=Flag("Of tables of a pattern: what an error of the table itself does: fail the batch of all, or have its records wait in its quarantine. [default: fail]"),
    )]
    allow_rewrite: Annotated[bool | str, Setting(
        about="Under `widen`: rewrite the table where a column cannot be widened in place.",
        default="false",
    )]
    dates: Annotated[Literal["on", "off", "instant"], Setting(
        about="Whether texts that are dates or timestamps become such columns; `instant`: timestamps with other offsets than UTC too.",
        default="on",
    )]
    epoch_unit: Annotated[EpochUnit, Setting(about="The unit of integers that go into timestamp columns.")]
    maps: Annotated[
        Maps | Mapping[str, Maps],
        Setting(about="Whether objects whose keys are data become maps.", default="auto", older="hint"),
        PathSetting(about="`maps` of a path."),
    ]
    new_fields: Annotated[
        NewFields | Mapping[str, NewFields],
        Setting(
            about="`hold`: from the second batch on, fields that the table does not have go into the rest.",
            default="add",
        ),
        PathSetting(about="`new_fields` of a path."),
    ]
    empty_names: Annotated[Literal["drop", "keep"], Setting(
        about="What to do with a value whose key is empty; `keep`: it goes into the rest.",
        default="drop",
    )]
    max_columns: Annotated[int, Setting(about="Maximum number of leaf columns of a table.", default="10000")]
    max_fields: Annotated[int, Setting(about="Maximum number of fields of one struct.", default="1000", older="")]
    beyond: Annotated[Literal["rest", "quarantine", "fail"], Setting(
        about="Where values beyond these limits go.",
        default="rest",
        older="quarantine",
    )]
    max_record_bytes: Annotated[int, Setting(
        about="Maximum size of a record's text in bytes; of a longer one the quarantine keeps the beginning.",
        default="134217728",
        group="files",
    )]
    mark: Annotated[str, Setting(about="What the comment of a sibling column begins with.", default=MARK)]
    policies: Annotated[Mapping[str, Policy], PathSetting(
        about="The policy of a path; `PATH.*` means everything below it.",
    )]
    hints: Annotated[Mapping[str, str], PathSetting(
        about="The type of a field, declared before any data.",
        flag=Flag("Declare a field's type: amount=decimal(18,2); may be repeated.", "PATH=TYPE", "hint"),
    )]
    exclude: Annotated[Sequence[str], PathSetting(
        about="Whether a field is left out; its values are counted.",
        default="false",
        flag=Flag("Do not ingest this field; may be repeated.", "PATH"),
    )]
    expect: Annotated[Mapping[str, str], PathSetting(
        about="What is expected of records, by a name: a condition, and what becomes of a record for which it is false: `warn`, `quarantine`, `fail`.",
        flag=Flag("Expect this of records, else warn, quarantine or fail: 'price: price >= 0 else quarantine'; may be repeated.", "NAME:CONDITION"),
        example=("price", "price >= 0 else quarantine"),
    )]
    epoch_units: Annotated[Mapping[str, EpochUnit], PathSetting(about="`epoch_unit` of a path.")]

    key: Annotated[str, Setting(
        about="The fields that identify a row: `id`, `region, id`, or `_key` in a topic. A record inserts its row, or replaces it.",
        flag=Flag('Fields that identify a row, if the table is created now: "id" or "region, id".', "PATHS"),
    )]
    order_by: Annotated[str, Setting(
        about="The fields that order changes of a row: the highest counts, whenever it comes; else, and with `_arrival`, the last to come.",
        flag=Flag('With a key: fields that order the changes of a row; the highest counts: "updated_at".', "PATHS"),
    )]
    delete_when: Annotated[str, Setting(
        about="The condition under which a record deletes its row: `op = 'd'`, or `value is null` in a topic.",
        flag=Flag("With a key: a record for which this is true deletes its row: \"op = 'd'\".", "CONDITION"),
    )]
    delete_memory: Annotated[str, Setting(
        about="How long deletes are remembered, so that changes of before that come late stay out: `7d`, `36h`.",
        default="7d",
        flag=Flag("With an order: how long deletes are remembered, so that late changes stay out: 36h.  [default: 7d]", "TIME"),
    )]
    deletes: Annotated[Literal["hard", "soft"], Setting(
        about="What a delete does: `hard` removes the row, `soft` keeps it with a mark.",
        default="hard",
        flag=Flag("With a key: a delete removes its row (hard), or keeps it with a mark (soft)."),
    )]
    merge: Annotated[Literal["replace", "patch", "keep"], Setting(
        about="What a record does to its row: `replace`s it, is a `patch` of the fields that it has, or is a duplicate, as rows `keep` their first record.",
        default="replace",
        flag=Flag("With a key: a record replaces its row (replace), only the fields that it has (patch), or is a duplicate (keep)."),
    )]
    key_cache: Annotated[str, Setting(
        about="How much memory a capture, or a process that goes on ingesting, takes for keys of rows that it has read: `256mb`, `1gb`, `0`.",
        default="256mb",
    )]
    envelope: Annotated[Envelope, Setting(
        about="The format of a database's change messages, which says what each change does to its row.",
        flag=Flag("With a key: the format of a database's change messages."),
    )]
    unavailable_value: Annotated[str, Setting(
        about="What Debezium sends for large values that stay, if its `unavailable.value.placeholder` is set; `hex:` before bytes.",
    )]
    on_snapshot: Annotated[Literal["merge", "reconcile"], Setting(
        about="What happens to rows that a repeated snapshot of Debezium lacks: `merge` keeps them, `reconcile` deletes them.",
        default="merge",
        flag=Flag("With Debezium: keep (merge) or delete (reconcile) rows that a repeated snapshot lacks."),
    )]
    epoch: Annotated[int | str, Setting(
        about="Which history of its source the table follows: raise it where positions went back, as after a restore.",
        default="0",
    )]

    partition_by: Annotated[str, Setting(
        about="How a new table is partitioned: `day(at), bucket(16, id)`.",
        group="layout",
        flag=Flag('How to partition the table, if it is created now: "day(at), bucket(16, id)".', "TERMS"),
    )]
    sort_by: Annotated[str, Setting(
        about="How the files of a new table are sorted: `at desc, id`.",
        group="layout",
        flag=Flag('How to sort its files, if it is created now: "at desc".', "TERMS"),
    )]
    format_version: Annotated[Literal["2", "3"] | int, Setting(
        about="Iceberg's format version of a new table; 2 if not set.",
        group="layout",
        flag=Flag("Iceberg's format version, if the table is created now. [default: 2]", "2|3"),
    )]

    metadata: Annotated[str, Setting(
        about="Where each row came from, as column `_source`: some of `file`, `line`, `topic`, `partition`, `offset`, `batch`, `time`. Off if not set.",
        flag=Flag("Add where each row came from as column _source: some of file, line, topic, partition, offset, batch, time.", "NAMES"),
    )]
    compact: Annotated[Literal["auto", "off"], Setting(
        about="Whether a batch is followed by a compaction of small files: `auto`, which tables have that a capture makes, or `off`.",
        default="off",
        flag=Flag("Compact small files behind batches (auto), or never (off). [default: the table's; auto if a capture makes it]"),
    )]
    records: Annotated[str, Setting(
        about="In JSON files: the path of the list that has the records, such as `items` or `data.rows`.",
        group="files",
        flag=Flag('In JSON files: the path of the list that has the records: "items", "data.rows".', "PATH"),
    )]
    extended_json: Annotated[bool, Setting(
        about="Whether records of JSON, such as files of `mongoexport`, are MongoDB's Extended JSON, whose objects stand for values.",
        default="false",
        group="files",
        flag=Flag("Read MongoDB's Extended JSON, as mongoexport writes it, as values."),
    )]
    sheet: Annotated[str, Setting(
        about="In Excel workbooks: the name of the sheet to read; needed where there are several.",
        group="files",
        flag=Flag("The sheet of Excel workbooks; needed where there are several.", "NAME"),
    )]
    hive: Annotated[Literal["auto", "off"], Setting(
        about="Whether parts of paths such as `day=2026-01-01/` become columns.",
        default="auto",
        group="files",
    )]
    delimiter: Annotated[str, Setting(
        about="The character between CSV cells, or `tab`; detected if not set.",
        group="csv",
        flag=Flag("The character that separates CSV cells, or tab. [default: detected]", "CHAR"),
    )]
    quote: Annotated[str, Setting(
        about="The character that quotes CSV cells, or `none`; detected if not set.",
        group="csv",
        flag=Flag("The character that quotes CSV cells, or none. [default: detected]", "CHAR"),
    )]
    encoding: Annotated[str, Setting(
        about="The encoding of CSV, such as `cp1252`; if not set, UTF-8, or UTF-16 by its byte order mark.",
        group="csv",
        flag=Flag("The encoding of CSV: cp1252, latin1, utf-16, ... [default: UTF-8]", "NAME"),
    )]
    decimal: Annotated[Literal[".", ","], Setting(
        about="The decimal separator in CSV numbers.",
        default=".",
        group="csv",
        flag=Flag("The decimal separator in CSV numbers: , or . [default: .]", "SIGN"),
    )]
    thousands: Annotated[Literal[".", ","], Setting(
        about="The thousands separator in CSV numbers; none if not set.",
        group="csv",
        flag=Flag("The thousands separator in CSV numbers: . or , [default: none]", "SIGN"),
    )]
    nulls: Annotated[str, Setting(
        about="Texts of cells in CSV and Excel that are null, as the empty cell is: `NA,n/a,-`.",
        group="csv",
        flag=Flag("Cells of CSV and Excel with one of these texts are null: NA,n/a,-.", "TEXT,…", "null"),
    )]
    escape: Annotated[str, Setting(
        about="The character that escapes quotes within quoted CSV cells, or `none`; detected if not set.",
        group="csv",
        flag=Flag("The character that escapes quotes within quoted CSV cells, or none. [default: detected]", "CHAR"),
    )]
    header: Annotated[str, Setting(
        about="Whether CSV begins with a header: `yes`, `no`, or `auto` to detect it; or the columns' names: `id,price`.",
        default="auto",
        group="csv",
        flag=Flag("Whether CSV begins with a header; or the columns' names. [default: auto, detected]", "auto|yes|no|NAME,…"),
    )]
    skip_lines: Annotated[int, Setting(
        about="The number of lines to skip at the start of CSV.",
        default="0",
        group="csv",
        flag=Flag("Skip the first N lines of CSV, such as titles.", "N"),
    )]
    trim: Annotated[Literal["auto", "yes", "no"], Setting(
        about="Whether blanks next to a delimiter of CSV, outside quotes, are no part of a cell; `auto` to detect it.",
        default="auto",
        group="csv",
        flag=Flag("Whether blanks next to a delimiter of CSV are no part of a cell. [default: auto, detected]"),
    )]
    skip_empty: Annotated[bool, Setting(
        about="Whether rows of CSV without a value are left out.",
        default="false",
        group="csv",
        flag=Flag("Leave rows of CSV out that have no value."),
    )]
    names: Annotated[Literal["exact", "fold"], Setting(
        about="`fold`: a header of CSV or Excel fills the table's column of the same name in another letter case.",
        default="exact",
        group="csv",
        flag=Flag("Whether a header of CSV or Excel also fills a column whose name has another letter case. [default: exact]"),
    )]
    comment: Annotated[str, Setting(
        about="Lines of CSV that begin with this character are skipped.",
        group="csv",
        flag=Flag("Skip lines of CSV that begin with this character.", "CHAR"),
    )]
# fmt: on


def _values(type_: Any) -> tuple[str, ...] | type[int] | None:
    """Return the values of a setting, whose argument in Python has this type.

    >>> _values(Literal["a", "b"] | int), _values(bool | str), _values(int), _values(str)
    (('a', 'b'), ('true', 'false'), <class 'int'>, None)
    """
    if get_origin(type_) in (Union, UnionType):
        return _values(get_args(type_)[0])
    if get_origin(type_) is Literal:
        return get_args(type_)
    return ("true", "false") if type_ is bool else int if type_ is int else None


def _values_at_path(type_: Any) -> tuple[str, ...] | type[int] | None:
    """Return the values of a setting of a path; in a sequence stand the paths for which it is true."""
    if get_origin(type_) in (Union, UnionType):
        return _values_at_path(get_args(type_)[-1])
    return _values(bool if get_origin(type_) is Sequence else get_args(type_)[1])


def _declared() -> tuple[dict[str, Setting], dict[str, PathSetting]]:
    """Return the settings of tables and those of paths, by name."""
    of_table, of_path = {}, {}
    for name, annotation in SettingArguments.__annotations__.items():
        type_, *settings = get_args(annotation)
        for setting in settings:
            if isinstance(setting, PathSetting):
                of_path[name] = replace(setting, values=_values_at_path(type_))
            else:
                of_table[name] = replace(setting, values=_values(type_))
    return of_table, of_path


SETTINGS, PATH_SETTINGS = _declared()


def default(name: str) -> str:
    """Return the value of a setting for a new table for which nothing is set."""
    return SETTINGS[name].default


def in_groups(*groups: str) -> tuple[str, ...]:
    """Return the names of the settings in these groups."""
    return tuple(name for name, setting in SETTINGS.items() if setting.group in groups)


def property_of(setting: str) -> str:
    """Return the table property of a setting, or of a setting of a path.

    >>> property_of("order_by"), property_of("hints.a_b")
    ('driftline.order-by', 'driftline.hints.a_b')
    """
    name, dot, path = setting.partition(".")
    return PREFIX + name.replace("_", "-") + dot + path
