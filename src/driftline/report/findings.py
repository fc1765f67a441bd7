"""The changes of a plan as findings of a pull-request check: annotations, or JUnit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict
from xml.etree import ElementTree as ET

from driftline.core.changes import AddColumn, Change, RelaxColumn
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.text import counted
from driftline.core.schema.types import Map, SourceLocation, dotted
from driftline.core.support import as_json
from driftline.ingest.result import Result, Violation
from driftline.operations.contract import Break
from driftline.report.lines import clean, from_folder, short

# What a batch would change counts, not what the table has: one that drifted before passes.
OF_SCHEMA = ("new", "widen", "sibling", "map")
KINDS = (*OF_SCHEMA, "rest", "quarantine", "expect")


class FindingJson(TypedDict):
    """One thing that a batch would do to a table, or that breaks a contract. ``line`` 0: not known."""

    kind: str
    path: str
    text: str
    why: str
    sample: str
    file: str
    line: int


class ContractCheckJson(TypedDict):
    """The findings of a contract's check: each break by a table, or by data."""

    table: str
    ok: bool
    breaks: list[FindingJson]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a batch would do to a table. ``kind``: one of `KINDS`; ``line`` 0: not known."""

    kind: str
    path: str
    text: str
    why: str = ""
    sample: str = ""
    file: str = ""
    line: int = 0

    def to_dict(self) -> FindingJson:
        """The form that `--json` prints."""
        return as_json(FindingJson, self)

    @property
    def place(self) -> str:
        """The file, and the line if it is known."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        cause = (
            f" ({', '.join(filter(None, (self.sample, self.place)))})" if self.sample or self.place else ""
        )
        return f"{self.kind}: {self.text}{cause}" + (f": {self.why}" if self.why else "")


def findings(result: Result) -> Iterator[Finding]:
    """The findings of a batch, done or planned: each change of a column, each reason for which
    records wait.
    """
    for change in result.changes:
        if isinstance(change, AddColumn) and (change.within or is_metadata(change.column.doc)):
            continue
        file, line = _located(change.reason.place)
        yield Finding(
            _kind(change), dotted(change.path), _words(change), change.reason.why, change.reason.sample, file, line
        )  # fmt: skip
    for path in (*result.rest, *result.held):
        yield Finding("rest", path, f"{path} gets no column", "it waits in the rest")
    for conflict in result.conflicts:
        path, sample = dotted(conflict.path), conflict.sample
        for location in (conflict.location, *conflict.elsewhere):
            yield Finding("quarantine", path, conflict.in_words, conflict.why, sample, *_located(location))
            sample = ""  # of the first place
    for name, outcome in result.expect.items():
        if (violations := outcome.violations) is not None:
            words = f"{counted(violations.count, 'record')} not as expected by {name}"
            yield Finding(
                "expect",
                name,
                words,
                f"else {outcome.action}",
                violations.sample,
                *_located(violations.location),
            )
    for reason in result.malformed:
        yield Finding("quarantine", "", from_folder(reason, Path.cwd()))


def of_tables(results: Iterable[Result]) -> Iterator[Finding]:
    """The findings of batches of several tables: each names its table."""
    for result in results:
        yield from (
            replace(of_table, text=f"{result.table}: {of_table.text}") for of_table in findings(result)
        )


def violations(fail_on: Collection[str], result: Result) -> list[Violation]:
    """The findings of a batch of kinds that an audit does not allow."""
    return [
        Violation(
            f"fail-on {finding.kind}",
            finding.text + (f": {finding.why}" if finding.why else ""),
            finding.path,
            finding.sample,
            finding.place,
        )
        for finding in findings(result)
        if finding.kind in fail_on
    ]


def schema_changes(result: Result) -> int:
    """The number of changes of the schema, metadata columns included; a struct's fields count with it."""
    return sum(not (isinstance(change, AddColumn) and change.within) for change in result.changes)


def broken(contract: Path, breaks: Iterable[Break]) -> Iterator[Finding]:
    """The differences of a table from the contract in this file."""
    for difference in breaks:
        yield Finding(
            difference.kind,
            dotted(difference.path),
            difference.text,
            file=from_folder(str(contract), Path.cwd()),
        )


def github(findings: Sequence[Finding], fail_on: Collection[str]) -> Iterator[str]:
    """A workflow command for each finding, which annotates the line of the
    file: an error if its kind fails the check.
    """
    for finding in findings:
        level = "error" if finding.kind in fail_on else "notice"
        place = {"file": finding.file, "line": str(finding.line or ""), "title": f"driftline: {finding.kind}"}
        properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in place.items() if value)
        yield f"::{level} {properties}::{_escaped(str(finding))}"


def junit(
    title: str, findings: Sequence[Finding], fail_on: Collection[str], kinds: Sequence[str] = KINDS
) -> str:
    """A test case for each kind, which fails if its kind does and there are findings of it; as XML.

    ``title``: the command and the table.
    """
    failed = [kind for kind in kinds if kind in fail_on and any(finding.kind == kind for finding in findings)]
    suite = ET.Element(
        "testsuite", name=f"driftline {title}", tests=str(len(kinds)), failures=str(len(failed))
    )
    table = title.rpartition(" ")[2]
    for kind in kinds:
        case = ET.SubElement(suite, "testcase", classname=table, name=kind)
        lines = "\n".join(clean(str(finding)) for finding in findings if finding.kind == kind)
        if kind in failed:
            ET.SubElement(case, "failure", message=lines.partition("\n")[0]).text = lines
        elif lines:
            ET.SubElement(case, "system-out").text = lines
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode")


def _kind(change: Change) -> str:
    if not isinstance(change, AddColumn):
        return "widen"
    if isinstance(change.type, Map):
        return "map"
    return "new" if change.reason.rule in ("", "first-sight") and change.is_plain else "sibling"


def _words(change: Change) -> str:
    path = dotted(change.path)
    match change:
        case AddColumn():
            return f"new column {path} {short(change.type)}"
        case RelaxColumn():
            return f"{path} becomes optional"
        case _:
            return f"{path} becomes {short(change.type)}"


def _located(location: SourceLocation | None) -> tuple[str, int]:
    return (from_folder(location.source, Path.cwd()), location.line) if location is not None else ("", 0)


def _escaped(text: str, also: str = "") -> str:
    """Text as workflow commands have it: line ends and what parts their fields as percent codes."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + also else c for c in text)
