"""`clean` of a lake in a folder, which reads metadata without Spark: what it deletes is what Spark finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from driftline import Lake, UsageError
from driftline.errors import NeedsSpark
from driftline.formats.iceberg import manifests, orphans
from driftline.formats.lakes import Orphan
from driftline.formats.open import EmbeddedLake

UNIQUE = count(1)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.open(tmp_path / "lake")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@contextmanager
def pyiceberg(place: Path) -> Iterator[SqlCatalog]:
    """The lake as pyiceberg has it: another writer."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=str(place))
    yield catalog
    catalog.engine.dispose()


def by_python(place: Path) -> list[Orphan]:
    return EmbeddedLake(place).clean(0, dry_run=True)


def by_spark(lake: Lake) -> list[Orphan]:
    return lake.format.clean(0, dry_run=True)


def files(place: Path) -> set[str]:
    """The files of the lake, without its catalog."""
    return {str(p) for p in place.rglob("*") if p.is_file() and not p.name.startswith("catalog.db")}


def data_name(ending: str = "parquet") -> str:
    """A name that driftline's tasks give a file."""
    return f"{next(UNIQUE):032x}-00000-0-00001.{ending}"


def planted(path: Path, *, source: Path | None = None) -> str:
    """A file that no snapshot has, as a batch that died leaves one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if source is None:
        path.write_bytes(b"x")
    else:
        shutil.copy(source, path)
    path.with_name(f".{path.name}.crc").write_bytes(b"x")
    return str(path)


def with_refs(lake: Lake) -> None:
    """A table whose first files only a tag and a branch have: main's are others, all older snapshots ended."""
    table = lake.table("s.refs")
    for n in range(3):
        table.ingest([{"id": n, "name": "x"}])
    lake.sql("alter table lake.s.refs create tag first as of version " + snapshot(lake, "s.refs", 0))
    lake.sql("alter table lake.s.refs create branch second as of version " + snapshot(lake, "s.refs", 1))
    lake.sql("delete from lake.s.refs where id < 2")
    lake.sql("insert into lake.s.refs.branch_second values (7, 'of Spark')")
    lake.sql("call lake.system.expire_snapshots(table => 's.refs', older_than => now(), retain_last => 1)")
    lake.sql("call lake.system.compute_table_stats('s.refs')")


def snapshot(lake: Lake, name: str, index: int) -> str:
    rows = lake.sql(f"select snapshot_id from lake.{name}.snapshots order by committed_at").collect()
    return str(rows[index].snapshot_id)


def registered_twice(lake: Lake) -> None:
    """A table by two names, with one id and one folder, each with a file that the other has not."""
    lake.table("s.one").ingest([{"id": 1}])
    (row,) = lake.sql(
        "select file from lake.s.one.metadata_log_entries order by timestamp desc limit 1"
    ).collect()
    lake.sql(f"call lake.system.register_table('s.other', '{row.file}')")
    for number, name in enumerate(("s.one", "s.other")):
        lake.table(name).ingest([{"id": 2 + number}])


