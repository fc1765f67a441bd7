"""`driftline.toml`: the lake, its catalog, and the settings of tables and captures."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from driftline.core.settings.properties import as_properties, flattened
from driftline.errors import DriftlineError, UsageError

FILE = "driftline.toml"
DEFAULT = Path("lake")

# A property of the catalog, because its FileIO passes it on to whoever commits.
DURABILITY = "driftline.durability"  # a property of Iceberg catalogs

_KEYS = ("lake", "format", "catalog", "store", "tables", "kafka", "registry", "durability")
_FORMATS = ("iceberg", "ducklake")
_DUCKLAKE = "duckdb"
# The catalog of a DuckLake in its folder
_INSIDE = {
    "duckdb": "catalog.ducklake",
    "sqlite": "catalog.sqlite",
}
_CATALOGS = {"catalog.db": None, **{name: kind for kind, name in _INSIDE.items()}}  # by their files
# How DuckDB and libpq name what is a catalog here.
_OF_CATALOG = re.compile(r"(ducklake|duckdb|sqlite|postgres|postgresql):")
# What the name of a secret contains; Java reads it as well.
SENSITIVE = (
    r"token|secret|passw|credential|authorization|api.?key|access.?key|private|account.?key|sas(?!l)|jaas"
    r"|user\.info|key\.pem|keystore\.key"
)
_SECRET = re.compile(SENSITIVE, re.IGNORECASE)
# In Azure's URIs, the name of a container precedes the @.
_USERINFO = re.compile(r"(?<=://)(?<!abfss://)(?<!abfs://)[^/\s@]+(?=@)")
_PASSWORD = re.compile(r"""password\s*=\s*(?:"((?:[^"\\]|\\.)+)"|'([^']+)'|([^'"\s]+))""", re.IGNORECASE)
# `$${` is an escaped `${`.
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HIDDEN = "***"
# No secret, though a key of a test server may be so: it stands in paths and hints
_OURS = "driftline"


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of one command.

    ``catalog``: properties as `session.open_session` takes them; ``tables``: settings by the name of a table,
    or by a name with ``*``, as `settings_of` reads it. ``ducklake``: the
    catalog of a DuckLake, as `Lake.open` takes it; None: the lake is Iceberg. ``stores``: the options of each
    kind of store; ``uri``: the lake's, if it is in a store; ``kafka`` and ``registry``: settings of their
    clients, as `Table.capture` takes them. ``durable``: what is acknowledged outlives a power cut.
    """

    lake: Path = DEFAULT
    catalog: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ducklake: str | None = None
    stores: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)
    uri: str | None = None
    durable: bool = True

    @property
    def place(self) -> Path | str:
        """The folder of the lake, or the URI of a DuckLake in a store."""
        return self.lake if self.uri is None or self.ducklake is None else self.uri

    def settings_of(self, table: str) -> dict[str, str]:
        """The settings of a table: of all names that fit it, the more exact ones over the general ones.

        A name's ``*`` stands for a part between dots, or a piece of one.

        >>> tables = {"hooks.*": {"dates": "off", "policy": "widen"}, "hooks.push": {"dates": "on"}}
        >>> Config(tables=tables).settings_of("hooks.push")
        {'dates': 'on', 'policy': 'widen'}
        """
        names = [name for name in self.tables if _fits(name, table)]
        settings: dict[str, str] = {}
        for name in sorted(names, key=lambda name: (len(name.replace("*", "")), "*" not in name)):
            settings.update(self.tables[name])
        return settings

    def redact(self, text: str) -> str:
        """The text without secrets of the settings.

        >>> Config(catalog={"token": "s3cr3t"}).redact("401 for s3cr3t at http://me:pw@host/")
        '401 for *** at http://***@host/'
        """
        return redacted(
            text, self.catalog, *self.stores.values(), self.kafka, self.registry, {"": self.ducklake or ""}
        )


def _fits(name: str, table: str) -> bool:
    return re.fullmatch("[^.]*".join(map(re.escape, name.split("*"))), table) is not None


