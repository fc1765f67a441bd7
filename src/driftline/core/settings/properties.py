"""Settings stored as table properties, so that every later batch follows them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.definition import CHANGE, OPERATION, POSITION, UNAVAILABLE
from driftline.core.schema.text import parse_size, parse_span
from driftline.core.schema.types import List, Map, Path, Primitive, peel
from driftline.core.settings.creation import Creation
from driftline.core.settings.csv import UNSTATED, Dialect
from driftline.core.settings.declarations import PATH_SETTINGS, PREFIX, SETTINGS, in_groups, property_of
from driftline.core.settings.fields import (
    FieldSettings,
    OfPaths,
    TextReading,
    field_settings,
    parse_path,
    parse_paths,
    spelled_path,
)
from driftline.core.settings.row_key import KEY_SETTINGS, RowKey, parse_condition, parse_expectation
from driftline.core.settings.table import TableSettings, parse_metadata
from driftline.errors import UsageError

HINTS, RESOLVED = f"{PREFIX}hints.", f"{PREFIX}resolved."  # settings that `resolve` makes, by path
_AND = "; "  # between the types that a field was folded into
READINGS = f"{PREFIX}readings"
EXPECTED = f"{PREFIX}expect."  # begins the name of each expectation's property

# Settings that count where a table is made; the table itself then has what they say.
_ONCE = {property_of(name): name for name in in_groups("layout")}
_DIALECT = {property_of(name): name for name in in_groups("csv")}
# Settings by which records are taken out of a file.
_READING = tuple(map(property_of, in_groups("csv", "files")))
# Settings that came later than the tables that may lack them: a table that is made has them from its first
# batch, one that was made before goes on as it did.
NEW_TABLE = {
    property_of(name): setting.default for name, setting in SETTINGS.items() if setting.older is not None
}


def as_properties(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert a person's settings to table properties.

    Settings of paths are tables of their own, or dotted names; an empty value removes a former one.

    >>> as_properties({"dates": "off", "hints": {"a.b": "list<string>"}, "exclude": ["secret"]})
    {'driftline.dates': 'off', 'driftline.hints.a.b': 'list<string>', 'driftline.exclude.secret': 'true'}

    Raises UsageError for an unknown name, with the nearest known one, or a wrong value.
    """
    settings = {property_of(key): _checked(key, value) for key, value in flattened(values)}
    _dialect(settings)
    return settings


