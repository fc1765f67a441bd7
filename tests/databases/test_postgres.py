"""A PostgreSQL whose table drifts, followed by Debezium's engine: the lake's table ends as the database's does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases.drifting import Application, Drift, Followed, lakes
from servers.debezium import Debezium, of_postgres
from servers.machine import lacking
from servers.postgres import Postgres

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
DRIFTS = [
    Drift(TABLE, {}),
    Drift(
        """
        truncate people;
        alter table people alter column quantity type text;
        alter table people add column grade numeric(4, 1);
        """,
        {"quantity": "'about {n}'", "grade": "{n} % 100"},
    ),
    Drift(
        """
        alter table people drop column numbers;
        alter table people rename column grade to mark;
        alter table people alter column price type numeric(20, 6);
        """,
        {"numbers": None, "grade": None, "mark": "{n} % 100", "price": "{n}.123456"},
    ),
]
# PostgreSQL sends large values neither with the old key nor with the new one, unless they change as well.
WITH_KEY = ("large", "document")
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


def test_the_table_ends_as_the_database_does(postgres: Postgres, tmp_path: Path) -> None:
    """The connector is started anew after each drift, and what it had sent comes once more."""
    messages = tmp_path / "in"
    messages.mkdir()
    connector = Debezium(tmp_path, of_postgres(postgres, "public.people"))
    tables = [lake.table("shop.people") for lake in lakes(tmp_path)]
    followed = Followed(postgres, connector, messages, tables)
    followed.drift(DRIFTS, Application(VALUES, WITH_KEY), TRANSACTIONS)
    # It sends nothing of rows of which a column is renamed.
    followed.check("select row_to_json(t) from people t", renamed={"mark": "grade"})
