"""Generated pages of the site: options of commands, settings, messages of errors, cases of the rules."""

from __future__ import annotations

import ast
import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from driftline.cli import app
from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS
from driftline.runtime import failure, stores

SOURCES = Path(__file__).parent.parent / "src/driftline"
README = Path(__file__).parent.parent / "README.md"
RULES = Path(__file__).parent.parent / "tests/rules"
_EXAMPLE = re.compile(r"^<!-- example: (.+) -->$", re.MULTILINE)  # in a page: the title of a case
_HOME = "<!-- home of the README -->"
_KINDS = {int: "a whole number", None: "a text"}
EXIT_CODES = {
    "DataError": 1, "CommitConflict": 1, "ReplacedTable": 1, "UsageError": 2, "SetupError": 3, "NoLakeError": 3,
}  # fmt: skip
_SAYS_THE_SAME = {"redacted", "without_secrets"}
REASONS = {"EOFError", "Malformed", "NoSchemaError", "UnreadableError", "ValueError"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, each time that the site is built."""
    pages = {
        "options": options(),
        "settings": settings(),
        "messages": messages(),
        "examples": examples(),
        "notebook": notebook(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark of an example by the rules' case that it names, the home's by its session."""
    if _HOME in markdown:
        markdown = markdown.replace(_HOME, home())
    cases = {title: case for of_file in rule_cases().values() for title, case in of_file.items()}
    return _EXAMPLE.sub(lambda mark: folded_case(mark[1], cases[mark[1]]), markdown)


def home() -> str:
    """The session that the README begins with, where it is run and compared."""
    return README.read_text().partition("<!-- home: -->")[2].partition("<!-- :home -->")[0]


def rule_cases() -> dict[str, dict[str, str]]:
    """The text of each case in tests/rules, by its title, by the name of its file."""
    texts = {file.stem: file.read_text() for file in sorted(RULES.glob("*.txt"))}
    parts = {name: re.split(r"^# (.+)\n", text, flags=re.MULTILINE)[1:] for name, text in texts.items()}
    return {name: dict(zip(of[::2], of[1::2], strict=True)) for name, of in parts.items()}


def folded_case(title: str, case: str) -> str:
    """A case under its title, to be unfolded."""
    lines = ["```text", *case.strip().splitlines(), "```"]
    return f'??? example "{title.replace(chr(34), "&quot;")}"\n\n' + "\n".join(
        f"    {line}" for line in lines
    )


def examples() -> str:
    """Every case of the rules, by file."""
    readme = (RULES / "README.md").read_text().partition("\n")[2]
    lines = ["# The rules by example", "", readme.strip(), ""]
    for name, of_file in rule_cases().items():
        lines += [f"## {name.replace('_', ' ').capitalize()}", ""]
        lines += [f"{folded_case(title, case)}\n" for title, case in of_file.items()]
    return "\n".join(lines)


def options() -> str:
    """All commands with their arguments and options, as `--help` tells them."""
    command = typer.main.get_command(app)
    _show_whole_summaries(command)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="driftline", title="Options")
    return text.replace("**", "")


def notebook() -> str:
    """The cells of the notebook as a page."""
    cells = json.loads((Path(__file__).parent / "notebook.ipynb").read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    shown = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, texts, strict=True)
    ]
    return "\n\n".join([*shown, "[Download the notebook](../notebook.ipynb){: download}", ""])


def _show_whole_summaries(group: Any) -> None:
    """Give each command its whole first paragraph as its summary; click cuts it at 45 characters."""
    for command in group.commands.values():
        command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
        if hasattr(command, "commands"):
            _show_whole_summaries(command)


def settings() -> str:
    """Every setting of a table, and of a path."""
    lines = [
        "# Settings",
        "",
        "Kept with the table: given once, they hold for every later batch and capture. `partition_by`, `sort_by`",
        "and `format_version` count where the table is made.",
        "",
    ]
    lines += ["| `--set KEY=VALUE` | | values | default |", "|---|---|---|---|"]
    for names, suffix in ((SETTINGS, ""), (PATH_SETTINGS, ".PATH")):
        for name, setting in names.items():
            suffix = ".NAME" if name == "expect" else suffix
            values = setting.values
            shown = (
                ", ".join(f"`{value}`" for value in values) if isinstance(values, tuple) else _KINDS[values]
            )
            default = f"`{setting.default}`" if setting.default else ""
            lines.append(f"| `{name}{suffix}` | {setting.about} | {shown} | {default} |")
    return "\n".join(lines) + "\n"


