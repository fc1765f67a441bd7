"""Printed forms of results: text, the same as HTML in a notebook, and a progress line."""

from __future__ import annotations

import html
import io
import sys
from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 120
_T = TypeVar("_T")


@singledispatch
def _lines(_: object) -> Iterable[RenderableType] | None:
    """The lines that show a value; None for a type without any."""
    return None


@singledispatch
def _charts(_: object) -> str:
    """HTML that follows the lines in a notebook."""
    return ""


def shows(
    type_: type[_T],
    render: Callable[[_T], Iterable[RenderableType]],
    charts: Callable[[_T], str] | None = None,
) -> None:
    """Register the lines that show values of a type, and HTML that follows them in a notebook."""
    _lines.register(type_, render)
    if charts is not None:
        _charts.register(type_, charts)


class Shown:
    """A value that prints in its readable form, once `shows` has defined it; a dataclass of it has
    ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        lines = _lines(self)
        return super().__repr__() if lines is None else text_of(lines)

    def _repr_html_(self) -> str | None:
        lines = _lines(self)
        if lines is None:
            return None
        style = "line-height:1.4;font-family:ui-monospace,Menlo,Consolas,monospace"
        html = _printed(lines).export_html(
            inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
        )
        return html + _charts(self)


def text_of(lines: Iterable[RenderableType]) -> str:
    """The text of printed lines, without styles."""
    return _printed(lines).export_text().rstrip("\n")


def _printed(lines: Iterable[RenderableType]) -> Console:
    from rich.console import Console

    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_jupyter=False, highlight=False, emoji=False, markup=False
    )  # fmt: skip
    for line in lines:
        console.print(line)
    return console


# IPython's in a notebook; in a terminal it has another
_KERNEL = "ZMQInteractiveShell"


class _ProgressLine:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<small>{html.escape(self.text)}</small>"


def notebook_progress(title: str) -> Callable[[str], None]:
    """Show the present phase in a notebook; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is None or type(ipython.get_ipython()).__name__ != _KERNEL:
        return lambda _: None
    line = ipython.display.display(_ProgressLine(title), display_id=True)

    def show(phase: str) -> None:
        """Replace the line by the phase."""
        line.update(_ProgressLine(f"{title}: {phase}"))

    return show
