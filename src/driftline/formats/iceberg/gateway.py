"""Iceberg's Java classes through py4j: small helpers, and explanations of their errors."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.schema.schema_json import from_json, to_json
from driftline.core.schema.types import Schema
from driftline.errors import DataError, SetupError
from driftline.formats.base import CommitConflict
from driftline.runtime.failure import ASK_DOCTOR, is_away, java_exception
from driftline.runtime.spark_version import java_type, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_CONFLICTS = (
    "CommitFailedException",
    "PendingUpdateFailedException",
    "AlreadyExistsException",
    "ValidationException",
    "NoSuchTableException",
)
# How a Hive Metastore refuses a change, or what does not fit it, such as a name; its words for types.
_REFUSALS = (
    "org.apache.hadoop.hive.metastore.api.InvalidOperationException",
    "org.apache.hadoop.hive.metastore.api.InvalidObjectException",
)
_TYPES = "types incompatible with the existing columns"
_NAMES = re.compile(r"Error: .* expected at the position \d+ of '")
_ANY_TYPE = (
    "set hive.metastore.disallow.incompatible.col.type.changes to false in its hive-site.xml: "
    "a struct that gets a field is a new type to it, and Iceberg checks types by itself"
)
_WORDS = (
    "of a struct inside another or a list, a Hive Metastore takes only letters, digits, `_`, `.`, `$` and spaces in "
    'the names of fields: a map may have any key, `--hint "PATH=map<string, long>"`; `--exclude PATH` leaves it out'
)


def schema_of(jvm: Any, schema: Any) -> Schema:
    """Return a schema of Java's."""
    # As one text: a call for each field takes seconds where there are thousands.
    return from_json(json.loads(java_type(jvm, "org.apache.iceberg.SchemaParser").toJson(schema)))


def metadata_json(jvm: Any, metadata: Any) -> Any:
    """Return a Java `TableMetadata` in JSON form (Iceberg spec, "Table Metadata")."""
    return json.loads(java_type(jvm, "org.apache.iceberg.TableMetadataParser").toJson(metadata))


def java_schema(jvm: Any, schema: Schema) -> Any:
    """Return a schema as Java's."""
    return java_type(jvm, "org.apache.iceberg.SchemaParser").fromJson(json.dumps(to_json(schema)))


def items(java: Any) -> list[Any]:
    """Return the items of a Java collection."""
    out, iterator = [], java.iterator()
    while iterator.hasNext():
        out.append(iterator.next())
    return out


def text_map(jvm: Any, java: Any) -> dict[str, str]:
    """A Java map of texts, in one call: to go through it takes four for each entry, and fifty for its end."""
    return dict(json_of(jvm, java))


def json_of(jvm: Any, java: Any) -> Any:
    """Return a Java map or collection of texts or numbers as Python's, in one call."""
    return json.loads(_mapper(jvm).writeValueAsString(java))


@lru_cache(maxsize=64)
def _mapper(jvm: Any) -> Any:
    """Return Java's JSON mapper, cached because each new one analyses its types again."""
    return java_type(jvm, "com.fasterxml.jackson.databind.ObjectMapper")()


def session_conf(spark: SparkSession) -> dict[str, str]:
    """Return all settings of a session, in one call: ``spark.conf.getAll`` takes four for each."""
    return text_map(spark._jvm, settings_of(spark))


def strings(gateway: Any, parts: list[str]) -> Any:
    """Return a Java array of strings."""
    array = gateway.new_array(java_type(gateway.jvm, "java.lang.String"), len(parts))
    for i, part in enumerate(parts):
        array[i] = part
    return array


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise all errors of Java as Py4JJavaError.

    PySpark makes some its own, such as an IllegalArgumentException, which a catalog's client also raises for
    an answer that it does not understand: one to a commit that took place, perhaps.
    """
    try:
        yield
    except Exception as error:
        java = java_exception(error)
        if java is None or isinstance(error, Py4JJavaError):
            raise
        raise Py4JJavaError("Java:", java) from error


def java_class(error: Py4JJavaError) -> str:
    """Return the full name of the class of Java's error."""
    return str(error.java_exception.getClass().getName())


def short(error: BaseException) -> str:
    """Return the first line of an error's message; of one without a message, its Java class."""
    if isinstance(error, Py4JJavaError):
        message = error.java_exception.getMessage() or java_class(error)
        return str(message).split("\n", 1)[0]
    return str(error).split("\n", 1)[0]


def failure(error: Py4JJavaError, name: str) -> Exception:
    """Return the error as ours: a conflict, a catalog that does not answer, or the table's refusal."""
    if refusal := hives_refusal(error):
        hint = _ANY_TYPE if _TYPES in refusal else None
        return DataError(f"table {name}: its Hive Metastore refuses the change: {refusal}", hint)
    if any(conflict in java_class(error) for conflict in _CONFLICTS):
        return CommitConflict(f"{name}: {short(error)}")
    if is_away(java_class(error)):
        return SetupError(f"the catalog does not respond for table {name}: {short(error)}", ASK_DOCTOR)
    hint = _WORDS if _NAMES.match(short(error)) else None
    return DataError(f"table {name} refused the batch: {short(error)}", hint)


def hives_refusal(error: Py4JJavaError) -> str | None:
    """Return how a Hive Metastore refused a change; Iceberg calls that an unknown outcome, or a conflict."""
    cause = error.java_exception.getCause()
    # The server sends these before it changes anything. After any other error the batch's files stay.
    if cause is None or str(cause.getClass().getName()) not in _REFUSALS:
        return None
    return " ".join(str(cause.getMessage()).split())
