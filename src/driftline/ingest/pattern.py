"""Patterns such as ``hooks.{event}``: the values of a record that name its table, and that name."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from driftline.core.schema.naming import QUARANTINE, table_parts
from driftline.core.schema.types import Path
from driftline.core.settings.fields import parse_path
from driftline.errors import UsageError
from driftline.files.endings import ENDINGS, FORMATS

# Of the braces, as texts; None where a record has none
Values: TypeAlias = tuple[str | None, ...]

OTHER: Final = "_other"  # the table of the records whose values name none
STEM, FOLDER, TOPIC, KEY = "_file.stem", "_file.folder", "_topic", "_key"
_OF_KAFKA = re.compile(rf"{TOPIC}|{KEY}(\..+)?", re.DOTALL)
_OF_FILES = (STEM, FOLDER)

_LONGEST = 100  # bytes of a name, before its digest
DIGITS = (6, 12, 24, 64)  # of a digest; more where a name is taken
_DIGEST = re.compile("_(?:" + "|".join(f"[0-9a-f]{{{count}}}" for count in DIGITS) + r")\Z")
# In a namespace of several parts Spark takes such a name for a part of the history of a table, which its
# namespace would be, or for one of Iceberg's metadata tables.
_HISTORY = re.compile(r"(branch|tag)_.*|(at_timestamp|snapshot_id)_\d+", re.DOTALL)
_METADATA = frozenset({
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files", "delete_files",
    "entries", "files", "history", "manifests", "metadata_log_entries", "partitions", "position_deletes", "refs",
    "snapshots",
})  # fmt: skip
_TAKEN = (QUARANTINE, "__deletes")  # behind a table's name: driftline's own tables

_HOW = "a pattern is namespace.table with paths of the records in braces, as in hooks.{event}"
_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_PLAIN = 400  # digits of a number that is spelled without an exponent


@dataclass(frozen=True, slots=True)
class Brace:
    """A part of a pattern that a record fills. ``number``: its place among the pattern's braces."""

    number: int


Piece: TypeAlias = str | Brace


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of tables' names.

    Attributes:
        parts: the pieces of each part of the name, the table's last.
        braces: what stands in the braces.
    """

    text: str
    parts: tuple[tuple[Piece, ...], ...]
    braces: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Parse a pattern.

        >>> Pattern.of("hooks.{event}").parts
        (('hooks',), (Brace(number=0),))

        Raises UsageError.
        """
        parts: list[list[Piece]] = [[]]
        braces: list[str] = []
        end = 0
        while match := _PIECE.match(text, end):
            end = match.end()
            if match[1] is not None:
                parts[-1].append(Brace(len(braces)))
                braces.append(match[1])
                continue
            first, *others = match[2].split(".")
            parts[-1] += [first] * bool(first)
            parts += [[part] * bool(part) for part in others]
        if end < len(text) or not braces:
            raise UsageError(f"{text!r} is no pattern of tables", _HOW)
        pattern = cls(text, tuple(map(tuple, parts)), tuple(braces))
        table_parts(pattern.example)  # all else is a name
        for number in range(len(braces)):
            pattern.path(number)
            pattern.path_in_key(number)
        return pattern

    @property
    def example(self) -> str:
        """The name of a table that the pattern may make."""
        return self.named(["x"] * len(self.braces))

    def path(self, number: int) -> Path | None:
        """The path of the record in a pair of braces; None for what is not in the record.

        Raises UsageError.
        """
        brace = self.braces[number]
        if brace in _OF_FILES or _OF_KAFKA.fullmatch(brace):
            return None
        return self._parsed(brace)

    def path_in_key(self, number: int) -> Path | None:
        """The path in a message's key in a pair of braces, empty for the key itself; None for all else.

        Raises UsageError.
        """
        brace = self.braces[number]
        if brace == KEY:
            return ()
        return self._parsed(brace.removeprefix(f"{KEY}.")) if brace.startswith(f"{KEY}.") else None

    def _parsed(self, path: str) -> Path:
        try:
            return parse_path(path)
        except ValueError:
            raise UsageError(f"{self.text!r}: {path!r} is no path", _HOW) from None

    def must_be_of_files(self) -> None:
        """Raise UsageError if only messages of a topic have what stands in the braces."""
        if any(_OF_KAFKA.fullmatch(brace) for brace in self.braces):
            raise UsageError(f"{self.text}: files have no topic and no keys", "name a field of the records")

    def names(self, values: Values) -> bool:
        """True if the values of a record name a table of their own."""
        numbers = [piece.number for piece in self.parts[-1] if isinstance(piece, Brace)]
        return all(values[number] for number in numbers)

    def in_namespace(self, name: str) -> bool:
        """True if the pattern may have made a table of this name."""
        *namespace, _ = name.split(".")
        parts = self.parts[:-1]
        return len(namespace) == len(parts) and all(
            any(isinstance(piece, Brace) for piece in part) or "".join(map(str, part)) == step
            for part, step in zip(parts, namespace, strict=True)
        )

    def named(self, values: Sequence[str], digits: int = 0, *, ascii_only: bool = False) -> str:
        """The name of the table that values name, an empty one standing for a value that is missing.

        Args:
            values: of the braces.
            digits: of a digest at the table's own name, where another table has it; 0: only where needed.
            ascii_only: the catalog takes letters of ASCII alone.
        """
        several = len(self.parts) > 2
        namespace = [self._part(part, values, ascii_only=ascii_only) for part in self.parts[:-1]]
        table = self._part(self.parts[-1], values, ascii_only=ascii_only, several=several)
        if digits:
            table = f"{_DIGEST.sub('', table)}_{_digest(values, digits)}"
        return ".".join([*namespace, table])

    def other(self, values: Sequence[str], *, ascii_only: bool = False) -> str:
        """The name of the table in the same namespace for records whose values name none."""
        namespace = [self._part(part, values, ascii_only=ascii_only) for part in self.parts[:-1]]
        return ".".join([*namespace, OTHER])

    def _part(
        self,
        part: Sequence[Piece],
        values: Sequence[str],
        *,
        ascii_only: bool,
        several: bool = False,
    ) -> str:
        texts = [values[piece.number] for piece in part if isinstance(piece, Brace)]
        if not texts:
            return "".join(map(str, part))
        if not all(texts):
            return OTHER
        spelled = "".join(piece if isinstance(piece, str) else values[piece.number] for piece in part)
        return _name(spelled, texts, ascii_only=ascii_only, several=several)


