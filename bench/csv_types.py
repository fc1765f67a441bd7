"""Types of CSV columns, next to what DuckDB's sniffer makes of the same files.

    make bench-csv FOLDER=... [ARGS="--most 0.1 --list"]

Every `.csv` and `.tsv` below the folder is read without Spark. Each value is held against its cell, as `verify` does:
none may be lost. A file counts by its worst column.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import duckdb

from driftline.convert.declared import VOID
from driftline.core.schema.types import STRING, Primitive
from driftline.core.settings.properties import from_properties
from driftline.errors import DataError
from driftline.observe.expect import ExpectedField
from driftline.readers.csv.reader import CsvFiles, FoundCsv
from driftline.verify.files import parts
from driftline.verify.files import read as read_by_verify
from driftline.verify.values import ValueSettings, holds

_HERE: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]", defaultParallelism=1))
_KINDS = {
    "BIGINT": "number", "INTEGER": "number", "DOUBLE": "number", "HUGEINT": "number", "DECIMAL": "number", "BOOLEAN": "boolean", "DATE": "date",
    "TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamp", "TIME": "time", "VARCHAR": "text", "long": "number", "double": "number",
    "boolean": "boolean", "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp", "string": "text",
}  # fmt: skip
# Why a text is none of a type, by the first that fits: those of `_KEPT` would not print back if they were, and
# those of `_RULED` are text by the rules (2.2, 2.3).
_REASONS = {
    "zeros in front (007)": r"[+-]?0[0-9]+(?:\.[0-9]*)?",
    "a plus sign, or a point without a digit (+1, .5, 1.)": r"\+.*|-?\.[0-9]+|-?[0-9]+\.",
    "blanks around it": r"\s.*|.*\s",
    "an exponent (1e5)": r"-?[0-9.]+[eE]\+?[0-9]+",
    "more digits than a number column holds": r"-?(?=[0-9.]{17,})[0-9]+\.?[0-9]*",
    "a word for null, infinity or no number (NA, nan)": r"(?i)n/?a|nan|null|none|-?inf(?:inity)?|<na>|-nan|#n/a",
    "a time of day, or one without seconds": r"[0-9]{1,2}:[0-9]{2}.*|[0-9-]{10}[ T][0-9]{2}:[0-9]{2}",
    "an offset, or more than six digits of a second": r"[0-9-]{10}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}.*",
    "a date in another pattern": r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}.*|[0-9]{8}",
    "another word of a boolean (yes, F)": r"(?i)yes|no|[tfyn]",
    "a comma in a number": r"-?[0-9]+,[0-9.,]+",
}  # fmt: skip
_KEPT, _RULED = tuple(_REASONS)[:6], tuple(_REASONS)[6:10]
_GOOD, _BY_RULES, _WORSE = "as good or better", "otherwise by the rules", "worse"
_VERDICTS = (_GOOD, _BY_RULES, _WORSE)


# Lines that are no rows are told of, and never guessed.
_FLAG = re.compile(r"--(?:comment|skip-lines|header) ")


class Column(NamedTuple):
    """A column as driftline reads it: the ``type`` of its values, and all ``texts``.

    ``hinted``: the report has the hint that reads its dates.
    """

    name: str
    type: Primitive
    texts: Sequence[str]
    hinted: bool


class Reading(NamedTuple):
    """A file as driftline reads it: no columns where there is no row.

    ``lost``: the values that are not their cells'. ``even``: its rows all have as many cells as the header, several.
    ``flagged``: the report has the flag for lines that are no rows.
    """

    columns: Sequence[Column]
    lost: int = 0
    even: bool = False
    flagged: bool = False


def read(path: Path) -> Reading:
    """Return the columns of a file."""
    found = CsvFiles(_HERE, [str(path)], strings=False)(ExpectedField(), from_properties({}))
    if not found.readers:
        return Reading([])
    names = [f.name for f in found.written[0].struct.fields]
    cells = [
        list(one.record.values())
        for part in parts([str(path)], "csv")
        for one in read_by_verify(part)
        if one.record is not None and len(one.record) == len(names)
    ]
    types, rows, rejects = _values(found)
    lost = abs(len(rows) - len(cells)) + sum(
        text != "" and (value is None or not holds(*value, text, ValueSettings()))
        for row, cell_row in zip(rows, cells, strict=False)
        for value, text in zip(row, cell_row, strict=True)
    )
    hints = [tomllib.loads(note)["hints"] for note in found.notes if note.startswith("hints.")]
    hinted = {name for hint in hints for name in hint}
    by_column = list(zip(*cells, strict=True)) or [()] * len(names)
    columns = [
        Column(name, type_, [str(text) for text in texts if text], name in hinted)
        for name, type_, texts in zip(names, types, by_column, strict=True)
    ]
    even = len(columns) > 1 and bool(rows) and not rejects
    return Reading(columns, lost, even, any(map(_FLAG.search, found.notes)))


def _values(
    found: FoundCsv,
) -> tuple[Sequence[Primitive], Sequence[Sequence[tuple[Primitive, Any] | None]], int]:
    """Return the type of each column, text only where it has no other; the values of each row with their types; and
    the number of rejects.
    """
    (reader,) = found.readers
    places: dict[str, list[tuple[int, Any]]] = {}  # of the fields of each column, text the last of them
    for place, f in enumerate(reader.struct.fields):
        places.setdefault(f.name, []).append((place, f.type))

    def of_column(arrays: Sequence[Sequence[Any]], fields: Sequence[tuple[int, Any]]) -> Iterator[Any]:
        pairs = (zip([type_] * len(arrays[place]), arrays[place], strict=True) for place, type_ in fields)
        for of_row in zip(*pairs, strict=True):
            yield next((pair for pair in of_row if pair[1] is not None), None)

    rows: list[Sequence[tuple[Primitive, Any] | None]] = []
    rejects = 0
    for part in range(len(reader.sizes)):
        for some in reader.rows(part):
            rejects += len(some.rejects)
            arrays = [column.to_pylist() for column in some.batch.columns]
            rows += zip(*(of_column(arrays, fields) for fields in places.values()), strict=True)
    return [fields[0][1] for fields in places.values()], rows, rejects


def of_duckdb(path: Path) -> list[str]:
    """The types that DuckDB finds."""
    rows = duckdb.sql("select * from read_csv($1, hive_partitioning = false)", params=[str(path)])
    types = [re.sub(r"\(.*", "", str(type_)) for type_ in rows.types]
    rows.fetchall()  # some cells are met only here
    return types


def judged(columns: Sequence[Column], others: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """For each column, the verdict on its type, the reason for a difference, and the name."""
    for (name, type_, texts, hinted), other in zip(columns, others, strict=True):
        ours, theirs = _KINDS.get(str(type_), "text"), _KINDS.get(other, "other")
        if ours == theirs or type_ == VOID or not texts:
            yield _GOOD, "", name
        elif theirs == "text":
            yield _GOOD, f"{ours}: text there", name
        elif type_ == STRING:
            why = reason(texts)
            verdict = _GOOD if why in _KEPT else _BY_RULES if why in _RULED else _WORSE
            hint = ", with the hint that reads it" if hinted and why in _RULED else ""
            yield verdict, f"{theirs} there, text here: {why}{hint}", name
        else:
            is_finer = (ours, theirs) in (("date", "timestamp"), ("boolean", "number"))
            yield (_GOOD if is_finer else _WORSE), f"{ours}: {theirs} there", name


def reason(texts: Sequence[str]) -> str:
    """Why the texts are text."""
    for why, pattern in _REASONS.items():
        if any(re.fullmatch(pattern, text, re.DOTALL) for text in texts):
            return why
    return "other"


def of_file(path: Path) -> tuple[list[tuple[str, str, str]], int]:
    """Return the verdict on each column of a file, or one on the file, none where no reader has a row; and lost values."""
    try:
        reading = read(path)
    except DataError:
        reading = None
    columns, lost = ([], 0) if reading is None else (reading.columns, reading.lost)
    try:
        others = of_duckdb(path)
    except (duckdb.Error, UnicodeError):
        return ([(_GOOD, "DuckDB fails", "")] if columns else []), lost
    if reading is None:
        return [(_WORSE, "refused", "")], lost
    if len(columns) == len(others):
        return list(judged(columns, others)), lost
    if len(others) == 1:
        return [(_GOOD, "DuckDB finds one column", "")], lost
    return ([(*_of_other_columns(reading), "")] if columns else []), lost


def _of_other_columns(reading: Reading) -> tuple[str, str]:
    if reading.even:
        return _GOOD, "DuckDB finds other columns, and all rows are as wide as the header"
    if reading.flagged:
        return _BY_RULES, "DuckDB finds other columns, with the flag that skips or names what is no row"
    return _WORSE, "DuckDB finds other columns"


def compared(paths: Sequence[Path], *, each: bool) -> None:
    """Print the shares of files and of columns, and each kind of difference."""
    files: Counter[str] = Counter()
    columns: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    lost = 0
    for path in paths:
        verdicts, lost_here = of_file(path)
        lost += lost_here
        if not verdicts:
            continue
        files[max((verdict for verdict, _, _ in verdicts), key=_VERDICTS.index)] += 1
        for verdict, why, column in verdicts:
            columns[verdict] += bool(column)
            kinds[verdict][why] += bool(why)
            if each and verdict != _GOOD:
                print(f"{path}: {column}: {why}")
    for what, counts in (("files", files), ("columns", columns)):
        total = counts.total() or 1
        shares = (f"{counts[verdict]} {verdict} ({counts[verdict] / total:.1%})" for verdict in _VERDICTS)
        print(f"{total} {what}: {', '.join(shares)}")
    print(f"{lost} values are not their cells'")
    for verdict in _VERDICTS:
        print(f"{verdict}:")
        for why, count in kinds[verdict].most_common():
            print(f"  {count:5} {why}") if count else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=float, default=2, metavar="MIB", help="pass over larger files")
    parser.add_argument("--list", action="store_true", help="name each column that is text there or worse")
    said = parser.parse_args()
    found = sorted(path for ending in ("csv", "tsv") for path in said.folder.rglob(f"*.{ending}"))
    compared(
        [path for path in found if path.is_file() and path.stat().st_size <= said.most * 2**20],
        each=said.list,
    )
