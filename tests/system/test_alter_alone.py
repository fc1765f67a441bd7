"""`alter`, `clean` and `verify` from the shell, which start no Spark: what falls back to it, and what dies or meets others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from answering import TESTS, Commands, Done, commands
from driftline import Lake
from servers.machine import lacking
from system.test_cli import call

RECORDS = '{"id": 1, "who": {"name": "Ann"}, "n": 1}\n{"id": 2, "who": {"name": "Bo"}, "n": null}\n'
T = "s.t"
# Runs commands, and says which libraries they have loaded.
LOADED = """
import json, sys
from driftline.cli import main
codes = []
for argv in json.loads(sys.argv[1]):
    try:
        main(argv)
    except SystemExit as end:
        codes.append(end.code)
json.dump([codes, *({"pyspark", "py4j", "numpy"} & set(sys.modules))], sys.stderr)
"""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory, command_line: Commands) -> Mapping[str, Path]:
    """Of each format a folder with the settings of a lake and a table in it."""
    folders: dict[str, Path] = {name: tmp_path_factory.mktemp(name) for name in ("iceberg", "ducklake")}
    for name, folder in folders.items():
        (folder / "driftline.toml").write_text(f'format = "{name}"\n')
        (folder / "in.jsonl").write_text(RECORDS)
        made = command_line.run(folder, "ingest", "in.jsonl", "--into", T)
        assert made.code == 0, made.err
    return folders


@pytest.fixture(scope="module", params=["iceberg", "ducklake"])
def lake(request: pytest.FixtureRequest, lakes: Mapping[str, Path]) -> Path:
    return lakes[request.param]


def alter(change: str, *flags: str) -> list[str]:
    return ["alter", f"ALTER TABLE {T} {change}", *flags]


def has_java(lake: Path) -> bool:
    """True of an Iceberg lake; a DuckLake is altered without Java."""
    return (lake / "lake" / "catalog.db").exists()


def columns(lake: Path) -> list[str]:
    catalog = None if has_java(lake) else "duckdb"
    table = Lake.open(lake / "lake", ducklake=catalog).table(T)
    return [field.name for field in table.state().schema.struct.fields]


@pytest.mark.nightly
def test_it_loads_no_spark(lake: Path) -> None:
    changes = ["ADD COLUMN alone int", "ALTER COLUMN id SET NOT NULL"]

    done = call(lake, "-c", LOADED, json.dumps([alter(change) for change in changes]))

    codes, *loaded = json.loads(done.err)
    assert codes == [0, 0]
    assert done.out.splitlines()[1::2] == ["  new alone int", "  id is now required"]
    assert "pyspark" not in loaded
    assert ("py4j" in loaded) == has_java(lake)


@pytest.fixture(scope="module")
def alone() -> Iterator[Commands]:
    """A process of commands in which there is neither Spark nor Java."""
    with commands("import sys; sys.modules['pyspark'] = None", JAVA_HOME="/nowhere") as process:
        yield process


@pytest.mark.nightly
def test_verify_of_little_starts_no_java(lake: Path, alone: Commands) -> None:
    if find_spec("duckdb_extension_iceberg") is None:
        lacking("DuckDB's extension for Iceberg", "pip install 'driftline[duckdb]'")
    (lake / "other.jsonl").write_text(RECORDS.replace("Bo", "Bob") + '{"id": 3, "n": "x"}\n{"id": 4')
    (lake / "same.csv").write_text("id,n\n1,1\n2,\n")

    def verify(*arguments: str) -> Done:
        return alone.run(lake, "verify", "--table", T, *arguments)

    assert verify("in.jsonl") == Done(0, f"nothing is missing  2 records: 2 in {T}\n", "")
    lost = verify("other.jsonl", "--exactly", "--json")
    verdict = json.loads(lost.out)
    assert (lost.code, lost.err) == (1, "")
    assert (verdict["records"], verdict["found"], verdict["missing"], verdict["extra"]) == (4, 1, 3, 1)
    assert "who.name" in {mismatch["path"] for mismatch in verdict["mismatches"]}
    assert verify("same.csv").out.startswith("2 of 2 records not found  0 in s.t\n")


def test_clean_starts_no_java(lake: Path, alone: Commands) -> None:
    data = lake / "lake" / ("s/t/data" if has_java(lake) else "data/s/t")
    before = set(data.rglob("*.parquet"))
    orphan = data / f"{'a' * 32}-00000-0-00001.parquet"
    orphan.write_bytes(b"nothing")
    argv = ("clean", "--older-than", "0")

    young = alone.run(lake, "clean")
    left = alone.run(lake, "clean", "--dry-run")
    listed = alone.run(lake, *argv, "--dry-run", "--json")
    assert orphan.exists()
    done = alone.run(lake, *argv)

    assert young == Done(0, "0 files deleted, 0 bytes\n", "")
    line = "left: 1 file younger than 24 hours, which a batch may have yet to commit\n"
    assert left == Done(0, f"0 files to delete, 0 bytes\n{line}", "")
    assert (listed.code, listed.err) == (0, "")
    files = [{"path": f"file:{orphan}", "size": 7}]
    assert json.loads(listed.out) == {"deleted": False, "files": files, "younger": 0, "dropped": []}
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("1 file deleted, 7 bytes\n")
    assert set(data.rglob("*.parquet")) == before


PYTHON = """
import json, sys
from pyspark import SparkContext
from driftline import AddColumn, Lake, UsageError
from driftline.core.schema.types import LONG, Field
lake = Lake.open("lake", ducklake="duckdb" if sys.argv[1] == "ducklake" else None)
lake.table("s.t").alter(AddColumn((), Field("by_value", LONG)))
out = [lake.alter("ALTER TABLE s.t ADD COLUMN by_python int").to_dict()["table"]]
try:
    lake.alter("ALTER TABLE s.t DROP COLUMN nothing")
