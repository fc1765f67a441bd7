"""Lists folders, globs and stores, and reads the columns in Hive-style paths.

A folder that cannot be listed is an error.
"""

from __future__ import annotations

import calendar
import errno
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from itertools import takewhile
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

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
from driftline.errors import DataError, SetupError
from driftline.files.endings import is_hidden, is_hidden_name
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.csv.types import type_of, types_of
from driftline.runtime.aws import client
from driftline.runtime.aws import explaining as explaining_aws
from driftline.runtime.disk import NO_ACCESS, mode
from driftline.runtime.stores import Uri, configured, explaining, filesystem

_SECOND = 10**9  # nanoseconds


class Listed(NamedTuple):
    """A file in a listing.

    Attributes:
        modified: nanoseconds since 1970, in whole seconds.
    """

    path: Uri
    size: int
    modified: int


class Listing(NamedTuple):
    """The files that a URI names: a file, or those of a folder or glob; none if nothing is there."""

    files: Iterator[Listed]
    is_folder: bool = False


def listing(source: str) -> Listing:
    """List the files that a URI names. Each path begins with ``source``.

    Hidden names in folders are skipped, as on this machine. Raises SetupError if the store does not answer,
    or denies access.
    """
    system, path = filesystem(source)
    with explaining(source):
        info = system.get_file_info(path)
    if info.type == FileType.File and not source.endswith("/"):
        return Listing(iter([_listed(Uri(source), info)]))
    # Names in stores may hold `*` and `?`: what is there by the whole name is no glob.
    if info.type == FileType.NotFound and has_magic(source):
        base, steps = _of_glob(source)
        return Listing(_objects_below(base, partial(_fits, steps), deep=len(steps) > 1 or "**" in steps))
    is_folder = info.type != FileType.NotFound
    # Nothing there, and no bucket either: the second is a mistake of another kind.
    if not is_folder and not _has_root(system, path):
        if path.startswith("/"):
            raise SetupError(f"{source}: HDFS does not respond", "check the network, the host and the port")
        raise SetupError(f"{source}: no such bucket")
    return Listing(_objects_below(source.rstrip("/"), _is_shown, deep=True), is_folder)


def behind(source: str, path: str) -> Iterator[Listed]:
    """List the objects in S3 below a URI that sort after ``path``. Raises SetupError.

    Some may not match; see `may_hold`.
    """
    options = configured(source)
    scheme, _, place = _of_glob(source)[0].partition("://")
    bucket, _, prefix = place.partition("/")
    # By botocore: pyarrow cannot begin a listing at a name, and all of 100,000 objects take 100 requests.
    pages = client("s3", options).get_paginator("list_objects_v2")
    last = path.partition("://")[2].partition("/")[2]
    with explaining_aws(source, options):
        for page in pages.paginate(Bucket=bucket, Prefix=prefix and f"{prefix}/", StartAfter=last):
            for entry in page.get("Contents", ()):
                modified = calendar.timegm(entry["LastModified"].utctimetuple()) * _SECOND
                yield Listed(Uri(f"{scheme}://{bucket}/{entry['Key']}"), entry["Size"], modified)


def may_hold(source: str) -> Callable[[str], bool]:
    """Return a test for paths: true if the URI could name the path, judged by its name alone."""
    folder = f"{source.rstrip('/')}/"
    base, pattern = _of_glob(source)

    def fits(path: str) -> bool:
        """True if the URI could name this path."""
        if {"", ".", ".."} & set(path.partition("://")[2].split("/")):
            return False  # a key, but no path
        if path.startswith(folder):
            return _is_shown(path.removeprefix(folder).split("/"))
        relative = path.removeprefix(f"{base}/")
        return path == source or (bool(pattern) and relative != path and _fits(pattern, relative.split("/")))

    return fits


def _of_glob(source: str) -> tuple[str, list[str]]:
    """Split a glob into its folder and the steps of its pattern; no steps for a path."""
    base, steps = source.rstrip("/"), list[str]()
    while has_magic(base):
        base, _, step = base.rpartition("/")
        steps.insert(0, step)
    return base, steps


def _has_root(system: FileSystem, path: str) -> bool:
    """True if the bucket, or HDFS's root, exists or cannot be checked."""
    root = "/" if path.startswith("/") else path.partition("/")[0]
    try:
        return bool(system.get_file_info(root).type != FileType.NotFound)
    except OSError:
        return True


def _objects_below(base: str, fits: Callable[[Sequence[str]], bool], *, deep: bool) -> Iterator[Listed]:
    system, path = filesystem(base)
    with explaining(base):
        infos = system.get_file_info(FileSelector(path, recursive=deep, allow_not_found=True))
    for info in infos:
        name = info.path[len(path) :].lstrip("/")
        if info.type == FileType.File and fits(name.split("/")):
            yield _listed(Uri(f"{base}/{name}"), info)