def _name(text: str, values: Sequence[str], *, ascii_only: bool, several: bool) -> str:
    """Make a part of a name of a text.

    Args:
        text: the part as the pattern and the values spell it.
        values: those in the part.
        ascii_only: letters and digits are those of ASCII.
        several: it is a table's name, in a namespace of several parts.
    """
    composed = unicodedata.normalize("NFC", text)
    lower = unicodedata.normalize("NFC", composed.lower())
    name = "".join(character if _stays(character, ascii_only=ascii_only) else "_" for character in lower)
    is_history = several and _HISTORY.fullmatch(name) is not None
    means_more = is_history or (several and name in _METADATA) or name == OTHER or name.endswith(_TAKEN)
    changed = composed != text or name != lower
    if len(name.encode()) > _LONGEST:
        changed, name = True, name.encode()[:_LONGEST].decode(errors="ignore")
    if not (changed or means_more or _DIGEST.search(name)):
        return name
    # A digest behind such a name does not keep Spark from taking it for a branch.
    return f"{'_' * is_history}{name}_{_digest(values)}"


def _digest(values: Sequence[str], digits: int = DIGITS[0]) -> str:
    """The beginning of the values' SHA-256, which is the same for values that differ in case alone."""
    text = values[0] if len(values) == 1 else json.dumps(values)
    return hashlib.sha256(text.lower().encode(errors="surrogatepass")).hexdigest()[:digits]


def _stays(character: str, *, ascii_only: bool) -> bool:
    if character == "_":
        return True
    return (character.isalpha() or character.isdecimal()) and (character.isascii() or not ascii_only)


def text_of(value: object) -> str | None:
    """The text by which a value of JSON names a table; None for one that names none.

    A number names it by its exact value, as does the text that spells it.

    >>> [text_of(value) for value in ("Push", True, 7, Decimal("7.0"), Decimal("1e3"), "", None, [])]
    ['Push', 'true', '7', '7', '1000', None, None, None]
    """
    match value:
        case str():
            return value or None
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return _spelled(Decimal(value))
    return None


def _spelled(number: Decimal) -> str:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if not stripped:
        return "0"
    minus = "-" * sign
    if exponent > _PLAIN or -exponent > _PLAIN:
        return f"{minus}{stripped}e{exponent}"
    if exponent >= 0:
        return minus + stripped + "0" * exponent
    padded = stripped.zfill(1 - exponent)
    return f"{minus}{padded[:exponent]}.{padded[exponent:]}"


def is_other(table: str) -> bool:
    """True for the table of records whose values name none, in any namespace."""
    return table.rpartition(".")[2] == OTHER


def of_file(path: str) -> Mapping[str, str | None]:
    """Return the values that a file's path has for braces.

    >>> of_file("in/2024/events.eu.jsonl.gz")
    {'_file.stem': 'events.eu', '_file.folder': '2024'}
    """
    folder, _, name = path.rpartition("/")
    stem = name
    for endings in (ENDINGS, FORMATS):
        head, dot, ending = stem.rpartition(".")
        stem = head if head and f"{dot}{ending}".lower() in endings else stem
    return {STEM: stem or None, FOLDER: folder.rpartition("/")[2] or None}
