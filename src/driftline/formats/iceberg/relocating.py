"""Relocates an embedded lake whose tables name files at another place, and copies a table to another lake.

Iceberg's metadata has absolute paths. Files with such paths (metadata, manifest lists, manifests, position
deletes) are rewritten next to the old ones, under names that follow from these. Then one transaction of the
catalog switches to them. Until then the lake is as it was, and a second run writes the same files again. A
copy in another lake has the names of before, and is seen once that lake's catalog has registered it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq

from driftline.core.history.entries import LEDGER
from driftline.errors import DataError, SetupError
from driftline.formats.home import DisplacedLake, Home, Relocation, displaced, is_same
from driftline.formats.iceberg.manifests import local_path
from driftline.formats.iceberg.seen import notes_of
from driftline.runtime.disk import Bounds, delete_file, replace_file, sync
from driftline.write.positions import ICEBERG_IDS, with_data_files

CATALOG = "catalog.db"
_BUSY = 20.0  # seconds to wait for a process that writes
_TABLES = "select table_namespace, table_name, metadata_location from iceberg_tables"


@contextmanager
def catalog_of(lake: Path, *, new: bool = False) -> Iterator[sqlite3.Connection]:
    """The lake's catalog; a ``new`` one if there is none. Raises sqlite3.Error."""
    # Not read-only: the journal of a process that died is rolled back before anything is read.
    uri = f"file:{quote(str(lake / CATALOG))}?mode={'rwc' if new else 'rw'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None)) as database:
        yield database


@contextmanager
def catalog_errors(lake: Path) -> Iterator[None]:
    """Raise SQLite's errors of the lake's catalog as SetupError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise SetupError(
            f"{lake / CATALOG}, the catalog of the lake, cannot be used: {error}",
            "once its disk has room and no other process holds it, run the command again; restore a broken "
            "one from a backup",
        ) from error


def displaced_lake(lake: Path) -> DisplacedLake | None:
    """The lake in a folder, if it was made at another place; None if it was made there, or is yet to be made.

    One made by a version that recorded no home is known by where its tables lie.
    """
    folder = lake.resolve()
    try:
        with catalog_of(lake) as database:
            home = recorded(database)
            elsewhere = _home_of_tables(database, folder) if home is None else None
    except sqlite3.Error:  # there is none, or it does not open: Iceberg tells why
        return None
    # Most lakes lie where they were made, and each commit asks.
    if home is not None and home.path == str(folder / CATALOG):
        return None
    if home is not None:
        return displaced(str(folder), str(folder / CATALOG), home, _id_at)
    if elsewhere is None or is_same(str(folder / CATALOG), str(elsewhere / CATALOG)):
        return None
    return DisplacedLake(str(folder), str(elsewhere), (elsewhere / CATALOG).is_file())


def record_home(lake: Path) -> None:
    """Record this place as the lake's home, unless one is recorded, or its tables lie in another lake.

    A new lake's catalog begins with it, before a table can lie elsewhere.
    """
    if displaced_lake(lake) is not None:
        return
    # A lake may allow no more than to be read.
    with suppress(sqlite3.Error), catalog_of(lake, new=True) as database:
        if recorded(database) is None:
            database.execute("begin immediate")
            if recorded(database) is None:
                set_home(database, Home.new(str(lake.resolve() / CATALOG)))
            database.execute("commit")


def set_home(database: sqlite3.Connection, home: Home) -> None:
    """Make this the lake's home, in the transaction of a catalog."""
    database.execute("create table if not exists driftline_lake (path text not null, id text not null)")
    database.execute("delete from driftline_lake")
    database.execute("insert into driftline_lake values (?, ?)", (home.path, home.id))


def recorded(database: sqlite3.Connection) -> Home | None:
    """The lake's home, as its catalog has it; None if a version made it that recorded none."""
    try:
        row = database.execute("select path, id from driftline_lake").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return None
    return None if row is None else Home(*row)


