"""`doctor`: checks each part that a lake needs, the cheapest first."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict
from uuid import uuid4

from driftline.core.schema.text import counted
from driftline.core.support import as_json
from driftline.errors import DriftlineError
from driftline.formats.lakes import Location
from driftline.formats.open import EmbeddedLake, located
from driftline.runtime import class_data, jars
from driftline.runtime.disk import NEW, delete_file
from driftline.runtime.file_io import options_at
from driftline.runtime.java import find_java
from driftline.runtime.session import (
    HINT,
    is_embedded,
    make_lake,
    open_session,
    prepare_environment,
    pyspark_version,
)
from driftline.runtime.stores import configured, explaining, filesystem, is_stored

_TRACE = "See all of it with DRIFTLINE_DEBUG=1."


class CheckJson(TypedDict):
    """A check of one part; ``fix`` empty: all is well."""

    name: str
    ok: bool
    detail: str
    fix: str


class ChecksJson(TypedDict):
    """The checks of `doctor`."""

    ok: bool
    checks: list[CheckJson]


@dataclass(frozen=True)
class Check:
    """One check of one part. `detail`: the finding; `fix`: advice, empty if all is well."""

    name: str
    ok: bool
    detail: str
    fix: str = ""

    def redacted(self, redact: Callable[[str], str]) -> Check:
        """The check without secrets, which ``redact`` takes out of a text."""
        return replace(self, detail=redact(self.detail), fix=redact(self.fix))

    def to_dict(self) -> CheckJson:
        """The form that JSON output has."""
        return as_json(CheckJson, self)


def checks(
    lake: Path | str, properties: Mapping[str, str] | None = None, ducklake: str | None = None
) -> list[Check]:
    """All checks of this machine and this lake, in order. Never raises.

    What needs Spark is left out when Spark cannot start. Starts a session, if none runs, and leaves it open.
    """
    properties = properties or {}
    locate = partial(located, "ducklake", folder=lake)
    stored = is_stored(str(lake))
    parts: list[tuple[str, Callable[[], str]]] = [("python", _python), ("spark", _spark), ("java", _java)]
    if is_embedded(properties) and not stored:
        parts.append(("lake", lambda: _lake(Path(lake), ducklake)))
    if ducklake is not None:
        parts.append(("duckdb", lambda: locate(ducklake).engine()))
    results = [_check(name, look) for name, look in parts]
    if all(check.ok for check in results):
        results.append(
            _check("jars", lambda: _jars({**properties, **(locate(ducklake).settings() if ducklake else {})}))
        )
    if all(check.ok for check in results):
        look = (
            partial(_catalog, Path(lake), properties)
            if ducklake is None
            else lambda: _located(locate(ducklake))
        )
        results.append(_check("catalog", look))
    if stored and results[-1].ok:
        results.append(_check("store", partial(_probe, str(lake), configured(str(lake)))))
    place = properties.get("warehouse", "")
    if is_stored(place) and results[-1].ok:
        results.append(_check("store", partial(_store, place, properties)))
    return results


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except DriftlineError as error:
        return Check(name, False, error.message, _TRACE if error.hint == HINT else error.hint or "")
    except Exception as error:  # whatever Spark or a catalog may throw: this is a report
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Check(name, False, first, _TRACE)


def _python() -> str:
    return f"Python {platform.python_version()} ({sys.executable})"


def _spark() -> str:
    return f"pyspark {pyspark_version()}"


def _java() -> str:
    java = find_java()
    return f"Java {java.major} ({java.home}, by {java.origin})"


def _lake(lake: Path, ducklake: str | None) -> str:
    make_lake(lake)
    EmbeddedLake(lake, ducklake).check_open(writes=True)
    return f"{lake.resolve()} can be written to"


def _jars(properties: Mapping[str, str]) -> str:
    java = prepare_environment()
    paths = jars.find_jars(more=jars.bundles(properties))
    archive = class_data.Archive.of(jars.cache_folder(), java, paths, Path(os.environ["SPARK_HOME"]))
    classes = (
        "" if archive is None else "; archive of classes: " + ("there" if archive.file() else "not yet made")
    )
    return f"{len(paths)} jars in {paths[0].parent}{classes}"


def _catalog(lake: Path, properties: Mapping[str, str]) -> str:
    spark = open_session(lake, properties=properties)
    names = spark.sql("show namespaces").count()
    return f"opens; {counted(names, 'namespace')}"


def _store(uri: str, properties: Mapping[str, str]) -> str:
    options = options_at(uri, properties)
    if options is None:
        return f"{uri}: left to Java, as tasks do not know all of its settings"
    if properties.get("type") == "rest" and not any("key" in name or "token" in name for name in options):
        return f"{uri}: the catalog may hand out the keys"
    return _probe(uri, options)


def _probe(uri: str, options: Mapping[str, str]) -> str:
    """Write a file at the URI, and delete it."""
    probe = f"{uri}/driftline-doctor-{uuid4().hex}"
    system, path = filesystem(probe, options)
    with explaining(uri, options):
        with system.open_output_stream(path) as file:
            file.write(b"")
        delete_file(probe, NEW, options)
    return f"{uri} can be written to"


def _located(location: Location) -> str:
    if not location.exists():
        return f"{location.shown} is yet to be made"
    return f"{location.shown} opens; {counted(len(location.tables()), 'table')}"
