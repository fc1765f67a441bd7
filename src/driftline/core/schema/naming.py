"""Names of columns and tables: suffixes, safe spellings, the mark of an evolved column.

Sources: seed rules 5, 6 and 7; "Names taken" of the evolution rules.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from driftline.core.schema.types import Field, Map, Primitive, Struct, Type, of_wide, peel
from driftline.errors import UsageError

METADATA = "driftline_metadata:"  # begins the doc of such a column: see `is_metadata`
MARK = "upsolver_evolved_from:"
MAX_NAME_BYTES = 255
# One key of 900 kB put 0.9 MB into every metadata file. `promote` makes a column all the same: a person
# asked.
# Characters of a key that gets a column, whose doc each metadata file has
MAX_KEY = 1_024

# Iceberg's and Spark's metadata columns: a table column of this name hides them, or is hidden.
METADATA_NAMES = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_metadata",
    }
)


def is_metadata(doc: str | None) -> bool:
    """True if a column with this doc is no field of the data: no key is routed to it."""
    return doc is not None and doc.startswith(METADATA)


def suffix(type_: Type) -> str:
    """The suffix of a sibling column, with its underscore (seed rule 5).

    >>> from driftline.core.schema.types import LONG, STRING, Struct, wrap, decimal
    >>> suffix(wrap(LONG, 3)), suffix(wrap(Struct(), 1)), suffix(decimal(38, 0)), suffix(Map(STRING, LONG))
    ('_array3_long', '_array_record', '_decimal_38_0', '_map_long')
    """
    dim, base = peel(type_)
    array = "" if dim == 0 else "_array" if dim == 1 else f"_array{dim}"
    match base:
        case Primitive(name, args):
            return f"{array}_{'_'.join([name, *map(str, args)])}"
        case Map():
            return f"{array}_map{suffix(base.value)}"
        case _:
            return f"{array}_record"


def mark(key: str, prefix: str = MARK) -> str:
    """The first line of an evolved column's doc. Odd keys are written as JSON strings, to stay one line.

    >>> mark("size"), mark("two\\nlines")
    ('upsolver_evolved_from:size', 'upsolver_evolved_from:"two\\\\nlines"')
    """
    # Only the first line of a doc is the mark, and engines may trim it.
    plain = key.isprintable() and not key.startswith('"') and key == key.strip()
    return prefix + (key if plain else json.dumps(key))


def marked_key(doc: str | None, prefix: str = MARK) -> str | None:
    """The exact key that a column's doc names; None for a column without a mark.

    >>> marked_key(mark("two\\nlines") + "\\na comment of a person")
    'two\\nlines'
    """
    first = (doc or "").split("\n", 1)[0]
    if not first.startswith(prefix):
        return None
    key = first[len(prefix) :]
    if key.startswith('"'):
        try:
            return str(json.loads(key))
        except ValueError:
            return key
    return key


def data_key(column: Field, prefix: str = MARK) -> str:
    """The key of the data that fills a column: the one in its mark, or else its name.

    >>> from driftline.core.schema.types import LONG
    >>> data_key(Field("a_long", LONG, doc=mark("a"))), data_key(Field("a", LONG, doc="size in bytes"))
    ('a', 'a')
    """
    marked = None if is_metadata(column.doc) else marked_key(column.doc, prefix)
    return column.name if marked is None else marked


def by_key(columns: Iterable[Field], prefix: str = MARK) -> dict[str, list[Field]]:
    """The columns that fields of the data fill, by key."""
    keys: dict[str, list[Field]] = {}
    for column in columns:
        if not is_metadata(column.doc):
            keys.setdefault(data_key(column, prefix), []).append(column)
    return keys


def struct_by_key(struct: Struct, prefix: str = MARK) -> Mapping[str, list[Field]]:
    """The columns of a struct, by key; those of wide structs are remembered for a while."""
    return _by_key(prefix)(struct)


@cache
def _by_key(prefix: str) -> Callable[[Struct], Mapping[str, list[Field]]]:
    return of_wide(lambda struct: by_key(struct.fields, prefix))


def unmarked(doc: str | None, prefix: str = MARK) -> str | None:
    """A doc without its mark: a person's comment, if there is one.

    >>> unmarked("upsolver_evolved_from:size\\nin bytes"), unmarked("in bytes"), unmarked(mark("size"))
    ('in bytes', 'in bytes', None)
    """
    return (doc or "" if marked_key(doc, prefix) is None else (doc or "").partition("\n")[2]) or None


_DOTTED_I = re.compile("i\u0307+")


def nearest(word: str, candidates: list[str], cutoff: float = 0.6) -> str | None:
    """A hint at the candidate that was probably meant; None if none is similar enough (1: equal)."""
    by_case = [k for k in candidates if caseless(k) == caseless(word)]
    near = by_case or difflib.get_close_matches(word, candidates, 1, cutoff)
    return f"did you mean {near[0]}?" if near else None


def caseless(name: str) -> str:
    """The common form of all names that some engine takes for one: the only place that compares names.

    Java compares the upper, and then the lower, case of each character; Spark also looks names up by their
    lower case, in which a capital I with a dot is an i with a dot above it.

    >>> caseless("SINIF") == caseless("s\u0131n\u0131f"), caseless("\u0130") == caseless("I")
    (True, True)
    >>> caseless("\u00df") == caseless("SS")
    False
    """
    if name.isascii():
        return name.lower()
    return _DOTTED_I.sub("i", "".join(map(_caseless, name)))


@cache
def _caseless(character: str) -> str:
    """Map one character to the one that Unicode pairs with it.

    If `upper` gives several characters, there is none, or the title case.
    """
    # Java maps one char to one; Python gives "SS" for "ß", which Java leaves alone.
    upper = next((c for c in (character.upper(), character.title()) if len(c) == 1), character)
    return upper.lower()[0]


def in_case_of(names: Sequence[str], keys: Iterable[str]) -> list[str]:
    """The names of a file's columns, in the letter case of the first of the ``keys`` that are else the same.

    A name that is a key stays; so do two of one file that are the same but for case.

    >>> in_case_of(["customer", "ID", "a", "A"], ["Customer", "Id", "ID", "a"])
    ['Customer', 'ID', 'a', 'A']
    >>> in_case_of(["ID", "id"], ["Id"])
    ['ID', 'id']
    """
    counts, ordered = Counter(map(caseless, names)), dict.fromkeys(keys)
    by_case = {caseless(key): key for key in reversed(ordered)}
    return [
        name if name in ordered or counts[caseless(name)] > 1 else by_case.get(caseless(name), name)
        for name in names
    ]


def safe(key: str) -> str:
    """A spelling of the key that every engine can carry; the key itself if it is one.

    >>> safe("a.b"), safe("_file"), safe("plain name"), safe("")
    ('a_b', '_file_', 'plain name', '_')
    """
    plain = key.isascii() and key.isidentifier()
    # Spark takes a dot for a path, and a backtick ends a quoted name.
    name = key if plain else "".join("_" if c in ".`" or not c.isprintable() else c for c in key)
    name = name.strip() or "_"
    if caseless(name) in METADATA_NAMES:
        name += "_"
    return _joined(name, "")


def unsafe(key: str) -> str | None:
    """The reason the key is not its own safe spelling; None if it is.

    >>> unsafe("a.b"), unsafe("_file"), unsafe("plain name")
    ('it holds a dot', 'engines have a column of their own by this name', None)
    """
    reasons = {
        "it is empty": not key,
        "it holds a dot": "." in key,
        "it holds a backtick": "`" in key,
        "it holds characters that are not printed": not key.isprintable(),
        "it begins or ends with a blank": key != key.strip(),
        "engines have a column of their own by this name": key.lower() in METADATA_NAMES,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    return reason or (None if safe(key) == key else "another spelling stands for it")


def _joined(name: str, suffix: str) -> str:
    """Append ``suffix`` to ``name``, shortening the name if both together have too many bytes."""
    if len(name) + len(suffix) <= MAX_NAME_BYTES // 4:  # bytes of a character, at most
        return name + suffix
    room = MAX_NAME_BYTES - len(suffix.encode())
    # The name is cut, never the suffix: it tells the siblings of a field from each other.
    return name.encode()[:room].decode(errors="ignore") + suffix


@of_wide
def _caseless_names(struct: Struct) -> set[str]:
    return {caseless(f.name) for f in struct.fields}


@dataclass(slots=True)
class Names:
    """The names already taken in one struct, in any letter case."""

    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, struct: Struct) -> Names:
        """The names of a struct's fields."""
        return cls(set(_caseless_names(struct)))

    def free(self, name: str) -> bool:
        """True if no column has the name, in any letter case."""
        return caseless(name) not in self.used

    def take(self, name: str, suffix: str = "") -> str:
        """Take ``name`` and ``suffix``, or with ``_2``, ``_3``… appended, whichever is free first."""
        candidate, n = _joined(name, suffix), 1
        while not self.free(candidate):
            n += 1
            candidate = _joined(name, f"{suffix}_{n}")
        self.used.add(caseless(candidate))
        return candidate


