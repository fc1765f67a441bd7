"""The command line where no Spark is needed: it answers at once."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import typer

from answering import Commands, commands
from driftline.cli.commands import app
from driftline.cli.grouped import examples
from driftline.cli.scope import Invocation

COMMANDS = (
    "ingest", "plan", "capture", "seek", "schema", "stats", "query", "view", "resolve", "promote", "split", "quarantine", "alter", "history", "undo",
    "verify", "clean", "compact", "drop", "erase", "expire", "relocate", "doctor", "demo", "json-schema",
)  # fmt: skip
WITH_EXAMPLES = (*COMMANDS, "tables", "init", "contract export", "contract check")


@pytest.fixture
def run(tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("DRIFTLINE_")}
    env |= {
        "JAVA_HOME": "/nowhere",
        "PATH": "/nowhere",
    }  # what asks for Java fails otherwise than is expected here

    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "driftline", *args]
        return subprocess.run(
            command, cwd=tmp_path, env={**env, **more}, capture_output=True, text=True, check=False
        )

    return run


def test_help_lists_the_commands(run):
    done = run("--help", COLUMNS="80")
    assert done.returncode == 0
    assert done.stderr == ""
    assert run("help", COLUMNS="80").stdout == done.stdout
    *_, commands = done.stdout.partition("Ingest data:")
    assert [line for line in commands.splitlines() if len(line) > 80 or line.endswith("...")] == []
    assert "More:" not in commands  # each is in a group
    assert [c for c in COMMANDS if f"\n  {c} " not in done.stdout] == []


def test_help_of_a_group_of_commands_is_whole(run):
    done = run("contract", "--help", COLUMNS="80")
    *_, commands = done.stdout.partition("Commands:")
    assert "\n  export  " in commands
    assert [line for line in commands.splitlines() if len(line) > 80 or line.endswith("...")] == []


@pytest.fixture(scope="module")
def without_java() -> Iterator[Commands]:
    """A process of commands, none of which finds a Java."""
    with commands(JAVA_HOME="/nowhere", PATH="/nowhere") as process:
        yield process


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(without_java: Commands, tmp_path: Path, command: str) -> None:
    done = without_java.run(tmp_path, "help", command)
    assert done.code == 0
    assert f"Usage: driftline {command}" in done.out
    assert "--json" in done.out
    assert re.findall(r"<(?:list|str|int|path)\b.*?>", done.out) == []  # types of Python
    *_, listed = done.out.partition("\nExamples:\n")
    assert tuple(line.strip() for line in listed.splitlines()) == examples(command)


@pytest.mark.parametrize("line", [line for command in WITH_EXAMPLES for line in examples(command)])
def test_the_examples_of_help_parse(line):
    assert len(line) <= 78  # of 80 columns, with the indent
    _, name, *words = shlex.split(line.partition(" > ")[0])
    command = typer.main.get_command(app).commands[name]
    if name == "contract":
        command = command.commands[words.pop(0)]
    with command.make_context(name, words, obj=Invocation()) as parsed:
        assert parsed.args == []


def test_version(run):
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "driftline 0.1.0\n")


def test_the_demo_s_files_are_copied_and_nothing_is_overwritten(run, tmp_path):
    done = run("demo", "--files", "days")
    assert (done.returncode, done.stderr) == (0, "")
    assert [str(file.relative_to(tmp_path)) for file in sorted(tmp_path.glob("*/*"))] == done.stdout.split()
    (tmp_path / "days/2026-03-08.jsonl").write_text("mine")
    (tmp_path / "days/2026-03-02.jsonl").unlink()
    again = run("demo", "--files", "days")
    assert again.returncode == 2
    assert "2026-03-03.jsonl already exists" in again.stderr
    assert (tmp_path / "days/2026-03-08.jsonl").read_text() == "mine"


def test_help_is_light(run):
    code = "import sys, driftline.cli; print([m for m in ('pyspark', 'pyarrow', 'rich.console') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.nightly
def test_a_table_that_is_not_there_is_told_before_spark_starts(run, tmp_path):
    (tmp_path / "lake").mkdir()
    with closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as catalog:
        catalog.execute("create table iceberg_tables (catalog_name, table_namespace, table_name)")
        names = ("events", "orders", "orders__quarantine")
        catalog.executemany("insert into iceberg_tables values ('lake', 'shop', ?)", [(n,) for n in names])
        catalog.commit()
    near, none = run("stats", "shop.evnts"), run("resolve", "web.hits", "n", "--as", "long")
    assert (near.returncode, none.returncode) == (2, 2)
    place = tmp_path / "lake"
    assert near.stderr == (f"error: there is no table shop.evnts in {place}\n  did you mean shop.events?\n")
    assert none.stderr == (
        f"error: there is no table web.hits in {place}\n"
        "  it has shop.events, shop.orders; --lake names another\n"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nothing"], "error: no such command 'nothing'\n  see `driftline --help`"),
        (["ingest", "--nothing"], "error: no such option: --nothing"),
        (["ingest"], "error: missing argument 'SOURCE'\n  see `driftline ingest --help`"),
        (
            ["contract", "export"],
            "error: missing argument 'NAMESPACE.TABLE'\n  see `driftline contract export --help`",
        ),
        (["ingest", "x.json"], "error: missing option '--into'"),
        (["ingest", "x.json", "--into", "a.b"], "x.json: no such file, folder or glob"),
        (["ingest", ".", "--into", "a.b"], ".: no files to ingest in this folder"),
        (["ingest", "x.json", "--into", "a.b", "--set", "datse=off"], "did you mean 'dates'?"),
        (["ingest", "x.json", "--into", "a.b", "--set", "dates=maybe"], "one of on, off, instant"),
        (["ingest", "x.json", "--into", "a.b", "--set", 'dates = "maybe"'], "'maybe' is not possible"),
        (
            ["ingest", "x.json", "--into", "a.b", "--hint", 'hints.a = "sring"'],
            "hints.a: 'sring' is not a type",
        ),
        (["ingest", "x.json", "--into", "a.b", "--set", "dates"], "write --set key=value"),
        (["ingest", "x.json", "--into", "a.b", "--set", "polcy=widen"], "did you mean 'policy'?"),
        (["ingest", "x.json", "--into", "a.b", "--hint", "a=lnog"], "hints.a: 'lnog' is not a type"),
        (["ingest", "x.json", "--into", "a.b", "--hint", "a"], "write --hint path=type"),
        (["ingest", "x.json", "--into", "a.b", "--exclude", "a..b"], "'a..b' is not a path"),
        (
            ["plan", "x.json", "--into", "a.b", "--policy", "odd"],
            "'--policy': 'odd' is not one of 'preserve', 'widen', 'strict'",
        ),
        (["ingest", "x.json", "--into", "a.b", "--on-conflict", "stop"], "'fail', 'quarantine'"),
        (["ingest", "x.json", "--into", "a.b", "--config", "none.toml"], "none.toml: cannot be read"),
        (["ingest", "x.json", "--into", "movies"], "'movies' is not a table name\n  use namespace.table"),
        (["capture", "x", "--into", "a..b", "--name", "c"], "'a..b' is not a table name"),
        (["plan", "x.json", "--into", "a.b.branch_c"], "to Spark it is the branch 'c' of a.b"),
        (["stats", "a.b.tag_c"], "to Spark it is the tag 'c' of a.b"),
        (["resolve", "a.b.at_timestamp_5", "n", "--as", "long"], "to Spark it is the time '5' of a.b"),
        (["verify", "x.json", "--table", "a.b.snapshot_id_5"], "to Spark it is the snapshot '5' of a.b"),
        (["alter", "alter table lake.a.b.branch_c add column n int"], "to Spark it is the branch 'c' of a.b"),
        (["alter", "alter table a add column n int"], "'a' is not a table name"),
        (["ingest", "x.json", "--into", "a.b.c", "--config", "duck.toml"], "is not a DuckLake table name"),
        (["schema", "a.b"], "there is no lake in lake"),
        (["alter", "alter table lake.a.b add column n int"], "there is no lake in lake"),
        (["--lake", "elsewhere", "schema", "a.b"], "there is no lake in elsewhere"),
        (["schema", "a.b", "--lake=elsewhere"], "there is no lake in elsewhere"),
        (["verify", "x.json", "--table", "a.b"], "x.json: no such file, folder or glob"),
        (
            ["verify", "kafka://localhost:1/t", "x.json", "--table", "a.{b}"],
            "kafka://localhost:1/t: topics are checked by themselves",
        ),
        (["capture", ".", "--into", "a.b", "--name", "a b"], "'a b' is not a valid capture name"),
        (["capture", "-", "--into", "a.b", "--name", "c"], "standard input cannot be captured"),
        (
            ["capture", "s3://x/y", "--into", "a.b", "--name", "c", "--notify", "m", "--list-every", "0"],
            "--list-every: '0' is not a time",
        ),
        (
            ["capture", "x", "--into", "a.b", "--name", "c", "--every", "soon"],
            "--every: 'soon' is not a time",
        ),
        (
            ["capture", "x", "--into", "a.b", "--name", "c", "--every", "10"],
            "--every: '10' is not a time\n  write a number with a unit: 500ms, 10s, 5m, 1h",
        ),
        (
            ["capture", "s3://x/y", "--into", "a.b", "--name", "c", "--notify", "m", "--list-every", "60"],
            "--list-every: '60' is not a time",
        ),
        (["stats", "a.b"], "there is no lake in lake"),
        (["stats", "a.b", "--html", "none/x.html"], "there is no folder none"),
        (["stats", "a.b", "--html", "."], ". is a folder"),
        (["view", "a.b", "--as", "n"], "write --as field=type"),
        (["view", "a.b", "--as", "n=lung"], "'lung' is not a type"),
        (["resolve", "a.b", "n"], "missing option '--as'"),
        (["resolve", "a.b", "n", "--as", "lung"], "'lung' is not a type"),
        (["resolve", "a.b", "n..m", "--as", "long"], "'n..m' is not a path"),
        (["quarantine", "a.b", "--export", "none/x.jsonl"], "there is no folder none"),
        (["quarantine", "a.b", "--export", "x", "--replay"], "cannot be combined"),
        (["quarantine", "a.b", "--discard", "--restore"], "--discard and --restore cannot be combined"),
        (["quarantine", "a.b", "--from", "x.csv"], "--from goes with --discard or --restore"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_message(
    without_java: Commands, tmp_path: Path, args: list[str], says: str
) -> None:
    (tmp_path / "duck.toml").write_text('format = "ducklake"\n')
    done = without_java.run(tmp_path, *args)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.nightly
def test_a_folder_that_is_not_there_is_not_captured_and_no_lake_is_made(run, tmp_path):
    done = run("capture", "nofolder", "--into", "a.b", "--name", "c")
    assert done.returncode == 3
    assert "nofolder: no such folder" in done.stderr
    assert not Path(tmp_path, "lake").exists()


@pytest.mark.nightly
def test_the_environment_names_the_lake(run):
    assert "there is no lake in here" in run("schema", "a.b", DRIFTLINE_LAKE="here").stderr


def test_a_settings_file_with_an_unknown_key_names_the_nearest(run, tmp_path):
    Path(tmp_path, "driftline.toml").write_text('lakes = "x"\n')
    done = run("schema", "a.b")
    assert done.returncode == 2
    assert done.stderr == "error: driftline.toml: there is no 'lakes'\n  did you mean 'lake'?\n"


@pytest.mark.nightly
def test_debug_shows_where(run):
    for done in (run("schema", "a.b", "--debug"), run("schema", "a.b", DRIFTLINE_DEBUG="1")):
        assert done.returncode == 2
        assert "Traceback" in done.stderr
        assert "error: there is no lake" in done.stderr
