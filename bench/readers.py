"""Tables as other engines read them: the values of each are compared with what was ingested.

    make readers                                  some minutes: the table of docs/readers.md
    make readers ARGS="maps defaults"             some of its rows

Tables of Iceberg's versions 2 and 3 are made with driftline; then each reader reads them from the metadata file alone, in
a process of its own, as it would a table of somebody else. `same` is every value as it went in; `differs` says where one is
not; `refused` is the reader's own error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
Reader = Callable[[str], Any]  # the rows of a metadata file, as a table of Arrow

# What went in, by what is tried: how each value reads in every engine, as JSON.
EXPECTED: dict[str, Rows] = {
    "siblings": [
        {"id": 1, "price": 5, "price_string": None},
        {"id": 2, "price": None, "price_string": "n/a"},
        {"id": 3, "price": None, "price_string": "1.5"},
    ],
    "structs": [
        {"id": 1, "m": {"a": 1}, "n": None},
        {"id": 2, "m": {"a": None}, "n": {"b": {"v": 1}}},
        {"id": 3, "m": None, "n": {"b": None}},
    ],
    "nested lists": [
        {"id": 1, "l": None, "s": {"t": None}},
        {"id": 2, "l": [], "s": {"t": []}},
        {"id": 3, "l": [None], "s": None},
        {"id": 4, "l": [{"a": None}, {"a": [1]}], "s": {"t": ["x"]}},
    ],
    "maps": [
        {"id": 1, "m": {"a b": {"v": 1}, "c": None, "": {"v": None}}},
        {"id": 2, "m": {}},
        {"id": 3, "m": None},
    ],
    "renamed, dropped": [{"id": 1, "new": "a"}, {"id": 2, "new": "b"}],
    "deletes": [{"id": 1, "v": "b"}, {"id": 3, "v": "a"}],
    "defaults": [{"id": 1, "d": 7}, {"id": 2, "d": 8}],
}
MADE_IN = {name: ("2", "3") if name != "defaults" else ("3",) for name in EXPECTED}


# What makes the tables -----------------------------------------------------------------------------------------


def make(folder: Path, names: Collection[str]) -> dict[str, str]:
    """The metadata file of each table of these, by `NAME vVERSION`."""
    from driftline import Lake

    lake = Lake.open(folder / "lake", properties={"spark.sql.shuffle.partitions": "1"})
    lake.sql("create namespace if not exists lake.r")
    places = {}
    for number, name in enumerate(names):
        for format_version in MADE_IN[name]:
            table = lake.table(f"r.t{number}_{format_version}")
            MAKERS[name](lake, table, format_version)
            places[f"{name} v{format_version}"] = str(table.format.load().version)
    return places


def siblings(lake: Any, table: Any, format_version: str) -> None:
    created(lake, table, format_version, "id bigint, price bigint")
    table.ingest([{"id": 1, "price": 5}])
    table.ingest([{"id": 2, "price": "n/a"}, {"id": 3, "price": 1.5}])


def structs(lake: Any, table: Any, format_version: str) -> None:
    created(lake, table, format_version, "id bigint")
    table.ingest(EXPECTED["structs"])


def nested(lake: Any, table: Any, format_version: str) -> None:
    created(
        lake,
        table,
        format_version,
        "id bigint, l array<struct<a: array<bigint>>>, s struct<t: array<string>>",
    )
    table.ingest(EXPECTED["nested lists"])


def maps(lake: Any, table: Any, format_version: str) -> None:
    import pyarrow as pa

    created(lake, table, format_version, "id bigint")
    values = pa.struct([("v", pa.int64())])
    columns = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), values))])
    rows = [{**row, "m": row["m"] and list(row["m"].items())} for row in EXPECTED["maps"]]
    rows[1]["m"] = []
    table.ingest(pa.Table.from_pylist(rows, columns))


def renamed(lake: Any, table: Any, format_version: str) -> None:
    created(lake, table, format_version, "id bigint, old string, gone bigint")
    table.ingest([{"id": 1, "old": "a", "gone": 5}])
    lake.alter(f"ALTER TABLE {table.name} RENAME old TO new")
    lake.alter(f"ALTER TABLE {table.name} DROP COLUMN gone")
    table.ingest([{"id": 2, "old": "b"}])


def deletes(lake: Any, table: Any, format_version: str) -> None:
    created(lake, table, format_version, "id bigint, v string")
    rows = [{"id": i, "v": "a"} for i in (1, 2, 3)]
    table.ingest(rows)
    keyed = "'driftline.key' = 'id', 'driftline.delete-when' = 'op = ''d'''"
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({keyed})")
    table.ingest([{"id": 1, "v": "b"}, {"id": 2, "op": "d"}])


def defaults(lake: Any, table: Any, format_version: str) -> None:
    created(lake, table, format_version, "id bigint")
    table.ingest([{"id": 1}])
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN d bigint DEFAULT 7")
    table.ingest([{"id": 2, "d": 8}])


def created(lake: Any, table: Any, format_version: str, columns: str) -> None:
    lake.sql(
        f"create table lake.{table.name} ({columns}) using iceberg tblproperties ('format-version' = '{format_version}')"
    )


MAKERS = {
    "siblings": siblings, "structs": structs, "nested lists": nested, "maps": maps, "renamed, dropped": renamed, "deletes": deletes,
    "defaults": defaults,
}  # fmt: skip


# What reads them -----------------------------------------------------------------------------------------------


def by_spark(metadata: str) -> Any:
    from driftline import Lake

    lake = Lake.open(Path(metadata).parents[3], properties={"spark.sql.shuffle.partitions": "1"})
    return lake.table(".".join(Path(metadata).parts[-4:-2])).read().toArrow()


def by_pyiceberg(metadata: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata).scan().to_arrow()


def by_duckdb(metadata: str) -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = find_spec(f"duckdb_extension_{name}")
        folder = Path(str(spec.submodule_search_locations[0]), "extensions", f"v{duckdb.__version__}")
        connection.execute(f"load '{folder}/{name}.duckdb_extension'")
    return connection.execute(f"select * from iceberg_scan('{metadata}')").to_arrow_table()


def by_polars(metadata: str) -> Any:
    import polars as pl

    return pl.scan_iceberg(metadata, reader_override="native").collect().to_arrow()


def by_daft(metadata: str) -> Any:
    import daft
    from pyiceberg.table import StaticTable

    return daft.read_iceberg(StaticTable.from_metadata(metadata)).to_arrow()


def by_chdb(metadata: str) -> Any:
    import chdb

    table = Path(metadata).parents[1]  # its newest metadata
    os.chdir(table)  # it reads nothing outside
    return chdb.query(f"select * from icebergLocal('{table}')", "ArrowTable")


READERS: dict[str, tuple[str, Reader]] = {
    "Spark": ("pyspark", by_spark),
    "pyiceberg": ("pyiceberg", by_pyiceberg),
    "DuckDB": ("duckdb", by_duckdb),
    "Polars": ("polars", by_polars),
    "Daft": ("daft", by_daft),
    "ClickHouse (chdb)": ("chdb", by_chdb),
}


# What is compared ----------------------------------------------------------------------------------------------


def verdict(reader: str, name: str, metadata: str) -> str:
    """`same`, or what differs, or why the reader refuses."""
    try:
        found = READERS[reader][1](metadata).to_pylist()
    except BaseException as error:  # a reader may end in a panic of another language
        return f"refused: {' '.join(str(error).split())[:140] or type(error).__name__}"
    wanted = EXPECTED[name]
    rows = {row["id"]: row for row in found}
    if sorted(rows) != [row["id"] for row in wanted] or len(found) != len(wanted):
        return f"differs: rows {sorted(rows)}"
    for row in wanted:
        for column, value in row.items():
            read = unpacked(rows[row["id"]].get(column, "no column"), value)
            if read != value:
                return f"differs: {column} is {json.dumps(read, default=str)}, not {json.dumps(value)}"
    return "same"


def unpacked(read: Any, wanted: Any) -> Any:
    """A map as a dict, where it was read as a list of pairs, or of records with key and value."""
    if not isinstance(wanted, dict) or not isinstance(read, list):
        return read
    return dict(tuple(entry.values()) if isinstance(entry, dict) else entry for entry in read)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*EXPECTED, []], help="all, if none is named")
    parser.add_argument("--one", nargs=3, metavar=("READER", "NAME", "METADATA"), help=argparse.SUPPRESS)
    parser.add_argument("--version", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--with", dest="python", default=sys.executable, help="the Python that has the readers"
    )
    arguments = parser.parse_args()
    names = arguments.names or [*EXPECTED]
    if arguments.one:
        print(verdict(*arguments.one))
    elif arguments.version:
        print(version(arguments.version))
    elif arguments.make:
        print(json.dumps(make(arguments.make, names)))
    else:
        with tempfile.TemporaryDirectory(prefix="readers-") as tmp:
            table(Path(tmp), arguments.python, names)


def table(folder: Path, python: str, names: Collection[str]) -> None:
    """Print the table, and below it what is not the same."""
    places = json.loads(_run(sys.executable, "--make", str(folder), "--", *names).splitlines()[-1])
    notes, lines = [], []
    for reader, (package, _) in READERS.items():
        program = sys.executable if reader == "Spark" else python
        title = f"{reader} {_run(program, '--version', package)}"
        cells = []
        for key, metadata in places.items():
            told = _run(program, "--one", reader, key.rpartition(" ")[0], metadata) or "refused: it ended"
            cells.append(told.partition(":")[0])
            notes += [f"- {title}, {key}: {told}"] if told != "same" else []
        lines.append(f"| {title} | {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr)
    print(f"| reader | {' | '.join(places)} |\n|---|{'---|' * len(places)}")
    print(*lines, "", *notes, sep="\n")


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [program, __file__, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
