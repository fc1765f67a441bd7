"""Hints of errors in the words of the surface that prints them: as written with flags, for Python, for `driftline.toml`."""

from __future__ import annotations

import importlib
import pickle
import re
from pathlib import Path

import pytest

from driftline.config import hide_secrets
from driftline.core.settings.declarations import SETTINGS
from driftline.core.settings.surfaces import in_flags, in_python, in_toml
from driftline.errors import DataError, UsageError
from driftline.runtime.front import front

DOCS = Path(__file__).parents[2] / "docs"
# Commands, and flags of such, that have nothing in Python.
SHELL_ALONE = re.compile(
    r"--(?:engine|config|metrics-file|glob)\b|driftline (?:clean|contract|doctor|view)\b"
)
# In hints of errors, what follows a flag as its value, beside values of settings and capitals that stand for any.
VALUES = {"csv", "json", "orc", "parquet", "excel", "again", "append", "table", "checkpoint", "cp1252", "_key", "_arrival",
          "https://HOST:PORT", "value is null", "map<string, long>", "date('dd.MM.yyyy')", "timestamptz", "", "."}  # fmt: skip


def hints(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Each hint of an error that the page of messages has, but those of the command line alone."""
    monkeypatch.syspath_prepend(DOCS)
    generated = importlib.import_module("generated")
    modules = generated.sources()
    return {
        hint.replace("…", "VALUE")
        for name in modules
        if not name.startswith("driftline.cli")
        for error, known in generated.errors(modules, name)
        for _, hint, _ in generated.shown(error, known)
    }


def test_hint_of_each_error_has_no_flag_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    every = hints(monkeypatch)
    assert len(every) > 100
    settings = {
        value
        for setting in SETTINGS.values()
        if isinstance(setting.values, tuple)
        for value in setting.values
    }
    for hint in every:
        spelled = SHELL_ALONE.sub("", in_python(hint))
        assert not re.search(r"--[a-z]|\bdriftline [a-z]+ [a-zV'\"-]+ --|in Python\)", spelled), spelled
        for value in re.findall(r'\b[a-z_]+=\[?"([^"]*)"', spelled):
            assert value in VALUES | settings or value.isupper(), spelled


@pytest.mark.parametrize(
    ("hint", "python", "toml"),
    [
        ("name one: --sheet NAME", 'name one: sheet="NAME"', 'name one: sheet = "NAME"'),
        ("--hint 'a b=list<long>' creates it", 'hints={"a b": "list<long>"} creates it', 'hints."a b" = "list<long>" creates it'),
        ("leave the field out: --exclude a.b", 'leave the field out: exclude=["a.b"]', 'exclude = "a.b"'),
        ("drop it without --purge", "drop it without purge=True", "drop it without --purge"),
        ("write --registry https://HOST:PORT", 'write registry="https://HOST:PORT"', "write --registry https://HOST:PORT"),
        ("a path such as in--format.d, of `tables`", "a path such as in--format.d, of `tables`", "a path such as in--format.d"),
        ("pass --lake FOLDER.", 'pass path="FOLDER".', "pass --lake FOLDER."),
        ("--skip-empty leaves them out", "skip_empty=True leaves them out", 'skip_empty = "true" leaves them out'),
        (
            "`driftline split s.t --by 'a.`b.c`'` makes them",
            '`Lake.fan_out(…).split("s.t")` makes them',
            "`driftline split s.t --by 'a.`b.c`'` makes them",
        ),
        ("driftline undo s.t --to 3", "Table.undo(to=3)", "driftline undo s.t --to 3"),
        ("driftline resolve s.t a.b --as TYPE", 'Table.resolve("a.b", "TYPE")', "driftline resolve s.t a.b --as TYPE"),
        ("""driftline alter "ALTER TABLE s.t SET TBLPROPERTIES ('a' = 'b')", which""",
         """Lake.alter("ALTER TABLE s.t SET TBLPROPERTIES ('a' = 'b')"), which""", "driftline alter"),
        ("driftline --lake '/a b' relocate --yes repairs it", 'Lake.open("/a b").relocate() repairs it', "driftline --lake"),
    ],
)  # fmt: skip
def test_hint_is_spelled_for_python_and_for_a_file_of_settings(hint: str, python: str, toml: str) -> None:
    assert (in_python(hint), in_flags(hint)) == (python, hint)
    assert toml in in_toml(hint)


def test_error_is_spelled_for_python_where_it_leaves_the_interface_and_for_the_shell_by_who_prints_it() -> (
    None
):
    @front
    class Front:
        """A class that users call."""

        def read(self) -> None:
            """Raise an error."""
            raise UsageError("a.xlsx has several sheets: --sheet s3cr3t", "name one: --sheet s3cr3t")

    with pytest.raises(UsageError) as raised:
        Front().read()
    error = raised.value
    message = "a.xlsx has several sheets: --sheet s3cr3t"
    assert (error.message, error.hint) == (message, 'name one: sheet="s3cr3t"')
    assert str(error) == f'{message}\nname one: sheet="s3cr3t"'
    hide_secrets(error, {"password": "s3cr3t"})
    assert error.hint == 'name one: sheet="***"'
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    error.spell(in_flags)
    assert str(error) == "a.xlsx has several sheets: --sheet ***\nname one: --sheet ***"


def test_error_without_a_hint_is_its_message() -> None:
    error = DataError("no")
    error.spell(in_python)
    assert (error.hint, str(error), error.args) == (None, "no", ("no",))
