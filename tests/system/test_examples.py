"""Examples of the docs that no session shows: each is run, or at least read, as what it is."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from answering import Commands
from core.test_notice import DRIFT
from driftline.report.listeners import Notice
from servers.http_server import serving

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^ *```$', re.MULTILINE | re.DOTALL)


def examples(kind: str) -> Iterator[tuple[str, str, str]]:
    """Page, title and text of each example that is written in this language."""
    for page in sorted(DOCS.glob("*.md")):
        for indent, language, title, body in _FENCE.findall(page.read_text()):
            if language == kind:
                yield page.name, title, re.sub(f"^{indent}", "", body, flags=re.MULTILINE)


@pytest.mark.parametrize(("page", "title", "text"), list(examples("python")))
def test_python_can_be_read(page: str, title: str, text: str) -> None:
    compile(text, f"{page} {title}", "exec")


@pytest.mark.parametrize(("page", "title", "text"), list(examples("yaml")))
def test_yaml_can_be_read(page: str, title: str, text: str) -> None:
    assert yaml.safe_load(text)


class Chat(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.got = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_chat_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = (text for _, title, text in examples("python") if title == "to_chat.py")
    (tmp_path / "to_chat.py").write_text(script)
    with serving(Chat) as server:
        monkeypatch.setenv("CHAT_URL", f"http://127.0.0.1:{server.server_port}/T0/B0")
        assert Notice(f"cd {tmp_path} && {sys.executable} to_chat.py").send(DRIFT)
    assert server.got["text"].splitlines() == [
        "shop.orders: 1 changes, 0 records in quarantine",
        "• s.size_string string (string does not fit the field's columns: long): string",
    ]


@pytest.mark.nightly
def test_the_page_of_python_runs(tmp_path: Path, command_line: Commands) -> None:
    lines = [text for page, _, text in examples("python") if page == "python.md"]
    done = command_line.python(tmp_path, "\n".join(lines))
    assert done.code == 0, done.err
    assert "10115" in done.out
    assert "cannot be found" in done.out and "`Lake.tables()`" in done.out


@pytest.mark.nightly
def test_the_notebook_runs(tmp_path: Path, command_line: Commands) -> None:
    cells = json.loads((DOCS / "notebook.ipynb").read_text())["cells"]
    lines = ["def shown(value):", "    assert value is None or value._repr_html_()"]
    for cell in cells:
        if cell["cell_type"] == "code":
            body = ast.parse("".join(cell["source"])).body
            if isinstance(body[-1], ast.Expr):  # which a notebook shows
                body[-1].value = ast.Call(ast.Name("shown"), [body[-1].value], [])
            lines.append(ast.unparse(ast.fix_missing_locations(ast.Module(body, []))))
    done = command_line.python(tmp_path, "\n".join(lines))
    assert done.code == 0, done.err


def test_the_image_takes_what_there_is() -> None:
    root = DOCS.parent
    lines = (root / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split() for line in lines if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "ARG", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {step[0] for step in steps} <= known
    given = [step[1:-1] for step in steps if step[0] == "COPY"]
    copied = [name for names in given if not names[0].startswith("--from=") for name in names]
    kept = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(kept)
    assert [name for name in copied if not (root / name).exists()] == []
    # All that pip installs is pinned by its hash, and what builds the package is among it.
    for step in (" ".join(step) for step in steps if "pip" in step):
        assert "--require-hashes" in step or "--no-deps --no-build-isolation" in step, step
    assert "hatchling==" in (root / "requirements/build.txt").read_text()
