"""Printed forms of results in Python: as on the command line; in a notebook the same as HTML."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 120
_RENDERERS: dict[type, Callable[[Any], Iterable[RenderableType]]] = {}
_T = TypeVar("_T")


def shows(type_: type[_T], render: Callable[[_T], Iterable[RenderableType]]) -> None:
    """Register the lines that show values of a type."""
    _RENDERERS[type_] = render


class Shown:
    """A value that prints in its readable form, once `shows` has defined it; a dataclass of it has
    ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _printed(self).export_text().rstrip("\n") if type(self) in _RENDERERS else super().__repr__()

    def _repr_html_(self) -> str | None:
        if type(self) not in _RENDERERS:
            return None
        style = "line-height:1.4;font-family:ui-monospace,Menlo,Consolas,monospace"
        return _printed(self).export_html(
            inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
        )


def _printed(value: Shown) -> Console:
    from rich.console import Console

    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_jupyter=False, highlight=False, emoji=False, markup=False
    )  # fmt: skip
    for line in _RENDERERS[type(value)](value):
        console.print(line)
    return console
