"""A PostgreSQL whose table drifts, followed by Debezium's engine: the lake's table ends as the database's does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from driftline.lake import Lake
from servers.debezium import Debezium
from servers.machine import lacking
from servers.postgres import USER, Postgres

SETTINGS = {"key": "id", "envelope": "debezium"}
LARGE = "(select string_agg(md5(({n} * 1000 + m)::text), '') from generate_series(1, 120) m)"
TABLE = """
create table people (
  id bigint primary key, name text, quantity int, price numeric(12, 2), exact numeric, born date,
  seen timestamp, opens time, code uuid, flags bit(5), numbers int[], large text, document jsonb
);
alter table people alter column large set storage external;
alter table people alter column document set storage external;
"""
VALUES = {
    "name": "'name {n}'",
    "quantity": "{n}",
    "price": "{n}.05",
    "exact": "{n}.000001",
    "born": "date '2020-01-01' + {n} % 10000",
    "seen": "timestamp '2020-01-01 01:02:03.000456' + {n} * interval '1 minute'",
    "opens": "'10:00:00.000001'",
    "code": "md5('{n}')::uuid",
    "flags": "({n} % 32)::bit(5)",
    "numbers": "array[1, {n}]",
    "large": LARGE,
    "document": f"jsonb_build_object('text', {LARGE})",
}
# Statements, and what the values of columns are from then on; None for one that is gone.
DRIFT: list[tuple[str, dict[str, str | None]]] = [
    (TABLE, {}),
    (
        """
        truncate people;
        alter table people alter column quantity type text;
        alter table people add column grade numeric(4, 1);
        """,
        {"quantity": "'about {n}'", "grade": "{n} % 100"},
    ),
    (
        """
        alter table people drop column numbers;
        alter table people rename column grade to mark;
        alter table people alter column price type numeric(20, 6);
        """,
        {"numbers": None, "grade": None, "mark": "{n} % 100", "price": "{n}.123456"},
    ),
]
TRANSACTIONS = 1_000  # between two runs of the connector


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    if Postgres.programs() is None:
        lacking("PostgreSQL", "apt-get install postgresql")
    if Debezium.java() is None:
        lacking("a JDK", "apt-get install openjdk-17-jdk-headless")
    folder = tmp_path / "postgres"
    folder.mkdir()
    with Postgres(folder, "wal_level=logical") as running:
        yield running


class Application:
    """What changes the table, a transaction each: inserts, updates of some columns, deletes, changes of keys."""

    def __init__(self) -> None:
        self.chance, self.ids, self.last = random.Random(11), list[int](), 0
        self.values: dict[str, str | None] = dict(VALUES)

    def statement(self) -> str:
        act = self.chance.random()
        self.last += 1
        if act < 0.35 or len(self.ids) < 5:
            self.ids.append(self.last)
            values = self._values(self.last)
            columns = ", ".join(["id", *values])
            return f"insert into people ({columns}) values ({', '.join([str(self.last), *values.values()])});"
        place = self.chance.randrange(len(self.ids))
        if act < 0.5:
            return f"delete from people where id = {self.ids.pop(place)};"
        if act < 0.6:
            old, self.ids[place] = self.ids[place], self.last
            large = self._values(
                self.last
            )  # else they are sent neither with the old key nor with the new one
            return (
                f"update people set id = {self.last}, large = {large['large']}, document = {large['document']} "
                f"where id = {old};"
            )
        values = self._values(self.last)
        names = self.chance.sample(sorted(values), self.chance.randrange(1, 4))
        assigned = ", ".join(f"{name} = {values[name]}" for name in names)
        return f"update people set {assigned} where id = {self.ids[place]};"

    def _values(self, n: int) -> dict[str, str]:
        return {name: value.format(n=n) for name, value in self.values.items() if value is not None}


def test_the_table_ends_as_the_database_does(postgres: Postgres, tmp_path: Path) -> None:
    """The connector is started anew after each drift, and what it had sent comes once more."""
    lakes = [Lake.open(tmp_path / "iceberg"), Lake.open(tmp_path / "ducklake", ducklake="duckdb")]
    tables, application, source = (
        [lake.table("shop.people") for lake in lakes],
        Application(),
        tmp_path / "in",
    )
    source.mkdir()
    connector = Debezium(tmp_path, postgres, USER, "public.people")
    for phase, (statements, values) in enumerate(DRIFT):
        postgres.run(statements)
        if "truncate" in statements:
            application.ids.clear()
        application.values |= values
        postgres.run("\n".join(application.statement() for _ in range(TRANSACTIONS)))
        postgres.run(f"insert into people (id, name) values ({-1 - phase}, 'the end of phase {phase}');")
        connector.write(source / f"{phase}.jsonl", f"the end of phase {phase}")
        for table in tables:
            result = table.ingest(source / f"{phase}.jsonl", settings=SETTINGS)
            assert result.rows_quarantined == 0, result
            assert result.by_key is not None
            assert (result.by_key.truncated > 100) == ("truncate" in statements)
    again = source / "again.jsonl"
    again.write_text("".join((source / f"{phase}.jsonl").read_text() for phase in (1, 0)))
    database = [json.loads(line) for line in postgres.run("select row_to_json(t) from people t")]
    assert len(database) > 300
    for table in tables:
        table.ingest(again)
        rows = {row["id"]: row.asDict(recursive=True) for row in table.read().collect()}
        assert rows.keys() == {row["id"] for row in database}
        different = [
            (row["id"], name, stored(rows[row["id"]], name), value)
            for row in database
            for name, value in row.items()
            if comparable(stored(rows[row["id"]], name)) != comparable(value)
        ]
        assert different == [], {name: (id_, has, value) for id_, name, has, value in different}
        verdict = table.verify(source, exactly=True)
        assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 0)


def stored(row: dict[str, Any], name: str) -> Any:
    """The value of a field: that of the first of its columns that has one. PostgreSQL sends nothing of rows
    of which a column is renamed.
    """
    if name == "mark" and row["mark"] is None:
        name = "grade"
    columns = (value for column, value in row.items() if column == name or column.startswith(f"{name}_"))
    return next((value for value in columns if value is not None), None)


def comparable(value: Any) -> Any:
    """A value as PostgreSQL's JSON and Spark's rows both can have it: numbers exact, moments and objects as text."""
    match value:
        case bool() | None:
            return value
        case int() | float() | Decimal():
            return Decimal(str(value)).normalize()
        case list():
            return [comparable(item) for item in value]
        case dict():
            return json.dumps(value, sort_keys=True)
        case datetime():
            return value.isoformat(timespec="microseconds")
        case str() if value.startswith("{"):
            return json.dumps(json.loads(value), sort_keys=True)
        case str() if value.replace(".", "", 1).isdigit():
            return Decimal(value).normalize()
    return str(value)
