"""The public API: named in one place, complete and documented."""

from __future__ import annotations

import subprocess
import sys

import pytest

import driftline
import house


def test_all_that_a_user_can_call_or_type_says_what_it_does() -> None:
    docs = house.public_api()

    assert len(docs) > 200
    assert [name for name, doc in docs.items() if not doc] == []


def test_an_error_can_be_caught_without_spark() -> None:
    code = "import sys; from driftline import DriftlineError; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_else_is_given_out() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = driftline.nothing