def redacted(text: str, *settings: Mapping[str, str]) -> str:
    """The text without the secrets of settings, which are known by name, and of URLs.

    >>> redacted("pw: wrong for alice", {"sasl.username": "alice", "sasl.password": "pw"})
    '***: wrong for alice'
    """
    secrets = {secret for mapping in settings for pair in mapping.items() for secret in _secrets(*pair)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _USERINFO.sub(HIDDEN, text)


def hide_secrets(error: BaseException, *settings: Mapping[str, str]) -> None:
    """Take the secrets of settings and URLs out of an error, and out of those behind it.

    Notebooks, `logging.exception` and schedulers print an error with its causes.
    """
    checked: dict[int, tuple[BaseException, BaseException]] = {}  # both are kept: an id counts as long

    def safe(link: BaseException) -> BaseException:
        """The error itself, or what stands for it: other libraries keep their text each in its own way."""
        if id(link) in checked:
            return checked[id(link)][1]
        text = "".join(traceback.format_exception_only(link)).strip()
        hidden, replacement = redacted(text, *settings), link
        if isinstance(link, DriftlineError):
            link.rewrite(lambda text: redacted(text, *settings))
        elif hidden != text and link is not error:
            replacement = Exception(hidden).with_traceback(link.__traceback__)
        checked[id(link)] = link, replacement
        behind, suppressed = [link.__cause__, link.__context__], link.__suppress_context__
        replacement.__cause__, replacement.__context__ = (cause and safe(cause) for cause in behind)
        replacement.__suppress_context__ = suppressed
        return replacement

    safe(error)


def has_secret(key: str, value: str) -> bool:
    """True if a setting is a secret, or contains one.

    >>> has_secret("uri", "jdbc:postgresql://me:pw@host/db"), has_secret("uri", "jdbc:sqlite:/catalog.db")
    (True, False)
    """
    return bool(_SECRET.search(key) or _PASSWORD.search(value) or _USERINFO.search(value))


def _secrets(key: str, value: str) -> Iterable[str]:
    for groups in _PASSWORD.findall(value):
        yield from filter(None, groups)
    if value and value != _OURS and _SECRET.search(key):
        yield value
        if "user.info" in key or "credential" in key:
            yield from filter(None, [value.partition(":")[2]])
        if "authorization" in key.lower():
            yield from filter(None, [value.partition(" ")[2]])


def load(
    lake: str | None = None,
    file: Path | None = None,
    env: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Config:
    """Load the configuration: flags take precedence over the environment, and that over the file.

    ``lake`` and ``file`` are flags; without ``file``, a `driftline.toml` in ``folder``, the working
    directory, counts. A lake that a flag or the environment names by a path is a folder, whatever catalog the
    file names; it is a DuckLake if it contains one, or if the file says so and it contains none. A lake named
    by a URI has its files there, and the file names its catalog. Raises UsageError.
    """
    # An empty variable of the environment is one that is not set; in a flag it would name another lake.
    if lake == "":
        raise UsageError("an empty path names no lake", hint='pass a folder; "." is the current one')
    path = file or (folder or Path()) / FILE
    read = _read(path, env) if file or path.is_file() else Config()
    location = lake or env.get("DRIFTLINE_LAKE")
    if not location:
        by_file = read.uri is not None or any(not key.startswith("spark.") for key in read.catalog)
        return read if by_file else replace(read, ducklake=catalog_in(read.lake, read.ducklake))
    _no_catalog(location)
    if _is_uri(location):
        return replace(read, lake=DEFAULT, uri=location)
    # No shell does so behind `--lake=`, nor in the environment
    named = Path(location).expanduser()
    spark = {key: value for key, value in read.catalog.items() if key.startswith("spark.")}
    is_new = not any((named / name).is_file() for name in _CATALOGS)
    ducklake = catalog_in(named, _DUCKLAKE if read.ducklake and is_new else None)
    return replace(read, lake=named, uri=None, catalog=spark, ducklake=ducklake)


def catalog_in(folder: Path, named: str | None) -> str | None:
    """The catalog of the DuckLake in a folder; None if its lake is Iceberg, or is yet to be one.

    ``named``: the catalog of a DuckLake that a person names. Raises UsageError if the folder has another one,
    or two.
    """
    present = [name for name in _CATALOGS if (folder / name).is_file()]
    # Two lakes in one folder would each take the other's files for litter.
    if len(present) > 1:
        raise UsageError(
            f"{folder} has {' and '.join(present)}, the catalogs of two lakes",
            hint="move one of them, with the files of its tables, out of the folder",
        )
    if not present:
        return named
    (name,) = present
    if named is None:
        return _CATALOGS[name]
    if _file_of(folder, named) != Path(folder, name):
        raise UsageError(
            f"{folder} is a lake already, with its catalog in {name}, and the settings name another catalog",
            hint="leave out the catalog, or name another folder",
        )
    return named


def is_found_in(folder: Path, ducklake: str | None) -> bool:
    """True if the folder alone names its lake: an Iceberg lake, or a DuckLake whose catalog lies there as
    `driftline` calls it.

    >>> is_found_in(Path("lake"), "sqlite"), is_found_in(Path("lake"), "sqlite:elsewhere.db")
    (True, False)
    """
    if ducklake is None:
        return True
    inside = _INSIDE.get(ducklake.partition(":")[0])
    return inside is not None and _file_of(folder, ducklake) == Path(folder, inside)


def _file_of(folder: Path, ducklake: str) -> Path | None:
    """The file of a DuckLake's catalog; None for one of a server."""
    kind, _, path = ducklake.partition(":")
    return None if kind in ("postgres", "postgresql") else Path(folder, path or _INSIDE.get(kind, ""))


def _read(path: Path, env: Mapping[str, str]) -> Config:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", hint="pass another file with --config"
        ) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise UsageError(f"{path}: {error}") from error
    data = from_environment(data, path, env)
    for key in data:
        if key not in _KEYS:
            raise UsageError(f"{path}: there is no {key!r}", hint=nearest(key, _KEYS))
    ducklake = _ducklake(data, path)
    catalog, kafka, registry = (
        dict(_flat(_table(data, name, path), "", path, name)) for name in ("catalog", "kafka", "registry")
    )
    named = data.get("lake", str(DEFAULT))
    if not isinstance(named, str) or not named:
        raise UsageError(f"{path}: lake = {named!r} is not a path")
    _no_catalog(named)
    uri = named if _is_uri(named) else None
    if uri is None and "lake" in data and any(not key.startswith("spark.") for key in catalog):
        raise UsageError(f"{path}: lake and [catalog] each name a lake", hint="leave one of them out")
    lake = path.parent / Path(named).expanduser() if "lake" in data and uri is None else DEFAULT
    tables = {
        name: _settings(name, table_settings, path)
        for name, table_settings in _table(data, "tables", path).items()
    }
    stores = _table(data, "store", path)
    by_kind = {kind: dict(_flat(_table(stores, kind, path), "", path, f"store.{kind}")) for kind in stores}
    durable = is_durable(data.get("durability", "full"), f"{path}: ")
    return Config(lake, catalog, tables, ducklake, by_kind, kafka, registry, uri, durable)


def is_durable(durability: str, place: str = "") -> bool:
    """True if what is acknowledged is to outlive a power cut. Raises UsageError for another word than
    ``full`` and ``off``; ``place`` begins its message.
    """
    if durability not in ("full", "off"):
        raise UsageError(f"{place}durability = {durability!r} is not possible", hint="one of full, off")
    return durability == "full"


def is_catalog(lake: str) -> bool:
    """True if this names the catalog of a DuckLake, and no folder.

    >>> is_catalog("ducklake:sqlite:a.db"), is_catalog("s3://bucket/lake"), is_catalog("lakes/a")
    (True, False, False)
    """
    return bool(_OF_CATALOG.match(lake))


def _no_catalog(lake: str) -> None:
    """Raise UsageError if it names a catalog, where a lake is asked for."""
    if is_catalog(lake):
        install = "" if find_spec("duckdb") else "; first `pip install 'driftline[ducklake]'`"
        raise UsageError(
            f"{redacted(lake, {'': lake})} names a catalog, and a lake is a folder or a URI",
            hint=f'in {FILE}, format = "ducklake" and catalog = "duckdb:PATH" name a DuckLake\'s{install}',
        )


def _is_uri(lake: str) -> bool:
    return "://" in lake


def from_environment(value: Any, where: Path | str, env: Mapping[str, str] = os.environ) -> Any:
    """Replace `${NAME}` in the texts of a value, at any depth. ``where``: the place that the UsageError for
    an unset name reports.
    """
    match value:
        case dict():
            return {key: from_environment(item, where, env) for key, item in value.items()}
        case list():
            return [from_environment(item, where, env) for item in value]
        case str():
            return _VARIABLE.sub(lambda name: _variable(name, env, where), value)
        case _:
            return value


def _variable(name: re.Match[str], env: Mapping[str, str], where: Path | str) -> str:
    if name[0] == "$${":
        return "${"
    if name[1] not in env:
        raise UsageError(f"{where}: there is no {name[1]} in the environment", hint=f"export {name[1]}=…")
    return env[name[1]]


def _ducklake(data: dict[str, Any], path: Path) -> str | None:
    """Take the catalog of a DuckLake out of the settings: `catalog = "sqlite"`, or `uri` in its table."""
    format_ = data.get("format", "iceberg")
    if format_ not in _FORMATS:
        raise UsageError(
            f"{path}: format = {format_!r} is not possible", hint=f"one of {', '.join(_FORMATS)}"
        )
    if format_ == "iceberg":
        return None
    named = data.get("catalog", {})
    if isinstance(named, str):
        return str(data.pop("catalog"))
    catalog = _table(data, "catalog", path)
    for key in catalog:
        if key not in ("uri", "spark"):
            raise UsageError(
                f"{path}: the catalog of a DuckLake has no {key!r}",
                hint='uri = "duckdb", "sqlite" or "postgres:…"',
            )
    return _text(catalog.pop("uri", _DUCKLAKE), "catalog.uri", path)


def nearest(word: str, names: Iterable[str]) -> str:
    """The advice about an unknown word.

    >>> nearest("lakes", ["lake", "tables"])
    "did you mean 'lake'?"
    """
    names = list(names)
    near = difflib.get_close_matches(word, names, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def _table(data: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    section = data.get(key, {})
    if not isinstance(section, dict):
        raise UsageError(f"{path}: {key} is not a table", hint=f"write [{key}]")
    return section


def _flat(table: Mapping[str, Any], prefix: str, path: Path, place: str) -> Iterable[tuple[str, str]]:
    """Properties with dotted names, which TOML takes for tables in tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.", path, place)
        else:
            yield f"{prefix}{key}", _text(value, f"{place}.{prefix}{key}", path)


def _settings(name: str, table: Any, path: Path) -> dict[str, str]:
    if "." not in name:
        key = next(iter(table), "table") if isinstance(table, dict) else "table"
        raise UsageError(
            f"{path}: tables.{name} is not a table's settings", hint=f'write [tables."{name}.{key}"]'
        )
    if not isinstance(table, dict):
        raise UsageError(f'{path}: tables."{name}" is not a table', hint=f'write [tables."{name}"]')
    settings = dict(flattened(table))
    try:
        as_properties(settings)
    except UsageError as error:
        raise UsageError(f'{path}: [tables."{name}"]: {error.message}', error.hint) from error
    # As one spells them: a more exact name sets the same one.
    words = ((key.partition("."), value) for key, value in settings.items())
    return {head.replace("-", "_") + dot + rest: value for (head, dot, rest), value in words}


def _text(value: Any, where: str, path: Path) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case _:
            raise UsageError(f"{path}: {where} is not one value", hint="use a text, a number, true or false")
