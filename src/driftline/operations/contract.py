"""Finds breaches of a data contract, by a table as it is or by the data of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.planning.own_columns import with_own
from driftline.core.schema.naming import MARK, is_metadata, marked_key
from driftline.core.schema.schema_json import outline, type_name
from driftline.core.schema.types import Field, List, Map, Path, Schema, Struct, Type, children, dotted
from driftline.core.settings.declarations import PREFIX, SETTINGS
from driftline.core.settings.properties import from_properties
from driftline.errors import DataError
from driftline.formats.base import CatalogTable
from driftline.formats.commit import Progress
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches, paths_of_rest
from driftline.ingest.result import Result, result
from driftline.operations.odcs import Promise, meets
from driftline.runtime.failure import explained
from driftline.runtime.spark_conf import configured
from driftline.sources.inputs import Data
from driftline.sources.opening import opened


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The way data are read, in the terms of `Table.ingest`."""

    format: str | None = None
    strings: bool = False


BREAKS = ("missing", "type", "required", "new", "sibling", "setting")


@dataclass(frozen=True, slots=True)
class Break:
    """One difference between a table and its contract. ``kind``: one of `BREAKS`."""

    kind: str
    path: Path
    text: str


def breaks(promise: Promise, schema: Schema, properties: Mapping[str, str]) -> Iterator[Break]:
    """The differences between a table of this schema and these properties and the contract."""
    yield from _of_struct(promise, promise.schema.struct, schema.struct, ())
    for key, value in sorted(promise.properties.items()):
        name = key.removeprefix(PREFIX).replace("-", "_")
        default = SETTINGS[name].default if name in SETTINGS else ""
        actual = properties.get(key) or default
        if value and actual != value:
            yield Break("setting", (name,), f"{name} is {actual or 'not set'}, and not {value}")


def _of_struct(promise: Promise, promised: Struct, actual: Struct, above: Path) -> Iterator[Break]:
    columns = {f.name: f for f in actual.fields if not is_metadata(f.doc)}
    for field in promised.fields:
        path = (*above, field.name)
        if field.name not in columns:
            yield Break("missing", path, f"there is no {dotted(path)} {_shown(field.type)}")
            continue
        yield from _of_field(promise, field, columns[field.name], path)
    names = {f.name for f in promised.fields}
    for name, more in columns.items():
        # Any difference breaks a contract, new columns included: it is a golden file, and whoever agrees
        # exports it again.
        if name not in names:
            kind = "new" if marked_key(more.doc, _mark(promise)) is None else "sibling"
            yield Break(kind, (*above, name), f"{dotted((*above, name))} {_shown(more.type)} is new")


def _of_field(promise: Promise, promised: Field, actual: Field, path: Path) -> Iterator[Break]:
    if promised.required and not actual.required:
        yield Break("required", path, f"{dotted(path)} may be null")
    if isinstance(promised.type, Struct) and isinstance(actual.type, Struct):
        yield from _of_struct(promise, promised.type, actual.type, path)
    elif type(promised.type) is type(actual.type) and isinstance(promised.type, List | Map):
        for inside, other in zip(children(promised.type), children(actual.type), strict=True):
            yield from _of_field(promise, inside, other, (*path, inside.name))
    elif not (
        meets(promise.loose[path], actual.type) if path in promise.loose else promised.type == actual.type
    ):
        promised_type = promise.loose.get(path) or _shown(promised.type)
        yield Break("type", path, f"{dotted(path)} is {_shown(actual.type)}, and not {promised_type}")


def _shown(type_: Type) -> str:
    return outline(type_) if children(type_) else type_name(type_)


def _mark(promise: Promise) -> str:
    return promise.properties.get(f"{PREFIX}mark") or MARK


def planned(
    promise: Promise, table: CatalogTable, data: Data, reading: ReadOptions, progress: Progress
) -> Result:
    """Plan a batch for a table exactly as the contract says.

    Raises UsageError, DataError for unreadable data.
    """
    settings = from_properties(promise.properties)
    beyond = "quarantine" if settings.beyond == "fail" else settings.beyond
    settings = replace(settings, on_conflict="quarantine", beyond=beyond, allow_rewrite=False)
    with opened(table.spark, data, format=reading.format, strings=reading.strings) as source:
        try:
            with configured(table.spark, source.conf):
                progress("observing")
                scan = source.open(promise.schema, settings)
                observed, plan = accepted(scan, RecentBatches(), progress)
        except (PySparkException, Py4JError, OSError) as error:
            raise DataError(*explained(error)) from error
        plan = with_own(plan, source.columns)
    batch = result(table.name, "contract", observed.observation, plan)
    return batch.with_rest(paths_of_rest(plan), settings.fields)
