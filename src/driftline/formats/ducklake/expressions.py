"""Expressions of a DuckLake table's columns: from the names and types
of its files to those that it has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.schema.types import Field, List, Map, Primitive, Struct, Type, children
from driftline.errors import DataError
from driftline.formats.ducklake.defaults import to_sql
from driftline.formats.ducklake.scan import MapRow, ScanGroup
from driftline.formats.ducklake.types import read_type, spark_name
from driftline.formats.ducklake.write import FIELD_ID, parsed
from driftline.sql.quoting import each, literal, name, variable

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType


@dataclass(frozen=True, slots=True)
class Columns:
    """Expressions of columns. ``defaults``: DuckLake's text of what
    files without the column read as, by id.
    """

    table: str
    defaults: Mapping[int, str | None]

    def all(self, struct: Struct, missing: frozenset[int]) -> list[Column]:
        """The columns of a scan by id, under their names and types."""
        from pyspark.sql import functions as F

        out = []
        for f in struct.fields:
            target = self.spark(f.type, f.name)
            if f.id in missing:
                column = F.expr(self.missing(f))
            elif self.plain(f.type, missing):
                column = F.col(f"__f{f.id}")
            else:
                column = F.expr(self.rebuilt(f.type, f"__f{f.id}", missing, None, f.name))
            out.append(column.cast(target).alias(f.name))
        return out

    def plain(self, type_: Type, missing: frozenset[int]) -> bool:
        """True if a cast is enough."""
        return not (isinstance(type_, Primitive) and self.special(type_)) and all(
            child.id not in missing and self.plain(child.type, missing) for child in children(type_)
        )

    def special(self, type_: Primitive) -> bool:
        return type_.name == "duckdb_uuid" or self.refused(type_, "") is not None

    def refused(self, type_: Type, where: str) -> str | None:
        """The reason Spark cannot read the type; None if it can, or can read some fields of it."""
        if isinstance(type_, Struct):
            whys = [self.refused(f.type, f"{where}.{f.name}") for f in type_.fields]
            return whys[0] if whys and all(whys) else None
        if not isinstance(type_, Primitive):
            return next((why for c in children(type_) if (why := self.refused(c.type, where))), None)
        try:
            spark_name(type_, f"{self.table}.{where}")
        except DataError as error:
            return error.message
        return None

    def missing(self, field: Field) -> str:
        """The value that files without the column read as."""
        text = self.defaults.get(field.id)
        if text is None or not isinstance(field.type, Primitive):
            return "null"
        if why := self.refused(field.type, field.name):
            return f"raise_error({literal(why)})"
        return to_sql(text, field.type, f"{self.table}.{field.name}")

    def rebuilt(
        self,
        type_: Type,
        x: str,
        missing: frozenset[int],
        names: Mapping[int, MapRow] | None,
        where: str,
        has: set[int] | None = None,
    ) -> str:
        """Rebuild a value field by field.

        ``names``: those in the file, if it has no ids; ``has``: the ids that occur at all.
        """

        def child(f: Field, x: str) -> str:
            has_value = (
                f.id in names if names is not None else (has is None or f.id in has) and f.id not in missing
            )
            if not has_value:
                return self.missing(f)
            inner = name(names[f.id].name) if names is not None else f"__f{f.id}"
            return self.rebuilt(f.type, f"{x}.{inner}", missing, names, f"{where}.{f.name}", has)

        if why := self.refused(type_, where):
            return f"raise_error({literal(why)})"
        match type_:
            case Struct(fields):
                children_sql = ", ".join(f"{child(f, x)} as {name(f.name)}" for f in fields)
                return f"if({x} is null, null, struct({children_sql}))"
            case List(element):
                return each(x, lambda e: self.rebuilt(element, e, missing, names, where, has))
            case Map(key, value):
                k, v = variable("k"), variable("v")
                made_key = self.rebuilt(key, f"{k}", missing, names, where, has)
                made_value = self.rebuilt(value, f"{v}", missing, names, where, has)
                x = x if made_value == v else f"transform_values({x}, ({k}, {v}) -> {made_value})"
                return x if made_key == k else f"transform_keys({x}, ({k}, {v}) -> {made_key})"
            case Primitive():
                return self.leaf(type_, x, text=has is not None)

    def leaf(self, type_: Primitive, x: str, *, text: bool) -> str:
        if type_.name == "duckdb_uuid" and not text:
            h = f"lower(hex({x}))"
            cuts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
            joined = ", ".join(f"substr({h}, {start}, {size})" for start, size in cuts)
            # DuckDB's files have 16 bytes; Spark, where a default is one, writes the text.
            return f"case when length({x}) = 16 then concat_ws('-', {joined}) else cast({x} as string) end"
        return x

    def spark(self, type_: Type, where: str) -> DataType:
        return _readable(type_, f"{self.table}.{where}")

    def by_id(self, struct: Struct, shelf: ScanGroup) -> StructType:
        """The struct as it is asked of the files: names and metadata by id, without what is missing."""
        from pyspark.sql.types import StringType, StructField, StructType

        fields_there = [
            StructField(f"__f{f.id}", self.asked(f, shelf), True, {FIELD_ID: f.id})
            for f in struct.fields
            if f.id not in shelf.missing and not self.refused(f.type, "")
        ]
        # A struct of which nothing can be read is still null or not.
        return StructType(fields_there or [StructField("__none", StringType())])

    def asked(self, f: Field, shelf: ScanGroup) -> DataType:
        """The type that a column is read as: that which the files have."""
        from pyspark.sql.types import ArrayType, MapType

        inside = children(f.type)
        match f.type:
            case Struct() as struct:
                return self.by_id(struct, shelf)
            case List():
                return ArrayType(self.asked(inside[0], shelf), True)
            case Map():
                return MapType(self.asked(inside[0], shelf), self.asked(inside[1], shelf), True)
            case Primitive() as now:
                return self.leaf_asked(f.id, now, shelf)

    def leaf_asked(self, id_: int, now: Primitive, shelf: ScanGroup) -> DataType:
        from pyspark.sql.types import BinaryType

        earlier = dict(shelf.types).get(id_)
        type_ = now if earlier is None else read_type(earlier)
        return BinaryType() if type_.name == "duckdb_uuid" else parsed(spark_name(type_, self.table))

    def by_name(self, f: Field, names: Mapping[int, MapRow], shelf: ScanGroup) -> StructField:
        """A column as a mapped file has it."""
        from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

        def of(f: Field) -> DataType:
            inside = children(f.type)
            match f.type:
                case Struct(fields):
                    fields_there = [g for g in fields if g.id in names and not self.refused(g.type, "")]
                    none = [StructField("__none", StringType())]
                    return StructType([self.by_name(g, names, shelf) for g in fields_there] or none)
                case List():
                    return ArrayType(of(inside[0]), True)
                case Map():
                    return MapType(of(inside[0]), of(inside[1]), True)
                case Primitive() as now:
                    return self.leaf_asked(f.id, now, shelf)

        return StructField(names[f.id].name, of(f))


def target(struct: Struct, table: str) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _readable(f.type, f"{table}.{f.name}")) for f in struct.fields])


def _readable(type_: Type, where: str) -> DataType:
    """The type as Spark has it; text for what it cannot read, which fails when it is asked for."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    match type_:
        case Struct(fields):
            return StructType([StructField(f.name, _readable(f.type, where)) for f in fields])
        case List(element):
            return ArrayType(_readable(element, where), True)
        case Map(key, value):
            return MapType(_readable(key, where), _readable(value, where), True)
        case Primitive():
            try:
                return parsed(spark_name(type_, where))
            except DataError:
                return StringType()
