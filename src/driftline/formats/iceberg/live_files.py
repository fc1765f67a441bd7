"""The files of a snapshot, each with its deletes, from manifests that are parsed once in a process.

Java parses all manifests of a table for each scan, and takes some calls to hand over each file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from threading import Lock
from typing import Any, TypeAlias

from driftline.formats.iceberg.manifests import DELETED, avro_records

# As Iceberg's JSON has a content file, with its sequence numbers and its manifest
ContentFile: TypeAlias = dict[str, Any]
DATA_SEQUENCE, FILE_SEQUENCE, MANIFEST = "data-sequence-number", "file-sequence-number", "manifest"
_ADDED = 1  # a status of entries
_CONTENTS = ("data", "position-deletes", "equality-deletes")
_NUMBERS = ("column-sizes", "value-counts", "null-value-counts")
_BOUNDS = ("lower-bounds", "upper-bounds")
_CACHED = 16 * 2**20  # bytes of manifests: a file takes some 600 there, and thrice as many here


def live_files(manifest_list: str, ids: Sequence[int]) -> list[ContentFile] | None:
    """Return the data files of a snapshot as Iceberg's JSON has them, each with its ``deletes``.

    Returns None where Java has to plan them: manifests that are not on this machine, encrypted or unreadable
    ones, and deletes that may be for several files.

    Args:
        manifest_list: of the snapshot.
        ids: The columns whose statistics the files have.
    """
    try:
        listed = [m for m in avro_records(manifest_list) if _has_files(m)]
        if any(m.get("key_metadata") for m in listed):
            return None
        files = [file for m in listed for file in _files_of(m, tuple(ids))]
    # Whatever a manifest lacks, and however that shows, Java either knows better or says it.
    except Exception:
        return None
    return _with_deletes(files)


def _has_files(manifest: Mapping[str, Any]) -> bool:
    counts = (manifest.get(f"{name}_files_count") for name in ("added", "existing"))
    return any(count is None or count for count in counts)


def _with_deletes(files: Iterable[ContentFile]) -> list[ContentFile] | None:
    """Return the data files with their deletes; None if other deletes than those of one file are there."""
    data_files, vectors, positions = [], dict[str, ContentFile](), dict[str, list[ContentFile]]()
    for file in files:
        referenced = file.get("referenced-data-file")
        if file["content"] == "data":
            data_files.append(file)
        elif file["content"] != "position-deletes" or referenced is None:
            return None
        elif file["file-format"] == "puffin":
            if referenced in vectors:
                return None
            vectors[referenced] = file
        else:
            positions.setdefault(referenced, []).append(file)
    planned = []
    for file in data_files:
        since, vector = file[DATA_SEQUENCE], vectors.get(file["file-path"])
        if vector is not None and vector[DATA_SEQUENCE] < since:
            return None
        # A vector has what position deletes of before have.
        own = positions.get(file["file-path"], ()) if vector is None else [vector]
        planned.append({**file, "deletes": [delete for delete in own if delete[DATA_SEQUENCE] >= since]})
    return planned


class _ParsedManifests:
    """Files by manifest, of the least recently used no more than so many bytes of manifests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._parsed: OrderedDict[Any, tuple[list[ContentFile], int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> list[ContentFile] | None:
        """The files of a manifest, if they are cached."""
        with self._lock:
            if key not in self._parsed:
                return None
            self._parsed.move_to_end(key)
            return self._parsed[key][0]

    def put(self, key: Any, files: list[ContentFile], size: int) -> None:
        """Keep the files of a manifest of this size."""
        with self._lock:
            if key in self._parsed or size > self._most:
                return
            self._parsed[key] = files, size
            self._size += size
            while self._size > self._most:
                self._size -= self._parsed.popitem(last=False)[1][1]


_parsed = _ParsedManifests(_CACHED)


def _files_of(manifest: Mapping[str, Any], ids: tuple[int, ...]) -> list[ContentFile]:
    """Return the files of a manifest, as its list has it. Manifests never change."""
    path, first_row_id = manifest["manifest_path"], manifest.get("first_row_id")
    key = path, manifest["manifest_length"], manifest["added_snapshot_id"], first_row_id, ids
    files = _parsed.get(key)
    if files is None:
        files = list(_with_row_ids(_parse(manifest, ids), first_row_id))
        _parsed.put(key, files, manifest["manifest_length"])
    return files


def _parse(manifest: Mapping[str, Any], ids: tuple[int, ...]) -> Iterator[ContentFile]:
    path, spec = str(manifest["manifest_path"]), manifest["partition_spec_id"]
    for entry in avro_records(path):
        if entry["status"] != DELETED:
            numbers = {
                DATA_SEQUENCE: _sequence(entry, "sequence_number", manifest),
                FILE_SEQUENCE: _sequence(entry, "file_sequence_number", manifest),
            }
            yield {**_as_json(entry["data_file"], ids), **numbers, "spec-id": spec, MANIFEST: path}


def _sequence(entry: Mapping[str, Any], name: str, manifest: Mapping[str, Any]) -> int:
    """Return a sequence number of an entry, which it has of its manifest until another one lists it."""
    number, inherited = entry.get(name), manifest.get("sequence_number", 0)
    if number is None and (entry["status"] == _ADDED or inherited == 0):
        return int(inherited)
    return int(number)  # type: ignore[arg-type]  # TypeError without one


def _with_row_ids(files: Iterable[ContentFile], first: int | None) -> Iterator[ContentFile]:
    """Yield the files with the ids of their first rows, which files without one have of their manifest."""
    for file in files:
        if first is None:
            file.pop("first-row-id", None)
        elif file["content"] == "data" and "first-row-id" not in file:
            file["first-row-id"] = first
            first += file["record-count"]
        yield file


def _as_json(file: Mapping[str, Any], ids: tuple[int, ...]) -> ContentFile:
    json: ContentFile = {
        "content": _CONTENTS[file.get("content") or 0],
        "file-path": file["file_path"],
        "file-format": file["file_format"].lower(),
        "partition": [_partition_value(value) for value in (file["partition"] or {}).values()],
        "record-count": file["record_count"],
        "file-size-in-bytes": file["file_size_in_bytes"],
    }
    for name in ("first-row-id", "referenced-data-file", "content-offset", "content-size-in-bytes"):
        if (value := file.get(name.replace("-", "_"))) is not None:
            json[name] = value
    if file.get("key_metadata"):
        json["key-metadata"] = file["key_metadata"].hex()
    for name in (*_NUMBERS, *_BOUNDS):
        pairs = [pair for pair in file.get(name.replace("-", "_")) or () if pair["key"] in ids]
        numbers = [pair["value"].hex() if name in _BOUNDS else pair["value"] for pair in pairs]
        json[name] = {"keys": [pair["key"] for pair in pairs], "values": numbers}
    return json


def _partition_value(value: Any) -> Any:
    """Return a value of a partition as JSON has it. Raises TypeError for one that only Java spells."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if type(value) is date:
        return value.isoformat()
    raise TypeError(type(value))
