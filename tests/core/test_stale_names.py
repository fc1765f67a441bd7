"""The files, code, commands, options and settings that docs, docstrings and comments name in backticks exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from keyword import iskeyword
from pathlib import Path

import click
import pytest
import typer

import driftline
import house
from driftline.cli.commands import app
from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS
from driftline.report.metrics import METRICS

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
# These pages describe the code; the others name columns, tables and files of their readers as well.
OF_CODE = ("CONTRIBUTING.md", "docs/decisions.md", "docs/how-it-works.md")
# Names of libraries, engines and specifications that the code itself does not spell out.
ELSEWHERE = {
    "--add-modules",
    "DeprecationWarning",
    "TableMetadata",
    "UpdateSchema",
    "add_data_files",
    "ducklake_column",
    "full",
    "read.json",
    "try_divide",
}

_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"(?<!`)(`{1,2})([^`]+)\1(?!`)")
_FILE = re.compile(r"[\w./-]+\.(?:py|md)")
_FOLDER = re.compile(r"(?:\w+/)+")
_DOTTED = re.compile(r"\w+(?:\.\w+)+(?:\(\))?")
_PROPERTY = re.compile(r"driftline\.[a-z][\w-]*")
_NAME = re.compile(r"_*[a-z]\w*_\w*|[A-Z][a-z0-9]+(?:[A-Z]\w*)+|[A-Z]+_[A-Z_]+|\w+\(\)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_SET = re.compile(r"--set ([\w.-]+)=")


def test_a_page_names_what_exists() -> None:
    stale = [
        f"{page}: {name}"
        for page in PAGES
        for _, name in quoted(_BLOCK.sub("", (ROOT / page).read_text()))
        if is_stale(name, everything=page in OF_CODE)
    ]

    assert stale == []


def test_a_docstring_or_comment_names_what_exists() -> None:
    stale = [
        f"{module}:{line}: {name}"
        for module, line, text in prose()
        for ticks, name in quoted(text)
        if (is_stale(name, everything=True) if len(ticks) == 1 else is_no_part(module, name))
    ]

    assert stale == []


@pytest.mark.parametrize(
    "name",
    [
        "core/judge.py",
        "core/gone/",
        "driftline.observe.parse",
        "driftline.observe.walk.gone",
        "driftline.gone",
        "commit.GONE",
        "Transaction.gone",
        "driftline gone TABLE",
        "driftline ingest FILE --gone",
        "--gone",
        "make gone",
        "--set gone=1",
        "gone_with_it",
    ],
)
def test_a_name_that_is_gone_is_noticed(name: str) -> None:
    assert is_stale(name, everything=True)


def quoted(text: str) -> Iterator[tuple[str, str]]:
    """Each text in backticks, after its opening backticks."""
    return ((ticks, " ".join(name.split())) for ticks, name in _QUOTED.findall(text))


def is_stale(name: str, *, everything: bool) -> bool:
    """Tell if a name looks like one of this project's, and nothing has it.

    ``everything``: check names of files and code, too, where other pages name their readers' own.
    """
    first, *others = name.removeprefix("driftline ").split()
    if name.startswith("driftline ") or (others and first in cli().commands):
        return not is_command([first, *others])
    if first == "make" and others:
        return not re.search(rf"^{re.escape(others[0])}:", around(), re.MULTILINE)
    if first.startswith("--"):
        settings = {setting.partition(".")[0] for setting in _SET.findall(name)}
        known = set(_OPTION.findall(name)) <= all_options() | ELSEWHERE
        return not (known and settings <= {*SETTINGS, *PATH_SETTINGS, "KEY"})
    if _FILE.fullmatch(name):
        return everything and not any(path.endswith(f"/{name}") for path in files())
    if _FOLDER.fullmatch(name):
        return everything and not any(f"/{name}" in path for path in files())
    if name.startswith("driftline.") or (everything and _DOTTED.fullmatch(name)):
        return not is_dotted(name.removesuffix("()"))
    return bool(everything and _NAME.fullmatch(name) and name.removesuffix("()") not in words() | ELSEWHERE)


def is_no_part(module: str, name: str) -> bool:
    """Tell if a name in double backticks (a parameter, member or value) does not occur in its module."""
    there = words_of(house.modules()[module]) | strings() | ELSEWHERE
    return name.isidentifier() and re.search("[a-z]", name) and not iskeyword(name) and name not in there


def is_command(words: Iterable[str]) -> bool:
    """Tell if the words are a command, with options that it has."""
    command: click.Command = cli()
    for word in words:
        if word.startswith("-"):
            if word.split("=")[0] not in options_of(command):
                return False
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return not word.islower()
            command = command.commands[word]
    return True


def is_dotted(name: str) -> bool:
    """Tell if a dotted name exists, or begins with nothing of this project's."""
    if name.startswith("driftline."):
        parts = re.match(r"[\w.-]*", name)[0].removeprefix("driftline.").split(".")
        own = ("toml", "__all__", *driftline.__all__, *METRICS)
        there = properties().union(f"driftline.{name}" for name in own)
        return is_in_modules(parts) or f"driftline.{parts[0]}" in there
    first, *rest = name.split(".")
    if first in PATH_SETTINGS or name.startswith("spark."):
        return True
    if first in classes():
        return any(rest[0] in words_of(node) for node in classes()[first])
    return first not in parts_of_modules() or name in ELSEWHERE or is_in_modules([first, *rest])


