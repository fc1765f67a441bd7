"""CSV dialects: stated by a person, or else detected in each file."""

from __future__ import annotations

import codecs
import csv
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import combinations
from typing import NamedTuple

TAB = ("tab", r"\t")
NONE = "none"
QUOTES = ("'", '"')
AUTO, YES, NO = "auto", "yes", "no"
FOLD = "fold"
POINT, COMMA = ".", ","
_MARKS = ("delimiter", "quote", "escape", "comment")
_LONGEST_HEADER = 300  # characters, of a flag that is to be pasted
_MAY_BE_NONE = ("quote", "escape")
_NO_TEXT = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"})


class Signs(NamedTuple):
    """The signs in numbers. An empty ``thousands`` means no separator."""

    decimal: str = POINT
    thousands: str = ""

    @property
    def groups(self) -> str:
        r"""The pattern of a number with signs between its thousands.

        >>> Signs(",", ".").groups
        '-?[1-9][0-9]{0,2}(?:\\.[0-9]{3})+(?:\\,[0-9]+)?'
        """
        return rf"-?[1-9][0-9]{{0,2}}(?:\{self.thousands}[0-9]{{3}})+(?:\{self.decimal}[0-9]+)?"


JSON_SIGNS = Signs()


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""A stated dialect; empty means not stated.

    Attributes:
        delimiter: separates cells.
        quote: encloses cells; `none` for no quotes.
        decimal: the decimal sign of numbers.
        encoding: any of Python's names for an encoding.
        escape: precedes quotes within quoted cells; `none` if they are doubled.
        header: `yes` if the first line has names, `no`, or the names that the file lacks; `auto` is not
            stated.
        skip_lines: the number of lines before the header.
        comment: begins lines that are skipped.
        thousands: the separator of thousands.
        trim: `yes` if blanks next to a delimiter are no part of a cell; `no`; `auto` is not stated.
        skip_empty: `true` if rows without a value are left out.
        nulls: texts of cells that are null, separated by commas.
        names: `fold` if a header fills the table's column of the same name in another letter case; `exact`.
        kept: the signs are from an earlier batch of the table, and nobody stated them for this one.

    >>> dialect = Dialect(delimiter="tab", encoding="Latin1", header="auto")
    >>> dialect.delimiter, dialect.encoding, dialect.header
    ('\t', 'iso8859-1', '')

    Raises ValueError for invalid marks.
    """

    delimiter: str = ""
    quote: str = ""
    encoding: str = ""
    decimal: str = ""
    escape: str = ""
    header: str = ""
    skip_lines: str = ""
    comment: str = ""
    thousands: str = ""
    trim: str = ""
    skip_empty: str = ""
    nulls: str = ""
    names: str = ""
    kept: bool = False

    def __post_init__(self) -> None:
        if self.delimiter in TAB:
            object.__setattr__(self, "delimiter", "\t")
        for name in ("header", "trim"):
            if getattr(self, name) == AUTO:
                object.__setattr__(self, name, "")
        if self.encoding:
            object.__setattr__(self, "encoding", _encoding(self.encoding))
        stated = {name: getattr(self, name) for name in _MARKS}
        marks = {
            name: text
            for name, text in stated.items()
            if text and not (text == NONE and name in _MAY_BE_NONE)
        }
        for name, mark in marks.items():
            if len(mark) > 1 or not mark.isascii() or mark in "\r\n\0" or mark.isalnum():
                raise ValueError(
                    f"{name}: {mark!r} is not one character of ASCII that is no letter, digit or line end"
                )
        self._check_names()
        self._check_together(marks)

    @property
    def stated_columns(self) -> tuple[str, ...]:
        """The names of the columns of a file without a header; empty where not stated.

        >>> Dialect(header='id, "a, b"').stated_columns
        ('id', 'a, b')
        """
        if self.header in ("", YES, NO):
            return ()
        return _listed(self.header)

    @property
    def null_texts(self) -> tuple[str, ...]:
        """The texts of cells that are null, beside the empty one.

        >>> Dialect(nulls="NA, n/a").null_texts
        ('NA', 'n/a')
        """
        return tuple(filter(None, dict.fromkeys(_listed(self.nulls)))) if self.nulls else ()

    def _check_names(self) -> None:
        """Raise ValueError for invalid column names."""
        names = self.stated_columns
        if names in (("true",), ("false",)):
            raise ValueError(f"header: {names[0]!r} is not auto, yes, no, or the names of all columns")
        if "" in names:
            raise ValueError(f"header: column {names.index('') + 1} has no name")
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"header: two columns have the name {repeated!r}")

    def _check_together(self, marks: Mapping[str, str]) -> None:
        """Raise ValueError for marks that contradict each other."""
        if self.thousands and self.thousands == self.decimal:
            sign = "," if self.decimal == "." else "."
            raise ValueError(f"thousands: {self.thousands!r} is the decimal sign: write decimal = {sign!r}")
        if self.escape and self.escape in (*QUOTES, self.quote) and self.escape != NONE:
            raise ValueError(f"escape: {self.escape!r} is a quote: for doubled quotes write escape = none")
        if self.quote == NONE and "escape" in marks:
            raise ValueError("escape: nothing quotes cells (quote = none): write escape = none, too")
        for (first, mark), (second, same) in combinations(marks.items(), 2):
            if mark == same:
                raise ValueError(
                    f"{second}: {same!r} is the {first}: write another {second}, or another {first}"
                )

    @property
    def signs(self) -> Signs:
        """The signs in numbers: the separator of thousands never equals the decimal sign."""
        return Signs(self.decimal or (COMMA if self.thousands == POINT else POINT), self.thousands)

    @property
    def flags(self) -> str:
        """The flags that state this dialect.

        >>> Dialect(";", encoding="utf-16").flags
        "--delimiter ';' --encoding utf-16"
        """
        shown = {
            "delimiter": "tab" if self.delimiter == "\t" else self.delimiter and f"'{self.delimiter}'",
            "quote": f'"{self.quote}"' if self.quote == "'" else self.quote and f"'{self.quote}'",
            "encoding": self.encoding,
            "decimal": self.decimal,
            "thousands": self.thousands,
            "escape": self.escape and f"'{self.escape}'",
            "header": _in_quotes(self.header) if self.stated_columns else self.header,
            "skip-lines": self.skip_lines,
            "trim": self.trim,
            "names": self.names,
            "comment": self.comment and f"'{self.comment}'",
            "null": self.nulls and _in_quotes(self.nulls),
        }
        return " ".join(f"--{name} {text}" for name, text in shown.items() if text)


UNSTATED = Dialect()


def header_flags(names: Sequence[str], above: int, delimiter: str = "") -> str:
    """The flags that name all columns of a file; empty where the names are too long, or cannot be stated.

    Args:
        above: the lines above the first row.
        delimiter: one that has to be stated.

    >>> header_flags(["id", "a b"], 1)
    "--header 'id,a b' --skip-lines 1"
    """
    text = StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    header = text.getvalue()
    if len(header) > _LONGEST_HEADER or not header.isprintable() or header in (AUTO, YES, NO):
        return ""
    # Names with blanks around them cannot be stated, nor can two that are the same.
    try:
        dialect = Dialect(delimiter, header=header, skip_lines=str(above or ""))
    except ValueError:
        return ""
    return dialect.flags if dialect.stated_columns == tuple(names) else ""


def _in_quotes(text: str) -> str:
    return shlex.quote(text) if "'" in text else f"'{text}'"


def _listed(text: str) -> tuple[str, ...]:
    """The texts that stand between commas, in quotes where they have one."""
    return tuple(item.strip() for item in next(csv.reader([text], skipinitialspace=True)))


def _encoding(name: str) -> str:
    """The canonical name of an encoding."""
    try:
        info = codecs.lookup(name)
        text = isinstance(b"a".decode(name, "replace"), str)
    except (LookupError, ValueError):
        text = False
    if not text or info.name in _NO_TEXT:
        raise ValueError(
            f"encoding: {name!r} is not an encoding: write utf-8, cp1252, latin1, utf-16, shift_jis, gb18030, …"
        )
    return info.name
