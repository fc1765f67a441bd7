"""The docs: the site builds with no warning and no network, and its sessions print what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from system.docs_session import comparable, demo_files, run, steps

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["../README.md", "tutorial.md", "pull-requests.md"])
def test_session(name: str, tmp_path: Path) -> None:
    demo_files(DOCS / name, tmp_path)
    for step in steps((DOCS / name).read_text(), tmp_path):
        assert comparable(run(step.command, tmp_path)) == comparable(step.output), step.command


QUESTIONS = (
    "What does it do to my data?", "How do I start?", "How do I see what changed?", "How do I say no to a change?",
    "How do I run it in production?", "What does it cost?", "How do I get out again?",
)  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomer_s_question_is_one_click_from_the_first_page(question: str) -> None:
    lines = (DOCS / "index.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"| {question} |"))
    targets = re.findall(r"\]\(([\w/-]+\.md)", line)
    assert targets and all((DOCS / target).is_file() for target in targets)


def test_site(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    unreachable = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    done = subprocess.run(
        [mkdocs, "build", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=DOCS.parent, env=os.environ | unreachable | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pages = {path.parent.name: path.read_text() for path in (tmp_path / "site").rglob("index.html")}
    assert "--on-conflict" in pages["options"]
    for words in (
        "there is no setting",
        "the store denies access",
        "Java ran out of memory",
        "is the broker up",
    ):
        assert words in pages["messages"], words
    assert "fonts.googleapis" not in pages["tutorial"]
