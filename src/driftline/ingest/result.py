"""The result of one batch, as a value; `to_dict` is the JSON of `ingest --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, NotRequired, TypedDict

from driftline.core.changes import Change, ChangeJson, to_dict
from driftline.core.history.entries import Version, partition_text, sort_text
from driftline.core.planning.own_columns import field_of
from driftline.core.planning.plan import Conflict, Conversion, Plan, RecordRoute, lost_names
from driftline.core.schema.definition import Definition
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Schema, dotted
from driftline.core.settings.condition import Action, Expectation, paths_of
from driftline.core.settings.fields import FieldSettings, spelled_path
from driftline.core.support import as_json
from driftline.errors import DataError
from driftline.keys.settle import KeyCounts
from driftline.observe.observation import Observation, Tally, Violations
from driftline.runtime.shown import Shown

ConversionJson = TypedDict(
    "ConversionJson", {"path": str, "from": str, "to": str, "sample": str, "seen_in": str}
)


class ConflictJson(TypedDict):
    """A field whose values were refused. ``also_in``: their first places in further files, few of many."""

    path: str
    table_type: str
    incoming_type: str
    why: str
    sample: str
    seen_in: str
    also_in: NotRequired[list[str]]


class ViolationJson(TypedDict):
    """One thing for which an audit fails a batch. ``check``: what it breaks, such as ``fail-on sibling``."""

    check: str
    path: str
    text: str
    sample: str
    seen_in: str


ExpectJson = TypedDict(
    "ExpectJson",
    {
        "violations": int,
        "else": Literal["warn", "quarantine", "fail"],
        "sample": NotRequired[str],
        "seen_in": NotRequired[str],
    },
)


class TableLayoutJson(TypedDict):
    """The layout of a table that is created."""

    partition_by: list[str]
    sort_by: list[str]
    format_version: int


class ResultJson(TypedDict):
    """The result of one batch, as JSON.

    Attributes:
        rest: numbers of values beyond limits by path, null if unknown.
        held: numbers of held values by path, null if unknown.
        not_changes: numbers of envelope messages that change no row, by kind.
        settings: settings that the batch changes for later ones, if any.
        expect: the records that do not meet expectations, by their names, with the first one.
        inserted: records of a table with a key that inserted a row; likewise the fields to ``ignored``.
        malformed: why the first lines that are no records are set aside, with their places.
        audit: what the checks of an audit found, if it failed.
        pattern: that named the table, if one did.
    """

    table: str
    batch: str
    rows_read: int
    rows_written: int
    rows_quarantined: int
    changes: list[ChangeJson]
    converted: list[ConversionJson]
    untyped: list[str]
    dropped_names: dict[str, int]
    excluded: dict[str, int]
    rest: dict[str, int | None]
    held: dict[str, int | None]
    hints: list[str]
    snapshot: int | None
    settings: NotRequired[dict[str, str]]
    not_changes: NotRequired[dict[str, int]]
    inserted: NotRequired[int]
    updated: NotRequired[int]
    deleted: NotRequired[int]
    superseded: NotRequired[int]
    late: NotRequired[int]
    ignored: NotRequired[int]
    truncated: NotRequired[int]
    duplicate: NotRequired[int]
    expect: NotRequired[dict[str, ExpectJson]]
    conflicts: NotRequired[list[ConflictJson]]
    malformed: NotRequired[list[str]]
    layout: NotRequired[TableLayoutJson]
    audit: NotRequired[list[ViolationJson]]
    pattern: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing for which an audit fails a batch.

    Attributes:
        check: what it breaks, such as ``fail-on sibling``.
    """

    check: str
    text: str
    path: str = ""
    sample: str = ""
    seen_in: str = ""

    def to_dict(self) -> ViolationJson:
        """Return the form that `--json` prints."""
        return as_json(ViolationJson, self)

    def __str__(self) -> str:
        cause = ", ".join(filter(None, (self.sample, self.seen_in)))
        return f"{self.check}: {self.text}" + (f" ({cause})" if cause else "")


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    """The outcome of an expectation: its ``action``, and the records that do not meet it, if any."""

    action: Action
    violations: Violations | None = None

    @property
    def count(self) -> int:
        """The number of records that do not meet it."""
        return 0 if self.violations is None else self.violations.count

    def to_dict(self) -> ExpectJson:
        """Return it as JSON."""
        first = self.violations
        shown = {} if first is None else {"sample": first.sample, "seen_in": str(first.location)}
        return {"violations": self.count, "else": self.action, **shown}  # type: ignore[typeddict-item]