def is_in_modules(parts: list[str]) -> bool:
    """Tell if the parts end a module's name, or follow one with a name of that module."""
    for count in range(len(parts), 0, -1):
        ending = "." + ".".join(parts[:count])
        named = [module for module in house.modules() if f".{module}".endswith(ending)]
        if named:
            return count == len(parts) or any(parts[count] in words_of(house.modules()[m]) for m in named)
    return False


@cache
def prose() -> list[tuple[str, int, str]]:
    """Each docstring and comment of the package, with its module and line."""
    prose = []
    for module, tree in house.modules().items():
        prose += [(module, node.lineno, node.value.value) for node in nodes(tree) if is_docstring(node)]
        for line, text in enumerate(house.texts()[module].splitlines(), 1):
            if "#" in text and "`" in text:
                prose.append((module, line, text.partition("#")[2]))
    return prose


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def is_docstring(node: ast.AST) -> bool:
    """Tell if a statement is a bare text."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def strings_of(tree: ast.AST) -> list[str]:
    docstrings = {node.value for node in nodes(tree) if is_docstring(node)}
    texts = [node.value for node in nodes(tree) if isinstance(node, ast.Constant) and node not in docstrings]
    return [text for text in texts if isinstance(text, str)]


@cache
def words_of(tree: ast.AST) -> frozenset[str]:
    """The names in the code of a module or class, and the words in its texts; docstrings are none of these."""
    names = set(re.findall(r"\w+", " ".join(strings_of(tree))))
    for node in nodes(tree):
        if not isinstance(node, ast.Constant):
            for value in vars(node).values():
                if isinstance(value, str):
                    names.update(value.split("."))
    return frozenset(names)


@cache
def words() -> frozenset[str]:
    """All names of the package's code, and of what is around it."""
    return frozenset(re.findall(r"\w+", around())).union(*map(words_of, house.modules().values()))


@cache
def around() -> str:
    """The text of tests, benches and settings."""
    paths = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    others = [ROOT / name for name in ("Makefile", "pyproject.toml", "mkdocs.yml")]
    return "\n".join(path.read_text() for path in (*paths, *others) if path != Path(__file__))


@cache
def properties() -> frozenset[str]:
    """Properties of tables and snapshots as the code spells them, and those of settings."""
    spelled = {_PROPERTY.match(text)[0] for text in strings() if _PROPERTY.match(text)}
    return frozenset(spelled | {f"driftline.{n.replace('_', '-')}" for n in (*SETTINGS, *PATH_SETTINGS)})


@cache
def strings() -> frozenset[str]:
    """The texts of the code."""
    return frozenset(text for tree in house.modules().values() for text in strings_of(tree))


@cache
def classes() -> Mapping[str, list[ast.ClassDef]]:
    """The classes of each name."""
    named = defaultdict(list)
    for node in (node for tree in house.modules().values() for node in nodes(tree)):
        if isinstance(node, ast.ClassDef):
            named[node.name].append(node)
    return named


@cache
def parts_of_modules() -> frozenset[str]:
    """The names of packages and modules, without those around them."""
    return frozenset(part for module in house.modules() for part in module.split("."))


@cache
def cli() -> click.Group:
    return typer.main.get_command(app)


@cache
def all_options() -> frozenset[str]:
    """The options of all commands, and of the scripts around the package."""
    return frozenset(options_of(cli())).union(_OPTION.findall(around()))


def options_of(command: click.Command) -> set[str]:
    """The options of a command and of the commands in it."""
    below = command.commands.values() if hasattr(command, "commands") else ()
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *map(options_of, below))


@cache
def files() -> tuple[str, ...]:
    """The paths of the repository's own files."""
    folders = ("src", "tests", "docs", "bench")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return tuple(f"/{path.relative_to(ROOT)}" for path in (*paths, *ROOT.glob("*.*")))
