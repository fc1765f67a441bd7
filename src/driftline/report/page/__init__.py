"""A table's statistics as one page for a browser: one file, which asks the network for nothing.

What is data is escaped by the template, or put into the document as text by the script; and the page's
own policy lets no script run but that one.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from driftline.report.page import rows
from driftline.stats.model import Stats

_HERE = Path(__file__).parent


def page(of: Stats) -> str:
    """The page, as the text of an HTML file."""
    script = (_HERE / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= rows.FILTERS
    return environment.get_template("page.html").render(
        stats=of,
        fields=[rows.card(one) for one in of.drifted],
        columns=_inert(rows.columns(of)),
        style=Markup((_HERE / "page.css").read_text()),  # noqa: S704  our own
        script=Markup(script),  # noqa: S704  our own
        digest=digest,
    )


def _inert(value: Any) -> Markup:
    """JSON that no parser of HTML takes for markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