def messages(modules: Mapping[str, ast.Module] | None = None) -> str:
    """Every error that driftline raises by name, or makes of what Spark, Java and stores say, with what to
    do; and the words that end messages, or are reasons in quarantine. `…` stands for what is filled in.
    """
    modules = modules or sources()
    rows = {row for name in modules for error, known in errors(modules, name) for row in shown(error, known)}
    rows |= {(re.sub(r"{\w+}", "…", words), hint or "", 1) for _, words, hint in failure._CAUSES}
    rows |= {(f"…: {words}", hint or "", 3) for _, words, hint in stores._ANSWERS}
    reasons = {words for name in modules for words in _reasons(modules, name)}
    lines = [
        "# Messages",
        "",
        "Each error is one sentence, and most say what to do. `…` stands for names, values and places.",
        "Search this page for the words that stay the same.",
        "",
        "| message | what to do | exit code |",
        "|---|---|---|",
    ]
    lines += [f"| {_cell(message)} | {_cell(hint)} | {code} |" for message, hint, code in sorted(rows)]
    lines += [
        "",
        "## Reasons",
        "",
        "Words that end other messages, or say why a record is in quarantine.",
        "",
    ]
    lines += [f"- {_cell(words)}" for words in sorted(reasons)]
    return "\n".join(lines) + "\n"


Names = Mapping[str, Sequence[ast.expr]]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> dict[str, ast.Module]:
    """The modules of driftline, by their names."""
    files = {path.relative_to(SOURCES.parent): path for path in SOURCES.rglob("*.py")}
    return {
        ".".join(name.with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for name, path in files.items()
    }


def scopes(modules: Mapping[str, ast.Module], name: str) -> Iterator[tuple[list[ast.AST], Names]]:
    """The nodes of each function of a module, and those outside of functions, with the names in reach."""
    module = modules[name]
    outside = [node for node in _outside_functions(module) if not isinstance(node, _FUNCTIONS)]
    shared = {**_imported(modules, outside), **_assigned(outside)}
    yield outside, shared
    for function in _outside_functions(module):
        if isinstance(function, _FUNCTIONS):
            nodes = list(ast.walk(function))
            yield nodes, ChainMap({**_imported(modules, nodes), **_assigned(nodes)}, shared)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, with functions, without what is inside these."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _FUNCTIONS):
            yield from _outside_functions(child)


def _assigned(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            values.setdefault(target.id, []).append(node.value)
    return values


def _imported(modules: Mapping[str, ast.Module], nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            constants = _assigned(modules[node.module].body)
            values |= {
                alias.asname or alias.name: constants[alias.name]
                for alias in node.names
                if alias.name in constants
            }
    return values


def errors(modules: Mapping[str, ast.Module], name: str) -> Iterator[tuple[ast.Call, Names]]:
    """The places in a module where an error is made by its name, with the names that can be used there."""
    for nodes, known in scopes(modules, name):
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXIT_CODES:
                yield node, known


def shown(error: ast.Call, known: Names) -> Iterator[tuple[str, str, int]]:
    """The message of such an error, its hint and its exit code; nothing where all of it is computed."""
    hints = [word.value for word in error.keywords if word.arg == "hint"] + error.args[1:]
    says = _texts(error.args[0], known) if error.args else [""]
    for message, hint in product(says, _texts(hints[0], known) if hints else [""]):
        if f"{message}{hint}".strip("…: "):
            yield message, hint, EXIT_CODES[error.func.id]


def _reasons(modules: Mapping[str, ast.Module], name: str) -> Iterator[str]:
    """The words of exceptions that become part of an error, or a reason."""
    for node, known in ((node, known) for nodes, known in scopes(modules, name) for node in nodes):
        error = node.exc if isinstance(node, ast.Raise) else None
        reason: ast.expr | None = None
        if isinstance(error, ast.Call) and error.args and ast.unparse(error.func) in REASONS:
            reason = error.args[0]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "why":
            reason = node.value
        texts = _texts(reason, known) if reason is not None else []
        yield from (words for words in texts if words.strip("…: "))


def _texts(node: ast.expr, known: Names, depth: int = 3) -> list[str]:
    """The texts that an expression may be; `…` for whatever is computed."""
    if isinstance(node, ast.Constant):
        return [str(node.value or "")]
    if isinstance(node, ast.JoinedStr):
        return ["".join(parts) for parts in product(*(_texts(part, known, depth) for part in node.values))]
    if isinstance(node, ast.FormattedValue):
        texts = _texts(node.value, known, depth)
        if isinstance(node.value, ast.Name):  # a sentence is told, a name or a value is not
            return [text for text in texts if " " in text and "…" not in text] or ["…"]
        return texts
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return ["".join(parts) for parts in product(_texts(node.left, known), _texts(node.right, known))]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, known, depth), *_texts(node.orelse, known, depth)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SAYS_THE_SAME:
        return _texts(node.args[0], known, depth)
    if isinstance(node, ast.Name) and depth and node.id in known:
        return [text for value in known[node.id] for text in _texts(value, known, depth - 1)]
    return ["…"]


def _cell(text: str) -> str:
    for special in "\\`*_|<>[]":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
