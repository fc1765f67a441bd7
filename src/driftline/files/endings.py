"""Formats and compression by file name endings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

ENDINGS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lz4": "lz4",
    ".snappy": "snappy",
    ".sz": "snappy",
}
FileFormat: TypeAlias = Literal["json", "csv", "parquet", "avro", "orc", "excel"]
FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".geojson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".avro": "avro",
    ".orc": "orc",
    ".xlsx": "excel",
}
ASK_FORMAT = "pass --format json, csv, parquet, avro, orc or excel"
ARCHIVE = ".zip"
# A file is looked into only if it is named: in folders such files are notes and logs as often as data.
TEXTS = (".txt", ".log")  # may be of any format of text
_DELIMITERS = "\t;,|"


def format_by_name(path: str) -> str | None:
    """The format that the ending names, if any.

    >>> format_by_name("a/b.jsonl.zst"), format_by_name("b.csv.zip"), format_by_name("b.txt")
    ('json', 'csv', None)
    """
    name = Path(path.lower())
    packed = name.suffix in ENDINGS or name.suffix == ARCHIVE
    return FORMATS.get(Path(name.stem).suffix if packed else name.suffix)


def format_by_text(head: str) -> str | None:
    """The format that the beginning of a text shows, if any.

    >>> [format_by_text(text) for text in ('{"a": 1}', "id;x\\n1;2\\n", "started, done\\nstopped\\n")]
    ['json', 'csv', None]
    """
    text = head.removeprefix("\ufeff").lstrip()
    if text.startswith(("{", "[")):
        return "json"
    first, second = [*text.split("\n", 2), "", ""][:2]
    return "csv" if any(first.count(sign) == second.count(sign) > 0 for sign in _DELIMITERS) else None


def may_be_text(path: str) -> bool:
    """True if the ending says that the file is text, and nothing more."""
    name = Path(path.lower())
    return (Path(name.stem).suffix if name.suffix in ENDINGS else name.suffix) in TEXTS


def is_packed(path: str) -> bool:
    """True if the ending says that the file is compressed, or contains compressed files."""
    return path.lower().endswith((*ENDINGS, ARCHIVE))


def is_archive(path: str) -> bool:
    """True if the ending says that the file contains others."""
    return path.lower().endswith(ARCHIVE)


def is_hidden(path: Path) -> bool:
    """True if a file, or a folder around it, is skipped as Spark does."""
    return any(map(is_hidden_name, path.parts))


def is_hidden_name(name: str) -> bool:
    """True if a file or folder is skipped by its name.

    `_day=2026-01-01` is a partition; `~$a.xlsx` is how Excel marks that `a.xlsx` is open.
    """
    return (
        name.startswith("~$")
        or (name.startswith(".") and name != "..")
        or (name.startswith("_") and "=" not in name)
    )