def with_deletes(lake: Lake) -> None:
    """A table with deletion vectors, and one with files of deleted positions, which Spark writes."""
    table = lake.table("s.vectors")
    table.ingest([{"id": i, "n": 0} for i in range(9)], settings={"key": "id"})
    table.ingest([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    lake.sql(
        "create table lake.s.positions (id bigint, k bigint) using iceberg partitioned by (k) tblproperties "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.table("s.positions").ingest([{"id": i, "k": i % 2} for i in range(8)])
    lake.sql("delete from lake.s.positions where id in (3, 4)")


def of_others(lake: Lake, place: Path) -> None:
    """A table that driftline, Spark and pyiceberg append to, whose files and metadata have folders of their own."""
    lake.sql(
        "create table lake.s.shared (id bigint) using iceberg tblproperties ("
        f"'write.data.path' = 'file:{place}/elsewhere/data', 'write.metadata.path' = '{place}/elsewhere/meta', "
        "'write.metadata.compression-codec' = 'gzip')"
    )
    lake.table("s.shared").ingest([{"id": 1}])
    lake.sql("insert into lake.s.shared values (2)")
    with pyiceberg(place) as catalog:
        table = catalog.load_table("s.shared")
        table.append(table.scan().to_arrow())


def litter(place: Path) -> set[str]:
    """Files that no snapshot has, wherever driftline writes some; returns those that are to be deleted."""
    data = place / "s/refs/data"
    real = next(iter(data.glob("*.parquet")))
    planted(data / "00000-0-foreign.parquet")  # of a writer that may be at work
    planted(place / "s/refs/metadata/snap-1-1-foreign.avro")
    return {
        planted(data / data_name(), source=real),
        planted(data / "deep" / data_name()),
        planted(data / data_name("puffin")),
        planted(data / f"driftline-{'a' * 32}" / "k=1" / "00000-1.parquet"),
        planted(place / f"s/positions/data/k=1/{data_name()}"),
        planted(place / "elsewhere/data" / data_name()),
        planted(place / "elsewhere/meta" / f"_driftline-files-{'b' * 32}.bin"),
        planted(place / "s/refs/metadata" / f"_driftline-files-{'c' * 32}.bin"),
        planted(place / f"s/never/data/{'d' * 32}/0-{'e' * 32}-00001.parquet"),
    }


def rows(lake: Lake) -> list[tuple[int, ...]]:
    """The ids in each table, branch and tag."""
    places = (
        "s.refs", "s.refs version as of 'first'", "s.refs version as of 'second'", "s.vectors", "s.positions", "s.shared", "s.one", "s.other",
    )  # fmt: skip
    queries = (f"select id from lake.{place} order by id" for place in places)
    return [tuple(row.id for row in lake.sql(query).collect()) for query in queries]


@pytest.mark.nightly
def test_it_deletes_what_spark_finds_and_nothing_that_any_snapshot_has(lake: Lake, place: Path) -> None:
    with_refs(lake)
    with_deletes(lake)
    of_others(lake, place)
    registered_twice(lake)
    before, read = files(place), rows(lake)
    assert read[1:3] == [(0,), (0, 1, 7)]
    assert read[-2:] == [(1, 2), (1, 3)]
    assert by_python(place) == by_spark(lake) == []

    planned = litter(place)
    found = by_python(place)
    assert found == by_spark(lake)
    assert {file.path for file in found} == {f"file:{path}" for path in planned}
    assert EmbeddedLake(place).clean(3600, dry_run=False) == [], "all of them are young"

    assert lake.clean(0) == found
    foreign = {path for path in files(place) if "foreign" in path}
    assert files(place) == before | foreign
    assert len(foreign) == 4, "files of others, each with its checksum"
    assert not (place / "s/never").exists(), "folders that are empty now go, too"
    assert rows(lake) == read
    with pyiceberg(place) as catalog:
        assert len(catalog.load_table("s.shared").scan().to_arrow()) == 4


def test_file_that_only_removed_entries_name_is_deleted(lake: Lake, place: Path, tmp_path: Path) -> None:
    """The snapshot that had it has ended, and the manifest of the present one says that it is gone."""
    table = lake.table("s.t")
    table.ingest([{"id": 1}])
    (first,) = (place / "s/t/data").glob("*.parquet")
    shutil.copy(first, tmp_path / "kept")
    table.ingest([{"id": 2}])
    lake.sql("delete from lake.s.t where id = 1")
    lake.sql("call lake.system.expire_snapshots(table => 's.t', older_than => now(), retain_last => 1)")
    assert not first.exists()
    shutil.copy(tmp_path / "kept", first)

    assert [file.path for file in by_python(place)] == [f"file:{first}"]
    assert by_python(place) == by_spark(lake)


Meanwhile = Callable[[Lake, Path, str], None]


def added(_: Lake, place: Path, path: str) -> None:
    with pyiceberg(place) as catalog:
        catalog.load_table("s.t").add_files([path])


def dropped(lake: Lake, _: Path, __: str) -> None:
    lake.sql("drop table lake.s.t")


@pytest.mark.parametrize("meanwhile", [added, dropped])
def test_file_of_a_table_that_another_commits_to_meanwhile_stays(
    lake: Lake, place: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile
) -> None:
    """Once the files are listed, one of them becomes a table's, or a table leaves the catalog with its files."""
    lake.sql("create namespace lake.s")
    lake.sql("create table lake.s.t (id bigint) using iceberg")
    lake.sql("insert into lake.s.t values (1)")
    (written,) = (place / "s/t/data").glob("*.parquet")
    path = written.with_name(data_name())
    if meanwhile is added:
        shutil.copy(written, path)
    else:
        lake.table("s.t").ingest([{"id": 2}])
    before, listed, calls = files(place), orphans.listed_here, count()

    def then(where: Path, until: float) -> list[Orphan]:
        found = list(listed(where, until))
        if where == place / "s/t/data" and not next(calls):
            meanwhile(lake, place, str(path))
        return found

    monkeypatch.setattr(orphans, "listed_here", then)
    assert EmbeddedLake(place).clean(0, dry_run=False) == []
    assert next(calls) == 1
    assert files(place) >= before


def break_list(place: Path, _: pytest.MonkeyPatch) -> None:
    """The manifest list of an older snapshot is no Avro file."""
    oldest = min((place / "s/t/metadata").glob("snap-*.avro"), key=lambda path: path.stat().st_mtime_ns)
    oldest.write_bytes(b"nothing")


def lose_manifest(place: Path, _: pytest.MonkeyPatch) -> None:
    for manifest in (place / "s/t/metadata").glob("*-m0.avro"):
        manifest.unlink()


def have_too_many(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_MANIFESTS", 100)


@pytest.mark.parametrize("spoil", [break_list, lose_manifest, have_too_many])
def test_metadata_that_cannot_all_be_read_are_left_to_spark(
    lake: Lake, place: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., None]
) -> None:
    for n in range(2):
        lake.table("s.t").ingest([{"id": n}])
    planted(place / "s/t/data" / data_name())
    spoil(place, monkeypatch)
    before = files(place)

    with pytest.raises(NeedsSpark):
        EmbeddedLake(place).clean(0, dry_run=False)
    assert files(place) == before


def test_table_with_files_in_a_store_is_left_to_spark(lake: Lake, place: Path) -> None:
    lake.table("s.t").ingest([{"id": 1}])
    planted(place / "s/t/data" / data_name())
    lake.sql("alter table lake.s.t set tblproperties ('write.object-storage.path' = 's3://bucket/t')")
    before = files(place)

    with pytest.raises(NeedsSpark):
        EmbeddedLake(place).clean(0, dry_run=False)
    assert files(place) == before


def test_copied_lake_is_refused_before_anything_is_looked_at(lake: Lake, place: Path) -> None:
    lake.table("s.t").ingest([{"id": 1}])
    copy = place.with_name("copy")
    shutil.copytree(place, copy)
    with pytest.raises(UsageError, match="is a copy of the lake at"):
        EmbeddedLake(copy).clean(0, dry_run=True)


@pytest.mark.parametrize("catalog", ["duckdb", "sqlite"])
def test_ducklake_keeps_what_its_catalog_has_and_loses_the_rest(
    spark: SparkSession, place: Path, catalog: str
) -> None:
    lake = Lake.open(place, ducklake=catalog)
    table = lake.table("s.t")
    table.ingest([{"id": i, "n": 0} for i in range(9)], settings={"key": "id"})
    table.ingest([{"id": 1, "n": 1}])
    data, before = place / "data/s/t", set(place.rglob("*.parquet"))
    litter = [
        planted(data / f"ducklake-{'1' * 32}.parquet"),
        planted(data / "_temporary/0/task/part-0.parquet"),
        planted(data / "k=1/x.parquet"),
    ]
    foreign = data / "notes.txt"
    foreign.write_text("not a file of rows")
    checksums = [str(Path(path).with_name(f".{Path(path).name}.crc")) for path in litter]

    alone = EmbeddedLake(place, catalog)
    found = alone.clean(0, dry_run=True)
    assert {file.path for file in found} == {f"file:{path}" for path in (*litter, *checksums)}
    assert alone.clean(3600, dry_run=False) == []
    assert alone.clean(0, dry_run=False) == found
    assert set(place.rglob("*.parquet")) == before
    assert foreign.exists() and not (data / "k=1").exists() and not (data / "_temporary").exists()
    assert {(row.id, row.n) for row in table.read().collect()} == {(1, 1)} | {
        (i, 0) for i in range(9) if i != 1
    }
