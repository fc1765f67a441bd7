"""Values in the paths of files: Hive's partitions (`day=2026-01-01/`), as columns of the files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert import arrow_type
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Struct,
)
from driftline.errors import DataError
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.csv.types import type_of, types_of

_NULL = "__HIVE_DEFAULT_PARTITION__"
_TYPES = frozenset((LONG, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ))  # those that Spark gives them, beside text
_INT = 2**31  # beyond every int
_BLANK = r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)"

PathTexts: TypeAlias = Mapping[str, Mapping[str, "str | None"]]  # of files, by key


def path_texts(path: str) -> dict[str, str | None]:
    """The texts in a path, by key.

    >>> path_texts("s3://b/day=2026-01-01/city=K%C3%B6ln/a=b.csv")
    {'day': '2026-01-01', 'city': 'Köln'}
    """
    steps = [step.partition("=") for step in path.split("/")[:-1]]
    return {
        unquote(key): None if text == _NULL else unquote(text) for key, sign, text in steps if key and text
    }


def path_fields(files: PathTexts) -> tuple[Field, ...]:
    """The columns of texts in paths: typed as in CSV, if all texts of a key print so."""
    keys = dict.fromkeys(key for texts in files.values() for key in texts)
    return tuple(_field(key, {texts.get(key) for texts in files.values()}) for key in keys)


def _field(key: str, texts: Iterable[str | None]) -> Field:
    array = _with_t(pa.array(texts, pa.string()))
    type_ = type_of([types_of(array, _TYPES)])
    if type_ == LONG:
        bounds = pc.min_max(array.cast(pa.int64())).as_py()
        type_ = INT if bounds["min"] >= -_INT and bounds["max"] < _INT else LONG
    return Field(key, type_)


def _with_t(texts: pa.Array | pa.Scalar) -> Any:
    """Moments with a `T`: Spark writes a blank."""
    return pc.replace_substring_regex(texts, _BLANK, r"\1T\2")


def json_members(files: PathTexts) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """The texts in the path of each file as keys and values of JSON, which has numbers and text.

    >>> json_members({"a": {"day": "2026-01-01", "n": "7"}})
    {'a': (('day', b'"2026-01-01"'), ('n', b'7'))}
    """
    numbers = {f.name for f in path_fields(files) if f.type in (INT, LONG, DOUBLE)}
    return {
        file: tuple(
            (key, text.encode() if key in numbers else json.dumps(_with_t(pa.scalar(text)).as_py()).encode())
            for key, text in texts.items()
            if text is not None
        )
        for file, texts in files.items()
    }


def partitioned(readers: Sequence[ColumnReader], files: PathTexts) -> Sequence[ColumnReader]:
    """The readers, with the texts in the paths of their files as further columns."""
    fields = path_fields(files)
    return [PartitionedReader(reader, fields, files) for reader in readers] if fields else readers


@dataclass(frozen=True, slots=True)
class PartitionedReader:
    """Another reader, with the columns of paths behind its own. ``fields``: those of the paths."""

    reader: ColumnReader
    fields: tuple[Field, ...]
    files: PathTexts

    @property
    def struct(self) -> Struct:
        """The types of all columns; one that the files have too is of their type."""
        own = self.reader.struct.fields
        names = {f.name for f in own}
        return Struct((*own, *(f for f in self.fields if f.name not in names)))

    @property
    def label(self) -> str:
        """The name of the files in reports."""
        return self.reader.label

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each part."""
        return self.reader.sizes

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return self.reader.paths

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a part. Raises DataError if a column contradicts the path of its file."""
        for rows in self.reader.rows(part):
            yield replace(rows, batch=self._with_texts(rows))

    def _with_texts(self, rows: Rows) -> pa.RecordBatch:
        texts, count = self.files.get(rows.source, {}), rows.batch.num_rows
        own = self.reader.struct.fields
        names = [f.name for f in own]
        columns = list(rows.batch.columns)
        for key, text in texts.items():
            if text is not None and names.count(key) == 1:
                number = names.index(key)
                columns[number] = _agreed(columns[number], key, text, rows.source)
        columns += [_repeated(texts.get(f.name), f, count) for f in self.struct.fields[len(own) :]]
        return pa.RecordBatch.from_arrays(columns, [f.name for f in self.struct.fields])


def _repeated(text: str | None, field: Field, count: int) -> pa.Array:
    type_ = arrow_type(field.type)
    if text is None:
        return pa.nulls(count, type_)
    texts = pa.array([text])
    value = texts if field.type == STRING else _with_t(texts).cast(type_)
    return value.take(pa.repeat(pa.scalar(0), count))


def _agreed(column: pa.Array, key: str, text: str, file: str) -> pa.Array:
    """A column of a file that its path has too, filled in from there.

    The path's text may be the beginning of the value, as a day is of its moments.
    """
    try:
        value = pa.scalar(text).cast(column.type)
        differs = pc.not_equal(column, value).fill_null(False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        value, differs = None, pa.repeat(pa.scalar(True), len(column))
    for other in set(map(str, column.filter(differs).to_pylist())) if pc.any(differs).as_py() else ():
        if not other.startswith(text):
            raise DataError(
                f"{file}: {key} is {other} in a row, and {text} in the path",
                hint="--set hive=off ignores the values in paths",
            )
    return column if value is None else pc.fill_null(column, value)
