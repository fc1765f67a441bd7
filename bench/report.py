"""The results: a table for each kind of data, a JSON file, a plot."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from check import Loss
from data import Data
from measure import MEMORY, Run

_HEAD = (
    "", "records", "rows/s", "seconds, warm", "seconds, whole process", "CPU-s per million",
    f"peak memory ({MEMORY}), MB", "values lost", "then a batch that drifts more",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on one kind of data. Medians of all rounds; ``peak``: the highest of all, bytes."""

    name: str
    title: str
    records: int
    rows_per_second: float | None
    warm: float | None
    whole: float | None
    cpu_per_million: float | None
    peak: int
    lost: Loss | None
    after: Loss | None
    error: str | None
    rounds: list[dict[str, Any]]
    versions: dict[str, str]

    @classmethod
    def of(
        cls, name: str, title: str, given: Data, runs: list[Run], lost: Loss | None, after: Loss | None
    ) -> Row:
        warm = _median([run.seconds["warm"] for run in runs if "warm" in run.seconds])
        cpu = _median([run.cpu["warm"] for run in runs if "warm" in run.cpu])
        return cls(
            name,
            title,
            given.records,
            warm and given.records / warm,
            warm,
            _median([run.whole for run in runs if run.whole]),
            cpu and cpu / given.records * 1e6,
            max(run.peak for run in runs),
            lost,
            after,
            runs[0].error,
            [{"warm": run.seconds.get("warm"), "whole": run.whole, "cpu": run.cpu, "peak": run.peak} for run in runs],
            runs[0].versions,
        )  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        if self.warm is None or self.whole is None or self.cpu_per_million is None or self.lost is None:
            return (self.title, f"{self.records:,}", *[""] * 5, f"all: fails, {_short(self.error)}", "")
        return (
            self.title,
            f"{self.records:,}",
            f"{self.rows_per_second:,.0f}",
            f"{self.warm:.1f}",
            f"{self.whole:.1f}",
            f"{self.cpu_per_million:.1f}",
            f"{self.peak / 1e6:,.0f}",
            _lost(self.lost),
            _lost(self.after) if self.after else f"fails, {_short(self.error)}" if self.error else "",
        )


@dataclass(slots=True)
class Results:
    """Of a whole run of the bench."""

    machine: dict[str, Any]
    tables: list[tuple[Data, list[Row]]] = field(default_factory=list)

    def add(self, given: Data, rows: list[Row]) -> None:
        """Keeps the results of one kind of data, and prints them."""
        self.tables.append((given, rows))
        print(f"\n{_text(given, rows)}\n", flush=True)

    def save(self, folder: Path) -> None:
        """Writes bench.json, bench.md and, of the first kind of data that drifts, bench.svg."""
        folder.mkdir(parents=True, exist_ok=True)
        found = {
            "machine": self.machine,
            "results": [
                {
                    "data": given.title,
                    "records": given.records,
                    "bytes": given.size,
                    "contestants": [asdict(r) for r in rows],
                }
                for given, rows in self.tables
            ],
        }
        (folder / "bench.json").write_text(json.dumps(found, indent=1) + "\n")
        versions = {k: v for _, rows in self.tables for row in rows for k, v in row.versions.items()}
        about = ", ".join(f"{k} {v}" for k, v in self.machine.items())
        used = ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        tables = "\n\n".join(_text(given, rows) for given, rows in self.tables)
        (folder / "bench.md").write_text(f"{about}\n\nVersions: {used}\n\n{tables}\n")
        plot(*self.tables[min(1, len(self.tables) - 1)], folder / "bench.svg")


def machine() -> dict[str, Any]:
    """The machine and the day."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "load before": round(os.getloadavg()[0], 1),
    }


def progress(name: str, i: int, run: Run) -> None:
    """One line for a process that ended."""
    took = ", ".join(f"{job} {seconds:.1f} s" for job, seconds in run.seconds.items())
    print(f"  round {i + 1}  {name:20} {took}{'  ' + run.error[:150] if run.error else ''}", flush=True)


def plot(given: Data, rows: list[Row], file: Path) -> None:
    """Bars of rows a second, with what is lost."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"No {file.name}: there is no matplotlib (requirements/bench.txt has it).")
        return

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot as plt

    shown = rows[::-1]
    figure, axes = plt.subplots(figsize=(8.6, 0.42 * len(shown) + 1.1), layout="constrained")
    speeds = [row.rows_per_second or 0 for row in shown]
    colors = ["#1f6feb" if row.name.startswith("driftline") else "#9aa4ae" for row in shown]
    axes.barh([row.title for row in shown], speeds, color=colors, height=0.68)
    for i, row in enumerate(shown):
        *_, lost, after = row.cells()
        note = f" {row.rows_per_second:,.0f}; lost: {lost}" if row.warm else " fails"
        axes.text(
            speeds[i],
            i,
            note + ("; the next batch fails" if after.startswith("fails") else ""),
            va="center",
            fontsize=9,
        )
    axes.set_xlim(0, max(speeds, default=1) * 1.75 or 1)
    axes.set_xlabel("rows a second, warm")
    axes.set_title(f"{given.records:,} {given.title}", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _text(given: Data, rows: list[Row]) -> str:
    lines = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    right = (False, *[True] * 6, False, False)

    def line(cells: tuple[str, ...]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = (
        "|"
        + "|".join(f"{'-' * (w + 1)}{':' if r else '-'}" for w, r in zip(widths, right, strict=True))
        + "|"
    )
    table = "\n".join([line(lines[0]), rule, *map(line, lines[1:])])
    return f"{given.title}: {given.records:,} records, {given.size / 1e6:.0f} MB\n\n{table}{_ratios(rows)}"


def _ratios(rows: list[Row]) -> str:
    """The product's warm time in each round over plain Spark's, the median of the rounds."""
    plain = next((row for row in rows if row.name == "spark" and row.warm), None)
    out = []
    for row in rows:
        if plain and row.name.startswith("driftline") and row.warm:
            pairs = [
                a["warm"] / b["warm"]
                for a, b in zip(row.rounds, plain.rounds, strict=False)
                if a["warm"] and b["warm"]
            ]
            out.append(f"{row.title}: {statistics.median(pairs):.2f} × the time of plain Spark")
    return f"\n\n{'; '.join(out)}." if out else ""


def _lost(loss: Loss) -> str:
    if not loss.lost:
        return "none"
    share = f"{loss.lost / loss.values:.2%}" if loss.lost / loss.values >= 0.0001 else "under 0.01%"
    text = f", {loss.as_text:,} left as text" if loss.as_text else ""
    return f"{loss.lost:,} ({share}{text})"


def _short(error: str | None) -> str:
    text = (error or "").replace("|", "/").replace("\n", " ")
    return text if len(text) <= 90 else text[:87] + "..."


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