def newly_kept(before: Mapping[str, str] | None, sent: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, by name, that later batches get because this batch ``sent`` them.

    ``before``: the properties of the table; None for a new one, which reports only the CSV dialect: all else
    shows in the table.

    >>> newly_kept({"driftline.dates": "off"}, {"driftline.dates": "off", "driftline.thousands": "."})
    {'thousands': '.'}
    """
    names = {key: _name(key) for key in sent if key.startswith(PREFIX)}
    if before is None:
        return {name: sent[key] for key, name in names.items() if key in _DIALECT and sent[key]}
    return {name: sent[key] for key, name in names.items() if before.get(key, "") != sent[key]}


def _name(key: str) -> str:
    name, dot, path = key.removeprefix(PREFIX).partition(".")
    return name.replace("-", "_") + dot + path


def creation(properties: Mapping[str, str]) -> tuple[Creation | None, dict[str, str]]:
    """Split the properties of `as_properties` into a new table's layout, if requested, and those it keeps.

    >>> creation({"driftline.sort-by": "at", "driftline.dates": "off"})
    (Creation(partition_by='', sort_by='at', format_version=''), {'driftline.dates': 'off'})
    """
    layout = {_ONCE[key]: value for key, value in properties.items() if value and key in _ONCE}
    keeps = {key: value for key, value in properties.items() if key not in _ONCE}
    return Creation(**layout) if layout else None, keeps


def of_one_batch(properties: Mapping[str, str]) -> dict[str, str]:
    """Select the properties that can count for one batch alone: they say how to read files, or types.

    >>> of_one_batch({"driftline.thousands": ".", "driftline.hints.n": "long", "driftline.key": "id"})
    {'driftline.thousands': '.', 'driftline.hints.n': 'long'}
    """
    return {key: text for key, text in properties.items() if key in _READING or key.startswith(HINTS)}


def flattened(settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield settings with dotted names; a list names the paths for which the setting is true."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{path}", text) for path, text in flattened(value))
        elif isinstance(value, (list, tuple)):
            yield from ((f"{key}.{path}", "true") for path in value)
        else:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "hints": parse_hint,
    "key": parse_paths,
    "order_by": parse_paths,
    "records": parse_path,
    "metadata": parse_metadata,
    "delete_when": parse_condition,
    "delete_memory": parse_span,
    "key_cache": parse_size,
}


def _checked(key: str, value: str) -> str:
    name, dot, path = key.partition(".")
    name = name.replace("-", "_")
    possible = PATH_SETTINGS if dot else SETTINGS
    if name not in possible:
        raise UsageError(f"there is no setting {key!r}", hint=_nearest(name, path))
    allowed = possible[name].values
    if not value:
        return value
    if isinstance(allowed, tuple) and value not in allowed:
        raise UsageError(f"{key} = {value!r} is not possible", hint=_one_of(value, allowed))
    if allowed is int and not value.isdecimal():
        raise UsageError(f"{key} = {value!r} is not a whole number")
    try:
        if dot:
            _check_at(name, path, value)
        if name in _ONCE.values():
            _check_creation(key, Creation(**{name: value}))
        elif name in _DIALECT.values():
            _dialect({property_of(name): value})
        elif name in _PARSERS:
            _PARSERS[name](value)
    except ValueError as error:
        raise UsageError(f"{key}: {error}") from error
    return value


def _check_at(name: str, path: str, value: str) -> None:
    """Raise ValueError for a setting of what is no path; for an expectation that cannot be read."""
    if name == "expect":
        parse_expectation(path, value)
    else:
        parse_path(path)


def _check_creation(key: str, layout: Creation) -> None:
    try:
        layout.changes()
    except UsageError as error:
        raise UsageError(f"{key}: {error.message}", error.hint) from error


def _nearest(name: str, path: str) -> str:
    if path and (near := difflib.get_close_matches(name, PATH_SETTINGS, 1, 0.5)):
        return f"did you mean '{near[0]}.{path}'?"
    if near := difflib.get_close_matches(name, [*SETTINGS, *PATH_SETTINGS], 1):
        return f"did you mean {near[0]!r}?" if near[0] in SETTINGS else f"write {near[0]}.PATH"
    return f"settings are {', '.join(sorted(SETTINGS))}; of a path {', '.join(sorted(PATH_SETTINGS))}"


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(value, allowed, 1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"


def earlier_patterns(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Keep the date patterns that hints of ``now`` replace, because values have been read by them.

    >>> day = "driftline.hints.day"
    >>> earlier_patterns({day: "date('dd.MM.yyyy')"}, {day: "date('M/d/yyyy')"})
    {'driftline.hinted.day': "date('dd.MM.yyyy')"}
    """
    patterns: dict[str, str] = {}
    for key in now:
        hint = before.get(key, "")
        if key.startswith(HINTS) and hint not in ("", now[key]) and parse_hint(hint).pattern is not None:
            name = f"{PREFIX}hinted.{key.removeprefix(HINTS)}"
            before_value = before.get(name, "")
            patterns[name] = (
                before_value if hint in before_value else f"{before_value} and {hint}".removeprefix(" and ")
            )
    return patterns


def resolved_as(path: Path, to: str, before: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that record a field's folding into the type ``to``.

    Earlier types stay listed, because values have been read by them.

    >>> resolved_as(("a",), "double", {"driftline.hints.a": "long"})
    {'driftline.hints.a': 'double', 'driftline.resolved.a': 'long; double'}
    """
    name = spelled_path(path)
    types = before.get(f"{RESOLVED}{name}") or before.get(f"{HINTS}{name}") or to
    return {f"{HINTS}{name}": to, f"{RESOLVED}{name}": _AND.join(dict.fromkeys([*types.split(_AND), to]))}


def _text_readings(
    properties: Mapping[str, str], hints: Mapping[Path, str], roles: Container[Path]
) -> dict[Path, TextReading]:
    """Return the readings of fields that were folded into one type, where hints still declare it.

    In a field of the row key a number and a text are two values, whatever they spell.
    """
    texts: dict[Path, TextReading] = {}
    for path, hint in hints.items():
        if path in roles or hint not in properties.get(f"{RESOLVED}{spelled_path(path)}", "").split(_AND):
            continue
        declared = parse_hint(hint)
        steps, leaf = path, peel(declared.type)[1]
        while isinstance(leaf, Map):
            steps, leaf = (*steps, "value"), peel(leaf.value)[1]
        if isinstance(leaf, Primitive):
            texts[steps] = TextReading(leaf, declared.pattern, _dialect(properties).signs)
    return texts


def reading(properties: Mapping[str, str]) -> dict[str, str]:
    """Select the properties that affect how files are read, and which of their records are set aside."""
    read = {name: properties[name] for name in _READING if properties.get(name)}
    expected = {name: text for name, text in properties.items() if name.startswith(EXPECTED) and text}
    return read | dict(sorted(expected.items()))


def readings(properties: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the readings that a table has had, the first one first; empty if there was only one."""
    return list(json.loads(properties.get(READINGS, "[]")))


def with_reading(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Keep all readings of a table, once its properties ``now`` read files differently.

    >>> with_reading({"driftline.decimal": ","}, {"driftline.decimal": "."})
    {'driftline.readings': '[{"driftline.decimal": ","}, {"driftline.decimal": "."}]'}
    >>> with_reading({"driftline.decimal": ","}, {"driftline.decimal": ",", "driftline.dates": "off"})
    {}
    """
    old, new = reading(before), reading(now)
    listed = readings(before)
    added = [read for read in (old, new) if read not in listed] if old != new else []
    if not added:
        return {}
    return {READINGS: json.dumps([*listed, *added])}


def from_properties(properties: Mapping[str, str]) -> TableSettings:
    """Read a table's settings from its properties, with defaults for those not set.

    Raises UsageError for invalid properties.
    """
    plain, paths = _stated(properties)

    def value(name: str) -> str:
        setting = SETTINGS[name]
        return plain.get(name) or (setting.default if setting.older is None else setting.older)

    if value("envelope"):  # of the order, which needs it, and what the table itself adds
        paths["policies"] = dict.fromkeys(((CHANGE,), OPERATION, POSITION), "preserve") | paths["policies"]
    row_key = _row_key({name: value(name) for name in SETTINGS}) if plain.keys() & KEY_SETTINGS else None
    settings = TableSettings(
        dates=value("dates"),
        mark=value("mark"),
        max_columns=int(value("max_columns")),
        max_fields=int(value("max_fields")) if value("max_fields") else None,
        max_record_bytes=int(value("max_record_bytes")),
        beyond=value("beyond"),
        keep_empty_names=value("empty_names") == "keep",
        on_conflict=value("on_conflict"),
        table_may_fail=value("on_table_error") == "quarantine",
        allow_rewrite=value("allow_rewrite") == "true",
        fields=_field_settings(value, paths, row_key, properties),
        hive=value("hive") == "auto" and not value("envelope"),
        records=parse_path(value("records")) if value("records") else (),
        # Debezium's messages of MongoDB say by themselves that their documents are Extended JSON.
        extended_json=value("extended_json") == "true" and not value("envelope"),
        sheet=value("sheet"),
        csv=_dialect(properties),
        row_key=row_key,
        metadata=parse_metadata(value("metadata")) if value("metadata") else (),
        compacts=value("compact") == "auto",
        # By name, as a table keeps its properties in no order: the first one decides where a record goes, and
        # an expectation that is stated anew must not move records from one reason to another.
        expect=tuple(parse_expectation(name, text) for (name,), text in sorted(paths["expect"].items())),
    )
    _check_roles(settings)
    return settings


def _stated(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[Path, str]]]:
    """Read the settings that properties state: of the table, and by path. Raises UsageError."""
    of_table: dict[str, str] = {}
    of_paths: dict[str, dict[Path, str]] = {name: {} for name in PATH_SETTINGS}
    for prop, text in properties.items():
        name, dot, path = prop.removeprefix(PREFIX).partition(".")
        name = name.replace("-", "_")
        if not prop.startswith(PREFIX) or not text or name not in (PATH_SETTINGS if dot else SETTINGS):
            continue
        _checked(name + dot + path, text)
        if dot:
            of_paths[name][parse_path(path)] = text
        else:
            of_table[name] = text
    return of_table, of_paths


def _field_settings(
    value: Callable[[str], str],
    paths: Mapping[str, Mapping[Path, str]],
    row_key: RowKey | None,
    properties: Mapping[str, str],
) -> FieldSettings:
    """Return the settings of paths.

    Args:
        value: returns the value of a setting of the table.
        paths: the settings of paths that the ``properties`` state.
        row_key: the row key.
        properties: those of the table.
    """
    roles = {} if row_key is None else row_key.roles
    hints = {path: parse_hint(text) for path, text in paths["hints"].items()}
    return field_settings(
        value("policy"),
        epoch_unit=value("epoch_unit") or None,
        maps=value("maps"),
        new_fields=value("new_fields"),
        paths=OfPaths(
            policies=paths["policies"],
            hints={path: hint.type for path, hint in hints.items()},
            patterns={path: hint.pattern for path, hint in hints.items() if hint.pattern is not None},
            texts=_text_readings(properties, paths["hints"], roles),
            exclude=[path for path, excluded in paths["exclude"].items() if excluded == "true"],
            epoch_units=paths["epoch_units"],
            maps=paths["maps"],
            new_fields=paths["new_fields"],
            roles=roles,
        ),
    )


def _row_key(settings: Mapping[str, str]) -> RowKey | None:
    try:
        return RowKey.of(settings)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_roles(settings: TableSettings) -> None:
    """Raise UsageError for settings that a field of the row key cannot have."""
    if settings.row_key is None:
        return
    if settings.row_key.keeps_fields and settings.fields.at(UNAVAILABLE).excluded:
        raise UsageError(f"{spelled_path(UNAVAILABLE)} is excluded, and rows keep their values by it")
    for path, role in settings.row_key.roles.items():
        for depth in range(1, len(path) + 1):
            field_settings = settings.fields.at(path[:depth])
            named = spelled_path(path[:depth])
            if field_settings.excluded:
                raise UsageError(f"{named} is excluded, and the {role} needs it")
            if field_settings.policy != "preserve":
                raise UsageError(
                    f"{named}: the policy is {field_settings.policy}, and fields of the {role} need preserve",
                    f'policies."{named}" = "preserve"',
                )
            if depth < len(path) and isinstance(field_settings.hint, List | Map):
                raise UsageError(f"{named}: no {role} is inside a list or a map")
            if depth == len(path) and not isinstance(field_settings.hint, Primitive | None):
                raise UsageError(f"{named}: a {role} is not a list, map or struct")


def _dialect(properties: Mapping[str, str]) -> Dialect:
    """Read the dialect from properties. Raises UsageError for settings that contradict each other."""
    # Most tables hold no CSV: they share one dialect, which nobody has to check for each batch.
    stated = {name: properties[key] for key, name in _DIALECT.items() if properties.get(key)}
    if not stated:
        return UNSTATED
    try:
        return Dialect(**stated)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(str(error)) from error
