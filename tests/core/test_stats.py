"""Statistics without a table: how counts add up, how a field's values divide by type, what people read."""

from dataclasses import replace

import pytest

from driftline.core.columns.file_sizes import LARGEST, FileSizes, PartitionSize
from driftline.core.columns.statistics import (
    RECORDS,
    CommittedBatch,
    Count,
    Counts,
    KnownSnapshot,
    Numbers,
    SeenIn,
)
from driftline.core.history.entries import EXPIRED
from driftline.core.schema.naming import mark
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Field,
    List,
    Map,
    Schema,
    Struct,
    decimal,
)
from driftline.formats.iceberg.manifests import Forgotten, ManifestEntry, Summation, forgotten, merged
from driftline.formats.iceberg.sizes import sizes_of
from driftline.stats.exact import Siblings, _inside, drifted, own_sample, own_values, rewritten_values
from driftline.stats.model import ColumnStatistics, origin
from stats_models import made

RECORD = Struct((Field("x", LONG, 9),))


_TARGET = "write.target-file-size-bytes"


def siblings(*types) -> Siblings:
    """A field's columns of these types; their ids are 1, 2, 3…"""
    columns = [Field(f"a{i}", type_, i, doc=mark("a")) for i, type_ in enumerate(types, 1)]
    (found_,) = drifted(Schema(Struct(tuple(columns))), "upsolver_evolved_from:")
    return found_


# Values by type -----------------------------------------------------------------------------------------------

# The types of a field's columns, how many rows have a value in each, and how many came in each type.
DIVIDED = [
    ((LONG, STRING), (3, 5), {("long",): 3, ("string",): 2}),
    ((STRING, LONG), (5, 3), {("long",): 3, ("string",): 2}),  # whichever was there first
    ((LONG, DOUBLE, STRING), (3, 5, 9), {("long",): 3, ("double",): 2, ("string",): 4}),
    ((DOUBLE, decimal(38, 18), STRING), (88, 33, 121), {("double",): None, ("decimal(38, 18)",): 33, ("string",): None}),
    # A number of JSON may be in both, which their counts do not tell.
    ((decimal(10, 2), DOUBLE, STRING), (2, 2, 4), {("decimal(10, 2)",): 2, ("double",): None, ("string",): None}),
    ((decimal(10, 2), DOUBLE), (2, 0), {("decimal(10, 2)",): 2, ("double",): 0}),
    ((LONG, decimal(38, 0)), (2, 5), {("long",): 2, ("decimal(38, 0)",): 3}),
    ((decimal(10, 2), LONG), (0, 2), {("decimal(10, 2)",): 0, ("long",): 2}),
    ((LONG, List(LONG)), (3, 5), {("long",): 3, ("list<long>",): 2}),  # 1 is [1] there
    ((List(STRING), LONG), (7, 3), {("long",): 3, ("list<string>",): 4}),
    ((LONG, RECORD), (3, 5), {("long",): 3, ("struct",): 5}),
    ((RECORD, List(RECORD)), (3, 5), {("struct",): 3, ("list<struct>",): 2}),
    # The largest dimension takes all records, one between takes its own only.
    ((RECORD, List(RECORD), List(List(RECORD))), (1, 2, 7), {("struct",): 1, ("list<struct>",): 2, ("list<list<struct>>",): 4}),
    ((DATE, TIMESTAMP), (3, 5), {("date",): 3, ("timestamptz",): 2}),
    # A long is in the timestamp column, and a timestamp in the long one: what is in both may be either.
    ((TIMESTAMP, LONG), (5, 3), {("timestamptz",): 2, ("timestamptz", "long"): 3}),
    ((LONG, STRING), (None, 5), {("long",): None, ("string",): None}),
    ((LONG, RECORD), (None, 5), {("long",): None, ("struct",): 5}),
    ((LONG, STRING), (3, 2), {("long",): 3, ("string",): 0}),  # never below nothing
]  # fmt: skip