except UsageError as error:
    out.append(error.message)
out.append(lake.table("s.t").verify("in.jsonl").ok)
out.append(SparkContext._active_spark_context is None)
json.dump(out, sys.stdout)
"""


@pytest.mark.nightly
def test_python_starts_no_spark_either(lake: Path) -> None:
    kind = "iceberg" if has_java(lake) else "ducklake"
    done = call(lake, "-c", PYTHON, kind)
    assert done.code == 0, done.err
    table, message, verified, alone = json.loads(done.out)
    assert (table, verified, alone) == (
        T,
        True,
        find_spec("duckdb_extension_iceberg") is not None,
    ) and "nothing" in message
    assert {"by_python", "by_value"} < set(columns(lake))


@pytest.fixture(scope="module")
def without_spark() -> Iterator[Commands]:
    """A process of commands of which none has started Spark."""
    with commands() as process:
        yield process


@pytest.mark.nightly
def test_what_it_says_of_mistakes(lake: Path, without_spark: Commands) -> None:
    unread = without_spark.run(lake, "alter", f"ALTER TABLE {T} FROB x")
    unknown = without_spark.run(lake, *alter("DROP COLUMN whoo"))
    absent = without_spark.run(lake, "alter", "ALTER TABLE s.other DROP COLUMN n")
    moved = without_spark.run(lake, *alter("RENAME TO away.t"))
    skipped = without_spark.run(lake, "alter", "ALTER TABLE IF EXISTS s.other DROP COLUMN n")

    assert unread.code == 2
    assert "FROB" in unread.err
    assert unknown == Done(
        2,
        "",
        f"error: there is no column whoo\n  ALTER TABLE {T} DROP COLUMN whoo\n"
        f"  {' ' * 28}^^^^\n  did you mean who?\n",
    )
    assert absent.code == 2
    assert absent.err.startswith("error: there is no table s.other\n")
    assert moved.code == 1
    assert moved.err.startswith(f"error: table {T} cannot be renamed to away.t: ")
    assert "\n  keep the namespace, " in moved.err
    assert skipped == Done(0, "s.other  nothing to change\n", "")


@pytest.mark.nightly
def test_what_rows_are_looked_at_for_takes_spark(lake: Path, command_line: Commands) -> None:
    null = command_line.run(lake, *alter("ALTER COLUMN n SET NOT NULL"))
    keyed = command_line.run(lake, *alter("SET TBLPROPERTIES ('driftline.key' = 'id')"))
    gone = command_line.run(lake, *alter("DROP COLUMN id"))

    assert null.code == 1
    assert "n is optional, and cannot become required: it is null in 1 row" in null.err
    assert (keyed.code, keyed.err) == (0, "")
    assert gone.code == 1
    assert "the table knows its rows by id" in gone.err


@pytest.mark.nightly
def test_a_view_follows_a_new_name(lake: Path, command_line: Commands) -> None:
    viewed = command_line.run(lake, "view", T)
    renamed = command_line.run(lake, *alter("RENAME TO u"))
    back = command_line.run(lake, "alter", "ALTER TABLE s.u RENAME TO t")

    assert viewed.code == 0, viewed.err
    assert "its view is s.u_settled now" in renamed.out
    assert "its view is s.t_settled now" in back.out


@pytest.mark.nightly
def test_all_of_several_at_once_come_in(lake: Path) -> None:
    names = [f"c{i}" for i in range(3)]
    argv = [sys.executable, "-m", "driftline"]
    running = [
        subprocess.Popen(
            [*argv, *alter(f"ADD COLUMN {name} int")],
            cwd=lake,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in names
    ]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, b""), out

    assert set(names) <= set(columns(lake))


@pytest.fixture(scope="module")
def dead(lake: Path) -> tuple[list[Done], list[int]]:
    """The ends of commands at their commits, and the exit codes of the two processes in which they ran."""
    dies = str(Path(__file__).with_name("alter_dies.py"))
    deaths = [
        ("person", "before", alter("ADD COLUMN p_before int")),
        ("person", "after", alter("ADD COLUMN p_after int")),
        ("java", "before", alter("ADD COLUMN j int")),
        ("python", "before", alter("ADD COLUMN d_before int")),
        ("python", "after", alter("ADD COLUMN d_after int")),
    ]
    if not has_java(lake):
        del deaths[2]
    *first, last = deaths
    ended = [call(lake, dies, json.dumps(some), PYTHONPATH=TESTS) for some in (first, [last])]
    assert ended[1].out == ended[1].err == ended[0].err == ""
    told = [Done(*json.loads(line)) for line in ended[0].out.splitlines()]
    return told, [each.code for each in ended]


@pytest.mark.nightly
def test_a_death_at_the_commit_leaves_the_table_as_it_was_or_as_it_was_to_be(
    lake: Path, dead: tuple[list[Done], list[int]], without_spark: Commands
) -> None:
    assert dead[1] == [-signal.SIGKILL] * 2
    assert {"d_before", "d_after"} & set(columns(lake)) == {"d_after"}
    next_one = without_spark.run(lake, *alter("ADD COLUMN d_next int"))
    assert (next_one.code, next_one.err) == (0, "")
    assert "d_next" in columns(lake)


@pytest.mark.nightly
def test_a_java_that_dies_at_the_commit_is_one_sentence(
    lake: Path, dead: tuple[list[Done], list[int]]
) -> None:
    if not has_java(lake):
        pytest.skip("a DuckLake is altered without Java")

    assert dead[0][2] == Done(
        3,
        "",
        "error: Java, in which Iceberg runs, stopped unexpectedly\n"
        f"  see the system log for the cause; `driftline history {T}` tells if it took place\n",
    )
    assert "j" not in columns(lake)


@pytest.mark.nightly
def test_ctrl_c_at_the_commit_leaves_the_table_whole(lake: Path, dead: tuple[list[Done], list[int]]) -> None:
    said = f"stopped: `driftline history {T}` tells if the change took place\n"
    assert dead[0][:2] == [Done(130, "", said)] * 2
    assert {"p_before", "p_after"} & set(columns(lake)) == {"p_after"}
