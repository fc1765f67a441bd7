"""Types of CSV columns, next to what DuckDB's sniffer and pandas make of the same files.

    python bench/csv_types.py FOLDER [--most MIB] [--list]

Every `.csv` and `.tsv` below the folder is read without Spark. A column counts where both readers find the same number
of columns. Each value that driftline types is held against its cell, as `verify` does: none may be lost.
"""

from __future__ import annotations

import argparse
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import duckdb
import pandas as pd

from driftline.convert.declared import VOID
from driftline.core.schema.types import STRING, Primitive
from driftline.core.settings.properties import from_properties
from driftline.errors import DataError
from driftline.observe.expect import ExpectedField
from driftline.readers.csv.reader import CsvFiles
from driftline.verify.files import parts
from driftline.verify.files import read as read_by_verify
from driftline.verify.values import ValueSettings, holds

_HERE: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]", defaultParallelism=1))
_KINDS = {
    "BIGINT": "number", "INTEGER": "number", "DOUBLE": "number", "HUGEINT": "number", "DECIMAL": "number", "BOOLEAN": "boolean", "DATE": "date",
    "TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamp", "TIME": "time", "VARCHAR": "text", "int64": "number",
    "float64": "number", "uint64": "number", "bool": "boolean", "object": "text", "str": "text", "long": "number", "double": "number",
    "boolean": "boolean", "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp", "string": "text",
}  # fmt: skip
# Why a text is none of a type, by the first that fits; those of `_KEPT` would not print back if they were.
_REASONS = {
    "zeros in front (007)": r"[+-]?0[0-9]+(?:\.[0-9]*)?",
    "a plus sign, or a point without a digit (+1, .5, 1.)": r"\+.*|-?\.[0-9]+|-?[0-9]+\.",
    "blanks around it": r"\s.*|.*\s",
    "an exponent (1e5)": r"-?[0-9.]+[eE][+-]?[0-9]+",
    "more digits than a number column holds": r"-?(?=[0-9.]{17,})[0-9]+\.?[0-9]*",
    "a word for null, infinity or no number (NA, nan)": r"(?i)n/?a|nan|null|none|-?inf(?:inity)?|<na>|-nan|#n/a",
    "a time of day, or one without seconds": r"[0-9]{1,2}:[0-9]{2}.*|[0-9-]{10}[ T][0-9]{2}:[0-9]{2}",
    "an offset, or more than six digits of a second": r"[0-9-]{10}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}.*",
    "a date in another pattern": r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}.*|[0-9]{8}",
    "a comma in a number": r"-?[0-9]+,[0-9.,]+",
    "another word of a boolean (yes, F)": r"(?i)yes|no|[tfyn]",
}  # fmt: skip
_KEPT = tuple(_REASONS)[:6]


class File(NamedTuple):
    """A file as driftline reads it. ``texts``: the cells of each column; ``lost``: values that are not theirs;
    ``hinted``: columns whose dates the report has a hint for."""

    names: Sequence[str]
    types: Sequence[Primitive]
    texts: Sequence[Sequence[str]]
    delimiter: str
    lost: int
    hinted: frozenset[str]


def read(path: Path) -> File | None:
    """Read a file and hold each value against its cell; None where there is no row."""
    found = CsvFiles(_HERE, [str(path)], strings=False)(ExpectedField(), from_properties({}))
    if not found.readers:
        return None
    (reader,) = found.readers
    fields = reader.struct.fields
    rows = [
        row
        for part in range(len(reader.sizes))
        for some in reader.rows(part)
        for row in zip(*map(_values, some.batch.columns), strict=True)
    ]
    records = [
        one.record
        for part in parts([str(path)], "csv")
        for one in read_by_verify(part)
        if one.record is not None and len(one.record) == len(fields)
    ]
    cells = [list(record.values()) for record in records]
    wrong = abs(len(rows) - len(cells))
    for row, cell_row in zip(rows, cells, strict=False):
        for f, value, cell in zip(fields, row, cell_row, strict=True):
            if cell != "" and (value is None or not holds(f.type, value, cell, ValueSettings())):
                wrong += 1
    texts = [[row[place] for row in cells if row[place]] for place in range(len(fields))]
    delimiter = next(stretch.form.marks.delimiter for stretch in reader.stretches).decode()
    hints = [tomllib.loads(note)["hints"] for note in found.notes if note.startswith("hints.")]
    hinted = frozenset(name for hint in hints for name in hint)
    return File([f.name for f in fields], [f.type for f in fields], texts, delimiter, wrong, hinted)