@pytest.mark.parametrize(("types", "values", "expected"), DIVIDED)
def test_a_value_counts_for_the_narrowest_column_that_has_it(types, values, expected):
    of = siblings(*types)
    got = own_values(of, dict(enumerate(values, 1)))
    assert {tuple(outline(c.type) for c in o.columns): o.values for o in got} == expected


def test_columns_that_files_do_not_have_yet_take_nothing():
    of = siblings(LONG, STRING)
    assert [(o.columns[0].id, o.values) for o in own_values(of, {1: 3})] == [(1, 3)]


def test_files_that_were_written_anew_do_not_tell_what_a_wider_column_has_alone():
    """Five longs from before the column of texts stand in one file with two texts."""
    assert [o.values for o in rewritten_values(siblings(LONG, STRING), {1: 5, 2: 2})] == [5, None]
    assert [o.values for o in rewritten_values(siblings(LONG, STRING), {1: 0, 2: 2})] == [0, 2]
    assert [o.values for o in rewritten_values(siblings(LONG, TIMESTAMP), {1: 2, 2: 2})] == [None, None]


@pytest.mark.parametrize(
    ("sequence", "expired", "appended"), [(3, 1, True), (4, 1, False), (2, 0, True), (0, 9, False)]
)
def test_commits_that_upkeep_let_go_of_were_appends(sequence, expired, appended):
    """Two of the commits are known; each has a sequence number, as far as the format has them."""
    chain = [
        {"snapshot-id": 1, "timestamp-ms": 0},
        {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 0},
    ]
    metadata = {
        "snapshots": chain, "current-snapshot-id": 2, "last-sequence-number": sequence,
        "current-schema-id": 0, "properties": {EXPIRED: str(expired)},
    }  # fmt: skip
    assert forgotten(metadata).appended is appended


def test_sums_of_parts_are_the_sum_of_all_files():
    """As tasks have them, in any parts; an int column was widened, and the first commits are forgotten."""
    known = [commit(i, i % 2, 9, born=i != 5, slot=i - 4 if i > 4 else None) for i in range(3, 9)]
    summation = Summation(known, {1: LONG, 2: STRING, 3: DOUBLE}, Forgotten([(2, 1), (0, None)], False))
    entries = []
    for i in range(40):
        low, high = (n.to_bytes(4 if i < 20 else 8, "little", signed=True) for n in (-i, i * i))
        bounds = {1: low, 2: b"%d" % i}, {1: high, 2: b"x%d" % i}
        values = {1: 9, 2: i % 3 and 9, 3: 9}
        entries.append(ManifestEntry(i % 9, i % 9, 9, values, {3: 9}, *bounds, is_data=i != 7))
    whole = summation.sums(entries)
    for size in (1, 7, 39):
        parts = [entries[at : at + size] for at in range(0, len(entries), size)]
        assert merged(map(summation.sums, parts)) == whole
    assert sum(total.values for key, total in whole.items() if key.column == RECORDS) == 9 * 39
    assert {key.width for key in whole if key.column == 1} == {4, 8}
    assert not any(total.values or total.earliest for key, total in whole.items() if key.column == 3)


def test_small_files_count_where_a_compaction_gathers_them_and_the_largest_partitions_are_listed():
    spec = {"spec-id": 1, "fields": [{"name": "day", "transform": "day", "source-id": 1}]}
    metadata = {"partition-specs": [{"spec-id": 0, "fields": []}, spec], "properties": {_TARGET: "400"}}
    sizes = {0: [99] * 7, 1: [99] * 8, 2: [50] * 8 + [900], 3: [200] * 5, **{n: [150] for n in range(4, 12)}}
    entries = [
        ManifestEntry(1, 1, 1, {}, {}, {}, {}, size=size, spec=1, partition=(day,))
        for day, of_day in sizes.items()
        for size in of_day
    ]
    deletes = entries[0]._replace(is_data=False, size=1)
    told = sizes_of(metadata, [*entries, deletes])
    # Seven of 99 bytes are a target's size together.
    assert (told.small, told.partitions, len(told.largest)) == (7 + 8 + 8, 12, LARGEST)
    assert told.largest[0] == PartitionSize("day=1970-01-03", 9, 1300, 8)
    unpartitioned = [ManifestEntry(1, 1, 1, {}, {}, {}, {}, size=9)] * 3
    assert sizes_of({"partition-specs": metadata["partition-specs"][:1]}, unpartitioned) == FileSizes()


