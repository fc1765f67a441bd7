"""Progress in a notebook, and none elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from driftline.runtime.shown import notebook_progress


class ZMQInteractiveShell:
    """The shell by whose name IPython says that it is in a notebook."""


def test_a_notebook_has_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(value: object, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        shown.append(value._repr_html_())
        return SimpleNamespace(update=lambda value: shown.append(value._repr_html_()))

    display_module = SimpleNamespace(display=display)
    ipython = SimpleNamespace(get_ipython=ZMQInteractiveShell, display=display_module)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    show = notebook_progress("shop.<b>")
    show("writing")
    assert shown == ["<small>shop.&lt;b&gt;</small>", "<small>shop.&lt;b&gt;: writing</small>"]


def test_there_is_none_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    notebook_progress("shop.orders")("writing")
    monkeypatch.delitem(sys.modules, "IPython")
    notebook_progress("shop.orders")("writing")
    assert capsys.readouterr() == ("", "")
