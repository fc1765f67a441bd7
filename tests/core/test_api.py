"""What users hold: named in one place, and all of it there and documented."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import driftline


@pytest.mark.parametrize("name", [name for name in driftline.__all__ if not name.startswith("_")])
def test_every_public_name_is_there_and_every_method_of_it_says_what_it_does(name: str) -> None:
    cls = getattr(driftline, name)
    if not isinstance(cls, type):
        assert isinstance(cls, tuple) or inspect.getdoc(cls)
        return
    own = [
        member
        for member, value in vars(cls).items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]

    assert inspect.getdoc(cls)
    assert [member for member in own if not inspect.getdoc(getattr(cls, member))] == []


def test_an_error_can_be_caught_without_spark() -> None:
    code = "import sys; from driftline import DriftlineError; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_else_is_given_out() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = driftline.nothing