def test_what_a_double_cannot_hold_makes_its_count_an_estimate():
    (long, double) = own_values(siblings(LONG, DOUBLE), {1: 3, 2: 5})
    assert (long.about, double.about) == (False, True)


def test_drifted_fields_are_found_in_lists_and_maps_by_their_exact_key():
    inner = Struct((Field("p", LONG, 5), Field("p_string", STRING, 6, doc=mark("p"))))
    odd = (Field("q_r", LONG, 7, doc=mark("q.r")), Field("q_r_string", STRING, 8, doc=mark("q.r")))
    schema = Schema(
        Struct(
            (
                Field("l", List(inner, 11), 1),
                Field("m", Map(STRING, inner, 12, 13), 2),
                *odd,
                Field("s", LONG, 9),
            )
        )
    )
    assert [s.path for s in drifted(schema, "upsolver_evolved_from:")] == [
        ("q.r",),
        ("l", "element", "p"),
        ("m", "value", "p"),
    ]


# Counts of files ----------------------------------------------------------------------------------------------


def counts(*snapshots, of, ids, defaulted=frozenset()) -> Counts:
    return Counts(snapshots, of, ids, defaulted)


def commit(i, schema, records, *, born=True, slot=None) -> KnownSnapshot:
    return KnownSnapshot(i, schema, CommittedBatch(1000 * i, f"b{i}", records), born, slot)


def test_a_column_that_came_later_has_no_values_in_older_files():
    told = counts(
        commit(1, 0, 10, slot=0), commit(2, 1, 4, slot=1),
        of={
            RECORDS: {0: Count(10, 1, slots={0: 10}), 1: Count(4, 1, slots={1: 4})},
            7: {1: Count(3, 1, first=1, last=1, last_born=1, slots={1: 3})},
        },
        ids={0: frozenset({6}), 1: frozenset({6, 7})},
    )  # fmt: skip
    assert told.numbers(7) == Numbers(
        3, 14, first=SeenIn(2000, "b2"), last=SeenIn(2000, "b2"), trend=(0.0, 0.75)
    )


def test_a_column_without_metrics_is_not_known():
    told = counts(
        commit(1, 0, 10, slot=0), of={RECORDS: {0: Count(10, 1, slots={0: 10})}}, ids={0: frozenset({7})}
    )
    assert told.numbers(7) == Numbers()
    part = {RECORDS: {0: Count(10, 2)}, 7: {0: Count(4, 1)}}  # one file of two tells
    assert counts(commit(1, 0, 10), of=part, ids={0: frozenset({7})}).numbers(7).values is None


def test_files_of_expired_commits_tell_nothing_of_columns_that_they_do_not_name():
    told = counts(of={RECORDS: {None: Count(10, 1)}}, ids={})
    assert told.numbers(7).values is None


def test_a_default_is_a_value_in_files_older_than_the_column():
    of = {RECORDS: {0: Count(10, 1)}}
    assert counts(of=of, ids={0: frozenset()}, defaulted=frozenset({7})).numbers(7).values == 10


def test_files_that_were_written_anew_do_not_tell_when_their_values_came():
    snapshots = [commit(1, 0, 10), commit(2, 0, 0, born=False), commit(3, 0, 5)]
    ids = {0: frozenset({7})}
    old = {RECORDS: {0: Count(15, 2)}, 7: {0: Count(12, 2, first=1, last=2, last_born=2, foreign=8)}}
    assert counts(*snapshots, of=old, ids=ids).numbers(7).first is None
    assert counts(*snapshots, of=old, ids=ids).numbers(7).last == SeenIn(3000, "b3")
    new = {RECORDS: {0: Count(15, 2)}, 7: {0: Count(12, 2, first=0, last=1, last_born=0, foreign=8)}}
    assert counts(*snapshots, of=new, ids=ids).numbers(7).last is None


