"""Pages of the site that are made from the code: options of commands, settings, messages of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from driftline.cli import app
from driftline.runtime import failure, store_answers
from driftline.settings import PATH_SETTINGS, SETTINGS

SOURCES = Path(__file__).parent.parent / "src/driftline"
_KINDS = {int: "a whole number", None: "a text"}
EXIT_CODES = {"DataError": 1, "UsageError": 2, "SetupError": 3}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, each time that the site is built."""
    pages = {"options": options(), "settings": settings(), "messages": messages()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def options() -> str:
    """All commands with their arguments and options, as `--help` tells them."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="driftline", title="Options")
    return text.replace("**", "")


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
            values = setting.values
            shown = (
                ", ".join(f"`{value}`" for value in values) if isinstance(values, tuple) else _KINDS[values]
            )
            default = f"`{setting.default}`" if setting.default else ""
            lines.append(f"| `{name}{suffix}` | {setting.about} | {shown} | {default} |")
    return "\n".join(lines) + "\n"


def messages() -> str:
    """Every error that driftline raises by name, or makes of what Spark, Java and stores say, with
    what to do; `…` stands for what the message fills in.
    """
    rows = {row for path in SOURCES.rglob("*.py") for row in _errors(ast.parse(path.read_text()))}
    rows |= {(re.sub(r"{\w+}", "…", words), hint or "", 1) for _, words, hint in failure._CAUSES}
    rows |= {(f"…: {words}", hint or "", 3) for _, words, hint in store_answers._ANSWERS}
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
    return "\n".join(lines) + "\n"


def _errors(module: ast.Module) -> Iterator[tuple[str, str, int]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXIT_CODES:
            hints = [word.value for word in node.keywords if word.arg == "hint"] + node.args[1:]
            message = _text(node.args[0]) if node.args else ""
            hint = _text(hints[0]) if hints else ""
            if f"{message}{hint}".strip("…: "):
                yield message, hint, EXIT_CODES[node.func.id]


def _text(node: ast.expr) -> str:
    """The words of a literal; `…` for whatever is computed."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "…"


def _cell(text: str) -> str:
    for special in "\\`*_|<>[]":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
