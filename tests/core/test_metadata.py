"""Columns that a source fills by itself."""

from dataclasses import replace

from driftline.core.planning.own_columns import own_column, with_own
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, Struct
from driftline.sources.kafka import METADATA_COLUMN


def test_a_column_of_an_earlier_version_gets_the_fields_that_it_lacks():
    assert isinstance(METADATA_COLUMN.type, Struct)
    earlier = replace(METADATA_COLUMN, type=Struct(METADATA_COLUMN.type.fields[:-1]))
    first = with_own(plan(Schema(), RecordShape()), [earlier])
    then = with_own(plan(first.schema, RecordShape()), [METADATA_COLUMN])
    assert [change.path for change in then.changes] == [("_kafka", "headers")]
    own = own_column(then.schema.struct, "kafka")
    assert own is not None and isinstance(own.type, Struct)
    assert [f.name for f in own.type.fields] == [f.name for f in METADATA_COLUMN.type.fields]
    assert with_own(plan(then.schema, RecordShape()), [METADATA_COLUMN]).changes == ()
