"""OpenLineage events of a batch: datasets with schemas, and the fields that feed each column."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.generated.base import DatasetFacet, InputDatasetFacet, RunFacet

from driftline import __version__
from driftline.core.changes import apply
from driftline.core.columns.siblings import ColumnOrigin, origins
from driftline.core.planning.plan import FieldRoute, RecordRoute
from driftline.core.schema.schema_json import outline, type_name
from driftline.core.schema.types import Field, Schema, children, dotted
from driftline.ingest.result import ExpectationOutcome, Result
from driftline.report.dataset_names import DatasetName, name_of

PRODUCER = f"urn:driftline:{__version__}"
_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OF_SCHEMA = schema_dataset.SchemaDatasetFacetFields


@dataclass(frozen=True, slots=True)
class LineageRun:
    """A batch in OpenLineage's terms: a run, with the table or pattern it goes into, and its sources."""

    id: str
    into: str
    capture: str | None
    inputs: Sequence[DatasetName]


class RunEvents:
    """Makes the events of batches into a table, or into the tables of a pattern, one after the other.

    Micro-batches that bring nothing new share a plan, so the facets that follow from a table's last plan are
    kept.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[Result, Sequence[DatasetName], dict[str, DatasetFacet]]] = {}

    def event(
        self,
        kind: str,
        moment: str,
        run: LineageRun,
        *,
        results: Sequence[Result] = (),
        error: str | None = None,
    ) -> RunEvent:
        """The event of one moment of a run.

        Args:
            results: of the committed batches of tables.
            error: the error's name.
        """
        engine = processing_engine_run.ProcessingEngineRunFacet(__version__, "driftline", producer=PRODUCER)
        facets: dict[str, RunFacet] = {"processing_engine": engine}
        facets |= _parent(os.environ.get("OPENLINEAGE_PARENT_ID", ""))
        if error is not None:
            message = f"{error}: its message is where the command was run"  # which may have a secret in it
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message, "PYTHON", producer=PRODUCER
            )
        outputs = [self._output(result, run.inputs) for result in results if result.location]
        return RunEvent(
            eventType=RunState[kind],
            eventTime=moment,
            run=Run(run.id, facets),
            job=_job(run.into, run.capture),
            inputs=[_input(name, results, alone=len(run.inputs) == 1) for name in run.inputs],
            outputs=outputs,
            producer=PRODUCER,
        )

    def _output(self, result: Result, inputs: Sequence[DatasetName]) -> OutputDataset:
        facets = dict(self._of_plan(result, inputs))
        if result.snapshot is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                str(result.snapshot), producer=PRODUCER
            )
        counts = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            result.rows_written, result.bytes_written, result.files_written, producer=PRODUCER
        )
        return OutputDataset(
            *name_of(result.location), facets=facets, outputFacets={"outputStatistics": counts}
        )

    def _of_plan(self, result: Result, inputs: Sequence[DatasetName]) -> dict[str, DatasetFacet]:
        """The facets that follow from the plan."""
        if result.table in self._last:
            before, last_inputs, facets = self._last[result.table]
            if before.route is result.route and before.changes is result.changes and last_inputs == inputs:
                return facets
        schema = apply(result.before, result.changes)
        columns = [_column(field) for field in schema.struct.fields]
        facets = {"schema": schema_dataset.SchemaDatasetFacet(columns, producer=PRODUCER)}
        if inputs:
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
                _lineage(result.route, schema, inputs), producer=PRODUCER
            )
        self._last[result.table] = result, inputs, facets
        return facets


def _parent(named: str) -> dict[str, RunFacet]:
    """The run that started this one, named ``NAMESPACE/JOB/RUN``; None if the text names none."""
    job, _, run = named.rpartition("/")
    namespace, _, name = job.rpartition("/")
    if not (namespace and name and _RUN.fullmatch(run)):
        return {}
    return {
        "parent": parent_run.ParentRunFacet(
            parent_run.Run(run), parent_run.Job(namespace, name), producer=PRODUCER
        )
    }


def _job(into: str, capture: str | None) -> Job:
    name = f"driftline.ingest.{into}" if capture is None else f"driftline.capture.{into}.{capture}"
    kind = "INGEST" if capture is None else "CAPTURE"
    # A micro-batch is a run that begins and ends; STREAMING are runs that do not end.
    facet = job_type_job.JobTypeJobFacet("BATCH", "DRIFTLINE", kind, producer=PRODUCER)
    return Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "default", name, {"jobType": facet})


def _input(name: DatasetName, results: Sequence[Result], *, alone: bool) -> InputDataset:
    """An input data set; its counts are known only if it is the only one (``alone``)."""
    if not results:
        return InputDataset(*name)
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(
            _seen([result.route for result in results]), producer=PRODUCER
        )
    }
    if not alone:
        return InputDataset(*name, facets=facets)
    counts = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        sum(result.rows_read for result in results),
        sum(result.bytes_read for result in results) or None,
        producer=PRODUCER,
    )
    input_facets: dict[str, InputDatasetFacet] = {"inputStatistics": counts}
    if expected := [outcome for result in results for outcome in result.expect.items()]:
        input_facets["dataQualityAssertions"] = _assertions(expected)
    return InputDataset(*name, facets=facets, inputFacets=input_facets)


def _assertions(expected: Sequence[tuple[str, ExpectationOutcome]]) -> InputDatasetFacet:
    """The expectations of records, by their names, and if all records met them."""
    assertion = data_quality_assertions_dataset.Assertion
    met: dict[str, bool] = {}
    for name, outcome in expected:
        met[name] = met.get(name, True) and outcome.count == 0
    return data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
        [assertion(name, success=success) for name, success in met.items()],
        producer=PRODUCER,
    )


def _column(field: Field) -> schema_dataset.SchemaDatasetFacetFields:
    """A column, with those inside: elements of lists, keys and values of maps, fields of structs."""
    inside = [_column(child) for child in children(field.type)]
    shown = outline(field.type) if inside else type_name(field.type)
    return _OF_SCHEMA(field.name, shown, field.doc, fields=inside or None)


def _seen(routes: Sequence[RecordRoute]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    """The fields of records, each with all types that it had."""
    by_key: dict[str, list[FieldRoute]] = defaultdict(list)
    for route in routes:
        for field in route.fields:
            by_key[field.key].append(field)
    return [_seen_field(fields) for fields in by_key.values()]


def _seen_field(fields: Sequence[FieldRoute]) -> schema_dataset.SchemaDatasetFacetFields:
    """A field as batches have seen it."""
    taken = [[column for column in field.columns if column.takes] for field in fields]
    inside = _seen([column.record for columns in taken for column in columns if column.record is not None])
    values = [[column.value for column in columns if column.value is not None][:1] for columns in taken]
    if any(values):
        inside.append(_seen_field([value for of_field in values for value in of_field]))
    spelled = dict.fromkeys(facet.spelled() for field in fields for facet in field.shape.facets)
    return _OF_SCHEMA(fields[0].key, " | ".join(spelled) or "unknown", fields=inside or None)


# The plan's routes state exactly which field and type went into which column; SQL would have to be read back.
def _lineage(
    route: RecordRoute, schema: Schema, inputs: Sequence[DatasetName]
) -> dict[str, column_lineage_dataset.Fields]:
    """By column, the fields of each input that its values come from."""
    sources: dict[str, list[column_lineage_dataset.InputField]] = defaultdict(list)
    for origin in origins(route, schema):
        change = _transformation(origin)
        sources[dotted(origin.column)] += [
            column_lineage_dataset.InputField(*name, dotted(origin.path), [change]) for name in inputs
        ]
    return {column: column_lineage_dataset.Fields(fields) for column, fields in sources.items()}


def _transformation(origin: ColumnOrigin) -> column_lineage_dataset.Transformation:
    if origin.exact:
        return column_lineage_dataset.Transformation("DIRECT", "IDENTITY")
    types = ", ".join(facet.spelled() for facet in origin.types) or "what has no column"
    return column_lineage_dataset.Transformation("DIRECT", "TRANSFORMATION", f"from {types}")