def test_a_default_that_a_compaction_wrote_into_its_file_was_brought_by_no_batch():
    compaction = replace(commit(2, 0, 0, born=False), noted=True)
    of = {RECORDS: {0: Count(10, 1)}, 7: {0: Count(10, 1, first=1)}}
    told = counts(commit(1, 0, 10), compaction, of=of, ids={0: frozenset({7})}).numbers(7)
    assert (told.values, told.first, told.last) == (10, None, None)


def test_a_batch_whose_files_are_gone_leaves_a_gap_in_the_trend():
    told = counts(
        commit(1, 0, 10, slot=0), commit(2, 0, 5, slot=1),
        of={RECORDS: {0: Count(15, 2, slots={1: 5})}, 7: {0: Count(5, 2, slots={1: 5})}},
        ids={0: frozenset({7})},
    )  # fmt: skip
    assert told.numbers(7).trend == (None, 1.0)


# Columns and samples ------------------------------------------------------------------------------------------

COLUMNS = [
    ColumnStatistics(("who",), 1, Struct()),
    ColumnStatistics(("who", "id"), 2, LONG),
    ColumnStatistics(("who", "id_string"), 3, STRING, "id"),
    ColumnStatistics(("Total_2",), 4, LONG, "sum total"),
]


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("ID", [2, 3]),
        ("who.*", [2, 3]),
        ("*id", [2, 3]),  # the second evolved from who.id
        ("w*d", [2, 3]),
        ("sum", [4]),
        ("nothing", []),
        ("*", [1, 2, 3, 4]),
        ("who*who", []),
    ],
)
def test_columns_are_found_by_path_and_by_field(pattern, paths):
    assert [c.id for c in made(COLUMNS).only(pattern).columns] == paths


def test_columns_of_several_paths_are_shown_once_each_in_the_order_of_the_table():
    assert [c.id for c in made(COLUMNS).only("sum", "id", "who.id").columns] == [2, 3, 4]


def test_where_a_column_evolved_from_is_told_with_its_path():
    assert [origin(c) for c in COLUMNS] == [None, None, "who.id", "sum total"]


@pytest.mark.parametrize(
    ("type_", "narrower", "low", "high", "sample"),
    [
        (STRING, [LONG], "12", "12 EUR", "12 EUR"),
        (STRING, [LONG], "12", "99", None),  # both may have come as numbers
        (STRING, [LONG], "12", str(2**64), str(2**64)),
        (STRING, [DOUBLE], "1.5", "x", "x"),
        (STRING, [DATE], "2026-03-01", "n/a", "n/a"),
        (decimal(38, 0), [LONG], "5", str(2**70), str(2**70)),
        (DOUBLE, [LONG], 3.5, 9.0, "3.5"),
        (LONG, [], 3, 9, "3"),
        (STRING, [], None, None, None),
    ],
)
def test_a_bound_is_a_sample_if_no_narrower_column_could_have_it(type_, narrower, low, high, sample):
    others = [Field("b", other) for other in narrower]
    assert own_sample(Field("a", type_), others, Numbers(low=low, high=high)) == sample


def test_every_column_has_its_place_for_the_scan():
    type_ = List(Map(STRING, Struct((Field("o`dd", LONG, 5),)), 3, 4), 2)
    places = list(_inside(Struct((Field("a", type_, 1),)), (), (), (), None))
    assert [p.id for p in places] == [1, 2, 3, 4, 5]
    last = places[-1]
    assert [link.steps for link in last.chain] == [("`a`",), ()]
    assert last.sql({last.chain: "x0"}) == "x0.value.`o``dd`"
