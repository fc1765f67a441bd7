"""A table's statistics, or its replan, as one HTML page, which loads nothing from the network.

The template escapes data, or the script inserts it as text; the page's own policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from driftline.report.page import chart, over_time, rows
from driftline.stats.lake import DAYS, LakeStats, by_pattern
from driftline.stats.model import Stats

if TYPE_CHECKING:
    from driftline.operations.replan import Replan

_HERE = Path(__file__).parent

INDEX = "index.html"
_LONG = 150  # characters
_PLAIN = re.compile(r"[a-z0-9_-][a-z0-9_.-]*")


def page(stats: Stats, index: str | None = None) -> str:
    """The page, as the text of an HTML file. ``index``: the name of that with all tables."""
    axes = over_time.axes(stats)
    return _rendered(
        "page",
        stats=stats,
        fields=[rows.card(field, axes) for field in stats.drifted],
        records=over_time.records(stats),
        refused=over_time.refused(stats),
        expectations=[(expected, over_time.expectation(expected)) for expected in stats.expectations],
        switch=chart.switch() if len(axes) > 1 else "",
        patterns=chart.patterns(),
        columns=_inert(rows.packed(rows.columns(stats))),
        index=index,
    )


def pages(lake: LakeStats) -> Iterator[tuple[str, str]]:
    """The pages of a whole lake, each with the name of its file. The page of all tables is last, after
    those it links to.
    """
    names = {table.table: _file_name(table.table) for table in lake.tables}
    for table in lake.tables:
        yield names[table.table], page(table, INDEX)
    yield INDEX, _rendered("index", lake=lake, rows=list(by_pattern(lake.tables)), names=names, days=DAYS)


def replan_page(planned: Replan) -> str:
    """The page of a replan: the columns of each field now and in one batch, as the text of an HTML file."""
    return _rendered(
        "replan",
        planned=planned,
        fields=[rows.now_and_then(field) for field in planned.fields],
        stay=[rows.now_and_then(field) for field in planned.stay],
        at=time.time_ns() // 1_000_000,
        patterns=chart.patterns(),
    )


def style() -> str:
    """The style sheet of all pages."""
    return f":root{{{chart.variables()}}}{(_HERE / 'page.css').read_text()}{chart.STYLE}"


def _rendered(name: str, **values: Any) -> str:
    file = _HERE / f"{name}.js"
    script = file.read_text() if file.exists() else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() if script else ""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= rows.FILTERS
    return environment.get_template(f"{name}.html").render(
        style=Markup(style()),  # noqa: S704  our own
        script=Markup(script),  # noqa: S704  our own
        digest=digest,
        **values,
    )


def _file_name(table: str) -> str:
    """A name that every file system has, and that is no other table's in any letter case.

    >>> _file_name("shop.orders"), _file_name("a.B/c")
    ('shop.orders.html', 'a.B_c-9949f130.html')
    """
    if _PLAIN.fullmatch(table) and len(table) < _LONG:
        return f"{table}.html"
    digest = hashlib.sha256(table.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', table)[:_LONG]}-{digest}.html"


def _inert(value: Any) -> Markup:
    """JSON that no parser of HTML takes for markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
