"""Records what Debezium's engine sends of small tables in PostgreSQL and MariaDB into `tests/recorded`, and the
rows that the databases then have. Run by `make record-changes`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from databases.drifting import Statements
from servers.debezium import Debezium, of_mariadb, of_postgres
from servers.mariadb import MariaDb
from servers.postgres import Postgres

RECORDED = Path(__file__).parents[1] / "recorded"
ALL_MARKS = {"provide.transaction.metadata": "true", "heartbeat.interval.ms": 100}


class Script(NamedTuple):
    """Statements before the connector takes its snapshot, those that it reads of the log, and the select of the rows."""

    before: str
    logged: str
    rows: str


POSTGRES = Script(
    before="""
    create type mood as enum ('low', 'high');
    create table people (
      id bigint primary key, name text, small smallint, price numeric(12, 2), exact numeric, ratio double precision,
      share real, born date, opens time, at timestamp, seen timestamptz, span interval, active boolean, flag bit(1),
      flags bit(5), code uuid, mood mood, address inet, numbers int[], words text[], raw bytea, large text, document jsonb
    );
    alter table people alter column large set storage external, alter column document set storage external;
    insert into people values (
      1, 'Zoë 😀', -32768, 1234567890.05, 12345678901234567890.000000000000000000001, 1e300, 0.1, '2026-03-01',
      '12:00:00.123', '2026-03-01 12:00:00.123456', '2026-03-01 12:00:00.123456+02', '1 day 2 hours', true, b'1',
      b'10101', '123e4567-e89b-12d3-a456-426655440000', 'high', '192.168.0.1', '{1,2}', '{"a","b"}', 'é', 'short',
      '{"a": [1, 2.5]}'
    );
    insert into people (id, born, at) values (2, 'infinity', '-infinity'), (3, '12026-03-01', null),
      (4, '-infinity', 'infinity'), (5, '1500-03-01', null);
    """,
    logged="""
    truncate people;
    insert into people (id, name, exact, large, document)
      select n, 'name ' || n, n + 0.5, repeat(md5(n::text), 80), jsonb_build_object('text', repeat(md5(n::text), 80))
      from generate_series(1, 5) n;
    update people set name = 'large values as they were' where id = 1;
    update people set large = 'short now' where id = 2;
    update people set id = 6, large = 'other', document = '{}' where id = 3;
    delete from people where id = 4;
    delete from people where id = 5;
    insert into people (id, name) values (5, 'written again');
    select pg_logical_emit_message(true, 'note', 'nothing of a row');
    alter table people alter column price type text, add column grade int, drop column numbers;
    insert into people (id, name, price, grade, born, at, seen, span, flags, raw, words)
      values (7, 'after the table changed', 'about 5', 9, '1582-10-04', '2026-03-01', '2026-03-01 00:00:00.000001+00',
      '-1 second', b'00000', '', array['x', null]);
    insert into people (id, born, at) values (8, 'infinity', 'infinity'), (9, '-infinity', '-infinity'),
      (10, '1500-03-01', '1500-03-01 12:00:00'), (11, '12026-03-01', null);
    begin; update people set grade = 1 where id = 7; update people set grade = 2 where id = 7; commit;
    """,
    rows="""
    select to_jsonb(t) || jsonb_build_object(
      'raw', encode(raw, 'base64'), 'span', (extract(epoch from span) * 1000000)::bigint, 'flag', flag = b'1',
      'opens', opens, 'at', at, 'seen', seen at time zone 'utc') from people t
    """,
)
MARIADB = Script(
    before="""
    create table people (
      id int unsigned primary key, name varchar(100) character set utf8mb4, tiny tinyint, small smallint unsigned,
      medium mediumint unsigned, big bigint unsigned, price decimal(12, 2), exact decimal(65, 30), ratio double,
      share float, born date, since date not null, opens time, opens6 time(6), at datetime, at3 datetime(3),
      at6 datetime(6), seen timestamp null, seen6 timestamp(6) null, made year, active boolean, flag bit(1), flags bit(5),
      grade enum('low', 'high'), tags set('a', 'b', 'c'), document json, code char(3), fixed binary(4), raw varbinary(40),
      latin varchar(100) character set latin1, large mediumtext, next int as (id + 1) stored
    );
    insert into people values (
      1, 'Zoë 😀', -128, 65535, 16777215, 18446744073709551615, 1234567890.05,
      12345678901234567890123456789012345.123456789012345678901234567890, 1e300, 0.1, '2026-03-01', '1582-10-04',
      '-838:59:59', '12:00:00.000001', '2026-03-01 12:00:00', '2026-03-01 12:00:00.123', '2026-03-01 12:00:00.123456',
      '2026-03-01 12:00:00', '2026-03-01 12:00:00.123456', 2155, true, b'1', b'10101', 'high', 'a,c',
      '{"a": [1, 2.50]}', 'ab', x'00ff', x'deadbeef', 'é', 'text', default
    );
    insert into people (id, born, since, at, seen, grade, tags)
      values (2, '0000-00-00', '0000-00-00', '0000-00-00', null, '', ''), (3, '2026-00-15', '2026-00-00', null, null, null, null);
    """,
    logged="""
    truncate people;
    insert into people (id, name, big, exact, since) values (1, 'name 1', 1, 0.5, '2026-03-01'),
      (2, 'name 2', 9223372036854775808, -0.5, '0000-00-00'), (3, 'name 3', null, null, '2026-03-01');
    insert into people (id, name, big, since) values (4, 'name 4', 4, '2026-03-01'), (5, 'name 5', 5, '2026-03-01');
    update people set name = 'changed' where id = 1;
    update people set id = 6, document = '{}' where id = 3;
    delete from people where id = 4;
    delete from people where id = 5;
    insert into people (id, name, since) values (5, 'written again', '2026-03-01');
    flush binary logs;
    alter table people modify id bigint unsigned, modify tiny varchar(9), modify price decimal(20, 6);
    alter table people add column score int unsigned after id, drop column large, change grade mark enum('middle', 'high', 'low');
    insert into people (id, score, name, tiny, price, mark, tags, flags, made, born, at6, opens6, since, raw)
      values (7, 4294967295, 'after the table changed', 'tiny', 5.123456, 'middle', 'b', b'00001', 1901, '1000-01-01',
      '9999-12-31 23:59:59.999999', '838:59:59.999999', '2026-03-01', '');
    begin; update people set score = 1 where id = 7; update people set score = 2 where id = 7; commit;
    """,
    rows="""
    select json_object(
      'id', id, 'name', name, 'tiny', tiny, 'small', small, 'medium', medium, 'big', big, 'price', price, 'exact', exact,
      'ratio', ratio, 'share', share, 'born', if(month(born) and day(born), born, null),
      'since', if(month(since) and day(since), since, '1970-01-01'),
      'opens', trim(trailing '.000000' from opens), 'opens6', trim(trailing '.000000' from opens6),
      'at', date_format(if(month(at), at, null), '%Y-%m-%dT%T.%f'), 'at3', date_format(at3, '%Y-%m-%dT%T.%f'),
      'at6', date_format(at6, '%Y-%m-%dT%T.%f'), 'seen', date_format(seen, '%Y-%m-%dT%T.%f'),
      'seen6', date_format(seen6, '%Y-%m-%dT%T.%f'), 'made', made, 'active', active, 'flag', flag + 0, 'flags',
      lpad(bin(flags), 5, '0'), '{grade}', {grade}, 'tags', tags, 'document', document, 'code', code,
      'fixed', to_base64(fixed), 'raw', to_base64(raw), 'latin', latin, 'next', next{more}) from people
    """,
)
OPTIONS = (
    "log-bin=log",
    "binlog-format=ROW",
    "binlog-row-image=FULL",
    "server-id=1",
    "sql-mode=",
    "default-time-zone=+00:00",
)


def main() -> None:
    with TemporaryDirectory() as folder, Postgres(Path(folder), "wal_level=logical") as postgres:
        settings = of_postgres(postgres, "public.people")
        record("postgresql", postgres, settings, POSTGRES, [POSTGRES.rows, POSTGRES.rows])
    with TemporaryDirectory() as folder, MariaDb(Path(folder, "mariadb"), *OPTIONS) as mariadb:
        rows = MARIADB.rows
        selects = [
            rows.format(grade="grade", more=", 'large', large"),
            rows.format(grade="mark", more=", 'score', score"),
        ]
        record("mariadb", mariadb, of_mariadb(mariadb, "people"), MARIADB, selects)


def record(
    name: str, database: Statements, settings: Mapping[str, object], script: Script, selects: Iterable[str]
) -> None:
    """Writes the messages of the snapshot and of the log, and the rows after each of them."""
    target = RECORDED / name
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        connector = Debezium(Path(folder), {**settings, **ALL_MARKS})
        steps = zip(("1-snapshot", "2-log"), (script.before, script.logged), selects, strict=True)
        for number, (step, statements, select) in enumerate(steps):
            database.run(statements)
            end = f"the end of {step}"
            database.run(f"insert into people (id, name) values ({1_000 + number}, '{end}')")
            messages = Path(folder, step)
            connector.write(messages, end)
            (target / f"{step}.jsonl").write_text("".join(kept(messages.read_text().splitlines(True))))
            (target / f"{step}.rows").write_text("".join(f"{row}\n" for row in database.run(select)))


def kept(messages: Iterable[str]) -> Iterable[str]:
    """All messages, but of heartbeats, which come as often as the engine is slow, the first."""
    beaten = False
    for message in messages:
        assert socket.gethostname() not in message, message
        value = json.loads(message)["value"]
        beats = value is not None and value["payload"].keys() == {"ts_ms"}
        if not (beats and beaten):
            yield message
        beaten |= beats


if __name__ == "__main__":
    main()