def _values(column: Any) -> list[Any]:
    return column.to_pylist()


def of_duckdb(path: Path, _: str) -> list[str]:
    """The types that DuckDB finds."""
    relation = duckdb.sql("select * from read_csv($1, hive_partitioning = false)", params=[str(path)])
    return [re.sub(r"\(.*", "", str(type_)) for type_ in relation.types]


def of_pandas(path: Path, delimiter: str) -> list[str]:
    """The types that pandas finds, with the delimiter that driftline does."""
    return [str(type_) for type_ in pd.read_csv(path, sep=delimiter).dtypes]


def judged(file: File, others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """For each column, whether its type is equal, better or worse, and the reason for a difference."""
    for name, type_, texts, other in zip(file.names, file.types, file.texts, others, strict=True):
        ours, theirs = _KINDS.get(str(type_), "text"), _KINDS.get(other, "other")
        if ours == theirs or type_ == VOID or not texts:
            yield "equal", ""
        elif theirs == "text":
            yield "better", f"{ours}: text there"
        elif type_ == STRING:
            why = (
                "a date in another pattern, with the hint that reads it"
                if name in file.hinted
                else reason(texts)
            )
            yield ("better" if why in _KEPT else "worse"), f"{theirs} there, text here: {why}"
        else:
            is_finer = (ours, theirs) in (("date", "timestamp"), ("boolean", "number"))
            yield ("better" if is_finer else "worse"), f"{ours}: {theirs} there"


def reason(texts: Sequence[str]) -> str:
    """Why the texts are text."""
    for why, pattern in _REASONS.items():
        if any(re.fullmatch(pattern, str(text), re.DOTALL) for text in texts):
            return why
    return f"other, such as {str(texts[0])[:30]!r}"


def compared(paths: Sequence[Path], *, each: bool) -> None:
    """Print the shares of all columns, and each kind of difference."""
    counts: dict[str, Counter[str]] = {"duckdb": Counter(), "pandas": Counter()}
    kinds: dict[str, Counter[str]] = {"duckdb": Counter(), "pandas": Counter()}
    files: Counter[str] = Counter()
    for path in paths:
        try:
            file = read(path)
        except DataError as error:
            files["refused"] += 1
            print(f"refused: {error.message}") if each else None
            continue
        files["read" if file else "empty"] += 1
        if file is None:
            continue
        files["values lost"] += file.lost
        if file.lost and each:
            print(f"lost: {path}: {file.lost}")
        for name, types_of in (("duckdb", of_duckdb), ("pandas", of_pandas)):
            try:
                others = types_of(path, file.delimiter)
            except Exception:
                files[f"{name} fails"] += 1
                continue
            if len(others) != len(file.types):
                files[f"{name} finds other columns"] += 1
                continue
            for (verdict, why), column in zip(judged(file, others), file.names, strict=True):
                counts[name][verdict] += 1
                kinds[name][f"{verdict}: {why}"] += bool(why)
                if each and verdict == "worse":
                    print(f"{name}: {path.name}: {column}: {why}")
    print(dict(files))
    for name, count in counts.items():
        total = count.total() or 1
        print(
            f"{name}: {total} columns, equal {count['equal'] / total:.1%}, better {count['better'] / total:.1%}, worse {count['worse'] / total:.1%}"
        )
        for kind, number in kinds[name].most_common():
            print(f"  {number:5} {kind}") if number else None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=float, default=2, metavar="MIB", help="pass over larger files")
    parser.add_argument("--list", action="store_true", help="name each column that is worse")
    said = parser.parse_args()
    found = sorted(path for ending in ("csv", "tsv") for path in said.folder.rglob(f"*.{ending}"))
    compared(
        [path for path in found if path.is_file() and path.stat().st_size <= said.most * 2**20],
        each=said.list,
    )
