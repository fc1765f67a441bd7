"""The pages: what each one reads of the lake, and the template that shows it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.core.changes import in_words, reportable
from driftline.core.history.batch_properties import rest_paths
from driftline.core.schema.schema_json import outline, type_name
from driftline.core.schema.types import Primitive, dotted
from driftline.errors import DriftlineError, SetupError, UsageError
from driftline.report import page
from driftline.report.lines import clean
from driftline.report.page import chart, over_time, rows
from driftline.report.stats_text import percent
from driftline.stats import ColumnStatistics, DriftedField, Stats
from driftline.stats.lake import PatternStats, by_pattern
from driftline.stats.model import fits
from driftline.ui.lake import ServedLake
from driftline.ui.limited_query import ROWS, SECONDS
from driftline.ui.writes import Writes

if TYPE_CHECKING:
    from starlette.requests import Request

LISTED = 500  # tables or columns on a page
_IN_SIGHT = 20  # drifted fields
_READING = 0.7  # seconds in which a page of tables reads what it does not know yet
_WAITS = 10.0  # seconds in which the page of a write waits for its end
_HERE = Path(__file__).parent


def link(place: str, **parameters: object) -> str:
    """The address of a page. Names of data stand in parameters, as they may have slashes and dots.

    >>> link("table", name="a/b.c&d")
    '/table?name=a%2Fb.c%26d'
    """
    given = {key: str(value) for key, value in parameters.items() if value not in ("", None)}
    query = urlencode(given, errors="backslashreplace")
    return f"/{place}?{query}" if query else f"/{place}"


class LakePages:
    """The pages of a lake, as an application that knows of no token. ``writes`` None: they only read.

    ``options``: those by which a command finds the lake.
    """

    def __init__(self, lake: ServedLake, writes: Writes | None = None, options: Sequence[str] = ()) -> None:
        self._lake = lake
        self._writes = writes
        self._style = page.style() + (_HERE / "ui.css").read_text()
        self._templates = Environment(
            loader=FileSystemLoader([_HERE, Path(page.__file__).parent]), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters |= rows.FILTERS | {
            "outline": outline, "percent": percent, "dotted": dotted, "bound": lambda bound, cut: rows.value(bound, cut) or "",
        }  # fmt: skip
        self._templates.globals |= {
            "link": link,
            "patterns": chart.patterns,
            "limit": ROWS,
            "seconds": SECONDS,
            "listed": LISTED,
            "writes": self._writes is not None,
            "options": f" {shlex.join(options)}" if options else "",
        }

    def application(self) -> Starlette:
        """The application of all pages."""
        places: Mapping[str, Callable[[Request], Response]] = {
            "/": self.tables, "/table": self.table, "/field": self.field, "/history": self.history,
            "/quarantine": self.quarantine, "/captures": self.captures, "/query": self.query,
            "/statistics": self.statistics, "/style.css": self.style,
        }  # fmt: skip
        handlers: Mapping[Any, Any] = {
            Exception: self.failed,
            DriftlineError: self.failed,
            HTTPException: self.missing,
        }
        routes = [Route(place, handler, methods=["GET"]) for place, handler in places.items()]
        if self._writes is not None:
            for place, handler in {"/plan": self.plan, "/write": self.planned}.items():
                routes.append(Route(place, partial(handler, self._writes), methods=["GET"]))
            routes.append(Route("/write", partial(self.write, self._writes), methods=["POST"]))
        return Starlette(routes=routes, exception_handlers=handlers)

    def tables(self, request: Request) -> Response:
        """The tables of the lake."""
        find, first = _text(request, "find"), _number(request, "first")
        names = [name for name in self._lake.names() if not find or fits(name, find)]
        shown = names[first : first + LISTED]
        summaries = self._lake.summaries(shown, _READING)
        return self._page(
            "tables",
            "",
            names=shown,
            found=len(names),
            first=first,
            find=find,
            summaries=summaries,
            lines=list(_by_pattern(shown, summaries)),
            open=_text(request, "open"),
        )

    def table(self, request: Request) -> Response:
        """A table: its drift, its columns, its last batches."""
        name, find, first = self._named(request, "name"), _text(request, "find"), _number(request, "first")
        stats = self._lake.stats(name)
        groups = [
            group for group in _groups(stats) if not find or any(fits(dotted(c.path), find) for c in group)
        ]
        exists = bool(stats.columns)
        return self._page(
            "table", name, stats=stats, groups=groups[first : first + LISTED], found=len(groups), first=first, find=find,
            **_drawn(stats, stats.drifted), in_sight=_IN_SIGHT,
            captures=self._lake.captures(name), rest=self._lake.has_rest(name) if exists else None, exists=exists,
        )  # fmt: skip

    def field(self, request: Request) -> Response:
        """A field: its columns, and the first rows of one of them."""
        name, path = self._named(request, "table"), _text(request, "path")
        stats = self._lake.stats(name)
        group = next(
            (group for group in _groups(stats) if any(clean(dotted(c.path)) == path for c in group)), None
        )
        if group is None:
            raise UsageError(f"{name} has no column {path}", "the page of the table lists its columns")
        chosen = next(column for column in group if clean(dotted(column.path)) == path)
        drifted = next((field for field in stats.drifted if chosen.path in _paths(field)), None)
        sql, answer, refusal = "", None, None
        try:
            sql, answer = self._lake.rows_with(name, chosen.path)
        except DriftlineError as error:  # the rest of the page tells all the same
            refusal = error
        return self._page(
            "field", name, stats=stats, group=group, chosen=chosen, sql=sql, answer=answer, refusal=refusal,
            **_drawn(stats, [drifted] if drifted else []), types=_types(drifted), waiting=self._in_rest(name, chosen),
        )  # fmt: skip

    def history(self, request: Request) -> Response:
        """The changes of a table's schema, and the difference of two versions."""
        name = self._named(request, "name")
        stats, history = self._lake.stats(name), self._lake.history(name)
        versions = sorted(history.schemas)
        ends = [_number(request, end, -1) for end in ("from", "to")]
        difference = None
        if -1 not in ends:
            changes = reportable(history.diff(*ends).changes)
            difference = [clean(in_words(change)) for change in changes]
        return self._page("history", name, stats=stats, versions=versions, ends=ends, difference=difference)

    def quarantine(self, request: Request) -> Response:
        """The records of a table that wait: by reason, and those with a text."""
        name, find = self._named(request, "name"), _text(request, "find")
        waiting = self._lake.quarantine(name)
        answer, refusal = None, None
        if waiting.waiting:
            try:
                answer = self._lake.waiting_records(name, find)
            except DriftlineError as error:
                refusal = error
        drawn = over_time.refused(self._lake.stats(name)) or ""
        switch = chart.switch() if "by-date" in drawn else ""
        return self._page(
            "quarantine", name, waiting=waiting, find=find, answer=answer, refusal=refusal, over_time=drawn, switch=switch
        )  # fmt: skip

    def captures(self, request: Request) -> Response:
        """The captures of all tables, and of patterns of tables."""
        names = [*self._lake.names(), *self._lake.patterns()]
        captures = [capture for name in names for capture in self._lake.captures(name)]
        return self._page("captures", "", captures=captures)

    def query(self, request: Request) -> Response:
        """The rows of a query."""
        sql, answer, refusal = _text(request, "sql"), None, None
        if sql.strip():
            try:
                answer = self._lake.ask(sql)
            except DriftlineError as error:
                refusal = error
        return self._page("query", "", sql=sql, answer=answer, refusal=refusal)

    def statistics(self, request: Request) -> Response:
        """The page that `driftline stats --html` writes, which has a script of its own."""
        text = page.page(self._lake.stats(self._named(request, "name")), "/")
        policy = text.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
        headers = {"content-security-policy": f"{policy}; frame-ancestors 'none'".replace("&#39;", "'")}
        return Response(_encoded(text), media_type="text/html", headers=headers)

    def plan(self, writes: Writes, request: Request) -> Response:
        """Plan a write; its own page shows it."""
        choices = {name: request.query_params.getlist(name) for name in request.query_params}
        planned = writes.plan(_text(request, "do"), self._named(request, "table"), choices)
        return RedirectResponse(link("write", id=planned.id), 303)

    def planned(self, writes: Writes, request: Request) -> Response:
        """A write: what it will change, its dry run and its button; then its outcome."""
        planned = writes.planned(_text(request, "id"))
        planned.wait(_WAITS)
        return self._page(
            "write", planned.write.table, planned=planned, outcome=planned.outcome, looked=planned.looked
        )

    def write(self, writes: Writes, request: Request) -> Response:
        """Begin a write; its page shows the outcome."""
        writes.begin(_text(request, "id"))
        return RedirectResponse(link("write", id=_text(request, "id")), 303)

    def style(self, request: Request) -> Response:
        """The style sheet: that of the page of statistics, and what these pages add."""
        return Response(self._style, media_type="text/css")

    async def missing(self, request: Request, error: HTTPException) -> Response:
        """The answer for an address that no page has."""
        return self._error("There is no such page.", None, error.status_code)

    async def failed(self, request: Request, error: Exception) -> Response:
        """The answer where a page cannot be made."""
        if not isinstance(error, DriftlineError):
            return self._error(f"This page could not be made: {type(error).__name__}.", None, 500)
        status = 404 if isinstance(error, UsageError) else 503 if isinstance(error, SetupError) else 500
        return self._error(error.message, error.hint, status)

    def _in_rest(self, name: str, column: ColumnStatistics) -> Sequence[str] | None:
        """The paths that wait in the rest, as far as the table knows them; None for another column."""
        if self._writes is None or column.path != (self._lake.has_rest(name),):
            return None
        return [clean(path) for path in rest_paths(self._lake.state(name).properties)]

    def _error(self, message: str, hint: str | None, status: int) -> Response:
        response = self._page("error", "", message=message, hint=hint)
        response.status_code = status
        return response

    def _named(self, request: Request, parameter: str) -> str:
        return self._lake.named(_text(request, parameter))

    def _page(self, template: str, table: str, **values: Any) -> Response:
        """A rendered page; ``table``: the one that it is about."""
        text = self._templates.get_template(f"{template}.html").render(
            lake=self._lake.title, table=table, has_queries=self._lake.has_queries, **values
        )
        return Response(_encoded(text), media_type="text/html")


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _text(request: Request, parameter: str) -> str:
    return request.query_params.get(parameter, "")


