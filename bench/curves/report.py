"""The curves as tables, as JSON and as one picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .points import Panel

BLUES, GREYS = ("#1f6feb", "#79b8ff", "#0a3069"), ("#9aa4ae", "#57606a", "#c8d1da")
COLUMNS = 4  # of the picture


def text(panel: Panel) -> str:
    """A table: a line for each curve, a column for each size."""
    sizes = sorted({size for curve in panel.curves.values() for size in curve.points})
    head = [f"{panel.title}, {panel.unit}; {panel.over}:", *(f"{size:,}" for size in sizes), "slope"]
    rows = [
        [
            curve.name,
            *(_number(curve.at(size)) if size in curve.points else "" for size in sizes),
            panel.verdict(curve),
        ]
        for curve in panel.curves.values()
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = "|" + "|".join("-" * (w + 2) if not i else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([_line(head, widths), rule, *(_line(row, widths) for row in rows)])


def save(panels: list[Panel], machine: dict[str, Any], folder: Path) -> None:
    """Writes growth.json, growth.md and growth.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [
        {
            "panel": panel.title,
            "unit": panel.unit,
            "over": panel.over,
            "limit": panel.limit,
            "curves": {
                curve.name: {"points": curve.points, "slope": curve.slope, "bends": curve.bends(panel.limit)}
                for curve in panel.curves.values()
            },
        }
        for panel in panels
    ]
    (folder / "growth.json").write_text(json.dumps({"machine": machine, "panels": found}, indent=1) + "\n")
    about = ", ".join(f"{k} {v}" for k, v in machine.items())
    (folder / "growth.md").write_text("\n\n".join([about, *map(text, panels)]) + "\n")
    plot(panels, folder / "growth.svg")


def plot(panels: list[Panel], file: Path) -> None:
    """A small picture for each panel, both scales logarithmic, with a dotted line as steep as linear growth."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"No {file.name}: there is no matplotlib (requirements/bench.txt has it).")
        return

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot as plt

    rows = -(-len(panels) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(12, 2.9 * rows), layout="constrained", squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _draw(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    blues, greys = iter(BLUES * 3), iter(GREYS * 3)
    lowest = min((curve.at(x) for curve in panel.curves.values() for x in curve.points), default=1)
    highest = max((curve.at(x) for curve in panel.curves.values() for x in curve.points), default=1)
    sizes = sorted({x for curve in panel.curves.values() for x in curve.points})
    for curve in panel.curves.values():
        ours = curve.name.startswith("driftline")
        shown = sorted(curve.points)
        label = f"{curve.name}{', bends' if curve.bends(panel.limit) else ''}"
        axes.plot(
            shown,
            [curve.at(x) for x in shown],
            color=next(blues) if ours else next(greys),
            marker="o",
            markersize=3,
            linewidth=1.6 if ours else 1.2,
            label=label,
            zorder=3 if ours else 2,
        )
    axes.set_xscale("symlog" if 0 in sizes else "log", **({"linthresh": 1} if 0 in sizes else {}))
    axes.set_yscale("log")
    axes.set_xticks(sizes, [_size(x) for x in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if highest < 10 * lowest:  # what is flat should look so
        axes.set_ylim(lowest / 3.5, highest * 3.5)
    if positive := [x for x in sizes if x > 0]:
        limits = axes.get_ylim()
        axes.plot(
            positive,
            [highest * x / positive[-1] for x in positive],
            color="#d0d7de",
            linestyle=":",
            linewidth=1,
            zorder=1,
        )
        axes.set_ylim(limits)
    axes.set_title(f"{panel.title}, {panel.unit}", loc="left", fontsize=9)
    axes.set_xlabel(panel.over, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=6, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _line(cells: list[str], widths: list[int]) -> str:
    padded = (c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
    return f"| {' | '.join(padded)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _size(value: int) -> str:
    for step, unit in ((10**6, "M"), (10**3, "k")):
        if value >= step:
            return f"{value / step:g}{unit}"
    return str(value)
