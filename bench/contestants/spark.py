"""Plain Spark: a schema inferred from all records, and an append with mergeSchema.

It gets the product's session: the same heap and catalog, and Iceberg's jars on the class path, which starts in half the
time of `spark.jars.packages`.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from driftline.runtime.jars import PACKAGES
from driftline.runtime.session import open_session

from . import Table


class PlainSpark:
    def open(self, folder: Path) -> None:
        self.folder = folder
        self.spark = open_session(folder, app_name="plain")
        self.spark.sql("create namespace if not exists lake.bench")

    def take(self, files: list[Path], name: str) -> Table:
        frame = self.spark.read.json([str(file) for file in files])
        self.spark.sql(
            f"create table if not exists lake.bench.{name} (id bigint) using iceberg tblproperties "
            "('write.spark.accept-any-schema'='true', 'format-version'='2')"
        )
        writer = frame.writeTo(f"lake.bench.{name}").option("mergeSchema", "true")
        writer.option("check-ordering", "false").append()
        return Table("iceberg", f"{self.folder}/bench/{name}", name)

    def versions(self) -> dict[str, str]:
        return {"pyspark": version("pyspark"), "iceberg": PACKAGES[0].rpartition(":")[2]}
