"""The command line on a lake. One process runs the commands one after the other, so that Spark starts once."""

import base64
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from answering import Commands, Done
from json_output import faults
from servers.machine import lacking

DAY_1 = """\
{"id": 1, "price": 19.9, "who": {"id": 7}, "at": "2026-03-02T08:00:00.25Z"}
{"id": 2, "price": 20, "who": {"id": 8}, "at": "2026-03-02T09:00:00Z"}
"""
DAY_2 = """\
{"id": 3, "price": "19,90 EUR", "who": {"id": "u-9"}, "at": "2026-03-03T08:00:00Z"}
{"id": 4, "pri
"""

TYPES = """\
select at, date'2026-03-02' d, cast(1.50 as decimal(38, 18)) x, X'00ff' b, map('k', null) m,
       array(timestamp'2026-01-01 00:00:00', null) a, named_struct('t', timestamp_ntz'2026-01-01 00:00:00.5') s,
       9223372036854775807 l, double('NaN') n, 'ü' as t, null as z
from shop.orders where id = 1"""

COMMANDS = {
    "plan": ["plan", "in/1.jsonl", "--into", "shop.orders"],
    "plan json": ["plan", "in/2.jsonl", "--into", "shop.orders", "--json"],
    "plan tables": ["plan", "in", "--into", "kinds.{_file.folder}"],
    "check tables": ["plan", "in", "--into", "kinds.{_file.folder}", "--fail-on", "sibling", "--output", "github"],
    "no table": ["schema", "shop.orders"],
    "ingest": ["ingest", "in", "--into", "shop.orders", "--batch-per-file", "--set", "dates=instant"],
    "ingest json": ["ingest", "in/2.jsonl", "in/1.jsonl", "--into", "shop.json", "--batch-per-file", "--json"],
    "each file": ["ingest", "in", "--into", "files.{_file.stem}", "--batch-per-file"],
    "each file again": ["ingest", "in/1.jsonl", "other.jsonl", "--into", "files.{_file.stem}", "--batch-per-file"],
    "malformed": ["ingest", "bad.jsonl", "--into", "shop.bad"],
    "one name": ["ingest", "bad.jsonl", "--into", "orders"],
    "audit": ["ingest", "audit.jsonl", "--into", "shop.orders", "--audit", "--fail-on", "sibling"],
    "audit json": ["ingest", "audit.jsonl", "--into", "shop.orders", "--audit", "--fail-on=sibling", "--json"],
    "audit of nothing": ["ingest", "audit.jsonl", "--into", "shop.orders", "--audit"],
    "schema": ["schema", "shop.orders"],
    "schema json": ["schema", "shop.orders", "--json"],
    "query": ["query", "select id, price, at from shop.orders order by id"],
    "query limit": ["query", "select id from shop.orders order by id", "--limit", "2"],
    "query json": ["query", TYPES, "--json"],
    "query twins": ["query", "select 1 as a, 2 as a", "--json"],
    "query writes": ["query", "with x as (select 1 as id) insert into shop.orders (id) select id from x"],
    "parse error": ["query", "selec 1"],
    "no such table": ["query", "select * from shop.nothing"],
    "fails later": ["query", "select raise_error('it broke') from shop.orders"],
    "split dry": ["split", "shop.orders", "--by", "who.id", "--into", "by.u{who.id}", "--dry-run", "--json"],
    "split by nothing": ["split", "shop.orders"],
    "replan": ["replan", "shop.orders", "--json", "--html", "replan.html"],
    "replan shown": ["replan", "shop.orders", "price"],
    "replan applied": ["replan", "shop.json", "who", "--apply", "--json"],
    "verify": ["verify", "in", "--table", "shop.orders"],
    "verify exactly": ["verify", "in/1.jsonl", "--table", "shop.orders", "--exactly"],
    "verify loss": ["verify", "other.jsonl", "--table", "shop.orders", "--json"],
    "verify no table": ["verify", "in", "--table", "shop.nothing"],
    "verify no record": ["verify", "empty", "--table", "shop.nothing"],
    "doctor": ["doctor", "--json"],
    "relocate unasked": ["relocate", "--lake", "copied"],
    "relocate dry": ["relocate", "--lake", "copied", "--dry-run", "--json"],
    "relocate": ["relocate", "--lake", "copied", "--yes"],
    "relocate own": ["relocate", "--yes"],
    "drop unasked": ["drop", "shop.json"],
    "drop dry": ["drop", "shop.json", "--dry-run", "--json"],
    "drop purge": ["drop", "shop.json", "--purge", "--yes"],
    "clean dropped": ["clean", "--json"],
    "ingest dropped": ["ingest", "in/1.jsonl", "--into", "shop.keep"],
    "drop files": ["drop", "shop.keep", "--yes"],
    "clean names": ["clean"],
    "clean dry": ["clean", "--dropped", "--dry-run", "--json"],
    "clean deletes": ["clean", "--dropped"],
    "clean again": ["clean"],
    "drop gone": ["drop", "shop.json", "--yes"],
    "relocate where": ["relocate", "shop.orders", "--yes"],
    "relocate table": ["relocate", "shop.orders", "--to", "other", "--yes", "--json"],
    "relocated": ["query", "select id, price, at from shop.orders order by id", "--lake", "other"],
    "file settings": ["ingest", "in/1.jsonl", "--into", "shop.set", "--config", "settings.toml"],
    "file settings kept": ["query", "show tblproperties shop.set", "--json"],
    "erase unasked": ["erase", "shop.set", "--where", "id = 1"],
    "erase dry": ["erase", "shop.set", "--where", "id = 1", "--dry-run", "--json"],
    "compact dry": ["compact", "shop.orders", "--drop-unused", "--dry-run", "--json"],
    "compact": ["compact", "shop.orders"],
    "compact all": ["compact", "shop.*", "--json"],
    "compact none": ["compact", "shops.*"],
    "expire unasked": ["expire", "shop.orders", "--older-than", "1ms"],
    "expire no age": ["expire", "shop.orders", "--older-than", "7", "--dry-run"],
    "expire dry": ["expire", "shop.orders", "--older-than", "7d", "--dry-run", "--json"],
    "expire": ["expire", "shop.orders", "--older-than", "1ms", "--yes"],
    "erase": ["erase", "shop.set", "--where", "id = 1", "--yes"],
    "into many": ["ingest", "in/1.jsonl", "--into", "many.u{id}"],
    "compact many": ["compact", "many.u{id}", "--json"],
}  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "in").mkdir()
    (folder / "in" / "1.jsonl").write_text(DAY_1)
    (folder / "in" / "2.jsonl").write_text(DAY_2)
    (folder / "bad.jsonl").write_text("no JSON\n[1]\n")
    (folder / "other.jsonl").write_text('{"id": 5}\n')
    (folder / "audit.jsonl").write_text('{"id": 5}\n{"id": "x-6"}\n')
    (folder / "empty").mkdir()
    (folder / "empty" / "1.jsonl").write_text("")
    (folder / "empty" / "2.json").write_text("[ ]")
    (folder / "copied").mkdir()
    with closing(sqlite3.connect(folder / "copied" / "catalog.db")) as catalog, catalog:
        catalog.execute("create table driftline_lake (path text, id text)")
        catalog.execute("insert into driftline_lake values ('/elsewhere/catalog.db', 'x')")
        catalog.execute(
            "create table iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location, iceberg_type)"
        )
        catalog.execute("create table iceberg_namespace_properties (property_value)")
    (folder / "settings.toml").write_text('lake = "lake"\n[tables."shop.set"]\ndates = "off"\n')
    return folder