def _id_at(path: str) -> str | None:
    try:
        with catalog_of(Path(path).parent) as database:
            home = recorded(database)
    except sqlite3.Error:
        return None
    return None if home is None else home.id


def _home_of_tables(database: sqlite3.Connection, lake: Path) -> Path | None:
    """The folder of another lake in which tables of this one lie; None if they lie in its folder, or where a
    person has put them.
    """
    count, outer = 0, []
    for namespace, name, metadata in database.execute(_TABLES).fetchall():
        with suppress(ValueError):  # in a store
            file, parts = local_path(metadata), (*namespace.split("."), name)
            folder = file.parents[1]
            if folder.is_relative_to(lake) and file.is_file():
                count += 1
            else:
                outer.append((folder, parts))
    for folder, parts in outer:
        if folder.parts[-len(parts) :] == parts:  # as this catalog itself places tables
            return folder.parents[len(parts) - 1]
        if (containing := next((up for up in folder.parents if (up / CATALOG).is_file()), None)) is not None:
            return containing
    if outer and not count:
        folder, parts = outer[0]
        return folder.parents[min(len(parts), len(folder.parts) - 1) - 1]
    return None


_SCHEME = re.compile(r"^file:(//)?(?=/)")
_ID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
# Status of a manifest's entry; content of a file of deletes
_DELETED, _POSITIONS = 2, 1
# Avro is rewritten without logical types, so values of partitions come back as they were. Iceberg's own
# procedure reads a table at its old paths, which a moved lake has no longer.
_HEADER = "org.apache.avro.file.Header"
_META = {"avro.schema", "avro.codec"}

Record: TypeAlias = dict[str, Any]


def relocate(lake: Path, elsewhere: DisplacedLake, *, dry_run: bool) -> Relocation:
    """Make the lake in a folder whole, or a copy one of its own. ``dry_run``: write nothing.

    Raises DataError if it lacks a file that its tables name, SetupError if the disk does not take what is
    written.
    """
    folder = lake.resolve()
    paths = PathRewriter(elsewhere.home, str(folder), dry_run=dry_run)
    with catalog_errors(lake), catalog_of(lake) as database:
        rows = database.execute(
            "select table_namespace, table_name, metadata_location, iceberg_type from iceberg_tables"
        ).fetchall()
        # Others lie where a person has put them, and stay there.
        rows = [row for row in rows if paths.moved(row[2]) != row[2]]
        tables = {(namespace, name): location for namespace, name, location, _ in rows}
        for *_, location, kind in rows:
            paths.metadata_file(location) if kind == "VIEW" else paths.table(location)
        relocation = Relocation(
            str(folder),
            elsewhere.home,
            elsewhere.is_copy,
            tuple(sorted(".".join(name) for name in tables)),
            len(paths.files),
            is_done=not dry_run,
        )
        if dry_run:
            return relocation
        sync(map(local_path, paths.files.values()), within=folder)
        home = recorded(database)
        database.execute("begin immediate")
        for (namespace, name), location in tables.items():
            # One that has changed meanwhile was written by nobody who knows that the lake lies elsewhere.
            database.execute(
                "update iceberg_tables set metadata_location = ?, previous_metadata_location = null "
                "where table_namespace = ? and table_name = ? and metadata_location = ?",
                (paths.now(location), namespace, name, location),
            )
        _move_namespaces(database, paths.now)
        new_home = Home.new(str(folder / CATALOG))
        set_home(database, new_home if home is None or elsewhere.is_copy else Home(new_home.path, home.id))
        database.execute("commit")
    # A journal that came back would name what is deleted now
    sync([folder / CATALOG], within=folder)
    for path in paths.files:
        # The lake is whole by now, and no metadata name a file that stays
        with suppress(OSError):
            delete_file(local_path(paths.moved(path)), Bounds((str(folder),)))
    return relocation


def _move_namespaces(database: Any, now: Callable[[str], str]) -> None:
    """Give the properties of namespaces that name places their paths of ``now``."""
    table = "iceberg_namespace_properties"
    for (value,) in database.execute(f"select distinct property_value from {table}").fetchall():
        if value is not None and now(value) != value:
            database.execute(
                f"update {table} set property_value = ? where property_value = ?", (now(value), value)
            )


