"""Which values have which table: settled once for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from driftline.core.schema.naming import caseless
from driftline.ingest.pattern import DIGITS, Pattern, Values

MAX_TABLES = 200  # that a pattern makes, unless a person says otherwise
# The values that named a table that is there, none if it was not made by the pattern; None without a table.
NamedBy: TypeAlias = Callable[[str], Sequence[Values] | None]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tables of values.

    Attributes:
        tables: by values, in the order in which they were seen; without those that go to `_other`.
        room: the number of tables that may still be made.
        ascii_only: names of tables have letters of ASCII alone.
    """

    pattern: Pattern
    tables: Mapping[Values, str] = field(default_factory=dict)
    room: int = MAX_TABLES
    ascii_only: bool = False

    def to_json(self) -> list[tuple[Values, str]]:
        """The tables of values, as a checkpoint keeps them."""
        return list(self.tables.items())

    def with_tables(self, kept: Iterable[tuple[Sequence[str | None], str]]) -> Assignment:
        """The assignment that `to_json` gave.

        >>> one = Assignment(Pattern.of("hooks.{event}"), {("push",): "hooks.push"})
        >>> Assignment(one.pattern).with_tables([(["push"], "hooks.push")]) == one
        True
        """
        return replace(self, tables={tuple(values): table for values, table in kept})

    def table(self, values: Values) -> str:
        """The table of a record with these values."""
        assigned = self.tables.get(values)
        return assigned or self.pattern.other(_texts(values), ascii_only=self.ascii_only)

    def with_new(self, new: Iterable[Values], named_by: NamedBy) -> Assignment:
        """Assign tables to values in the order in which they were seen, while there is room.

        Args:
            new: values, by the first place of each.
            named_by: asks for the values of a table that is there.
        """
        tables, room = dict(self.tables), self.room
        owners: dict[str, Values] = {caseless(name): values for values, name in reversed(tables.items())}
        for values in new:
            if values in tables or not self.pattern.names(values):
                continue
            name, is_new = self._name(values, owners, named_by)
            if is_new:
                if not room:
                    continue
                room -= 1
            owners.setdefault(caseless(name), values)
            tables[values] = name
        return replace(self, tables=tables, room=room)

    def _name(self, values: Values, owners: Mapping[str, Values], named_by: NamedBy) -> tuple[str, bool]:
        """The name of the table of values, and True if it has to be made.

        Two values share a name only if they differ in case alone; else the second gets a longer digest.
        """
        texts = _texts(values)
        for digits in (0, *DIGITS[1:]):
            name = self.pattern.named(texts, digits, ascii_only=self.ascii_only)
            owner = owners.get(caseless(name))
            if owner is not None:
                if _same_but_case(owner, values):
                    return name, False
                continue
            named = named_by(name)
            # A table that somebody else made is theirs whose value has its name.
            if named is None or not named or any(_same_but_case(before, values) for before in named):
                return name, named is None
        raise AssertionError(f"two values have the digest of {values}")


def _texts(values: Values) -> list[str]:
    return [value or "" for value in values]


def _same_but_case(first: Values, second: Values) -> bool:
    return [text.lower() for text in _texts(first)] == [text.lower() for text in _texts(second)]