# Behind a table's name: its quarantine,
QUARANTINE = "__quarantine"
VIEW_SUFFIX = "_settled"  # and its view, if it has no other name

# What Iceberg's Spark catalog takes, behind a table's name, for a part of its history.
_SELECTORS = {
    "branch": re.compile(r"branch_(.*)", re.DOTALL),
    "tag": re.compile(r"tag_(.*)", re.DOTALL),
    "time": re.compile(r"at_timestamp_(\d+)"),
    "snapshot": re.compile(r"snapshot_id_(\d+)"),
}


def is_pattern(name: str) -> bool:
    """True if there is a brace in a name, as in patterns of tables and in no table's name."""
    return "{" in name or "}" in name


def spelled_name(name: str) -> str:
    """A table's name as SQL spells it.

    >>> spelled_name("hooks.{event}")
    'hooks.`{event}`'
    """
    parts = (part if part.isidentifier() else f"`{part.replace('`', '``')}`" for part in name.split("."))
    return ".".join(parts)


def must_take_records(name: str) -> None:
    """Raise UsageError for a quarantine, and for a pattern.

    What a quarantine holds comes with the records of its table.
    """
    if is_pattern(name):
        # Where braces were no pattern, such a table may have been made.
        plain = re.sub("[{}]", "", name.rpartition(".")[2])
        raise UsageError(
            f"{name!r} is a pattern of tables, and this takes one table",
            hint="`driftline ingest` and `Lake.fan_out` take patterns; a table that is called so gets another name by: "
            f"driftline alter {shlex.quote(f'ALTER TABLE {spelled_name(name)} RENAME TO {plain}')}",
        )
    table = name.removesuffix(QUARANTINE)
    if table != name:
        raise UsageError(f"{name} is the quarantine of {table}", hint=f"ingest into {table}")


def table_parts(name: str, *, two: bool = False) -> list[str]:
    """The parts of a table's name.

    Args:
        two: the namespace has one part only.

    >>> table_parts("shop.eu.orders")
    ['shop', 'eu', 'orders']

    Raises UsageError for what names no table, or a part of one's history.
    """
    parts = name.split(".")
    if len(parts) < 2 or not all(part.strip() and part.isprintable() for part in parts):
        raise UsageError(f"{name!r} is not a table name", hint="use namespace.table, as in shop.orders")
    if two and len(parts) > 2:
        raise UsageError(
            f"{name!r} is not a DuckLake table name", hint="use namespace.table, as in shop.orders"
        )
    table = ".".join(parts[:-1])
    for selector, pattern in _SELECTORS.items():
        if len(parts) > 2 and (match := pattern.fullmatch(parts[-1])):
            raise UsageError(
                f"{name!r} is not a table name: to Spark it is the {selector} {match[1]!r} of {table}",
                hint=f"write {table}; driftline writes tables as they are now, not their branches",
            )
    return parts
