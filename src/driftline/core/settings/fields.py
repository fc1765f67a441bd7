"""The settings of a table's paths (policies, hints, epoch units, exclusions), as one tree.

The tree is walked along with the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from driftline.core.schema.date_pattern import DatePattern
from driftline.core.schema.types import Map, Path, Primitive, Struct, Type, peel, wrap
from driftline.core.settings.csv import JSON_SIGNS, Signs
from driftline.core.settings.declarations import default

PRESERVE = "preserve"  # the only policy that keeps values that fit no column

# Digits of a fraction of a second that the unit keeps.
EPOCH_DIGITS: Mapping[str, int] = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys of TOML that need no quotes
_LISTED = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")  # what stands between commas
_STEP = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_QUOTE = ": a key with a dot or a backtick stands in backticks, as in a.`b.c`"


class TextReading(NamedTuple):
    """The type that texts are read as, with the pattern of its dates and the ``signs`` of its numbers."""

    type: Primitive
    pattern: DatePattern | None = None
    signs: Signs = JSON_SIGNS


@dataclass(frozen=True, slots=True)
class FieldSettings:
    """The settings of the field at one path, with those of the fields below it in ``fields``.

    Attributes:
        policy: the field's own policy.
        inner: the default policy for everything below.
        hint: the declared type.
        pattern: the date pattern of its texts.
        texts: reads the texts of a field that a person has folded into one type.
        excluded: the field is left out.
        epoch_unit: "s", "ms", "us", "ns" or None.
        maps: objects whose keys are data become maps ("auto"), are only reported ("hint"), or stay structs
            ("off").
        new_fields: a field that the table lacks gets a column ("add") or waits in the rest ("hold").
        role: the field is part of the "key" or the "order" of rows.
    """

    policy: str = default("policy")
    inner: str = default("policy")
    epoch_unit: str | None = None
    hint: Type | None = None
    pattern: DatePattern | None = None
    texts: TextReading | None = None
    excluded: bool = False
    maps: str = default("maps")
    new_fields: str = default("new_fields")
    role: str = ""
    fields: Mapping[str, FieldSettings] = field(default_factory=dict)

    def of(self, key: str) -> FieldSettings:
        """Return the settings of a record's field, or of a map's ``value``."""
        return self.fields.get(key) or self._of_others()

    def at(self, path: Path) -> FieldSettings:
        """Return the settings at a path of the data, whose steps into lists are named ``element``."""
        field_settings = self
        for step in path:
            field_settings = field_settings.inside(1) if step == "element" else field_settings.of(step)
        return field_settings

    def _of_others(self) -> FieldSettings:
        """The settings of each field here that has none of its own."""
        return _without_settings(self.inner, self.epoch_unit, self.maps, self.new_fields)

    def inside(self, dim: int) -> FieldSettings:
        """Return the settings inside ``dim`` lists; the path may name the steps ``element`` or omit them."""
        if not dim:
            return self
        element = self.fields.get("element")
        merged = self if element is None else replace(element, fields={**self.fields, **element.fields})
        return merged.inside(dim - 1)

    def in_any_lists(self) -> FieldSettings:
        """Return the settings of a field in an unknown number of lists.

        The path may name each step ``element``, which may also be a key.
        """
        named, element = 0, self.fields.get("element")
        while element is not None:
            named, element = named + 1, element.fields.get("element")
        return self.inside(named)

    def taking_everything(self) -> FieldSettings:
        """Let new and excluded fields have columns, at any depth, also for records without a key."""
        fields = {key: field_settings.taking_everything() for key, field_settings in self.fields.items()}
        return replace(self, new_fields="add", excluded=False, role="", fields=fields)

    def all_at_once(self) -> FieldSettings:
        """Let new fields have columns, as those of a first batch have, also for records without a key."""
        fields = {key: field_settings.all_at_once() for key, field_settings in self.fields.items()}
        return replace(self, new_fields="add", role="", fields=fields)

    def excluding(self, path: Path) -> FieldSettings:
        """Exclude the field at a path; steps into lists may be omitted."""
        if not path:
            return replace(self, excluded=True)
        return replace(self, fields={**self.fields, path[0]: self.of(path[0]).excluding(path[1:])})

    def without_maps(self) -> FieldSettings:
        """Keep all objects structs, at any depth."""
        fields = {key: field_settings.without_maps() for key, field_settings in self.fields.items()}
        return replace(self, maps="off", fields=fields)

    @property
    def folds(self) -> bool:
        """True if no setting here or below keeps an object from becoming a map."""
        plain = (
            self.maps == "auto"
            and self.policy == PRESERVE
            and self.hint is None
            and not (self.excluded or self.role)
        )
        return plain and all(child.folds for child in self.fields.values())

    @property
    def needed(self) -> bool:
        """True if the field, or one inside it, is part of the key or the order."""
        return bool(self.role) or any(child.needed for child in self.fields.values())

    @property
    def excluded_keys(self) -> frozenset[str]:
        """The keys of the records here that are excluded."""
        return frozenset(key for key, child in self.fields.items() if child.excluded)

    @property
    def declares_fields(self) -> bool:
        """True if a hint names a field of the records here."""
        return any(
            child.hint is not None or child.declares_fields
            for key, child in self.fields.items()
            if key not in ("element", "value")
        )

    @property
    def empty(self) -> bool:
        """True if no path below has a setting."""
        return not self.fields


# One object for all of them: a wide table asks for each of its columns.
@lru_cache
def _without_settings(policy: str, epoch_unit: str | None, maps: str, new_fields: str) -> FieldSettings:
    """The contract of fields with no settings but the default ones of the records around them."""
    return FieldSettings(policy, policy, epoch_unit, maps=maps, new_fields=new_fields)


@dataclass(frozen=True, slots=True)
class OfPaths:
    """The settings of single paths, by setting. A path that ends in ``*`` covers everything below it."""

    policies: Mapping[Path, str] = field(default_factory=dict)
    hints: Mapping[Path, Type] = field(default_factory=dict)
    patterns: Mapping[Path, DatePattern] = field(default_factory=dict)
    texts: Mapping[Path, TextReading] = field(default_factory=dict)
    exclude: Collection[Path] = ()
    epoch_units: Mapping[Path, str] = field(default_factory=dict)
    maps: Mapping[Path, str] = field(default_factory=dict)
    new_fields: Mapping[Path, str] = field(default_factory=dict)
    roles: Mapping[Path, str] = field(default_factory=dict)


def field_settings(
    policy: str = default("policy"),
    *,
    epoch_unit: str | None = None,
    maps: str = default("maps"),
    new_fields: str = default("new_fields"),
    paths: OfPaths | None = None,
) -> FieldSettings:
    """Build the settings tree of a whole record. For each path the longest path in ``paths`` wins.

    >>> tree = field_settings(paths=OfPaths(policies={("payload", "*"): "strict"}))
    >>> tree.of("payload").policy, tree.of("payload").of("a").policy, tree.of("other").policy
    ('preserve', 'strict', 'preserve')
    """
    root = FieldSettings(policy, policy, epoch_unit, maps=maps, new_fields=new_fields)
    return root if paths is None else _grown(root, (), _by_path(paths))


def _by_path(paths: OfPaths) -> dict[Path, dict[str, object]]:
    """The given settings at each path."""
    by_path: dict[Path, dict[str, object]] = {}
    # `a.*` behind `a`: what it says of the fields below then stays.
    for path, policy in sorted(paths.policies.items(), key=lambda p: p[0][-1:] == ("*",)):
        if path[-1:] == ("*",):
            by_path.setdefault(path[:-1], {})["inner"] = policy
        else:
            by_path.setdefault(path, {}).update(policy=policy, inner=policy)
    for path, type_ in paths.hints.items():
        for step, declared in _declared(path, type_):
            by_path.setdefault(step, {})["hint"] = declared
    excluded = dict.fromkeys(paths.exclude, True)
    plain: dict[str, Mapping[Path, object]] = {
        "pattern": paths.patterns,
        "texts": paths.texts,
        "excluded": excluded,
        "epoch_unit": paths.epoch_units,
        "maps": paths.maps,
        "new_fields": paths.new_fields,
        "role": paths.roles,
    }
    for name, settings in plain.items():
        for path, setting in settings.items():
            by_path.setdefault(path, {})[name] = setting
    return by_path


def _declared(path: Path, type_: Type) -> Iterable[tuple[Path, Type]]:
    """Hints for the type itself and for each field of its records, which come into the table with them."""
    dim, base = peel(type_)
    match base:
        case Struct(fields):
            yield path, wrap(Struct(), dim)
            for f in fields:
                yield from _declared((*path, f.name), f.type)
        case Map(key, value):
            values = list(_declared((*path, "value"), value))
            yield path, wrap(Map(key, values[0][1]), dim)
            yield from values[1:]
        case _:
            yield path, type_


def _grown(
    field_settings: FieldSettings, path: Path, settings: Mapping[Path, Mapping[str, object]]
) -> FieldSettings:
    field_settings = replace(field_settings, **settings.get(path, {}))  # type: ignore[arg-type]
    keys = dict.fromkeys(p[len(path)] for p in settings if len(p) > len(path) and p[: len(path)] == path)
    default = field_settings._of_others()
    return replace(field_settings, fields={key: _grown(default, (*path, key), settings) for key in keys})


def epoch_units(field_settings: FieldSettings, path: Path = ()) -> Iterable[tuple[Path, str]]:
    """Yield the paths with an epoch unit of their own."""
    for key, child in field_settings.fields.items():
        if child.epoch_unit is not None and child.epoch_unit != field_settings.epoch_unit:
            yield (*path, key), child.epoch_unit
        yield from epoch_units(child, (*path, key))


def parse_path(text: str) -> Path:
    """Split a path into its steps; a key with a dot stands in backticks. Raises ValueError.

    >>> parse_path("a.`b.c`.element")
    ('a', 'b.c', 'element')
    """
    steps, position = [], 0
    while True:
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a path{_QUOTE}")
        steps.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(text):
            return tuple(steps)
        if text[position] != ".":
            raise ValueError(f"{text!r} is not a path{_QUOTE}")
        position += 1


def parse_paths(text: str) -> tuple[Path, ...]:
    """Split a list of paths with commas between them. Raises ValueError.

    >>> parse_paths("a.b, `c,d`")
    (('a', 'b'), ('c,d',))
    """
    parts = _LISTED.findall(text)
    return tuple(parse_path(part.strip()) for part in parts)


def spelled_path(path: Path) -> str:
    """Spell a path as settings do; a key that could be misread stands in backticks.

    >>> spelled_path(("a", "b.c"))
    'a.`b.c`'
    """
    return ".".join(map(_spelled, path))


def toml_line(setting: str, path: Path, value: str, why: str) -> str:
    """Format a path's setting as a line of `driftline.toml`, with ``why`` as its comment.

    The line belongs below the table's name. Without a ``path`` it is the table's setting.

    >>> toml_line("maps", ("a", "b.c"), "off", "b.c is a map")
    'maps.a."`b.c`" = "off"  # b.c is a map'
    """
    steps = (step if _BARE.fullmatch(step) else _quoted(step) for step in map(_spelled, path))
    return f"{'.'.join((setting, *steps))} = {_quoted(value)}  # {_printable(why)}"


def _spelled(step: str) -> str:
    return step if step and not set(step) & set(".`") else f"`{step.replace('`', '``')}`"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def excluded_paths(field_settings: FieldSettings, path: Path = ()) -> Iterator[Path]:
    """Yield the excluded paths as written."""
    for key, child in field_settings.fields.items():
        if child.excluded:
            yield (*path, key)
        else:
            yield from excluded_paths(child, (*path, key))
