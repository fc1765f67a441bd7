"""A MariaDB whose table drifts, followed in its binary log by Debezium's engine: the lake's table ends as the
database's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases.drifting import Application, Drift, Followed, differences, lakes
from servers.debezium import Debezium, of_mariadb
from servers.machine import lacking
from servers.mariadb import MariaDb

TABLE = """
create table people (
  id int unsigned primary key, name varchar(100) character set utf8mb4, quantity int, price decimal(12, 2),
  exact decimal(65, 30), big bigint unsigned, ratio double, share float, born date, since date not null,
  seen datetime, stamped timestamp null, opens time, made year, active bit(1), flags bit(5),
  grade enum('low', 'high'), tags set('a', 'b'), document json, raw varbinary(40),
  latin varchar(100) character set latin1, large mediumtext
);
"""
VALUES = {
    "name": "concat('Zoë 😀 ', {n})",
    "quantity": "{n}",
    "price": "{n}.05",
    "exact": "12345678901234567890{n}.000000000000000000000000000001",
    "big": "18446744073709551615 - {n}",
    "ratio": "{n} / 7e0",
    "share": "{n} / 8e0",
    "born": "if({n} % 9 = 0, '0000-00-00', date '2020-01-01' + interval {n} day)",
    "since": "if({n} % 9 = 0, '0000-00-00', date '1920-01-01' + interval {n} day)",
    "seen": "timestamp '2020-01-01 01:02:03' + interval {n} minute",
    "stamped": "timestamp '2020-01-01 01:02:03' + interval {n} minute",
    "opens": "if({n} % 9 = 0, '-838:59:59', sec_to_time({n}))",
    "made": "1901 + {n} % 250",
    "active": "{n} % 2",
    "flags": "{n} % 32",
    "grade": "elt(1 + {n} % 2, 'low', 'high')",
    "tags": "elt(1 + {n} % 3, '', 'b', 'a,b')",
    "document": "json_object('n', {n}, 'list', json_array(1, 'é'))",
    "raw": "unhex(md5({n}))",
    "latin": "concat('é ', {n})",
    "large": "repeat(md5({n}), 100)",
}
DRIFTS = [
    Drift(TABLE, {}),
    Drift(
        """
        truncate people;
        alter table people modify id bigint unsigned;
        alter table people modify quantity varchar(100), add column score tinyint unsigned after id;
        alter table people modify grade enum('middle', 'high', 'low'), modify tags set('c', 'a', 'b');
        alter table people modify latin varchar(100) character set utf8mb4;
        flush binary logs;
        """,
        {
            "quantity": "'about {n}'",
            "score": "{n} % 256",
            "grade": "elt(1 + {n} % 3, 'low', 'high', 'middle')",
            "tags": "elt(1 + {n} % 3, 'c', 'b', 'a,b,c')",
            "latin": "concat('ж ', {n})",
        },
    ),
    Drift(
        """
        alter table people drop column flags, change grade mark enum('middle', 'high', 'low');
        alter table people modify price decimal(20, 6), modify score int, modify share double;
        alter table people modify seen datetime(6), modify stamped timestamp(6) null, modify opens time(6);
        alter table people drop primary key, add primary key (id, since);
        flush binary logs;
        """,
        {
            "flags": None,
            "grade": None,
            "mark": "elt(1 + {n} % 3, 'low', 'high', 'middle')",
            "price": "{n}.123456",
            "score": "-{n}",
            "share": "{n} / 7e0",
            "seen": "timestamp '2020-01-01 01:02:03.000456' + interval {n} minute",
            "stamped": "timestamp '2020-01-01 01:02:03.000456' + interval {n} minute",
            "opens": "sec_to_time({n} + 0.000001)",
        },
    ),
    Drift(
        """
        flush binary logs;
        alter table people modify document longtext, modify made int, modify raw blob, modify active tinyint;
        alter table people drop primary key, add primary key (id);
        """,
        {
            "document": "concat('no document ', {n})",
            "made": "-{n}",
            "active": "{n} % 3",
        },
    ),
]
TRANSACTIONS = 2_500  # between two runs of the connector
# The database changes rows by these, and logs none of them.
SILENT = """
alter table people modify price decimal(12, 0), modify seen date, modify since datetime not null, modify quantity varchar(8);
alter table people add column state varchar(10) not null default 'new', drop column large;
"""
# What the connector makes of values, where it is not the value: zero dates, and moments of another precision.
ROWS = """
select json_object(
  'id', id, 'name', name, 'quantity', quantity, 'price', price, 'exact', exact, 'big', big, 'ratio', ratio,
  'share', share, 'born', nullif(born, '0000-00-00'), 'since', {since}, 'seen', {seen},
  'stamped', date_format(stamped, '%Y-%m-%dT%T.%f'), 'opens', trim(trailing '.000000' from opens),
  'made', made, 'active', active, 'mark', mark, 'tags', tags, 'document', document, 'raw', to_base64(raw),
  'latin', latin, 'score', score, {more})
from people
"""


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[MariaDb]:
    if MariaDb.programs() is None or MariaDb.client() is None:
        lacking("MariaDB", "apt-get install mariadb-server-core mariadb-client-core")
    if Debezium.java() is None:
        lacking("a JDK", "apt-get install openjdk-17-jdk-headless")
    log = ("log-bin=log", "binlog-format=ROW", "binlog-row-image=FULL", "server-id=1")
    fast = ("sync-binlog=0", "innodb-flush-log-at-trx-commit=0")
    with MariaDb(tmp_path / "mariadb", *log, *fast, "sql-mode=", "default-time-zone=+00:00") as running:
        yield running


def test_the_table_ends_as_the_database_does(mariadb: MariaDb, tmp_path: Path) -> None:
    """The connector is started anew after each drift, what it had sent comes once more, and so does all by a
    snapshot that is taken again.
    """
    messages = tmp_path / "in"
    messages.mkdir()
    connector = Debezium(tmp_path, of_mariadb(mariadb, "people"))
    tables = [lake.table("shop.people") for lake in lakes(tmp_path)]
    followed = Followed(mariadb, connector, messages, tables)
    followed.drift(DRIFTS, Application(VALUES), TRANSACTIONS)
    day = "date_format({}, '%Y-%m-%d')"
    moment = "date_format({}, '%Y-%m-%dT%T.%f')"
    since = "if(since = '0000-00-00', {}, since)"
    logged = {"since": day.format(since.format("'1970-01-01'")), "seen": moment.format("seen")}
    # Nothing is sent of rows of which a column is renamed.
    followed.check(ROWS.format(**logged, more="'large', large"), renamed={"mark": "grade"})
    mariadb.run(SILENT)
    mariadb.run("insert into people (id, name) values (2000000, 'the end of all');")
    connector.forget()
    followed.take(len(DRIFTS), "the end of all")
    after = {
        "since": moment.format(since.format("'1970-01-01'")),
        "seen": moment.format("seen"),
    }  # a date fits the column
    rows = followed.rows(ROWS.format(**after, more="'state', state"))
    for table in tables:
        assert differences(table, rows, renamed={}) == {}