def _number(request: Request, parameter: str, default: int = 0) -> int:
    written = request.query_params.get(parameter, "")
    return int(written) if written.isdecimal() and len(written) < 10 else default


def _by_pattern(names: Sequence[str], summaries: Mapping[str, Stats | None]) -> Iterator[str | PatternStats]:
    """The tables of these names; those that a pattern made, as far as they are read, as one value."""
    read = [one for name in names if (one := summaries.get(name)) is not None]
    patterns = {one.tables[0].table: one for one in by_pattern(read) if isinstance(one, PatternStats)}
    inside = {table.table for pattern in patterns.values() for table in pattern.tables}
    for name in names:
        if name in patterns:
            yield patterns[name]
        elif name not in inside:
            yield name


def _drawn(stats: Stats, drifted: Sequence[DriftedField]) -> Mapping[str, Any]:
    """The first of some drifted fields; charts of those in sight, and the switch of their time axis."""
    axes = over_time.axes(stats)
    fields = [rows.card(field, axes if i < _IN_SIGHT else ()) for i, field in enumerate(drifted[:LISTED])]
    has_charts = any(field["over_time"] for field in fields)
    return {"fields": fields, "switch": chart.switch() if has_charts and len(axes) > 1 else ""}


def _types(field: DriftedField | None) -> Sequence[str]:
    """The types that a drifted field may be resolved to, by a guess: those that it came in, and text."""
    came = [type_ for part in field.parts for type_ in part.types] if field is not None else []
    return list(
        dict.fromkeys([*(type_name(type_) for type_ in came if isinstance(type_, Primitive)), "string"])
    )


def _paths(field: DriftedField) -> set[tuple[str, ...]]:
    return {path for part in field.parts for path in part.columns}


def _groups(stats: Stats) -> Sequence[Sequence[ColumnStatistics]]:
    """The columns by field: those of one field together, where the first of them stands."""
    by_field: dict[tuple[str, ...], list[ColumnStatistics]] = {}
    place = {path: field.path for field in stats.drifted for path in _paths(field)}
    for column in stats.columns:
        by_field.setdefault(place.get(column.path, column.path), []).append(column)
    return list(by_field.values())