class PathRewriter:
    """Rewrites metadata files of tables, with ``new`` in place of a folder ``old`` in their paths.

    ``files``: the new path of each rewritten file, by its old path.
    """

    def __init__(self, old: str, new: str, *, dry_run: bool) -> None:
        self.files: dict[str, str] = {}
        self._old, self._new, self._dry_run = old, new, dry_run
        self._sizes: dict[str, int] = {}
        self._present: set[str] = set()

    def moved(self, path: str) -> str:
        """The path at which a file lies now, if it lay in the old folder."""
        match = _SCHEME.match(path)
        scheme = match[0] if match else ""
        place = path[len(scheme) :]
        if place != self._old and not place.startswith(f"{self._old}/"):
            return path
        return f"{scheme}{self._new}{place[len(self._old) :]}"

    def now(self, path: str) -> str:
        """The path that takes the place of another one in metadata."""
        return self.files.get(path) or self.moved(path)

    def table(self, location: str) -> None:
        """Rewrite the metadata of a table, with all files that it names."""
        metadata = self._json(location)
        for snapshot in metadata.get("snapshots", ()):
            if "manifest-list" in snapshot:
                self._manifest_list(snapshot["manifest-list"])
        for version in metadata.get("metadata-log", ()):
            if self._place(version["metadata-file"]).is_file():  # else it was cleaned away
                self.metadata_file(version["metadata-file"])
        self.metadata_file(location)

    def metadata_file(self, location: str) -> None:
        """Rewrite one metadata file."""
        if location in self.files:
            return
        content = json.dumps(self._renamed(self._json(location))).encode()
        self._write(location, gzip.compress(content) if ".gz" in Path(location).suffixes else content)

    def _json(self, location: str) -> Any:
        content = self._content(location)
        return json.loads(gzip.decompress(content) if ".gz" in Path(location).suffixes else content)

    def _renamed(self, value: Any) -> Any:
        """A value of JSON with the paths of now: in properties and summaries of snapshots too."""
        match value:
            case dict():
                return {key: self._renamed(item) for key, item in value.items()}
            case list():
                return [self._renamed(item) for item in value]
            case str():
                return self.now(value)
            case _:
                return value

    def _manifest_list(self, path: str) -> None:
        if path not in self.files:
            self._write(path, _avro_with(self._content(path), self._listed))

    def _listed(self, manifest: Record) -> Record:
        path = manifest["manifest_path"]
        if path not in self.files:
            self._write(path, _avro_with(self._content(path), self._entry))
        return {**manifest, "manifest_path": self.now(path), "manifest_length": self._sizes[path]}

    def _entry(self, entry: Record) -> Record:
        file = entry["data_file"]
        path, is_live = file["file_path"], entry["status"] != _DELETED
        if is_live:
            self._must_be_there(path)
        if file.get("content", 0) == _POSITIONS:
            if is_live and path not in self.files:
                self._write(path, self._positions(path, str(file["file_format"]).upper()))
            file = {**file, **self._of_positions(file)}
            if path in self.files:
                # The pages are others; what is said of their places no longer holds.
                file |= {"file_size_in_bytes": self._sizes[path], "column_sizes": None, "split_offsets": None}
        return {**entry, "data_file": {**file, "file_path": self.now(path)}}

    def _of_positions(self, file: Record) -> Record:
        """The references to data files in the entry of a file of deleted positions."""
        out: Record = {}
        if file.get("referenced_data_file") is not None:
            out["referenced_data_file"] = self.now(file["referenced_data_file"])
        for name in ("lower_bounds", "upper_bounds"):
            bounds = file.get(name) or ()
            out[name] = [
                {**bound, "value": self.now(bound["value"].decode()).encode()}
                if bound["key"] == ICEBERG_IDS[0]
                else bound
                for bound in bounds
                # A path cut short within the old folder bounds no path in the new one.
                if bound["key"] != ICEBERG_IDS[0] or len(bound["value"]) > len(self._old.encode())
            ] or None
        return out

    def _positions(self, path: str, kind: str) -> bytes:
        """The content of a file of deleted positions, with the paths of now. Raises DataError."""
        content = self._content(path)
        if kind == "PUFFIN":
            return _puffin_with(content, self.now)
        if kind != "PARQUET":
            raise DataError(
                f"{path}: the paths in a file of deletes in {kind} cannot be written anew",
                "compact the table where the lake was made first: CALL … rewrite_position_delete_files",
            )
        stream = io.BytesIO()
        with_data_files(pq.read_table(io.BytesIO(content)), self.now, stream)
        return stream.getvalue()

    def _must_be_there(self, path: str) -> None:
        if path in self._present:
            return
        self._present.add(path)
        place = self.moved(path)
        with suppress(ValueError):  # in a store, where it stays
            if not local_path(place).is_file():
                raise _missing(place)

    def _content(self, path: str) -> bytes:
        place = self._place(path)
        try:
            return place.read_bytes()
        except FileNotFoundError as error:
            raise _missing(str(place)) from error

    def _place(self, path: str) -> Path:
        """The place of a file that names others. Raises DataError for one that is not on this machine."""
        try:
            return local_path(self.moved(path))
        except ValueError as error:
            raise DataError(
                f"{path} names files of the lake, and lies in a store, where it cannot be written anew",
                "keep the metadata of the table and its deletes beside its data",
            ) from error

    def _write(self, path: str, content: bytes) -> None:
        target = self._target(path)
        if not self._dry_run:
            self._put(target, content)
        self.files[path], self._sizes[path] = target, len(content)

    def _put(self, target: str, content: bytes) -> None:
        replace_file(local_path(target), content, durable=False)

    def _target(self, path: str) -> str:
        """The path of a file's successor, next to it."""
        folder, _, name = self.moved(path).rpartition("/")
        return f"{folder}/{self._successor(name)}"

    def _successor(self, name: str) -> str:
        """Name the successor of a file: its ids are new, the form is the same."""

        # New names follow from the old ones and the new place, so a run that died is repeated and writes the
        # same files.
        def other(match: re.Match[str]) -> str:
            """Another id, which follows from this one and the new folder."""
            digits = iter(hashlib.sha256(f"{self._new} {match[0]}".encode()).hexdigest())
            return "".join(letter if letter == "-" else next(digits) for letter in match[0])

        successor = _ID.sub(other, name)
        return (
            successor if successor != name else f"{hashlib.sha256(self._new.encode()).hexdigest()[:8]}-{name}"
        )


