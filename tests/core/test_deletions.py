"""Every deletion of a file goes through runtime/disk.py, which knows its bounds: held by reading the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import house
from driftline.errors import SetupError
from driftline.runtime.disk import NEW, Bounds, delete_file, delete_folder, delete_with_folders

PLACE = "runtime.disk"
DELETE = {
    "unlink", "rmtree", "rmdir", "removedirs", "remove_tree", "delete", "delete_file", "delete_dir",
    "delete_dir_contents", "delete_root_dir_contents", "deleteFile", "deleteFiles", "deletePrefix", "deleteOnExit",
    "deleteQuietly", "deleteDirectory", "dropTable", "purgeTable",
}  # fmt: skip
# Calls of these names that delete no file; the last is the draft of a file that the same function writes.
OTHERS = {
    "capture.finding: self.channel.delete",  # messages of a queue
    "readers.avro.binary: np.delete",
    "formats.iceberg.alteration: update.deleteFile",  # out of a snapshot
    "formats.iceberg.compaction: rewrite.deleteFile",
    "formats.iceberg.row_delta: update.deleteFile",
    "formats.iceberg.taking_out: delete.deleteFile",
    "keys.filling: result.delete",  # a row
    "operations.replay: quarantined.delete",  # its rows
    "quarantine.table: quarantine.delete",
    "quarantine.table: self.table.delete",
    "readers.csv.cut: np.delete",
    "runtime.stores: system.delete_file",
}
# Modules that delete what they have made themselves in this process, under names of their own, wherever that lies.
OF_NEW_FILES = {
    "capture.lease",  # its own mark
    "cli.demo",  # its temporary lake
    "formats.ducklake.files",
    "formats.iceberg.commit",  # manifests that the transaction wrote and merged
    "formats.iceberg.files",
    "formats.iceberg.taking_out",
    "formats.iceberg.transaction",
    "operations.doctor",  # its probe
    "runtime.duckdb_files",
    "runtime.temporary",
    "sources.spooled",
    "tasks.batch_folder",
    "write.files",
}


def deletions() -> Iterator[str]:
    """The calls outside the one place whose names are those of deletions, with their modules."""
    for module, tree in house.modules().items():
        ours = {alias.name for node in house.nodes(tree) if isinstance(node, ast.ImportFrom) and node.module
                and node.module.endswith(PLACE) for alias in node.names}  # fmt: skip
        for node in house.nodes(tree) if module != PLACE else ():
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name not in DELETE and name != "remove":
                continue
            called = ast.unparse(node.func)
            if (name in DELETE and called not in ours) or called in ("os.remove", "remove", "os.unlink"):
                yield f"{module}: {called}"


def test_every_deletion_goes_through_the_one_place_that_knows_its_bounds() -> None:
    assert set(deletions()) == OTHERS


def test_only_these_modules_delete_without_bounds() -> None:
    users = {
        module
        for module, tree in house.modules().items()
        for node in house.nodes(tree)
        if module != PLACE and isinstance(node, ast.Name) and node.id == "NEW"
    }
    anywhere = [
        module
        for module, tree in house.modules().items()
        if "Bounds" in house.texts()[module] and "Bounds(None)" in ast.unparse(tree)
    ]

    assert users == OF_NEW_FILES
    assert anywhere == [PLACE]


@pytest.mark.parametrize(
    ("folder", "path", "held"),
    [
        ("/lake", "/lake/s/t/a", True),
        ("/lake/", "file:/lake/a", True),
        ("file:///lake", "file:/lake/a", True),
        ("/lake", "/lake", False),
        ("/lake", "/lake2/a", False),
        ("/lake", "/lake/../other/a", False),
        ("/lake", "s3://lake/a", False),
        ("s3://bucket/lake", "s3a://bucket/lake/a", True),
        ("s3://bucket/lake", "gs://bucket/lake/a", False),
        ("s3://bucket/lake", "s3://bucket/lake2/a", False),
        ("s3://bucket/lake", "/bucket/lake/a", False),
    ],
)
def test_bounds_hold_what_lies_below_their_folders(folder: str, path: str, held: bool) -> None:
    assert Bounds((folder,)).hold(path) is held
    assert NEW.hold(path)
    assert not Bounds().hold(path)


def test_file_behind_a_link_out_of_the_bounds_stays(tmp_path: Path) -> None:
    other, lake = tmp_path / "other", tmp_path / "lake"
    other.mkdir()
    lake.mkdir()
    (other / "a").touch()
    (lake / "a").touch()
    (lake / "out").symlink_to(other)
    for path in (lake / "out" / "a", other / "a", lake / "a"):
        delete_file(path, Bounds((str(lake),)))
    delete_folder(other, Bounds((str(lake),)))

    assert (other / "a").exists()
    assert not (lake / "a").exists()


def test_file_goes_with_its_checksum_and_the_folders_that_it_leaves_empty(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name in ("s/t/k=1/a", "s/t/k=1/.a.crc", "s/t/k=2/b", "s/t/k=2/c"):
        (lake / name).parent.mkdir(parents=True, exist_ok=True)
        (lake / name).touch()
    delete_with_folders(f"file:{lake}/s/t/k=1/a", Bounds((str(lake / "s/t"),)))
    delete_with_folders(f"{lake}/s/t/k=2/b", Bounds((str(lake),)))
    delete_with_folders(f"{lake}/s/t/k=2/c", Bounds((str(tmp_path / "other"),)))
    assert [path.name for path in (lake / "s/t").rglob("*")] == ["k=2", "c"]

    delete_with_folders(f"{lake}/s/t/k=2/c", Bounds((str(lake),)))
    assert list(tmp_path.rglob("*")) == [lake], "the bounds themselves stay"


def test_file_that_cannot_be_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SetupError, match="folder: cannot be deleted"):
        delete_with_folders(f"{tmp_path}/folder", Bounds((str(tmp_path),)))
