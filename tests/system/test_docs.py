"""The docs: their sessions print what they say, and they name what there is."""

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from answering import Commands
from driftline.cli.commands import app
from driftline.cli.scope import Invocation
from system.docs_session import PAGES, ROOT, Shell, comparable, demo_files, steps

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def shell(command_line: Commands) -> Shell:
    return Shell(command_line)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PAGES)
def test_session(shell: Shell, name: str, tmp_path: Path) -> None:
    demo_files(tmp_path)
    for step in steps((ROOT / name).read_text(), tmp_path):
        printed = shell.run(step, tmp_path)
        assert step.output is None or words(printed) == words(step.output), step.text


def words(output: str) -> list[str]:
    """An output word by word: lines with a path break elsewhere where the folder's name is longer."""
    return comparable(output).split()


# Commands that pages show and no session runs, by how they begin or what they name, and why.
NOT_RUN = {
    r"pip install ": "tests run on what it installs",
    r"(\w+=\S+ )?make [a-z-]+": "servers that run until Ctrl-C, and measurements of minutes; tests start the same",
    r"\.venv/bin/python bench/": "measurements of minutes",
    r"driftline demo( --files \.)?$": "test_cli and test_cli_usage run it",
    r"driftline .*(kafka|s3|https)://": "tests of sources and notices run the same with servers of their own",
    r"driftline ingest day\.jsonl .* 'mail ": "there is no mail; test_settle gives notice to other commands",
    r"CHAT_URL=": "test_examples runs the script",
    r"export STORE_KEY=": "test_deploy sets them",
    r"uvx? (--from|tool install) ": "`make bench-install` runs the second",
    r"docker (build|run) ": "there is no Docker; the page says so",
    r"driftline capture .* --resume-from (table|checkpoint)": "test_capture_restored resumes both ways",
    r"(aws s3 cp --recursive lake/data|driftline relocate --yes)": "test_ducklake_bucket takes a DuckLake there",
    r"driftline erase ": "test_cli runs it, and what it counts as files is the writer's",
    r"driftline compact ": "test_cli runs it, and bytes are the writer's",
    r"driftline replan shop.sizes --html": "test_cli runs it, beside --json",
    r"driftline expire ": "test_cli runs it, and its times are those of the day",
    r"driftline --lake lake ui": "test_ui_cli starts it, and ends it as Ctrl-C does",
    r"driftline seek ": "test_capture_restored and test_capture_cli run it",
    r"cp (-r )?lake/": "test_capture_restored copies the same and puts it back",
    r"\*/10 \* \* \* \*": "there is no cron; its command is a capture like others",
    r"15 3 \* \* \*": "there is no cron; test_cli runs its commands",
    r"sudo systemctl ": "there is no systemd; test_cli runs the commands of the service",
}
# Each block has a language: `console` is run, `sh` is above, and `text` is what no command of a page prints.
LANGUAGES = {"console", "sh", "python", "json", "toml", "yaml", "ini", "sql", "text"}
TEXT_WITH_COMMANDS = {"docs/maps.md": "real data, which test_maps takes where they are at hand"}
_BLOCK = re.compile(r'^( *)```(\w*)(?: title="[^"]+")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str, str]]:
    """Page, language and text of each block of the docs."""
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        for indent, language, body in _BLOCK.findall(path.read_text()):
            text = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
            yield str(path.relative_to(ROOT)), language, text


def commands_not_run() -> list[str]:
    """The commands of blocks that no session runs, without comments."""
    shown = [text.replace("\\\n", "") for _, language, text in blocks() if language == "sh"]
    return [re.split(r"\s+# ", line)[0] for text in shown for line in text.splitlines()]


def test_each_block_of_commands_is_run_or_says_why_not() -> None:
    for page, language, text in blocks():
        assert language in LANGUAGES, f"{page}: {text}"
        if language == "console":
            assert page in {*PAGES, "docs/deploy.md", "docs/kafka.md"}, f"{page}: in no session: {text}"
        elif re.search(r"^\$ ", text, re.MULTILINE):
            assert page in TEXT_WITH_COMMANDS, f"{page}: is to be a console: {text}"
    for command in commands_not_run():
        assert any(re.match(known, command) for known in NOT_RUN), f"neither run nor listed: {command}"
    for known in NOT_RUN:
        assert any(re.match(known, command) for command in commands_not_run()), f"nowhere: {known}"


def test_commands_stand_in_blocks_with_a_language() -> None:
    for path in (ROOT / "README.md", *DOCS.rglob("*.md")):
        others = _BLOCK.sub("", path.read_text())
        assert re.findall(r"^ {4,}(?:\$ |driftline |make |pip ).*", others, re.MULTILINE) == [], path.name


COMMANDS: dict[str, click.Command] = typer.main.get_command(app).commands
_COMMAND = re.compile(rf"\bdriftline ((?:{'|'.join(COMMANDS)}) [^>]+)")


@pytest.mark.parametrize("line", [line for line in commands_not_run() if _COMMAND.search(line)])
def test_a_command_that_is_not_run_has_options_that_there_are(line: str) -> None:
    name, *words = shlex.split(_COMMAND.search(line)[1])
    with COMMANDS[name].make_context(name, words, obj=Invocation()) as parsed:
        assert parsed.args == []


def test_the_page_of_commands_names_each_of_them() -> None:
    page = (DOCS / "commands.md").read_text()
    assert set(re.findall(r"^\| `driftline ([\w-]+)", page, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, kind, text in blocks() if kind == "toml"])
def test_toml_can_be_read(page: str, text: str) -> None:
    assert tomllib.loads(text), page


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


# What an error may be made of that has no words of its own: those of another error, or of what is named here.
HANDED_ON = re.compile(r"\berror\b|\b(?:sentence|message|change|no_value|conflicts|why)\b")


@pytest.mark.nightly
def test_each_error_has_a_line_among_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    generated = importlib.import_module("generated")
    modules = generated.sources()
    page = generated.messages(modules)
    for name in modules:
        for error, known in generated.errors(modules, name):
            rows = list(generated.shown(error, known))
            says = any(message.strip("…: ()") for message, _, _ in rows)
            assert says or HANDED_ON.search(ast.unparse(error)), f"{name}: {ast.unparse(error)}"
            assert all(generated._cell(message) in page for message, _, _ in rows)
    for words in (
        "no files to ingest in this folder",
        "returned no schema",
        "is not …",
        "half of a surrogate",
    ):
        assert words in page, words
    # A name stands for what its own function assigns to it.
    assert not re.search(r"it (?:format v3|values would be lost)|become … \\\| is", page)


def test_summaries_of_commands_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    lines = importlib.import_module("generated").options().splitlines()
    summaries = [line for line in lines if re.match(r"\* `[a-z]+`: ", line)]
    assert len(summaries) > 20
    assert not [line for line in summaries if line.endswith("...")]
