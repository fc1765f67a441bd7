"""Progress in a notebook: one line below the cell, which is replaced as the work goes on."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable

_KERNEL = "ZMQInteractiveShell"  # IPython's in a notebook; in a terminal it has another


class _ProgressLine:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<small>{html.escape(self.text)}</small>"


def progress(title: str) -> Callable[[str], None]:
    """Show the present phase in a notebook; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is None or type(ipython.get_ipython()).__name__ != _KERNEL:
        return lambda _: None
    line = ipython.display.display(_ProgressLine(title), display_id=True)

    def show(phase: str) -> None:
        """Replace the line by the phase."""
        line.update(_ProgressLine(f"{title}: {phase}"))

    return show
