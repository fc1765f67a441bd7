"""A third table format, as small as can be: Parquet files in a folder, and a JSON file as the catalog.

It shows that the road asks of a format no more than `formats/base.py` says. A commit is one new version of the
catalog, taken under a lock; whoever planned on an older version plans anew.
"""

from __future__ import annotations

import fcntl
import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from driftline.core.changes import Change, apply
from driftline.core.schema.definition import Definition
from driftline.core.schema.schema_json import from_json, to_json
from driftline.core.schema.types import Schema
from driftline.errors import no_table
from driftline.formats import base
from driftline.formats.base import CommitConflict, State, UpkeepTransaction
from driftline.formats.lakes import Orphan
from driftline.runtime.spark_conf import CASE, PLAIN, configured
from driftline.sql.quoting import name as quoted
from driftline.sql.quoting import spark_type
from driftline.write import (
    BatchFolder,
    FilePlan,
    FileSettings,
    InFolder,
    RowTasks,
    WrittenFile,
    write_in_tasks,
)

_TARGET = 2**27  # bytes of a file
_NOTHING = State(Schema(), {}, None, False)
_NEW = {"properties": {}, "files": [], "taken": [], "version": 0, "last": 0}
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class ToyLocation:
    """A lake of this format, before Spark runs: its folder."""

    folder: Path

    @property
    def shown(self) -> str:
        return f"toy:{self.folder}"

    def engine(self) -> str:
        return "pyarrow"

    def exists(self) -> bool:
        return (self.folder / "catalog.json").exists()

    def tables(self) -> list[str]:
        return sorted(self.read())

    def open(self, spark: SparkSession) -> ToyCatalog:
        return ToyCatalog(spark, self)

    def read(self) -> Tables:
        """The tables: of each its uuid, schema, properties, files and version."""
        tables: Tables = json.loads((self.folder / "catalog.json").read_text()) if self.exists() else {}
        return tables

    @contextmanager
    def changing(self) -> Iterator[Tables]:
        """The tables to change, while no other process does; they become visible at once, or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tables = self.read()
            yield tables
            draft = self.folder / "catalog.draft"
            draft.write_text(json.dumps(tables))
            draft.replace(self.folder / "catalog.json")


@dataclass(frozen=True)
class ToyCatalog:
    """The tables of a folder, on a Spark session."""

    spark: SparkSession
    location: ToyLocation
    writes: str = "nothing runs it"
    has_views: bool = False
    own_views: None = None

    @property
    def folder(self) -> str:
        return str(self.location.folder)

    def sql_name(self, name: str) -> str:
        return ".".join(map(quoted, name.split(".")))

    def on(self, spark: SparkSession) -> ToyCatalog:
        return replace(self, spark=spark)

    def table(self, name: str) -> ToyTable:
        return ToyTable(self.spark, self.location, name)

    def tables(self) -> list[str]:
        return self.location.tables()

    def sql(self, query: str) -> DataFrame:
        """Runs a query; a table stands in it as ``lake.namespace.table``."""

        def view(found: re.Match[str]) -> str:
            name = "toy_" + found[1].replace(".", "_")
            self.table(found[1]).read().createOrReplaceTempView(name)
            return name

        return self.spark.sql(re.sub(r"\blake\.(\w+\.\w+)", view, query))

    def check_writable(self) -> None:
        pass

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        return []


class ToyTable(base.CatalogTable):
    """One table. What it does not define here, no batch asks for."""

    blank = Definition()
    parts_of = None

    def __init__(self, spark: SparkSession, location: ToyLocation, name: str) -> None:
        self.session = spark
        self.name = name
        self.location = location

    @property
    def spark(self) -> SparkSession:
        return self.session

    @property
    def folder(self) -> Path:
        return self.location.folder.joinpath(*self.name.split(".")).absolute()

    def other_table(self, name: str) -> ToyTable:
        return ToyTable(self.spark, self.location, name)

    def load(self) -> State:
        return _state(self.location.read().get(self.name))

    def ingested_files(self, state: State, files: Collection[int]) -> Collection[int]:
        listed = self.location.read()[self.name]["taken"] if state.exists else []
        return set(files).intersection(listed)

    def definition(self) -> Definition:
        state = self._there()
        return Definition(state.schema, properties=state.properties, last_column=state.last_id)

    def read(self, snapshot: int | None = None) -> DataFrame:
        state = self._there()
        columns = ", ".join(f"{quoted(f.name)} {spark_type(f.type)}" for f in state.schema.struct.fields)
        files = self.location.read()[self.name]["files"]
        if not files:
            return self.spark.createDataFrame([], columns)
        with configured(self.spark, {CASE: "true"}):
            return self.spark.read.schema(columns).parquet(*files)

    def transaction(self, state: State, new_definition: Definition | None = None) -> ToyTransaction:
        now = self.load()
        if now.exists and not (state.exists and state.fits(now)):
            raise CommitConflict(f"table {self.name} was changed by another writer")
        if state.exists:
            return ToyTransaction(self, now, now.schema)
        assert new_definition is not None
        return ToyTransaction(self, None, new_definition.schema)

    def delete(self, column: str, value: str) -> None:
        with self.location.changing() as tables:
            for file in tables[self.name]["files"]:
                rows = pq.read_table(file)
                pq.write_table(rows.filter([other != value for other in rows[column].to_pylist()]), file)

    def _there(self) -> State:
        state = self.load()
        if not state.exists:
            raise no_table(self.name)
        return state


def _state(entry: Mapping[str, Any] | None) -> State:
    if entry is None:
        return _NOTHING
    schema, version = from_json(entry["schema"]), entry["version"]
    return State(
        schema,
        entry["properties"],
        version,
        True,
        entry["uuid"],
        max(schema.highest_id(), entry["last"]),
        str(version),
    )


@dataclass
class ToyTransaction(UpkeepTransaction):
    """Files, a schema and properties on their way into the catalog: the members of `RowTransaction` alone."""

    table: ToyTable
    base: State | None
    schema: Schema
    visible: bool | None = False
    snapshot: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        self.schema = apply(self.schema, changes)

    def set(self, properties: Mapping[str, str]) -> None:
        self.properties |= properties

    def remember(self, files: Sequence[int]) -> None:
        self.sources = list(files)

    @property
    def location(self) -> str:
        return str(self.table.folder)

    def write(self, tasks: RowTasks, folder: BatchFolder | None, summary: Mapping[str, str]) -> int:
        assert folder is not None, "a toy lake is on this machine"

        def place(file: WrittenFile) -> str:
            return str(self.table.folder / Path(file.path).name)

        unmeasured = {f.id: "none" for _, f in self.schema.walk()}
        plan = FilePlan(self.schema, unmeasured, FileSettings(), _TARGET)
        written = write_in_tasks(self.table.spark.sparkContext, tasks, plan, folder, InFolder(folder, place))
        self.files += [file.path for file in written]
        return sum(file.rows for file in written)

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        folder = self.table.folder / uuid.uuid4().hex
        with configured(self.table.spark, {**PLAIN, CASE: "true"}):
            frame.select([quoted(f.name) for f in self.row_type.fields]).write.parquet(str(folder))
        written = [str(file) for file in sorted(folder.glob("*.parquet"))]
        self.files += written
        return sum(pq.read_metadata(file).num_rows for file in written)

    def commit(self) -> None:
        with self.table.location.changing() as tables:
            now = tables.get(self.table.name) or dict(_NEW, uuid=uuid.uuid4().hex)
            if str(now["version"]) != ("0" if self.base is None else self.base.version):
                raise CommitConflict(f"table {self.table.name} was changed by another writer")
            self.snapshot = now["version"] + 1
            tables[self.table.name] = {
                **now,
                "schema": to_json(self.schema),
                "properties": now["properties"] | self.properties,
                "files": now["files"] + self.files,
                "taken": now["taken"] + self.sources,
                "last": max(now["last"], self.schema.highest_id()),
                "version": self.snapshot,
            }
        self.visible = True

    def abandon(self) -> None:
        for file in [] if self.visible else self.files:
            Path(file).unlink(missing_ok=True)
