"""Reads and writes tables as data contracts of the Open Data Contract Standard, version 3.

A column's exact type stands in `physicalType`, in Iceberg's words; settings of the table are custom
properties of driftline's, and expectations are rules of quality. A contract that others wrote may say less:
a logical type alone, which several types meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.core.schema.naming import is_metadata
from driftline.core.schema.schema_json import outline, type_name, type_of
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
)
from driftline.core.settings.declarations import PATH_SETTINGS, PREFIX, SETTINGS
from driftline.core.settings.properties import as_properties
from driftline.errors import SetupError, UsageError
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from open_data_contract_standard.model import (
        CustomProperty,
        DataQuality,
        OpenDataContractStandard,
        SchemaObject,
        SchemaProperty,
    )

VERSION = "v3.2.0"
VENDOR = "driftline"
_EXPECT = "expect."  # begins the setting of an expectation
# What a logical type may be; the first is what a field gets that has nothing else.
_LOGICAL: Mapping[str, tuple[Type, ...]] = {
    "string": (STRING, UUID),
    "integer": (LONG, INT),
    "number": (DOUBLE, FLOAT, LONG, INT),
    "boolean": (BOOLEAN,),
    "date": (DATE,),
    "time": (TIME,),
    "timestamp": (TIMESTAMP, TIMESTAMP_NTZ),
}
_NAMED = {
    type_: name
    for name in ("number", "integer", "string", "boolean", "date", "time", "timestamp")
    for type_ in _LOGICAL[name]
}
_EXACT = {type_name(type_) for type_ in _NAMED} | {"binary", "variant", "unknown"}


@dataclass(frozen=True, slots=True)
class Promise:
    """The promises of a contract about a table.

    ``loose``: the logical type of columns without an exact one, by path; ``properties``: the table's
    settings.
    """

    schema: Schema
    properties: Mapping[str, str]
    loose: Mapping[tuple[str, ...], str]


def exported(table: str, schema: Schema, properties: Mapping[str, str]) -> str:
    """The contract of a table, as YAML. Raises SetupError where the standard's package is not there."""
    model = _model()
    keys = {id_: place for place, id_ in enumerate(sorted(schema.identifiers), 1)}
    columns = [_property(f, keys) for f in schema.struct.fields if not is_metadata(f.doc)]
    stated = sorted(_settings(properties))
    expected = [(name, value) for name, value in stated if name.startswith(_EXPECT)]
    settings = [_setting(name, value) for name, value in stated if not name.startswith(_EXPECT)]
    described = model.SchemaObject(
        name=table.rpartition(".")[2],
        physicalName=table,
        physicalType="table",
        logicalType="object",
        properties=columns,
        customProperties=settings or None,
        quality=[_rule(table, name, text) for name, text in expected] or None,
    )
    contract = model.OpenDataContractStandard(
        apiVersion=VERSION, kind="DataContract", id=table, name=table, version="1.0.0", status="active",
        schema=[described],
    )  # fmt: skip
    return _yaml(contract)


def read(file: Path, table: str) -> Promise:
    """Read the promises of a contract file about a table.

    Raises UsageError for a file that is no contract, or does not mention the table; SetupError if the
    standard's package is missing.
    """
    described = _object(_contract(file), table, file)
    loose: dict[tuple[str, ...], str] = {}
    fields = tuple(_field(each, (), loose, file) for each in described.properties or ())
    names = [f.name for f in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{file}: there are two properties {twice!r}")
    settings = {
        str(each.property): each.value
        for owner in (described, *(described.quality or ()))
        for each in owner.customProperties or ()
        if each.vendor == VENDOR and each.value is not None
    }
    try:
        properties = as_properties(settings)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}", error.hint) from error
    return Promise(Schema(Struct(_numbered(fields, iter(range(1, 1_000_000))))), properties, loose)


def _setting(name: str, value: str) -> CustomProperty:
    setting: CustomProperty = _model().CustomProperty(property=name, value=value, vendor=VENDOR)
    return setting


def _rule(table: str, setting: str, text: str) -> DataQuality:
    """An expectation, as a query that counts the rows that do not meet it, with the setting itself beside."""
    from driftline.core.settings.condition_sql import without_action  # late: sqlglot is slow to import

    from_table = ".".join(map(quoted, table.split(".")))
    # NOT of what is unknown is no violation, so SQL counts as driftline does.
    rule: DataQuality = _model().DataQuality(
        name=setting.removeprefix(_EXPECT),
        type="sql",
        query=f"SELECT COUNT(*) FROM {from_table} WHERE NOT ({without_action(text)})",
        mustBe=0,
        customProperties=[_setting(setting, text)],
    )
    return rule


def _yaml(contract: OpenDataContractStandard) -> str:
    """The contract as YAML. Letters are escaped only if PyYAML would not read it back as it is."""
    import yaml

    content = contract.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text if yaml.safe_load(text) == content else yaml.safe_dump(content, sort_keys=False)


def _model() -> Any:
    try:
        from open_data_contract_standard import model
    except ImportError as error:
        raise SetupError(
            "Contracts need open-data-contract-standard.", "pip install 'driftline[contract]'"
        ) from error
    return model