def _missing(path: str) -> DataError:
    return DataError(
        f"{path} is missing, and a table of the lake names it; nothing was changed",
        "copy the file from the lake that this is a copy of, or from a backup, and relocate again",
    )


_FOLDERS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


class TableCopy(PathRewriter):
    """Copies a table of an embedded lake to another ``location``: metadata with the paths that files have
    there, and other files as they are.

    ``copied``: the files that are copied as they are, by their paths there. ``put``: writes a file there;
    None: it is a dry run.
    """

    def __init__(
        self, name: str, metadata: Mapping[str, Any], location: str, put: Callable[[str, bytes], None] | None
    ) -> None:
        folder = _SCHEME.sub("", metadata["location"]).rstrip("/")
        super().__init__(folder, location.rstrip("/"), dry_run=put is None)
        self.copied: dict[str, Path] = {}
        self._name, self._metadata, self._write_file = name, metadata, put

    def moved(self, path: str) -> str:
        """The path that a file will have, if it lies in the table's folder."""
        place = _SCHEME.sub("", path)
        if place != self._old and not place.startswith(f"{self._old}/"):
            return path
        return f"{self._new}{place[len(self._old) :]}"

    def table(self, location: str) -> None:
        """Write the metadata of the table, and find all files that it names.

        Raises DataError where one is missing or lies outside the table's folder.
        """
        properties = self._metadata.get("properties", {})
        for key in (key for key in _FOLDERS if key in properties):
            if self.moved(properties[key]) == properties[key]:
                raise self._outside(f"{key} = {properties[key]}")
        for kind in ("statistics", "partition-statistics"):
            for statistics in self._metadata.get(kind, ()):
                self._must_be_there(statistics["statistics-path"])
        ledger = properties.get(LEDGER)
        if ledger is not None and self._place(ledger).is_file():  # else the table begins another
            self._must_be_there(ledger)
        for note in filter(lambda path: self._place(path).is_file(), notes_of(self._metadata)):
            self._must_be_there(note)
        super().table(location)
        for path in self.files.values():
            self.copied.pop(path, None)

    def _must_be_there(self, path: str) -> None:
        place = self._place(path)
        if not place.is_file():
            raise _missing(str(place))
        self.copied[self.moved(path)] = place

    def _place(self, path: str) -> Path:
        """The place where a file lies now. Raises DataError for one outside the table's folder."""
        if self.moved(path) == path:
            raise self._outside(path)
        return local_path(path)

    def _target(self, path: str) -> str:
        return self.moved(path)

    def _put(self, target: str, content: bytes) -> None:
        assert self._write_file is not None
        self._write_file(target, content)

    def _outside(self, path: str) -> DataError:
        return DataError(
            f"{self._name}: {path} lies outside {self._old}, the table's folder, which alone is copied",
            "unset such a property, bring the files in by Iceberg's rewrite_data_files, and expire the snapshots before",
        )


