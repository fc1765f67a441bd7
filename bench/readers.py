"""Tables as other engines read them: the values of each are compared with what was ingested.

    make readers                                  some minutes: the table of docs/readers.md
    make readers ARGS="--only maps defaults"      some of its rows
    make readers ARGS="--readers DuckDB Flink"    some of its columns

Tables of Iceberg's versions 2 and 3, and of a DuckLake, are made with driftline; then each reader reads them, Iceberg's from
the metadata file alone, in a process of its own, as it would a table of somebody else. `same` is every value as it went
in; else a cell says how the first other value reads, or `refused`. It fails if docs/readers.md says anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]

PAGE = Path(__file__).parents[1] / "docs/readers.md"
# What went in, by what is tried: how each value reads in every engine, as JSON.
EXPECTED: dict[str, Rows] = {
    "siblings": [
        {"id": 1, "price": 5, "price_string": None},
        {"id": 2, "price": None, "price_string": "n/a"},
        {"id": 3, "price": None, "price_string": "1.5"},
    ],
    "lists": [
        {"id": 1, "l": None, "s": {"t": None}},
        {"id": 2, "l": [], "s": {"t": []}},
        {"id": 3, "l": [None], "s": None},
        {"id": 4, "l": [{"a": None}, {"a": [1]}], "s": {"t": ["x"]}},
    ],
    "structs": [
        {"id": 1, "m": {"a": 1}, "n": None},
        {"id": 2, "m": {"a": None}, "n": {"b": {"v": 1}}},
        {"id": 3, "m": None, "n": {"b": None}},
    ],
    "maps": [
        {"id": 1, "m": {"a b": {"v": 1}, "c": None, "": {"v": None}}},
        {"id": 2, "m": {}},
        {"id": 3, "m": None},
    ],
    "renamed": [{"id": 1, "new": "a"}, {"id": 2, "new": "b"}],
    "deletes": [{"id": 1, "v": "b"}, {"id": 3, "v": "a"}],
    "defaults": [{"id": 1, "d": 7}, {"id": 2, "d": 8}],
}
TITLES = {
    "siblings": "siblings: `price` and `price_string`",
    "lists": "lists, in structs and in lists: null, `[]`, `[null]`",
    "structs": "structs, in structs: null, and with fields that are null",
    "maps": "maps of structs: null, `{}`, a null value, an empty key",
    "renamed": "a column renamed, another dropped",
    "deletes": "rows updated and deleted by key: delete files in 2, deletion vectors in 3",
    "defaults": "a column with a default, in rows older than it",
}
ICEBERG, DUCKLAKE = ("2", "3"), ("DuckLake",)
MADE_IN = {name: ICEBERG if name != "defaults" else ("3",) for name in EXPECTED}


# What makes the tables -----------------------------------------------------------------------------------------


def make(folder: Path, names: Collection[str], formats: Collection[str]) -> dict[str, dict[str, str]]:
    """The place of each of these tables, by its name and its format: a metadata file, or a catalog and a table."""
    from driftline import Lake

    properties = {"spark.sql.shuffle.partitions": "1"}
    lakes = {}
    if set(formats) & set(ICEBERG):
        lakes |= dict.fromkeys(ICEBERG, Lake.open(folder / "lake", properties=properties))
    if set(formats) & set(DUCKLAKE):
        lakes["DuckLake"] = Lake.open(folder / "ducklake", ducklake="duckdb", properties=properties)
    return {
        name: {
            table_format: made(lakes[table_format], f"r.{name}_{table_format.lower()}", name, table_format)
            for table_format in (*MADE_IN[name], *DUCKLAKE)
            if table_format in formats
        }
        for name in names
    }


def made(lake: Any, table_name: str, name: str, table_format: str) -> str:
    """The place of a table, which is made."""
    table = lake.table(table_name)
    MAKERS[name](lake, table, {} if table_format in DUCKLAKE else {"format_version": table_format})
    if table_format in DUCKLAKE:
        return f"{lake.format.catalog.target}:{table.name}"
    return str(table.format.load().version)


def siblings(_: Any, table: Any, settings: dict[str, str]) -> None:
    table.ingest([{"id": 1, "price": 5}], settings=settings)
    table.ingest([{"id": 2, "price": "n/a"}, {"id": 3, "price": 1.5}])


def structs(_: Any, table: Any, settings: dict[str, str]) -> None:
    table.ingest(EXPECTED["structs"], settings=settings)


def lists(_: Any, table: Any, settings: dict[str, str]) -> None:
    import pyarrow as pa

    inner, text = pa.struct([("a", pa.list_(pa.int64()))]), pa.struct([("t", pa.list_(pa.string()))])
    columns = pa.schema([("id", pa.int64()), ("l", pa.list_(inner)), ("s", text)])
    table.ingest(pa.Table.from_pylist(EXPECTED["lists"], columns), settings=settings)


def maps(_: Any, table: Any, settings: dict[str, str]) -> None:
    import pyarrow as pa

    values = pa.struct([("v", pa.int64())])
    columns = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), values))])
    rows = [{**row, "m": None if row["m"] is None else list(row["m"].items())} for row in EXPECTED["maps"]]
    table.ingest(pa.Table.from_pylist(rows, columns), settings=settings)


def renamed(lake: Any, table: Any, settings: dict[str, str]) -> None:
    table.ingest([{"id": 1, "old": "a", "gone": 5}], settings=settings)
    lake.alter(f"ALTER TABLE {table.name} RENAME old TO new")
    lake.alter(f"ALTER TABLE {table.name} DROP COLUMN gone")
    table.ingest([{"id": 2, "old": "b"}])


def deletes(_: Any, table: Any, settings: dict[str, str]) -> None:
    keyed = {"key": "id", "delete_when": "op = 'd'"}
    table.ingest([{"id": i, "v": "a"} for i in (1, 2, 3)], settings={**settings, **keyed})
    table.ingest([{"id": 1, "v": "b"}, {"id": 2, "op": "d"}])


def defaults(lake: Any, table: Any, settings: dict[str, str]) -> None:
    table.ingest([{"id": 1}], settings=settings)
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN d bigint DEFAULT 7")
    table.ingest([{"id": 2, "d": 8}])


MAKERS = {
    "siblings": siblings, "lists": lists, "structs": structs, "maps": maps, "renamed": renamed, "deletes": deletes,
    "defaults": defaults,
}  # fmt: skip


# What reads them -----------------------------------------------------------------------------------------------


def by_spark(metadata: str) -> Rows:
    from driftline import Lake

    lake = Lake.open(Path(metadata).parents[3], properties={"spark.sql.shuffle.partitions": "1"})
    return _rows(lake.table(".".join(Path(metadata).parts[-4:-2])).read().toArrow())


def by_pyiceberg(metadata: str) -> Rows:
    from pyiceberg.table import StaticTable

    return _rows(StaticTable.from_metadata(metadata).scan().to_arrow())


def by_duckdb(metadata: str) -> Rows:
    connection = _duckdb("avro", "iceberg")
    return _rows(connection.execute(f"select * from iceberg_scan('{metadata}')").to_arrow_table())


def by_duckdb_of_a_ducklake(place: str) -> Rows:
    catalog, _, table = place.rpartition(":")
    connection = _duckdb("ducklake")
    connection.execute(f"attach 'ducklake:{catalog}' as lake (read_only)")
    return _rows(connection.execute(f"select * from lake.{table}").to_arrow_table())


def by_polars(metadata: str) -> Rows:
    import polars as pl

    return _rows(pl.scan_iceberg(metadata, reader_override="native").collect().to_arrow())


def by_daft(metadata: str) -> Rows:
    import daft
    from pyiceberg.table import StaticTable

    return _rows(daft.read_iceberg(StaticTable.from_metadata(metadata)).to_arrow())


def by_chdb(metadata: str) -> Rows:
    import chdb

    table = Path(metadata).parents[1]  # its newest metadata
    os.chdir(table)  # it reads nothing outside
    return _rows(chdb.query(f"select * from icebergLocal('{table}')", "ArrowTable"))


def by_trino(metadata: str) -> Rows:
    from servers.trino import rows

    url, path = os.environ["TRINO"], Path(metadata)
    name = path.parts[-3]
    rows(url, "create schema if not exists lake.r")
    rows(url, f"call lake.system.register_table('r', '{name}', '{path.parents[1]}', '{path.name}')")
    return rows(url, f"select * from lake.r.{name}")


def by_flink(metadata: str) -> Rows:
    from servers.flink import rows

    return rows(os.environ["FLINK"], metadata)


def _rows(table: Any) -> Rows:
    rows: Rows = table.to_pylist(maps_as_pydicts="strict")
    return rows


def _duckdb(*extensions: str) -> Any:
    """A DuckDB with extensions out of their wheels."""
    import duckdb

    connection = duckdb.connect()
    for name in extensions:
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(str(spec.submodule_search_locations[0]), "extensions", f"v{duckdb.__version__}")
        connection.execute(f"load '{folder}/{name}.duckdb_extension'")
    return connection


@contextmanager
def _trino(folder: Path) -> Iterator[dict[str, str]]:
    from servers.trino import Trino

    with Trino(folder / "trino") as server:
        yield {"TRINO": server.url}


@contextmanager
def _flink(folder: Path) -> Iterator[dict[str, str]]:
    from servers.flink import Flink

    with Flink(folder / "flink") as server:
        yield {"FLINK": server.address}


@contextmanager
def _nothing(_: Path) -> Iterator[dict[str, str]]:
    yield {}


def _version(package: str) -> str:
    """The version of a reader: of a wheel, or of a server."""
    if package.startswith("servers."):
        return str(import_module(package).VERSION)
    return version(package)


@dataclass(frozen=True)
class Reader:
    """The package that has the version, and the function that returns the rows at a place. ``own``: true if the Python is the one that makes
    the tables; ``start`` yields what the environment says of a server that it needs.
    """

    package: str
    read: Callable[[str], Rows]
    formats: tuple[str, ...] = ICEBERG
    own: bool = False
    start: Callable[[Path], Any] = _nothing


READERS = {
    "Spark": Reader("pyspark", by_spark, own=True),
    "pyiceberg": Reader("pyiceberg", by_pyiceberg),
    "DuckDB": Reader("duckdb", by_duckdb),
    "Polars": Reader("polars", by_polars),
    "Daft": Reader("daft", by_daft),
    "ClickHouse (chdb)": Reader("chdb", by_chdb),
    "Trino": Reader("servers.trino", by_trino, own=True, start=_trino),
    "Flink": Reader("servers.flink", by_flink, own=True, start=_flink),
    "DuckLake by DuckDB": Reader("duckdb", by_duckdb_of_a_ducklake, DUCKLAKE, own=True),
}


# What is compared ----------------------------------------------------------------------------------------------


def verdict(reader: str, name: str, place: str) -> str:
    """`same`, or how a value reads otherwise, or why the reader refuses."""
    try:
        found = READERS[reader].read(place)
    except BaseException as error:  # a reader may end in a panic of another language
        return f"refused: {' '.join(str(error).split())[:140] or type(error).__name__}"
    wanted = EXPECTED[name]
    rows = {row["id"]: row for row in found}
    if sorted(rows) != [row["id"] for row in wanted] or len(found) != len(wanted):
        return f"has the rows {sorted(rows)}"
    for row in wanted:
        if told := difference(rows[row["id"]], row):
            return told
    return "same"


def difference(read: Any, wanted: Any) -> str:
    """Describe how the first other value reads; nothing if there is none. Columns that are not wanted do not count."""
    if isinstance(wanted, dict) and isinstance(read, list):  # a map as a list of pairs, or of records of two
        read = dict(tuple(entry.values()) if isinstance(entry, dict) else entry for entry in read)
    if isinstance(wanted, dict) and isinstance(read, dict) and wanted.keys() <= read.keys():
        parts = [(read[key], value) for key, value in wanted.items()]
    elif isinstance(wanted, list) and isinstance(read, list) and len(wanted) == len(read):
        parts = list(zip(read, wanted, strict=True))
    else:
        same = read == wanted and type(read) is type(wanted)
        return "" if same else f"`{json.dumps(wanted)}` reads as `{json.dumps(read, default=str)}`"
    return next(filter(None, (difference(*part) for part in parts)), "")


def documented(page: Path = PAGE) -> dict[tuple[str, str], str]:
    """The cells of the page's table, by the title of a row and that of a column."""
    table = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    header, *rows = table
    return {(row[0], column): cell for row in rows for column, cell in zip(header[2:], row[2:], strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=EXPECTED, default=[*EXPECTED], help="some rows")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=[*READERS], help="some columns")
    parser.add_argument("--one", nargs=3, metavar=("READER", "NAME", "PLACE"), help=argparse.SUPPRESS)
    parser.add_argument("--version-of", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--with", dest="python", default=sys.executable, help="the Python that has the readers"
    )
    arguments = parser.parse_args()
    if arguments.one:
        print(verdict(*arguments.one))
    elif arguments.version_of:
        print(_version(READERS[arguments.version_of].package))
    elif arguments.make:
        formats = {table_format for name in arguments.readers for table_format in READERS[name].formats}
        print(json.dumps(make(arguments.make, arguments.only, formats)))
    else:
        with tempfile.TemporaryDirectory(prefix="readers-") as tmp:
            columns = [
                column(Path(tmp), reader, places, arguments.python)
                for places in [_places(Path(tmp), arguments)]
                for reader in arguments.readers
            ]
        sys.exit(told(dict(columns), arguments.only))


