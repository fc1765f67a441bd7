"""Tells which data files may be written anew: those of which another file could have all values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.core.schema.types import List, Map, Struct, Type
from driftline.keys.stored import StoredRows, field_id, leaf_paths
from driftline.runtime.stores import at_once


def are_readable(files: Mapping[str, Collection[int]], stored: StoredRows) -> bool:
    """True if `why_unreadable` has no reason for any file; ``files``: each with its sources."""
    return not any(at_once(lambda path: why_unreadable(path, stored, files[path]), files))


def why_each_immovable(
    files: Mapping[str, Collection[int]], stored: StoredRows, reserved: Collection[int]
) -> Sequence[str | None]:
    """Return what `why_immovable` does for each file; ``files``: each with its sources."""
    return at_once(lambda path: why_immovable(path, stored, reserved, files[path]), files)


def why_immovable(
    path: str, stored: StoredRows, reserved: Collection[int], sources: Collection[int] = ()
) -> str | None:
    """Return the reason for which another file could not have all of a file's values; None if it could.

    Args:
        path: of the file.
        stored: reads the table's columns.
        reserved: the ids of columns that the format has in files for itself.
        sources: the ids of columns by whose values the file was put into its partition.
    """
    schema = _schema_of(path, stored, sources)
    if isinstance(schema, str):
        return schema
    known_ids = {*_ids(stored.struct), *reserved}
    dropped = {id_: type_ for id_, type_ in _stored_fields(schema) if id_ not in known_ids}
    if dropped and not _is_empty(path, stored, schema, dropped):
        return "it has values of dropped columns, which undo may bring back"
    return None


def why_unreadable(path: str, stored: StoredRows, sources: Collection[int] = ()) -> str | None:
    """Return the reason for which a file alone does not tell the values of the table's columns.

    The parameters are those of `why_immovable`. Returns None if the file does.
    """
    schema = _schema_of(path, stored, sources)
    return schema if isinstance(schema, str) else None


def _schema_of(path: str, stored: StoredRows, sources: Collection[int]) -> pa.Schema | str:
    """Return the schema of a file, or the reason for which the file is unreadable."""
    try:
        with stored.open(path) as stream:
            schema = pq.read_schema(stream)
    except FileNotFoundError:
        return "the file is gone"
    except pa.ArrowInvalid:
        return "the file is damaged"
    if not stored.takes(schema):
        return "its values are in another type than the table's"
    if any(field_id(column) is None for column in schema):
        return "its columns have no ids"
    if not set(sources) <= {id_ for id_, _ in _stored_fields(schema)}:
        return "only its partition has the value of a column"
    return schema


def _is_empty(path: str, stored: StoredRows, schema: pa.Schema, columns: Mapping[int, pa.DataType]) -> bool:
    """True if these columns of a file have no value for certain."""
    filled, of_structs = stored.filled(path), leaf_paths(schema)
    # Of lists and maps, and of what is in them, the metrics do not tell.
    return all(
        _has_fields(type_) or (id_ in of_structs and not pa.types.is_nested(type_) and id_ not in filled)
        for id_, type_ in columns.items()
    )


def _ids(type_: Type) -> Iterator[int]:
    """The ids of the fields of structs in a type."""
    match type_:
        case Struct():
            for each in type_.fields:
                yield each.id
                yield from _ids(each.type)
        case List():
            yield from _ids(type_.element)
        case Map():
            yield from _ids(type_.key)
            yield from _ids(type_.value)


def _stored_fields(stored: pa.Schema | pa.DataType) -> Iterator[tuple[int, pa.DataType]]:
    """The ids of the fields of structs in a file, with their types."""
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if isinstance(stored, pa.Schema) or pa.types.is_struct(stored):
        for column in stored:
            id_ = field_id(column)
            if id_ is not None:
                yield id_, column.type
            yield from _stored_fields(column.type)
    elif pa.types.is_map(stored):
        yield from _stored_fields(stored.key_type)
        yield from _stored_fields(stored.item_type)
    elif pa.types.is_list(stored) or pa.types.is_large_list(stored):
        yield from _stored_fields(stored.value_type)


def _has_fields(type_: pa.DataType) -> bool:
    """True for a struct whose fields have ids, which are judged by themselves: a VARIANT is none."""
    is_struct = pa.types.is_struct(type_) and type_.num_fields > 0
    return bool(is_struct and all(field_id(each) is not None for each in type_))