def _avro_with(content: bytes, change: Callable[[Record], Record]) -> bytes:
    """An Avro file with its records changed: its schema, ids of fields included, and settings stay.

    Records are read without logical types, so that a partition's values come back as they were.
    """
    stream = io.BytesIO(content)
    header: Any = fastavro.schemaless_reader(stream, _header(), None)
    schema = header["meta"]["avro.schema"]
    plain = json.dumps(_without_logical_types(json.loads(schema)))
    records: Iterator[Any] = fastavro.reader(io.BytesIO(_headed(header, plain.encode()) + stream.read()))
    settings = {key: value.decode() for key, value in header["meta"].items() if key not in _META}
    codec = header["meta"].get("avro.codec", b"null").decode()
    out = io.BytesIO()
    fastavro.writer(out, json.loads(plain), map(change, records), codec, metadata=settings)
    out.seek(0)
    written: Any = fastavro.schemaless_reader(out, _header(), None)
    return _headed(written, schema) + out.read()


def _header() -> Any:
    return {
        "type": "record",
        "name": _HEADER,
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }


def _headed(header: Mapping[str, Any], schema: bytes) -> bytes:
    """The header of an Avro file, with this schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _header(), {**header, "meta": {**header["meta"], "avro.schema": schema}})
    return out.getvalue()


def _without_logical_types(schema: Any) -> Any:
    match schema:
        case dict():
            return {key: _without_logical_types(part) for key, part in schema.items() if key != "logicalType"}
        case list():
            return [_without_logical_types(part) for part in schema]
        case _:
            return schema


def _puffin_with(content: bytes, now: Callable[[str], str]) -> bytes:
    """A Puffin file with the paths of ``now`` in its footer; its blobs stay where they are."""
    magic, size = content[-4:], struct.unpack("<i", content[-12:-8])[0]
    if content[-8:-4] != b"\0\0\0\0":
        raise DataError("a Puffin file with a packed footer cannot be written anew")
    begin = len(content) - 12 - size
    footer = json.loads(content[begin:-12])
    for blob in footer["blobs"]:
        properties = blob.get("properties", {})
        if "referenced-data-file" in properties:
            properties["referenced-data-file"] = now(properties["referenced-data-file"])
    payload = json.dumps(footer).encode()
    return content[:begin] + payload + struct.pack("<ii", len(payload), 0) + magic