def _places(folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    made_by = ["--make", str(folder), "--readers", *arguments.readers, "--only", *arguments.only]
    places: dict[str, dict[str, str]] = json.loads(
        _run(sys.executable, *made_by, seconds=600).splitlines()[-1]
    )
    return places


def column(
    folder: Path, reader: str, places: Mapping[str, Mapping[str, str]], python: str
) -> tuple[str, dict[str, str]]:
    """The title of a reader's column, and its cells by what is tried."""
    how = READERS[reader]
    program = sys.executable if how.own else python
    title = f"{reader} {_run(program, '--version-of', reader)}"
    cells = {}
    with how.start(folder) as environment:
        for name, by_format in places.items():
            verdicts = {
                table_format: _run(program, "--one", reader, name, place, environment=environment)
                or "refused: it ended"
                for table_format, place in by_format.items()
                if table_format in how.formats
            }
            cells[name] = cell(verdicts)
            print(f"{title}, {name}: {verdicts}", file=sys.stderr)
    return title, cells


def cell(verdicts: Mapping[str, str]) -> str:
    """The cell of a reader: said once, if it is the same of all formats."""
    short = {
        table_format: told.partition(":")[0] if told.startswith("refused") else told
        for table_format, told in verdicts.items()
    }
    if len(set(short.values())) == 1:
        return next(iter(short.values()))
    return "; ".join(f"{table_format}: {told}" for table_format, told in short.items())


def told(columns: Mapping[str, Mapping[str, str]], names: Collection[str]) -> int:
    """Print the table, and what the page says otherwise; returns how much that is."""
    print(
        f"| what the table has | Iceberg's version | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}"
    )
    for name in names:
        cells = [cells[name] for cells in columns.values()]
        print(f"| {TITLES[name]} | {', '.join(MADE_IN[name])} | {' | '.join(cells)} |")
    page = documented()
    wrong = 0
    for title, cells in columns.items():
        for name in names:
            if (says := page.get((TITLES[name], title), "nothing")) != cells[name]:
                print(f"docs/readers.md says of {title}, {TITLES[name]}: {says}")
                wrong += 1
    return wrong


def _run(
    program: str, *arguments: str, seconds: int = 180, environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        [program, __file__, *arguments], capture_output=True, text=True, check=False, timeout=seconds,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return done.stdout.strip()


if __name__ == "__main__":
    main()