@dataclass(frozen=True, slots=True, repr=False)
class Result(Shown):
    """The result of one batch. Counts are records.

    Attributes:
        snapshot: the committed snapshot; None if nothing was written.
        before: the table's schema before the batch.
        new_definition: the definition of a new table, if a layout was requested.
        route: the fields that filled each column.
        location: the table's folder, if rows were written.
        bytes_read: bytes of the source's files.
        files_written: the number of new data files.
        bytes_written: bytes of the new data files.
        seconds: the duration of the batch.
        commit_seconds: the duration of the commit, including waits for other writers.
        retries: the number of those waits.
        tombstones: null values of topics, which are no records.
        marks: envelope messages that change no row, by kind.
        dry_run: the batch was only planned.
        by_key: the outcomes of records in a table with a key.
        settings: settings that the batch changes for later ones.
        audit: the violations for which the batch failed its audit.
        expect: the outcome of each expectation, by name.
    """

    table: str
    batch: str
    rows_read: int
    rows_written: int
    rows_quarantined: int
    changes: tuple[Change, ...] = ()
    converted: tuple[Conversion, ...] = ()
    untyped: tuple[str, ...] = ()
    dropped_names: dict[str, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    snapshot: int | None = None
    rejected: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    before: Schema = field(default_factory=Schema)
    rest: dict[str, int | None] = field(default_factory=dict)
    held: dict[str, int | None] = field(default_factory=dict)
    new_definition: Definition | None = None
    route: RecordRoute = field(default_factory=RecordRoute)
    location: str = ""
    bytes_read: int = 0
    files_written: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    commit_seconds: float = 0.0
    retries: int = 0
    tombstones: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    dry_run: bool = False
    by_key: KeyCounts | None = None
    settings: dict[str, str] = field(default_factory=dict)
    audit: tuple[Violation, ...] = ()
    expect: dict[str, ExpectationOutcome] = field(default_factory=dict)

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of records by outcome, those in quarantine aside."""
        return {"written": self.rows_written} if self.by_key is None else self.by_key.outcomes

    @property
    def outcomes_in_words(self) -> list[str]:
        """The outcomes in words; for changes by key only those that occur."""
        if self.by_key is None:
            return [f"{self.rows_written} written"]
        return [f"{count} {word}" for word, count in self.outcomes.items() if count] or ["nothing written"]

    @property
    def layout(self) -> TableLayoutJson | None:
        """The layout of the table that the batch creates, if one was requested."""
        if self.new_definition is None:
            return None
        version = Version(None, self.new_definition)
        return {
            "partition_by": partition_text(version),
            "sort_by": sort_text(version),
            "format_version": self.new_definition.format_version,
        }

    @property
    def unexpected(self) -> int:
        """The number of records that expectations set aside."""
        return sum(outcome.count for outcome in self.expect.values() if outcome.action == "quarantine")

    def with_expectations(self, expectations: Sequence[Expectation], observation: Observation) -> Result:
        """Add the outcomes of expectations, and hints at those that ask for what no record has."""
        tally, violations = observation.tally, observation.tally.violations
        outcomes = {e.name: ExpectationOutcome(e.action, violations.get(e.name)) for e in expectations}
        keys = {*observation.shape.fields, *(routed.key for routed in self.route.fields)}
        hints = [
            f"expect.{e.name}: no record has the field {spelled_path(path)}"
            for e in expectations
            for path in dict.fromkeys(paths_of(e.condition))
            # The fields of records that were set aside are not among the keys.
            if tally.records and e.name not in violations and path[0] not in keys
        ]
        return replace(self, expect=outcomes, hints=(*self.hints, *hints))

    def with_rest(self, waiting: Mapping[str, int | None], field_settings: FieldSettings) -> Result:
        """Add the values that went to the rest, beyond limits or held.

        Args:
            waiting: the number of values by path, None if unknown.
            field_settings: the settings of the table's paths.
        """
        rest: dict[str, int | None] = {}
        held: dict[str, int | None] = {}
        # Both may be many: a wide file has a thousand paths here, and a hundred thousand fields.
        routes = {route.key: route for route in self.route.fields} if waiting else {}
        for text, count in waiting.items():
            path = field_of(text)
            route = routes.get(path[0])
            has_column = route is not None and route.has_columns(path[1:])
            waits = field_settings.at(path).new_fields == "hold" and not has_column and "" not in path
            (held if waits else rest)[text] = count
        return replace(self, rest=rest, held=held)

    @property
    def malformed(self) -> list[str]:
        """The reasons for quarantine other than conflicts: lines that are no records."""
        causes = [str(conflict) for conflict in self.conflicts]
        return [reason for reason in self.rejected if not any(cause in reason for cause in causes)]

    def to_dict(self) -> ResultJson:
        """Return the JSON that `ingest --json` prints.

        ``conflicts`` is present only if records were refused, ``malformed`` if lines are no records,
        ``layout`` only if one was requested for a new table, ``audit`` only if the batch failed one.
        """
        counts = {} if self.by_key is None else asdict(self.by_key)
        return as_json(
            ResultJson,
            self,
            changes=[to_dict(change) for change in self.changes],
            converted=[
                {
                    "path": dotted(c.path),
                    "from": type_name(c.source),
                    "to": type_name(c.target),
                    "sample": c.sample,
                    "seen_in": str(c.location),
                }
                for c in self.converted
            ],
            settings=self.settings or None,
            not_changes=self.marks or None,
            expect={name: outcome.to_dict() for name, outcome in self.expect.items()} or None,
            conflicts=[_conflict_to_dict(conflict) for conflict in self.conflicts] or None,
            malformed=self.malformed or None,
            audit=[violation.to_dict() for violation in self.audit] or None,
            **counts,
        )


_LISTED = 20  # violations


class AuditError(DataError):
    """A batch that failed its audit: nothing of it is committed.

    Attributes:
        result: of the batch, as it would have been, with the violations.
    """

    def __init__(self, result: Result) -> None:
        counts = Counter(violation.check for violation in result.audit)
        listed = [str(violation) for violation in result.audit[:_LISTED]]
        listed += [f"and {len(result.audit) - _LISTED} more"] * (len(result.audit) > _LISTED)
        super().__init__(
            f"{result.table}: the batch fails its audit, and nothing of it is committed: "
            + ", ".join(f"{count} {check}" for check, count in counts.items()),
            "\n  ".join(listed),
        )
        self.result = result


def _conflict_to_dict(conflict: Conflict) -> ConflictJson:
    path, seen_in = dotted(conflict.path), str(conflict.location)
    also_in = [str(location) for location in conflict.elsewhere] or None
    return as_json(ConflictJson, conflict, path=path, seen_in=seen_in, also_in=also_in)


def _placed(conflict: Conflict, tally: Tally) -> Conflict:
    """Give a conflict the places of its refused records; without a sample, as of a missing key, the first."""
    record = next((r for r in tally.reasons if r.reason.startswith(str(conflict))), None)
    if not conflict.sample and record is not None:
        conflict = replace(conflict, sample=record.sample, location=record.location)
    places = tally.refused.get(conflict.refuses, ())
    # Of a typed source, whose facets have no lines
    if places and not conflict.location.line:
        conflict = replace(conflict, location=places[0])
    return replace(conflict, elsewhere=tuple(p for p in places if p.source != conflict.location.source))


def result(
    table: str, batch: str, observation: Observation, plan: Plan, written: int = 0, quarantined: int = 0
) -> Result:
    """Build the result of a batch from its observation and plan.

    Args:
        table: the table's name.
        batch: the batch's id.
        observation: gives the counts.
        plan: gives the schema changes.
        written: the number of records written.
        quarantined: the number of records in quarantine.
    """
    tally = observation.tally
    return Result(
        table,
        batch,
        tally.records + tally.rejected,
        written,
        quarantined,
        plan.changes,
        plan.converted,
        tuple(dotted(path) for path in plan.untyped),
        {dotted((*path, '""')): count for path, count in lost_names(plan.route, tally.dropped_names).items()},
        dict(tally.excluded),
        plan.hints,
        rejected=tuple(str(bad) for bad in tally.reasons),
        conflicts=tuple(_placed(conflict, tally) for conflict in plan.conflicts),
        before=plan.before,
        route=plan.route,
        tombstones=tally.tombstones,
        marks=dict(tally.control_messages),
    )
