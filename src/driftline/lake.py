"""What a user holds in Python: a lake, and its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline import ingest as road
from driftline import quarantine
from driftline.core.schema_json import to_json
from driftline.core.types import Schema
from driftline.errors import UsageError
from driftline.formats.iceberg import IcebergTable, State
from driftline.report.result import Result
from driftline.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.verify import Verdict

DEFAULT = "lake"


class Lake:
    """A catalog of tables, and the Spark session that reads and writes them."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self.spark = spark
        self.catalog = catalog

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = DEFAULT,
        *,
        properties: Mapping[str, str] | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> Lake:
        """The embedded lake in a folder, made where there is none: Iceberg, its catalog in a SQLite file.

        ``properties``: those of an existing Iceberg catalog, which is then used in place of the folder's.
        Raises SetupError where Java, the jars or the folder are not to be had.
        """
        from driftline.session import open_session

        return cls(open_session(Path(path), properties=properties, notify=notify), "lake")

    @classmethod
    def attach(cls, spark: SparkSession, catalog: str = "spark_catalog") -> Lake:
        """A lake on a session of your own, with an Iceberg catalog of this name."""
        return cls(spark, catalog)

    def table(self, name: str) -> Table:
        """A table by ``namespace.table``; it is made on its first ingest."""
        return Table(self, name)

    def sql(self, query: str) -> DataFrame:
        """Runs SQL on the lake."""
        return self.spark.sql(query)


class Table:
    """One table of a lake."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.lake = lake
        self.name = name
        self.format = IcebergTable(lake.spark, lake.catalog, name)

    def ingest(
        self,
        data: DataFrame | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        format: str | None = None,  # noqa: A002  the word that Spark's users know
        json_column: str | None = None,
        strings: bool = False,
        settings: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Result:
        """Takes a DataFrame, or files, into the table as one batch.

        ``json_column``: the DataFrame's column that holds JSON text, whose records are the rows.
        ``strings``: CSV cells stay text. Raises UsageError, DataError; the table is then as it was.
        """
        source = open_source(self.lake.spark, data, format=format, json_column=json_column, strings=strings)
        return road.ingest(self.format, source, settings=settings, dry_run=dry_run, progress=progress)

    def schema(self) -> TableSchema:
        """The schema: ids, types, docs. Raises UsageError where the table does not exist."""
        return TableSchema(self.state().schema)

    def state(self) -> State:
        state = self.format.load()
        if not state.exists:
            raise UsageError(f"there is no table {self.name}", hint="it is made by its first ingest")
        return state

    def read(self) -> DataFrame:
        return self.format.read()

    def verify(self, files: Sequence[str], format: str) -> Verdict:  # noqa: A002
        """Whether every record of the files is in the table or its quarantine: an independent check, value by value.

        ``format``: json, csv, parquet, avro or orc. Raises UsageError where there is no such table.
        """
        from driftline.verify import verify

        state = self.state()
        kept = quarantine.of(self.format)
        return verify(
            self.lake.spark,
            self.format.full_name,
            state.schema,
            files,
            format,
            quarantine=kept.full_name if kept.load().exists else None,
            properties=state.properties,
        )


class TableSchema:
    """A table's schema; `to_dict` is its Iceberg JSON form."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def to_dict(self) -> dict[str, Any]:
        return to_json(self.schema)