def _listed(path: Uri, info: FileInfo) -> Listed:
    # Stores tell the time of a file by the second in one request and finer in another.
    return Listed(path, info.size, info.mtime_ns // _SECOND * _SECOND)


def _is_shown(steps: Sequence[str]) -> bool:
    return not is_hidden(Path(*steps))


def _fits(pattern: Sequence[str], steps: Sequence[str]) -> bool:
    """True if a path matches a glob step by step, as in folders of this machine.

    >>> _fits(["**", "*.json"], ["a", "b", "c.json"]), _fits(["*"], ["a", "b"]), _fits(["*"], [".a"])
    (True, False, False)
    """
    if not pattern:
        return not steps
    first, *later = pattern
    if first == "**":
        return _fits(later, steps) or (
            bool(steps) and not steps[0].startswith(".") and _fits(pattern, steps[1:])
        )
    return bool(steps) and fits_step(first, steps[0]) and _fits(later, steps[1:])


def fits_step(pattern: str, name: str) -> bool:
    """True if the name of a file or folder matches one step of a glob, other than ``**``."""
    return fnmatchcase(name, pattern) and name.startswith(".") <= pattern.startswith(".")


_Identity = tuple[int, int]


def below(folder: str, lake: str | Path | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield the visible files in a folder and its sub-folders, linked ones too.

    Each folder is listed once, whatever links lead to it, and by its own path if that is below ``folder``
    too: so a link to a folder above it adds nothing. The folder of the ``lake`` is skipped. Raises
    SetupError for a folder that cannot be listed.
    """
    entered = {_identity(folder)}
    if lake is not None and S_ISDIR(mode(Path(lake))):
        entered.add(_identity(lake))
    links: list[str] = []
    yield from _entries_below(folder, entered, links)
    # Links come after the folders themselves, and in order of name, so that each listing takes the same path.
    while links:
        following: list[str] = []
        for link in sorted(links):
            if (identity := _identity(link)) not in entered:
                entered.add(identity)
                yield from _entries_below(link, entered, following)
        links = following


def _entries_below(folder: str, entered: set[_Identity], links: list[str]) -> Iterator[os.DirEntry[str]]:
    for entry in _entries(folder):
        if is_hidden_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            if (identity := _identity(entry.path)) not in entered:
                entered.add(identity)
                yield from _entries_below(entry.path, entered, links)
        elif entry.is_symlink() and S_ISDIR(mode(Path(entry.path))):
            links.append(entry.path)
        elif _is_file(entry):
            yield entry


def _identity(folder: str | Path) -> _Identity:
    """Return the file system and number of a folder, which its names and links share."""
    try:
        stat = Path(folder).stat()
    except OSError as error:
        raise SetupError(f"{folder}: cannot be listed: {error.strerror}", NO_ACCESS) from error
    return stat.st_dev, stat.st_ino


def matching(source: str) -> Iterator[Path]:
    """Yield the files that a glob names, each once, as Python's own `glob` does.

    That one skips folders that cannot be listed: this raises SetupError.
    """
    base = glob_base(source)
    yield from dict.fromkeys(_matching(base, Path(source).parts[len(base.parts) :]))


def _matching(
    path: Path, steps: Sequence[str], ancestors: frozenset[_Identity] = frozenset()
) -> Iterator[Path]:
    """Match the remaining steps of a glob.

    Args:
        ancestors: the folders that `**` went through, so that links back to one of them end there.
    """
    if not steps:
        if S_ISREG(mode(path)):
            yield path
        return
    first, *later = steps
    if not glob.has_magic(first):
        yield from _matching(path / first, later)
        return
    is_folder = S_ISDIR(mode(path))
    if first == "**":
        yield from _matching(path, later)
        if is_folder:
            if (identity := _identity(path)) in ancestors:
                return
            ancestors |= {identity}
    for entry in _entries(path) if is_folder else ():
        if first != "**" and fits_step(first, entry.name):
            yield from _matching(Path(entry.path), later)
        elif first == "**" and not entry.name.startswith("."):
            yield from _matching(Path(entry.path), steps, ancestors)


def outside(paths: Iterable[Path], base: Path, lake: str | Path | None) -> list[Path]:
    """Drop the paths in the lake's folder. All ``paths`` are below ``base``."""
    if lake is None:
        return list(paths)
    folder, parent = Path(lake).resolve(), base.resolve()
    if parent == folder or not folder.is_relative_to(parent):
        return list(paths)
    lake_folder = folder.relative_to(parent)
    return [path for path in paths if not path.relative_to(base).is_relative_to(lake_folder)]


def glob_base(source: str) -> Path:
    """Return the folder before a glob's first wildcard.

    >>> str(glob_base("in/2026/*/a.json"))
    'in/2026'
    """
    return Path(*takewhile(lambda part: not glob.has_magic(part), Path(source).parts))


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError as error:
        raise SetupError(f"{folder}: cannot be listed: {error.strerror}", NO_ACCESS) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        # Links that point at each other lead nowhere, as one to nothing does
        if error.errno == errno.ELOOP:
            return False
        raise


_NULL = "__HIVE_DEFAULT_PARTITION__"
# Those that Spark gives them, apart from text
_TYPES = frozenset((LONG, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ))
_INT = 2**31  # beyond every int
_BLANK = r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)"

PathTexts: TypeAlias = Mapping[str, Mapping[str, "str | None"]]  # of files, by key


def path_texts(path: str) -> dict[str, str | None]:
    """Read the texts in a Hive-style path, by key.

    >>> path_texts("s3://b/day=2026-01-01/city=K%C3%B6ln/a=b.csv")
    {'day': '2026-01-01', 'city': 'Köln'}

    Bytes that are not UTF-8, as they are or as `%FF`, are escaped.
    """
    # Of the full path, so that a record is the same however its file was named. Spark counts only folders
    # below the given one.
    steps = [step.partition("=") for step in path.split("/")[:-1]]
    return {
        _unescaped(key): None if text == _NULL else _unescaped(text)
        for key, sign, text in steps
        if key and text
    }


def _unescaped(name: str) -> str:
    return unquote_to_bytes(name.encode(errors="surrogateescape")).decode(errors="backslashreplace")


def path_fields(files: PathTexts) -> tuple[Field, ...]:
    """Return the columns of texts in paths, typed as in CSV if all texts of a key allow it."""
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
    """Write timestamps with a `T`, for which Spark writes a blank."""
    return pc.replace_substring_regex(texts, _BLANK, r"\1T\2")


def json_members(files: PathTexts) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Convert the texts in each path to JSON keys and values, which are numbers or strings.

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
    """Add the texts in file paths to the readers, as further columns."""
    fields = path_fields(files)
    return [PartitionedReader(reader, fields, files) for reader in readers] if fields else readers


@dataclass(frozen=True, slots=True)
class PartitionedReader:
    """Another reader's columns, followed by those of file paths, ``fields``."""

    reader: ColumnReader
    fields: tuple[Field, ...]
    files: PathTexts

    @property
    def struct(self) -> Struct:
        """The types of all columns; a column that the files have too has the files' type."""
        file_fields = self.reader.struct.fields
        names = {f.name for f in file_fields}
        return Struct((*file_fields, *(f for f in self.fields if f.name not in names)))

    @property
    def label(self) -> str:
        """The name of the files in reports."""
        return self.reader.label

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each part."""
        return self.reader.sizes

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return self.reader.paths

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a part. Raises DataError if a column contradicts the path of its file."""
        for rows in self.reader.rows(part):
            yield replace(rows, batch=self._with_texts(rows))

    def _with_texts(self, rows: Rows) -> pa.RecordBatch:
        texts, count = self.files.get(rows.source, {}), rows.batch.num_rows
        file_fields = self.reader.struct.fields
        names = [f.name for f in file_fields]
        columns = list(rows.batch.columns)
        for key, text in texts.items():
            if text is not None and names.count(key) == 1:
                number = names.index(key)
                columns[number] = _agreed(columns[number], key, text, rows.source)
        columns += [_repeated(texts.get(f.name), f, count) for f in self.struct.fields[len(file_fields) :]]
        return pa.RecordBatch.from_arrays(columns, [f.name for f in self.struct.fields])


def _repeated(text: str | None, field: Field, count: int) -> pa.Array:
    type_ = arrow_type(field.type)
    if text is None:
        return pa.nulls(count, type_)
    texts = pa.array([text])
    value = texts if field.type == STRING else _with_t(texts).cast(type_)
    return value.take(pa.repeat(pa.scalar(0), count))


def _agreed(column: pa.Array, key: str, text: str, file: str) -> pa.Array:
    """Fill a file's column from its path, which has it too.

    The path's text may be a prefix of the value, as a day is of its timestamps.
    """
    try:
        value = pa.scalar(text).cast(column.type)
        differs = pc.not_equal(column, value).fill_null(False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        value, differs = None, pa.repeat(pa.scalar(True), len(column))
    # Most columns agree; only values that differ become Python's, each once.
    for other in set(map(str, column.filter(differs).to_pylist())) if pc.any(differs).as_py() else ():
        if not other.startswith(text):
            raise DataError(
                f"{file}: {key} is {other} in a row, and {text} in the path",
                hint="--set hive=off ignores the values in paths",
            )
    return column if value is None else pc.fill_null(column, value)
