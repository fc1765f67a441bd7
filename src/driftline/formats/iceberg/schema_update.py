"""Changes as one `UpdateSchema` of Iceberg's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import AddColumn, Change, RelaxColumn, WidenColumn, fresh
from driftline.core.schema_json import to_json
from driftline.core.types import Field, Schema, Struct, dotted
from driftline.formats.iceberg.gateway import failure


def update_schema(jvm: Any, transaction: Any, changes: Iterable[Change], name: str) -> None:
    """Applies the changes inside a Java transaction. Raises CommitConflict, or DataError where Iceberg refuses."""
    pending = [c for c in changes if not (isinstance(c, AddColumn) and c.within)]
    if not pending:
        return
    update = transaction.updateSchema()
    for change in pending:
        match change:
            case AddColumn(parent, column):
                update.addColumn(dotted(parent) or None, column.name, _type(jvm, column), column.doc)
            case WidenColumn(path, type_):
                update.updateColumn(dotted(path), _type(jvm, Field("x", type_)))
            case RelaxColumn(path):
                update.makeColumnOptional(dotted(path))
    try:
        update.commit()
    except Py4JJavaError as error:
        raise failure(error, name) from error


def _type(jvm: Any, column: Field) -> Any:
    holder = Schema(Struct((fresh(column, 0),)))
    parsed = jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(to_json(holder)))
    return parsed.columns().get(0).type()
