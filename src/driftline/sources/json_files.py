"""Sources of JSON files: lines, or documents.

Tasks observe and convert them, and write the table's rows, in one pass if the plan is known or guessed
beforehand.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from driftline.core.planning.plan import Plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.table import TableSettings
from driftline.core.values import NOT_UTF8
from driftline.files.text import LineRange
from driftline.observe.json_lines import JsonObserver, Why
from driftline.observe.observation import Observation, copied, merge_observations
from driftline.observe.walk import FEWER_KEYS
from driftline.readers.excel import sheet_split, with_earlier_names
from driftline.readers.json.documents import lists_of_records
from driftline.readers.json.rows import JsonRows, LineTask, Run, SplitReader
from driftline.readers.json.splits import ObservedSplits, Share, Split, blocks, line_feeds, splits_of
from driftline.readers.rejects import Origin, Reject
from driftline.runtime.stores import at_once, mapped
from driftline.sources.listing import PathTexts, json_members
from driftline.sources.scan import BatchScan, Observed, ScanRequest, Source
from driftline.tasks.run import each
from driftline.write import PartTasks, is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SMALL = 4 * 2**20  # bytes of which a split is at least
# Bytes of the first lines that a guess is made of, where the order of the
# columns is decided; and of those at so many places behind them.
# What the first of them hold counts as observed in every part.
_FIRST, _HEAD, _HEADS = 2**22, 2**17, 32
_TEXT = 8  # bytes of text in one of a packed file, about


@dataclass(frozen=True, kw_only=True)
class JsonFiles(Source):
    """Files of JSON lines, or documents, as one batch.

    Attributes:
        texts: the texts in the paths of the files.
        ranges: the lines to read of some files; all of the others.

    ``workbooks``: they are Excel's, whose rows are read as texts of JSON. ``dealt``: the sheets by file, if
    some of their rows are read.
    """

    spark: SparkSession
    texts: PathTexts = field(default_factory=dict)
    ranges: Mapping[str, LineRange] = field(default_factory=dict)
    workbooks: bool = False
    dealt: Mapping[str, Sequence[Split]] | None = None
    as_text: bool = True

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> JsonScan:
        """Cut the files into splits, unless they were cut so ``before``."""
        request = self.request(schema, settings)
        # The splits know their first line numbers once they were observed, so they are used again.
        if isinstance(before, JsonScan) and before.is_cut_for(request):
            splits = before.splits
        else:
            splits = self._splits(settings)
        return JsonScan(request, request.terms, self.spark, splits)

    def runs(self, settings: TableSettings, excluded: Counter[str] | None = None) -> Iterator[Run]:
        """Read the texts in this process, file by file, each with its number in its file.

        ``excluded``: gets the count of documents with a value at each path outside their list of records.
        """
        terms = ScanRequest(Schema(), settings).terms
        files: list[Split] = []
        for split in self._splits(settings):
            if files and split.follows(files[-1]):
                files[-1] = replace(files[-1], length=files[-1].length + split.length)
            else:
                files.append(split)
        files = [split.to_end() for split in files]
        opened = SplitReader([list(enumerate(files))], terms, numbered=True).open(0)
        for group in opened.groups():
            yield from group
        if excluded is not None:
            for part in opened.observed():
                excluded.update(part.observation.tally.excluded)

    def sheets(self, settings: TableSettings) -> Sequence[Split]:
        """The sheets of workbooks."""
        return self._splits(settings)

    def _splits(self, settings: TableSettings) -> Sequence[Split]:
        """At least two splits a core, where the files can be cut so."""
        cut: Callable[[str], Sequence[Split]] = partial(
            splits_of, as_documents=bool(settings.records), ranges=self.ranges
        )
        if self.workbooks:
            cut = partial(sheet_split, sheet=settings.sheet) if self.dealt is None else self.dealt.__getitem__
        splits = [split for of_file in mapped(cut, self.files) for split in of_file]
        splits = with_earlier_names(splits, settings.csv) if self.workbooks else splits
        share = sum(split.length for split in splits) // (2 * self.spark.sparkContext.defaultParallelism)
        members = json_members(self.texts) if settings.hive and any(self.texts.values()) else {}
        return [
            replace(part, beside=members.get(part.path, ()))
            for split in splits
            for part in split.cut(max(share, _SMALL))
        ]


@dataclass(frozen=True, slots=True)
class JsonScan(BatchScan):
    """Splits of files of JSON; once observed, they have the numbers of their first lines.

    Attributes:
        first: the shape of the first lines, if they were observed.
        advice: on their sheets, and on documents that were refused.
    """

    spark: SparkSession
    splits: Sequence[Split]
    first: RecordShape = field(default_factory=RecordShape)
    advice: Sequence[str] = ()

    def is_cut_for(self, request: ScanRequest) -> bool:
        """True if another request has the same splits."""
        own_settings, requested = self.request.settings, request.settings
        same_cut = _cutting(own_settings) == _cutting(requested)
        return same_cut and self.request.versions == request.versions

    def _advised(self, observation: Observation) -> JsonScan:
        # Such documents are often refused because they are no records: the records inside have the key.
        return replace(self, advice=[*self.advice, *self._records_inside(observation)])

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> JsonRows:
        return JsonRows.of(plan, struct, self.terms, observation).beginning_with(self.first)

    def _tasks(self, conversion: JsonRows | None) -> PartTasks:
        splits = self.splits
        if conversion is not None:
            last = set({split.path: i for i, split in enumerate(splits)}.values())
            # A file that has grown since it was cut is read to its end, so that no added line goes unseen.
            splits = [split.to_end() if i in last else split for i, split in enumerate(splits)]
        return self._dealt(splits, lambda shares: SplitReader(shares, self.terms, conversion))

    def _to_reject(self) -> PartTasks:
        return self._dealt(self.splits, lambda shares: SplitReader(shares, self.terms, numbered=True))

    def _dealt(self, splits: Sequence[Split], reader: Callable[[Sequence[Share]], SplitReader]) -> PartTasks:
        """Tasks for all splits: one a core, because starting a Python task costs as much as ten megabytes."""
        sizes, context = [split.length for split in self.splits], self.spark.sparkContext
        numbers = self._shares(sizes, 1 if is_small(context, sum(sizes)) else context.defaultParallelism)
        shares = [[(number, splits[number]) for number in share] for share in numbers]
        return PartTasks(
            self.spark, [sum(sizes[number] for number in share) for share in numbers], reader(shares)
        )

    def _guess(self, last: Observation | None) -> Observed | None:
        """The observation of the table's last batch, or that of the first lines of large files.

        Returns None for small files, and for documents: such files are observed first.
        """
        if last is not None and self._size:
            return Observed(self._numbered(), last)
        is_text = all(not (split.document or split.bounded) for split in self.splits)
        if is_small(self.spark.sparkContext, self._size) or not is_text:
            return None
        return self._numbered()._first_lines()

    def _numbered(self) -> JsonScan:
        """Return the scan with the line numbers of its splits, if rows record their lines.

        Observing numbers them too, but a speculated plan makes the rows in the same pass.
        """
        cut = [number for number in range(len(self.splits)) if self._goes_on(number)]
        if not cut or "line" not in self.settings.metadata:
            return self
        # One pass over bytes. To number the rows afterwards would write them twice.
        counts = each(self.spark.sparkContext, line_feeds, [self.splits[number - 1] for number in cut])
        splits = list(self.splits)
        for number, before in zip(cut, counts, strict=True):
            splits[number] = splits[number].at_line(splits[number - 1].line + before)
        return replace(self, splits=splits)

    def _merged(self, parts: Sequence[Sequence[ObservedSplits]], *, converted: bool) -> Observed:
        """One observation of all parts, in each of which lines count from 1."""
        # Tasks end in any order; the columns follow the order of the files.
        in_order = sorted(chain.from_iterable(parts), key=lambda part: part.first)
        counts = {number: count for part in in_order for number, count in part.lines.items()}
        splits, line = [], 1
        for number, split in enumerate(self.splits):
            line = line if self._goes_on(number) else split.line
            splits.append(split.at_line(line))
            line += counts[number]
        merged = merge_observations(
            part.observation.shifted(splits[part.first].line - 1) for part in in_order
        )
        first = self.first if converted or not in_order else in_order[0].observation.shape
        notes = (note for part in in_order for note in part.notes)
        advice = list(dict.fromkeys([*self.advice, *notes]))
        return Observed(replace(self, splits=splits, first=first, advice=advice), merged)

    def _goes_on(self, number: int) -> bool:
        """True if a split is of the same file as the one before it."""
        return number > 0 and self.splits[number - 1].path == self.splits[number].path

    def _lines(self) -> Sequence[int]:
        return [split.line - 1 for split in self.splits]

    def _notes(self, observation: Observation) -> Sequence[str]:
        """Notes on sheets whose header looks like data, on text that is not UTF-8, and on documents.

        A document may have its records in a list.
        """
        return [*self.advice, *encoding_notes(observation), *self._records_inside(observation)]

    def _records_inside(self, observation: Observation) -> Iterator[str]:
        """The flag that takes records out of documents that are an object with one list of objects each."""
        one_each = observation.tally.records == len(self.splits) and not observation.tally.rejected
        are_documents = all(split.document or split.path.endswith(".json") for split in self.splits)
        if self.settings.records or not one_each or not are_documents:
            return
        paths = list(lists_of_records(observation.shape))
        if len(paths) == 1:
            flag = f"--records {shlex.quote(spelled_path(paths[0]))}"
            yield f"{self.splits[0].path} is one object with a list of objects: {flag} ingests these as records"

    @property
    def _size(self) -> int:
        return sum(split.length for split in self.splits)

    def _first_lines(self) -> Observed:
        """Observe a few lines of some splits, in this process."""
        terms, first = self.terms, RecordShape()
        beginning, behind = _heads(self.splits)
        observer = JsonObserver(terms.expected, terms.settings, terms.check, many=FEWER_KEYS)
        task = LineTask(observer, None, terms)
        for heads in (beginning, behind):
            read = at_once(lambda head: list(blocks(head, terms.settings.max_record_bytes)), heads)
            for head, texts in zip(heads, read, strict=True):
                # Which line of its file a split begins with is not known yet, but
                # none is before its first byte's number.
                line = 1 + head.start
                for lines in texts:
                    task.observe([Run(lines, head.path, line, _reject)])
                    line += len(lines)
            # Only lines whose numbers are known: first places are minima, and a wrong one would hide what
            # stands before.
            if heads is beginning:
                first = copied(observer.result().shape)
        return Observed(replace(self, first=first), observer.result())


def encoding_notes(observation: Observation) -> Iterator[str]:
    """Return advice for files with lines that are not UTF-8."""
    refused = [bad.location.source for bad in observation.tally.reasons if bad.reason.startswith(NOT_UTF8)]
    for file in dict.fromkeys(refused):
        yield (
            f"JSON is read as UTF-8, and not all of {file} is that: "
            "from Windows' encoding, `iconv -f cp1252 -t utf-8` makes it"
        )


def _cutting(settings: TableSettings) -> tuple[object, ...]:
    """The settings by which files are cut."""
    return settings.hive, settings.records, settings.sheet, settings.csv


def _reject(at: int, why: Why) -> Reject:
    return Reject(Origin(), None, why)


def _heads(splits: Sequence[Split]) -> tuple[list[Split], list[Split]]:
    """The first lines of the splits whose line numbers are known, and those at even distances behind them."""
    first = list(_first(splits, _FIRST))
    others = splits[len(first) :]
    step = max(1, len(others) // _HEADS)
    behind = [
        head for start in range(0, len(others), step) for head in _first(others[start : start + step], _HEAD)
    ]
    return first, behind


def _first(splits: Sequence[Split], size: int) -> Iterator[Split]:
    """The first lines of the splits, of about so many bytes.

    They are those of the first split, and of the splits after it that begin their files.
    """
    for number, split in enumerate(splits):
        if size <= 0 or (number and split.start):
            return
        yield split.head(size)
        size -= split.length * (_TEXT if split.packed else 1)