def _settings(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings among a table's properties, by the names that people give them."""
    for key, value in properties.items():
        name, dot, path = key.removeprefix(PREFIX).partition(".")
        name = name.replace("-", "_")
        if key.startswith(PREFIX) and value and name in (PATH_SETTINGS if dot else SETTINGS):
            yield name + dot + path, value


def _property(field: Field, keys: Mapping[int, int]) -> SchemaProperty:
    described = _typed(field.type)
    described.name, described.description = field.name, field.doc
    described.required = field.required or None
    if field.id in keys:
        described.primaryKey, described.primaryKeyPosition = True, keys[field.id]
    return described


def _typed(type_: Type) -> SchemaProperty:
    """A type as an item, which has no name."""
    model = _model()
    described: SchemaProperty = model.SchemaProperty(physicalType=outline(type_))
    match type_:
        case Struct(fields):
            described.logicalType, described.properties = "object", [_property(f, {}) for f in fields]
        case List():
            described.logicalType, described.items = "array", _typed(type_.element)
            described.items.required = type_.element_required or None
        case Map():
            value = _typed(type_.value)
            value.required = type_.value_required or None
            described.logicalType, described.map = (
                "map",
                model.MapDefinition(key=_typed(type_.key), value=value),
            )
        case Primitive("decimal"):
            described.logicalType = "number"
        case Primitive("binary" | "fixed"):
            described.logicalType = "string"
        case Primitive():
            described.logicalType = _NAMED.get(type_)
    return described


def _contract(file: Path) -> OpenDataContractStandard:
    model = _model()
    from pydantic import ValidationError
    from yaml import YAMLError

    try:
        contract: OpenDataContractStandard = model.OpenDataContractStandard.from_string(
            file.read_text(encoding="utf-8")
        )
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file}: not a data contract: {place}: {first['msg']}") from error
    except (YAMLError, ValueError, TypeError) as error:
        raise UsageError(
            f"{file}: not a data contract: {str(error).splitlines()[0]}",
            "`driftline contract export` writes one",
        ) from error
    if not (contract.apiVersion or "").startswith("v3."):
        raise UsageError(
            f"{file}: apiVersion {contract.apiVersion} is not read", "use a contract of version 3"
        )
    return contract


def _object(contract: OpenDataContractStandard, table: str, file: Path) -> SchemaObject:
    """The contract's object for the table: the one of its name, or the only one."""
    objects = contract.schema_ or []
    for each in objects:
        if table in (each.physicalName, each.name):
            return each
    if len(objects) == 1:
        return objects[0]
    names = ", ".join(str(each.physicalName or each.name) for each in objects)
    raise UsageError(f"{file}: there is no {table} in it", f"there are {names}" if names else None)


def _field(
    given: SchemaProperty, above: tuple[str, ...], loose: dict[tuple[str, ...], str], file: Path
) -> Field:
    if not given.name:
        raise UsageError(f"{file}: a property of {'.'.join(above) or 'the table'} has no name")
    path = (*above, given.name)
    type_ = _type(given, path, loose, file)
    return Field(given.name, type_, required=bool(given.required), doc=given.description)


def _type(
    given: SchemaProperty, path: tuple[str, ...], loose: dict[tuple[str, ...], str], file: Path
) -> Type:
    match given.logicalType:
        case "object" if given.properties is not None:
            return Struct(tuple(_field(each, path, loose, file) for each in given.properties))
        case "array" if given.items is not None:
            element = _type(given.items, (*path, "element"), loose, file)
            return List(element, element_required=bool(given.items.required))
        case "map" if given.map is not None and given.map.key is not None and given.map.value is not None:
            key = _type(given.map.key, (*path, "key"), loose, file)
            value = _type(given.map.value, (*path, "value"), loose, file)
            return Map(key, value, value_required=bool(given.map.value.required))
    physical = _physical(given.physicalType or "")
    if physical is not None:
        return physical
    logical = given.logicalType or ""
    if logical in _LOGICAL:
        loose[path] = logical
        return _LOGICAL[logical][0]
    raise UsageError(
        f"{file}: {'.'.join(path)}: the type {given.physicalType or given.logicalType} is not known",
        "physicalType must be one of Iceberg's types: long, decimal(18, 2), timestamptz, …",
    )


def _physical(text: str) -> Type | None:
    """The type that is written, in Iceberg's words or in those of other engines; None for none of them."""
    if text in _EXACT or text.startswith(("decimal(", "fixed[")):
        return type_of(text)
    try:
        return parse_type(text)
    except ValueError:
        return None


def meets(logical: str, type_: Type) -> bool:
    """True if a column of this type satisfies a logical type.

    >>> meets("number", LONG), meets("integer", DOUBLE)
    (True, False)
    """
    if logical in ("string", "number") and isinstance(type_, Primitive) and type_.args:
        return (type_.name == "decimal") == (logical == "number")
    return type_ in _LOGICAL[logical]


def _numbered(fields: Sequence[Field], ids: Iterator[int]) -> tuple[Field, ...]:
    return tuple(replace(f, id=next(ids), type=_with_ids(f.type, ids)) for f in fields)


def _with_ids(type_: Type, ids: Iterator[int]) -> Type:
    match type_:
        case Struct(fields):
            return Struct(_numbered(fields, ids))
        case List(element):
            return replace(type_, element_id=next(ids), element=_with_ids(element, ids))
        case Map():
            return replace(type_, key_id=next(ids), value_id=next(ids), value=_with_ids(type_.value, ids))
        case _:
            return type_
