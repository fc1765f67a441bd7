"""Rows that were written for one schema, under a later one of the same table."""

from __future__ import annotations

from driftline.core.schema.types import Field, Path, Primitive, Schema


def refits(written: Schema, now: Schema) -> bool:
    """True if files of the schema ``written`` read, under ``now``, as if they were written for it.

    A column with the same path in both has one id; one that the files lack reads as it would in a new row.
    Removed or renamed columns and wider types are the plan's to judge: they are right if no value goes there.
    """
    if written.identifiers != now.identifiers:
        return False
    before = dict(written.walk())
    by_id = {f.id: f for f in before.values()}
    new: set[Path] = set()
    for path, column in now.walk():
        at_path, old = before.get(path), by_id.get(column.id)
        if at_path is not None and at_path.id != column.id:
            return False
        if old is None:
            new.add(path)
            if path[:-1] not in new and not _reads_as_new(column):
                return False
        elif not _still(old, column):
            return False
    return True


def _reads_as_new(column: Field) -> bool:
    default = column.initial_default
    return default == column.write_default and not (column.required and default is None)


def _still(old: Field, column: Field) -> bool:
    if column.required and not old.required:
        return False
    return type(old.type) is type(column.type) and old.write_default == column.write_default


def extends(written: Schema, now: Schema) -> bool:
    """True if ``now`` has every column of ``written`` with its name, id and type, and otherwise only columns
    that old rows read as null.
    """
    before = dict(written.walk())
    after = dict(now.walk())
    return all(
        (same := after.get(path)) is not None and same.id == f.id and type(same.type) is type(f.type)
        and (not isinstance(f.type, Primitive) or same.type == f.type)
        for path, f in before.items()
    ) and all(f.initial_default is None for path, f in after.items() if path not in before)  # fmt: skip
