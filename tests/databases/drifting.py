"""A database whose table drifts while an application changes it: what both databases' tests have in common."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from driftline.lake import Lake
from driftline.lake.table import Table
from servers.debezium import Debezium

SETTINGS = {"key": "id", "envelope": "debezium"}
_EXACT = Context(prec=100)
Values = Mapping[
    str, str | None
]  # what a column gets in SQL, with {n} for a number; None for one that is gone


class Drift(NamedTuple):
    """Statements, and the values of columns that are others from then on."""

    statements: str
    values: Values


class Statements(Protocol):
    def run(self, sql: str) -> list[str]:
        """Runs statements, each a transaction, and returns the lines that they print."""


class Application:
    """The changes of the table `people`, a transaction each: inserts, updates of some columns, deletes, changes
    of keys. ``with_key``: the columns that an update of the key assigns too.
    """

    def __init__(self, values: Values, with_key: Sequence[str] = ()) -> None:
        self.chance, self.ids, self.last = random.Random(11), list[int](), 0
        self.values, self.with_key = dict(values), with_key

    def statement(self) -> str:
        act = self.chance.random()
        self.last += 1
        values = {name: value.format(n=self.last) for name, value in self.values.items() if value is not None}
        if act < 0.35 or len(self.ids) < 5:
            self.ids.append(self.last)
            columns = ", ".join(["id", *values])
            return f"insert into people ({columns}) values ({', '.join([str(self.last), *values.values()])});"
        place = self.chance.randrange(len(self.ids))
        old = self.ids[place]
        if act < 0.5:
            return f"delete from people where id = {self.ids.pop(place)};"
        if act < 0.6:
            self.ids[place] = self.last
            assigned = {"id": str(self.last), **{name: values[name] for name in self.with_key}}
        else:
            names = self.chance.sample(sorted(values), self.chance.randrange(1, 4))
            assigned = {name: values[name] for name in names}
        changes = ", ".join(f"{name} = {value}" for name, value in assigned.items())
        return f"update people set {changes} where id = {old};"


def lakes(folder: Path) -> list[Lake]:
    """One of each format."""
    return [Lake.open(folder / "iceberg"), Lake.open(folder / "ducklake", ducklake="duckdb")]


class Followed(NamedTuple):
    """A database, its connector, the folder of its messages, and the tables that follow it."""

    database: Statements
    connector: Debezium
    messages: Path
    tables: Sequence[Table]

    def drift(self, drifts: Sequence[Drift], application: Application, transactions: int) -> None:
        """Goes through all drifts, with so many transactions after each. The connector is started anew each time."""
        for number, (statements, values) in enumerate(drifts):
            self.database.run(statements)
            if "truncate" in statements:
                application.ids.clear()
            application.values |= values
            self.database.run("\n".join(application.statement() for _ in range(transactions)))
            end = f"the end of phase {number}"
            self.database.run(f"insert into people (id, name) values ({1_000_000 + number}, '{end}');")
            self.take(number, end, truncated="truncate" in statements)

    def take(self, number: int, end: str, truncated: bool = False) -> None:
        """Has the connector write messages up to one with the text ``end``, and ingests them."""
        messages = self.messages / f"{number}.jsonl"
        self.connector.write(messages, end)
        for table in self.tables:
            result = table.ingest(messages, settings=SETTINGS)
            assert result.rows_quarantined == 0, result
            assert result.by_key is not None
            assert (result.by_key.truncated > 100) == truncated

    def check(self, select: str, renamed: Mapping[str, str]) -> None:
        """The tables have the rows that the database has, also after messages that came before, and `verify`
        confirms it. ``select`` prints the rows as objects; ``renamed``: earlier names of columns.
        """
        rows = self.rows(select)
        assert len(rows) > 300
        again = self.messages / "again.jsonl"
        again.write_text("".join((self.messages / f"{number}.jsonl").read_text() for number in (1, 0)))
        for table in self.tables:
            table.ingest(again)
            found = differences(table, rows, renamed)
            assert found == {}, found
            verdict = table.verify(self.messages, exactly=True)
            assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 0), verdict

    def rows(self, select: str) -> list[dict[str, Any]]:
        """The objects that a statement prints."""
        return [json.loads(line, parse_float=Decimal) for line in self.database.run(select)]


def differences(
    table: Table, rows: Iterable[Mapping[str, Any]], renamed: Mapping[str, str]
) -> dict[str, tuple[Any, Any, Any]]:
    """An example of each column that differs: the id, what the table has, what the database has."""
    stored = {int(row["id"]): row.asDict(recursive=True) for row in table.read().collect()}
    ids = {row["id"] for row in rows}
    assert stored.keys() == ids, sorted(stored.keys() ^ ids)
    examples: dict[str, tuple[Any, Any, Any]] = {}
    for row in rows:
        for name, value in row.items():
            has = _stored(stored[row["id"]], name)
            if has is None and name in renamed:
                has = _stored(stored[row["id"]], renamed[name])
            if comparable(has) != comparable(value):
                examples.setdefault(name, (row["id"], has, value))
    return examples


def _stored(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field, of any of its columns; several have it where it fits them all."""
    values = (value for column, value in row.items() if column == name or column.startswith(f"{name}_"))
    found = [value for value in values if value is not None]
    assert all(comparable(value) == comparable(found[0]) for value in found), (name, found)
    return found[0] if found else None


def comparable(value: Any) -> Any:
    """A value as a database's JSON and Spark's rows both can have it: numbers exact, moments as text."""
    match value:
        case None:
            return value
        case bool():  # a bit, which may become a number
            return Decimal(int(value))
        case int() | float() | Decimal():
            return _EXACT.normalize(Decimal(str(value)))
        case list():
            return [comparable(item) for item in value]
        case dict():
            return {name: comparable(item) for name, item in value.items()}
        case datetime():
            return value.isoformat(timespec="microseconds")
        case str() if value.startswith("{"):
            return comparable(json.loads(value, parse_float=Decimal))
        case str() if value.removeprefix("-").replace(".", "", 1).isdigit():
            return _EXACT.normalize(Decimal(value))
    return str(value)
