"""The sizes of an Iceberg table's data files, by partition, from the entries of its manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.columns.file_sizes import (
    LARGEST,
    MANY,
    FileSizes,
    PartitionSize,
    are_enough,
    partition_name,
    small_below,
)
from driftline.formats.iceberg.definition import partition_fields
from driftline.formats.iceberg.manifests import ManifestEntry, sums_of, table_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.core.columns.statistics import SeenNote, TableStatistics
    from driftline.core.schema.definition import PartitionField
    from driftline.core.schema.types import Schema

_Specs: TypeAlias = "Mapping[int, tuple[PartitionField, ...]]"
_TARGET = 512 * 2**20  # bytes of a file, where the table does not say
_WITH_VOID = 2  # a format version of which `partition_fields` keeps void fields too


def target_of(properties: Mapping[str, str]) -> int:
    """The size of a table's files, in bytes."""
    return int(properties.get("write.target-file-size-bytes", _TARGET))


def sizes_of(metadata: Mapping[str, Any], entries: Iterable[ManifestEntry]) -> FileSizes:
    """Sum the sizes of the data files among the entries; ``metadata``: the table's, in JSON form."""
    target, specs = target_of(metadata.get("properties", {})), _specs(metadata)
    files, sizes, small, small_sizes = (Counter[tuple[int, tuple[Any, ...]]]() for _ in range(4))
    for entry in entries:
        if entry.is_data:
            place = entry.spec, entry.partition
            files[place] += 1
            sizes[place] += entry.size
            if entry.size < small_below(target):
                small[place] += 1
                small_sizes[place] += entry.size
    gathered = {
        place: small[place] for place in files if are_enough(small[place], small_sizes[place], target)
    }
    largest = [
        PartitionSize(partition_name(specs[place[0]], place[1]), files[place], size, gathered.get(place, 0))
        for place, size in sizes.most_common(LARGEST)
    ]
    return _file_sizes(specs, sum(gathered.values()), len(files), largest)


def statistics_of(
    metadata: Mapping[str, Any],
    entries: Sequence[ManifestEntry],
    schema: Schema,
    watched: frozenset[int],
    note: SeenNote | None,
) -> TableStatistics:
    """Return what `table_statistics` does of the files among the entries, with their sizes."""
    statistics = table_statistics(metadata, schema, partial(sums_of, entries), watched, note)
    return replace(statistics, sizes=sizes_of(metadata, entries))


def sizes_by_spark(metadata: Mapping[str, Any], files: DataFrame) -> FileSizes:
    """Sum the sizes of the data files in the metadata table ``files``, by Spark."""
    from pyspark.sql.functions import expr  # late: metadata files are read without Spark

    target, specs = target_of(metadata.get("properties", {})), _specs(metadata)
    places = ["spec_id", *(["partition"] if "partition" in files.columns else [])]
    small = files.where("content = 0").withColumn(
        "is_small", expr(f"file_size_in_bytes < {small_below(target)}")
    )
    by_place = small.groupBy(*places).agg(
        expr("count(*)").alias("files"),
        expr("sum(file_size_in_bytes)").alias("size"),
        expr("count_if(is_small)").alias("small"),
        expr("coalesce(sum(if(is_small, file_size_in_bytes, 0)), 0)").alias("small_size"),
    )
    gathers = f"small >= {MANY} or small_size >= {target}"
    gathered = by_place.withColumn("small", expr(f"if({gathers}, small, 0)"))
    total = gathered.selectExpr("count(*) as places", "coalesce(sum(small), 0) as small").head()
    assert total is not None
    largest = (
        gathered.orderBy("size", ascending=False).limit(LARGEST).collect() if any(specs.values()) else []
    )
    return _file_sizes(
        specs,
        int(total.small),
        int(total.places),
        [PartitionSize(_name_of(specs, row.asDict()), row.files, row.size, row.small) for row in largest],
    )


def _file_sizes(specs: _Specs, small: int, places: int, largest: Sequence[PartitionSize]) -> FileSizes:
    is_divided = any(specs.values())
    return FileSizes(small, places if is_divided else 0, tuple(largest) if is_divided else ())


def _specs(metadata: Mapping[str, Any]) -> _Specs:
    """The fields of all partition specs, by their ids."""
    return {
        int(spec["spec-id"]): partition_fields(spec, _WITH_VOID)
        for spec in metadata.get("partition-specs", ())
    }


def _name_of(specs: _Specs, row: Mapping[str, Any]) -> str:
    """The name of a partition in a row of Spark's, whose struct has the fields of all specs."""
    fields, partition = specs[row["spec_id"]], row.get("partition")
    by_name = {} if partition is None else partition.asDict()
    return partition_name(fields, [by_name.get(f.name) for f in fields])