def call(here: Path, *args: str, given: str = "", **more: str) -> Done:
    env = {key: value for key, value in os.environ.items() if not key.startswith("DRIFTLINE_LAKE")}
    env |= more
    done = subprocess.run(
        [sys.executable, *args], cwd=here, env=env, input=given, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def done(here, command_line: Commands) -> dict[str, Done]:
    """The results of each of `COMMANDS`."""
    return command_line.each(here, COMMANDS)


CODES = {
    "check tables": 1,
    "audit": 1,
    "audit json": 1,
    "audit of nothing": 2,
    "no table": 2,
    "split by nothing": 2,
    "one name": 2,
    "query twins": 2,
    "query writes": 2,
    "parse error": 2,
    "no such table": 1,
    "fails later": 1,
    "verify exactly": 1,
    "verify loss": 1,
    "verify no table": 2,
    "compact none": 2,
    "erase unasked": 2,
    "expire unasked": 2,
    "expire no age": 2,
    "relocate unasked": 2,
    "relocate own": 2,
    "drop unasked": 2,
    "drop gone": 2,
    "relocate where": 2,
}


@pytest.mark.nightly
def test_batch_that_fails_its_audit_is_told_and_not_kept(done):
    told, printed = done["audit"].err, json.loads(done["audit json"].out)
    assert "nothing of it is committed: 1 fail-on sibling" in told
    assert "fail-on sibling: new column id_string string" in told
    assert "(x-6, audit.jsonl:2)" in told
    (violation,) = printed["audit"]
    assert (violation["check"], violation["path"], violation["sample"], violation["seen_in"]) == (
        "fail-on sibling", "id_string", "x-6", "audit.jsonl:2",
    )  # fmt: skip
    assert (printed["rows_read"], printed["rows_written"], printed["snapshot"]) == (2, 0, None)
    assert not [line for line in done["schema"].out.splitlines() if line[4:].startswith("id_string")]
    assert "pass --verify, --fail-on KIND, or --at-most N" in done["audit of nothing"].err


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_and_errors(done, name):
    assert done[name].code == CODES.get(name, 0), done[name]
    if name in CODES and name not in ("verify loss", "verify exactly"):
        assert done[name].out == "" or name in ("audit json", "check tables")
        assert done[name].err.startswith("error: ")
        assert "Traceback" not in done[name].err
    else:
        assert done[name].err == ""


@pytest.mark.parametrize("argv", [["schema", "shop.orders"], ["history", "shop.orders"]])
def test_metadata_need_no_java(done, here, argv):
    without = "import sys; sys.modules['pyspark'] = None; from driftline.cli import main; main(sys.argv[1:])"
    told = call(here, "-c", without, *argv, JAVA_HOME=str(here / "none"))
    assert (told.code, told.err) == (0, "")
    assert "price_string" in told.out
    if argv[0] == "schema":
        assert told.out == done["schema"].out


def test_quarantine_is_listed_without_java(done, here):
    if find_spec("duckdb_extension_iceberg") is None:
        lacking("DuckDB's extension for Iceberg", "pip install 'driftline[duckdb]'")
    without = "import sys; sys.modules['pyspark'] = None; from driftline.cli import main; main(sys.argv[1:])"
    told = call(here, "-c", without, "quarantine", "shop.orders", JAVA_HOME=str(here / "none"))
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("shop.orders  1 record in quarantine\n")
    assert "in/2.jsonl:2" in told.out
    missing = call(here, "-c", without, "quarantine", "shop.order", JAVA_HOME=str(here / "none"))
    assert (missing.code, missing.out) == (2, "")
    assert "there is no table shop.order in" in missing.err


def test_a_plan_writes_nothing(done):
    assert done["plan"].out.startswith("shop.orders  1.jsonl  2 records read, dry run: nothing is written\n")
    assert "there is no table shop.orders" in done["no table"].err


def test_each_file_is_a_batch_of_a_pattern_and_one_that_is_in_is_passed_over(done):
    first, second = done["each file"].out.split("files.{_file.stem}  2.jsonl  ")
    assert first.startswith("files.{_file.stem}  1.jsonl  2 records read, 2 written, 1 table\n")
    assert second.startswith("2 records read, 1 written, 1 in quarantine, 2 tables\n")
    again = done["each file again"].out
    assert "1.jsonl  0 records read" in again and "files.other  1 written" in again


def test_a_plan_of_a_pattern_shows_each_table_and_fails_as_a_check_does(done):
    planned = done["plan tables"].out
    assert planned.startswith(
        "kinds.{_file.folder}  2 files  4 records read, dry run: nothing is written, 2 tables\n"
        "  kinds.in      3 read, new table, "
    )
    assert "\n      sibling: new column price_double double (19.9, in/1.jsonl:1): first seen\n" in planned
    assert "\n  kinds._other  1 read, new table\n      quarantine: in/2.jsonl:2: invalid JSON" in planned
    check = done["check tables"]
    assert (check.code, check.out.count("::error file=in/1.jsonl,")) == (1, 1)
    assert "sibling: kinds.in: new column price_double double (19.9, in/1.jsonl:1)" in check.err


def test_the_report_shows_each_conflict_and_where_it_came_from(done):
    first, second = done["ingest"].out.split("shop.orders  2.jsonl  ")
    assert first == (
        "shop.orders  1.jsonl  2 records read, 2 written\n"
        "  4 new columns: id long, price double, who struct<id>, at timestamptz\n"
    )
    lines = second.splitlines()
    assert lines[0] == "2 records read, 1 written, 1 in quarantine"
    assert any(
        line.startswith("  price → price_string string ") and line.endswith("sibling") for line in lines
    )
    assert any(line.startswith("      19,90 EUR (in/2.jsonl:1): ") for line in lines)
    assert any(line.startswith("  who.id → who.id_string string ") for line in lines)
    assert any(line.startswith("  quarantine  in/2.jsonl:2: ") for line in lines)


def test_a_moved_lake_is_relocated_when_it_is_asked_for(done):
    assert "--dry-run shows what it would do" in done["relocate unasked"].err
    assert json.loads(done["relocate dry"].out)["home"] == "/elsewhere"
    assert "moved from /elsewhere" in done["relocate"].out
    assert "is no lake that was copied or moved" in done["relocate own"].err


def test_table_is_dropped_once_it_is_asked_for(done):
    assert "--dry-run shows what it would do" in done["drop unasked"].err
    dry = json.loads(done["drop dry"].out)
    assert (dry["tables"], dry["done"]) == (["shop.json", "shop.json__quarantine"], False)
    assert done["drop purge"].out.startswith("dropped  shop.json\n")
    assert f"{dry['files']} files, {dry['size']:,} bytes deleted" in done["drop purge"].out
    assert "no table shop.json" in done["drop gone"].err


def test_files_of_a_dropped_table_are_named_and_deleted_when_it_is_asked_for(done):
    assert json.loads(done["clean dropped"].out)["dropped"] == []  # their files were purged
    line = re.search(r"shop\.keep: (\d+) files, .* kB, dropped on 20[-\d]+: (.*)\n", done["clean names"].out)
    assert line[2] == "--dropped deletes them"
    (dry,) = json.loads(done["clean dry"].out)["dropped"]
    assert (dry["table"], dry["files"], dry["deleted"]) == ("shop.keep", int(line[1]), False)
    assert re.search(r"shop\.keep: .*: deleted\n", done["clean deletes"].out)
    assert "shop.keep" not in done["clean again"].out


def test_rows_are_erased_when_it_is_asked_for(done):
    assert "--dry-run counts them" in done["erase unasked"].err
    counted = json.loads(done["erase dry"].out)
    assert (counted["rows"], counted["done"], counted["proved"]) == (1, False, False)
    lines = done["erase"].out.splitlines()
    assert lines[0] == "erased  shop.set"
    assert "proved: no file in the table's folders has such a row" in done["erase"].out


def test_compact_tells_files_before_and_after_and_those_that_are_left(done):
    dry = json.loads(done["compact dry"].out)
    assert (dry["table"], dry["done"], dry["files_before"] > 0) == ("shop.orders", False, True)
    assert done["compact"].out.startswith(f"compacted  shop.orders\n  {dry['files_before']} file")


def test_compact_of_a_pattern_tells_each_table_and_refuses_one_that_no_name_is_like(done):
    told = [json.loads(line)["table"] for line in done["compact all"].out.splitlines()]
    assert told == ["shop.orders", "shop.set"]
    made = [json.loads(line)["table"] for line in done["compact many"].out.splitlines()]
    assert made and all(name.startswith("many.u") for name in made)
    assert "no table's name is like shops.*" in done["compact none"].err


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("block", ["sh", "ini"])
def test_upkeep_by_the_clock_runs_as_the_page_says(here, command_line, block: str):
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    section = page.partition("## Upkeep by the clock")[2].partition("\n## ")[0]
    body = section.partition(f"```{block}")[2].partition("```")[0]
    commands = [shlex.split(words) for words in re.findall(r"driftline ((?:clean|compact)[^>;\n]*)", body)]
    assert [words[0] for words in commands] == ["clean", "compact"]
    ended = command_line.each(here, {" ".join(words): words for words in commands})
    assert [done.code for done in ended.values()] == [0, 0]


FAILING = """
from driftline.errors import DataError
from driftline.lake import Table
compact = Table.compact
def failing(self, **given):
    if self.name == "shop.set":
        raise DataError("its files are encrypted")
    return compact(self, **given)
Table.compact = failing
"""


def test_compact_of_a_pattern_goes_on_past_a_table_that_fails_and_ends_with_1(here, done, command_line):
    assert command_line.python(here, FAILING).code == 0
    compacted = command_line.run(here, "compact", "shop.*", "--json")
    command_line.python(here, "Table.compact = compact")
    told = [json.loads(line)["table"] for line in compacted.out.splitlines()]
    assert len(told) == len(done["compact all"].out.splitlines()) - 1
    first, second = compacted.err.splitlines()
    assert first == f"error: shop.*: 1 of {len(told) + 1} tables could not be compacted"
    assert (compacted.code, second.strip()) == (1, "shop.set: its files are encrypted")


def test_snapshots_expire_when_it_is_asked_for(done):
    assert "--dry-run shows what it would do" in done["expire unasked"].err
    assert "--older-than: '7' is neither an age nor a time" in done["expire no age"].err
    dry = json.loads(done["expire dry"].out)
    assert (dry["table"], dry["snapshots"], dry["done"]) == ("shop.orders", 0, False)
    assert dry["remaining"] > 1
    assert re.match(r"expired  shop\.orders\n  [1-9]\d* older snapshots? ended\n", done["expire"].out)
    assert "  kept: 1 snapshot, all since 20" in done["expire"].out


def test_a_table_is_relocated_to_another_lake(done):
    assert "give both: driftline relocate NAMESPACE.TABLE --to LAKE" in done["relocate where"].err
    relocated = json.loads(done["relocate table"].out)
    assert relocated["tables"] == ["shop.orders", "shop.orders__quarantine"]
    assert (relocated["home"], relocated["copy"], relocated["done"]) == ("lake", True, True)
    assert done["relocated"].out == done["query"].out


def test_json_is_as_its_schema_says(done):
    assert list(faults(COMMANDS, done)) == []


def test_json_of_ingest_is_one_object_a_batch_in_name_order(done):
    first, second = map(json.loads, done["ingest json"].out.splitlines())
    assert (first["table"], first["rows_read"], first["rows_written"]) == ("shop.json", 2, 2)
    assert (second["rows_written"], second["rows_quarantined"]) == (1, 1)
    assert [c["path"] for c in second["changes"]] == ["price_string", "who.id_string"]
    assert set(first) == {
        "table", "batch", "rows_read", "rows_written", "rows_quarantined", "changes", "converted", "untyped",
        "dropped_names", "excluded", "rest", "held", "hints", "snapshot",
    }  # fmt: skip


def test_a_file_of_nothing_but_malformed_records_is_no_error(done):
    assert (
        done["malformed"].out.splitlines()[0]
        == "shop.bad  bad.jsonl  2 records read, 0 written, 2 in quarantine"
    )


def test_schema(done):
    assert "├── price double #2\n" in done["schema"].out
    assert "price_string string #" in done["schema"].out
    assert "← price\n" in done["schema"].out
    found = json.loads(done["schema json"].out)
    assert found["type"] == "struct"
    names = {f["name"]: f.get("doc") for f in found["fields"]}
    assert names["price_string"] == "upsolver_evolved_from:price"


def test_query_prints_a_table(done):
    lines = done["query"].out.splitlines()
    assert lines[0].split() == ["id", "price", "at"]
    assert lines[2].split() == ["1", "19.9", "2026-03-02T08:00:00.25Z"]
    assert lines[4].split() == ["3", "null", "2026-03-03T08:00:00Z"]
    assert "the first 2 rows" in done["query limit"].out


def test_query_json_keeps_every_value(done):
    (line,) = done["query json"].out.splitlines()
    assert '"x":1.500000000000000000,' in line
    assert json.loads(line) == {
        "at": "2026-03-02T08:00:00.25Z",
        "d": "2026-03-02",
        "x": 1.5,
        "b": base64.b64encode(b"\x00\xff").decode(),
        "m": {"k": None},
        "a": ["2026-01-01T00:00:00Z", None],
        "s": {"t": "2026-01-01T00:00:00.5"},
        "l": 9223372036854775807,
        "n": "NaN",
        "t": "ü",
        "z": None,
    }


def test_errors_of_sql_are_one_line_with_the_place(done):
    assert "SQL: Syntax error at or near 'selec'" in done["parse error"].err
    assert "(line 1, column 1)" in done["parse error"].err
    assert "`shop`.`nothing` cannot be found" in done["no such table"].err
    assert done["no such table"].err.endswith("  `driftline tables` lists what is there\n")
    assert "it broke" in done["fails later"].err
    assert len(done["fails later"].err.splitlines()) == 1


def test_split_names_the_tables_by_a_field_that_has_drifted(done):
    split = json.loads(done["split dry"].out)
    assert (split["dry_run"], split["rows"], split["stay"]) == (True, 3, 0)
    assert [(of["table"], of["values"], of["rows"]) for of in split["tables"]] == [
        ("by.u7", [["7"]], 1), ("by.u8", [["8"]], 1), ("by.uu_9_086cd6", [["u-9"]], 1),
    ]  # fmt: skip
    assert "pass --by PATH" in done["split by nothing"].err


def test_replan_shows_what_one_batch_would_have_made(done, here):
    (price,) = [of for of in json.loads(done["replan"].out)["fields"] if of["field"] == "price"]
    assert [of["path"] for of in price["now"]] == ["price", "price_string"]
    assert [of["path"] for of in price["then"]] == ["price", "price_double"]
    assert (
        "price double × 2, price_string string × 1 → price string, price_double double"
        in done["replan shown"].out
    )
    page = (here / "replan.html").read_text()
    assert "price_double" in page and "2 values" in page


def test_replan_is_applied_to_a_field(done):
    applied = json.loads(done["replan applied"].out)
    assert not applied["dry_run"] and applied["snapshot"]
    assert {field["field"] for field in applied["fields"]} == {"who.id"}


def test_verify(done):
    assert done["verify"].out == "nothing is missing  4 records: 3 in shop.orders, 1 in its quarantine\n"
    assert done["verify exactly"].out.startswith("2 rows too many  ")
    assert "shop.json, shop.orders; --lake" in done["verify no table"].err
    assert done["verify no record"].out == "nothing is missing  0 records: 0 in shop.nothing\n"
    loss = json.loads(done["verify loss"].out)
    assert (loss["ok"], loss["missing"]) == (False, 1)
    assert loss["mismatches"][0]["place"].endswith("other.jsonl:1")


def test_doctor(done):
    found = json.loads(done["doctor"].out)
    assert found["ok"]
    assert all(check["ok"] for check in found["checks"])


def test_settings_of_the_file_are_kept_with_the_table(done):
    rows = map(json.loads, done["file settings kept"].out.splitlines())
    assert {"key": "driftline.dates", "value": "off"} in list(rows)


def test_the_names_of_the_demo_s_files_in_json(here, command_line: Commands):
    argv = {"copy": ["demo", "--files", "copies", "--json"]}
    assert list(faults(argv, command_line.each(here, argv))) == []


def test_the_demo_takes_all_that_comes_and_loses_nothing(here, command_line: Commands):
    ran = command_line.run(here, "demo", "--lake", "shown")
    assert ran.err == ""
    assert ran.code == 0
    for shown in (
        "  total → total_string string ",
        "  customer.id → customer.id_string string ",
        "  items → items_array_record list<struct<",
        "  payment.ledger → payment.ledger_decimal_38_0 decimal(38, 0) ",
        "54 records read, 52 written, 2 in quarantine",
        "nothing is missing  404 records: 402 in shop.events, 2 in its quarantine",
        "The lake of this demo is in shown:",
    ):
        assert shown in ran.out
    assert Path(here, "shown", "catalog.db").is_file()
