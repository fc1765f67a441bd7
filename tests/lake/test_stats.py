"""Statistics of real tables: what metadata tell must be what a scan counts, or be told as not known."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from driftline.core.columns.file_sizes import MANY
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import dotted
from driftline.formats.iceberg import manifests
from driftline.formats.iceberg.offline import OfflineIcebergTable
from driftline.lake import Lake, Table
from driftline.stats.build import stats as still_stats
from driftline.stats.lake import last_drift
from driftline.stats.model import Stats
from lake.formats import database, is_embedded

DAY_1 = [
    {"id": 1, "price": 1.5, "who": {"id": 7}, "tags": ["a"], "at": "2026-03-02T08:00:00.25Z"},
    {"id": 2, "who": {"id": 8}, "tags": [], "at": "2026-03-02T09:00:00Z"},
    {"id": 3, "price": 2.5, "at": "2026-03-02T09:00:00Z"},
]
DAY_2 = [
    {"id": 4, "price": "19,90 EUR", "who": {"id": "u-9"}, "tags": [1, "b"]},
    {"id": 5, "price": 3.5, "who": {"id": 9}, "note": "x" * 40},
    {"id": 6, "price": "n/a", "tags": {"k": True}},
]


@pytest.fixture(scope="module", autouse=True)
def alike(folder) -> Iterator[list[str]]:
    """Compare Spark's statistics with those from the files alone, which are the same, or cannot be told.
    The tables of which they are the same.
    """
    ask, told = Table.stats, []

    def both(table: Table, **more) -> Stats:
        with pytest.MonkeyPatch.context() as by_spark:
            by_spark.setattr(manifests, "_MANIFESTS", 0)  # as of manifests too large for Python
            found = ask(table, **more)
        if not found.exact and database(table.lake) is None:
            still = OfflineIcebergTable.of(folder, "lake", table.name)
            without = None if still is None else still_stats(still, over_time=more.get("over_time", True))
            assert without in (None, found)
            told.extend([table.name] * (without is not None))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "stats", both)
        yield told


def ingest(lake: Lake, folder, name: str, *batches) -> None:
    for i, batch in enumerate(batches):
        file = folder / f"{name}-{i}.jsonl"
        file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in batch))
        lake.table(name).ingest(str(file))


def of(stats: Stats) -> dict:
    return {dotted(c.path): c.numbers for c in stats.columns}


def types(stats: Stats, field: str) -> dict:
    (one,) = (d for d in stats.drifted if dotted(d.path) == field)
    return {part.name: part for part in one.parts}


@pytest.fixture(scope="module")
def shop(iceberg, tmp_path_factory) -> tuple[Stats, Stats]:
    """A table of two batches, by its metadata and by a scan."""
    ingest(iceberg, tmp_path_factory.mktemp("in"), "t.shop", DAY_1, DAY_2)
    table = iceberg.table("t.shop")
    return table.stats(), table.stats(exact=True)


def test_metadata_tell_what_a_scan_counts(shop):
    told, counted = map(of, shop)
    assert told.keys() == counted.keys()
    for path, n in told.items():
        m = counted[path]
        if n.values is None:
            assert "tags" in path  # lists, and what is in them
        elif n.at_least:
            assert n.values <= m.values
        else:
            assert (n.values, n.of, n.density) == (m.values, m.of, m.density), path
            assert n.low_cut or n.low == m.low, path
            assert n.high_cut or n.high == m.high, path


def test_bounds_are_values_in_iso_form_and_cut_texts_are_marked(shop):
    told, counted = map(of, shop)
    assert (told["at"].low, told["at"].high) == ("2026-03-02T08:00:00.25Z", "2026-03-02T09:00:00Z")
    assert (told["price"].low, told["price"].high) == (1.5, 3.5)
    assert (told["note"].low, told["note"].low_cut, told["note"].high_cut) == ("x" * 16, True, True)
    assert told["note"].high == "x" * 15
    assert (counted["note"].high, counted["note"].high_cut) == ("x" * 40, False)


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_bounds_of_each_type_are_those_of_the_values(lake):
    """Also below zero, and of columns that were widened, whose older files have bounds of another width."""
    lake.sql("""create table lake.t.bounds (i int, f float, d double, n decimal(20, 3), p decimal(38, 0), day date,
        at timestamp, z timestamp_ntz, b boolean, s string) using iceberg""")
    lake.sql("""insert into lake.t.bounds values
        (-7, -2.5, -1e300, -12345678901234567.125, -1, date'1969-12-30', timestamp'1969-12-31T23:59:59.25Z',
         timestamp_ntz'0001-01-01 00:00:00', true, 'Z'),
        (40000, 0.5, -0.25, 0.001, 12345678901234567890123456789012345678, date'2026-03-02', timestamp'2026-03-02T08:00:00Z',
         timestamp_ntz'2026-03-02 08:00:00.000001', false, 'a')""")
    lake.sql("alter table lake.t.bounds alter column i type bigint")
    lake.sql("alter table lake.t.bounds alter column f type double")
    lake.sql("alter table lake.t.bounds alter column n type decimal(30, 3)")
    lake.sql("""insert into lake.t.bounds values
        (-5000000000, 1e300, -1e-300, -0.001, null, null, null, null, null, 'é'),
        (3, -1.5, cast('NaN' as double), 99.5, null, null, null, null, null, '')""")
    told, counted = of(lake.table("t.bounds").stats()), of(lake.table("t.bounds").stats(exact=True))
    shown = {path: (n.low, n.high) for path, n in told.items()}
    nan = counted.pop("d")
    assert shown.pop("d") == (None, None)  # a file with NaN has no bounds
    assert (nan.low, nan.high) == (-1e300, "nan")
    assert shown == {path: (n.low, n.high) for path, n in counted.items()}
    assert shown["i"] == (-5000000000, 40000)
    assert shown["n"] == ("-12345678901234567.125", "99.5")
    assert shown["z"] == ("0001-01-01T00:00:00", "2026-03-02T08:00:00.000001")
    assert shown["s"] == ("", "é")


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_bytes_have_no_bounds_that_could_be_shown(lake, alike):
    lake.sql("create table lake.t.raw (id int, raw binary) using iceberg")
    lake.sql("insert into lake.t.raw values (1, X'00FF'), (2, X'41')")
    raw = of(lake.table("t.raw").stats())["raw"]
    assert (raw.values, raw.low, raw.high) == (2, None, None)
    assert not is_embedded(lake) or "t.raw" in alike


@pytest.mark.nightly
@pytest.mark.iceberg_only("its table is of Iceberg")
def test_a_wide_table_is_counted_in_passes(lake, shop, monkeypatch):
    scan = import_module("driftline.stats.exact")
    monkeypatch.setattr(scan, "_AT_ONCE", 3)
    monkeypatch.setattr(scan, "_AT_ONCE_INTERPRETED", 4)
    for few in (0, 50_000):
        monkeypatch.setattr(scan, "_FEW", few)
        again = lake.table("t.shop").stats(exact=True)
        # Samples are whichever value Spark meets first.
        assert [replace(n, sample=None) for n in of(again).values()] == [
            replace(n, sample=None) for n in of(shop[1]).values()
        ]
        assert [[(p.name, p.records) for p in d.parts] for d in again.drifted] == [
            [(p.name, p.records) for p in d.parts] for d in shop[1].drifted
        ]


def test_elements_of_lists_are_counted_by_a_scan(shop):
    _, counted = map(of, shop)
    assert (counted["tags"].values, counted["tags"].of) == (3, 6)
    element = counted["tags.element"]
    assert (element.values, element.of, element.low, element.high, element.distinct) == (3, 3, "1", "b", 3)


def test_siblings_stand_under_their_field_with_shares_and_samples(shop):
    for stats in shop:
        prices = types(stats, "price")
        assert {name: part.records for name, part in prices.items()} == {"double": 3, "string": 2}
        assert {name: part.share for name, part in prices.items()} == {"double": 0.6, "string": 0.4}
        assert prices["string"].sample in ("19,90 EUR", "n/a")
        assert [dotted(p) for p in prices["string"].columns] == ["price_string"]
        ids = types(stats, "who.id")
        assert {name: part.records for name, part in ids.items()} == {"long": 3, "string": 1}
        assert ids["string"].sample == "u-9"


def test_lists_beside_records_are_told_apart_by_a_scan_only(shop):
    told, counted = (types(s, "tags") for s in shop)
    assert told["list<string>"].records is None
    assert told["list<string>"].share is None
    assert told["struct"].sample == '{"k":true}'
    assert {name: part.records for name, part in counted.items()} == {"list<string>": 3, "struct": 1}


def test_first_and_last_seen_and_the_trend_are_of_batches(shop):
    for stats in shop:
        numbers = of(stats)
        first, second = stats.recent
        assert [b.records for b in stats.recent] == [3, 3]
        assert numbers["at"].first.batch == numbers["at"].last.batch == first.id
        assert numbers["price_string"].first.batch == numbers["price_string"].last.batch == second.id
        assert (numbers["id"].first.batch, numbers["id"].last.batch) == (first.id, second.id)
        assert numbers["id"].trend == (1.0, 1.0)
        assert numbers["at"].trend == (1.0, 0.0)
        assert numbers["price_string"].trend == (0.0, 1.0)
        assert numbers["tags"].first.batch == first.id  # that batch made the column


def test_changes_of_the_schema_come_with_batch_and_sample(shop):
    told, _ = shop
    made, drift = told.events
    assert made.makes_table
    assert {step.path for step in made.plain} == {"id", "price", "who", "tags", "at"}
    assert drift.who == told.recent[1].id
    assert [step.path for step in drift.plain] == ["note"]
    samples = {step.path: step.sample for step in drift.steps}
    assert samples["who.id_string"] == "u-9"
    assert samples["price_string"] in ("19,90 EUR", "n/a")


def test_to_dict_is_json(shop):
    for stats in shop:
        assert json.loads(json.dumps(stats.to_dict(), allow_nan=False))["records"] == 6


@pytest.mark.iceberg_only("of Iceberg's metadata files")
@pytest.mark.embedded_only("finds the table in SQLite's file")
def test_files_alone_tell_what_needs_no_look_at_rows(lake, folder, table_name, tmp_path, alike, monkeypatch):
    ingest(lake, tmp_path, table_name, DAY_1, [{"id": "x-4", "price": 4.5}])
    assert lake.table(table_name).stats().drifted
    assert table_name in alike
    found = OfflineIcebergTable.of(folder, "lake", table_name)
    assert found is not None
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "_MANIFESTS", 0)  # then Spark makes shorter work of them
        assert still_stats(found) is None
    ingest(lake, tmp_path, table_name, ["no JSON"])
    assert lake.table(table_name).stats().quarantined == 1
    again = OfflineIcebergTable.of(folder, "lake", table_name)
    assert again is not None
    assert still_stats(again) is None, "what is in quarantine has reasons"


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_statistics_of_few_files_on_this_machine_ask_no_metadata_table(
    lake, table_name, tmp_path, monkeypatch
):
    ingest(lake, tmp_path, table_name, DAY_1, DAY_2)
    table = lake.table(table_name).format
    schema = table.load().schema
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "_MANIFESTS", 0)
        by_spark = table.statistics(schema)
    monkeypatch.setattr("driftline.formats.iceberg.table.metadata_table", lambda *_: pytest.fail("asked"))
    assert table.statistics(schema) == by_spark


@pytest.mark.iceberg_only("of Iceberg's metadata files")
@pytest.mark.embedded_only("finds the table in SQLite's file")
def test_manifests_that_are_gone_or_broken_are_left_to_spark(lake, folder, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, DAY_1)
    found = OfflineIcebergTable.of(folder, "lake", table_name)
    assert found is not None
    assert still_stats(found) is not None
    (snapshot,) = found.metadata["snapshots"]
    listed = Path(snapshot["manifest-list"].removeprefix("file:"))
    whole = listed.read_bytes()
    half = len(whole) // 2
    for broken in (
        b"",
        whole[:40],
        whole[:-20],
        b"x" * len(whole),
        whole[:-99] + b"x" * 99,
        whole[:half] + whole[half + 9 :],
    ):
        listed.write_bytes(broken)
        assert still_stats(found) is None
    listed.unlink()
    assert still_stats(found) is None


def over_time(stats: Stats, field: str) -> dict:
    """The values of a field's types by period."""
    (one,) = (d for d in stats.drifted if dotted(d.path) == field)
    return {
        period: dict(zip((p.name for p in one.parts), n, strict=True)) for period, n in one.periods.items()
    }


@pytest.mark.nightly
def test_drift_over_time_is_counted_by_batch_and_what_was_thinned_stands_before(lake, table_name, tmp_path):
    batches = [{"p": 1}, {"p": 2}], [{"p": 3}, {"p": "x"}, {"q": 1}], [{"p": "y"}]
    ingest(lake, tmp_path, table_name, *batches)
    table = lake.table(table_name)
    assert over_time(table.stats(over_time=False), "p") == {}
    stats = table.stats()
    assert [batch.records for batch in stats.known] == [2, 3, 1]
    by_batch = {0: {"long": 2, "string": 0}, 1: {"long": 1, "string": 1}, 2: {"long": 0, "string": 1}}
    assert over_time(stats, "p") == by_batch
    table.expire(timedelta(0))
    thinned = table.stats()
    assert [batch.id for batch in thinned.known] == [stats.known[-1].id]
    # Iceberg tells that all of these were appended; a DuckLake may have written their files anew.
    before = (3, 1) if database(lake) is None else (None, None)
    assert over_time(thinned, "p") == {
        None: dict(zip(("long", "string"), before, strict=True)),
        0: by_batch[2],
    }
    assert thinned.before == thinned.known[0].at


# Tables that others had their hands on ------------------------------------------------------------------------


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_files_written_anew_do_not_tell_their_batch(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, DAY_1[:1], DAY_2[:2])
    lake.sql(
        f"call lake.system.rewrite_data_files(table => '{table_name}', options => map('rewrite-all', 'true'))"
    ).collect()
    stats = lake.table(table_name).stats()
    numbers = of(stats)
    assert (numbers["id"].values, numbers["note"].values) == (3, 1)
    assert {name: (part.records, part.share) for name, part in types(stats, "price").items()} == {
        "double": (2, None), "string": (None, None),
    }  # fmt: skip
    assert numbers["id"].last is None
    assert numbers["note"].first.batch == stats.recent[1].id  # which made the column
    assert numbers["id"].trend == (None, None)


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_deleted_rows_are_told_and_not_counted_by_a_scan(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, DAY_1)
    lake.sql(f"alter table {table_name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    lake.sql(f"delete from {table_name} where id = 1")
    told, counted = lake.table(table_name).stats(), lake.table(table_name).stats(exact=True)
    assert (told.records, told.at_most, told.deleted) == (3, True, 1)
    assert (counted.records, counted.deleted, of(counted)["price"].values) == (2, 0, 1)


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_renamed_column_keeps_its_numbers_and_a_dropped_one_is_gone(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, DAY_1)
    lake.sql(f"alter table {table_name} rename column price to cost")
    lake.sql(f"alter table {table_name} drop column at")
    numbers = of(lake.table(table_name).stats())
    assert numbers["cost"].values == 2
    assert "at" not in numbers


WIDE = [{f"f{i:03}": i for i in range(130)}]
METRICS = "write.metadata.metrics.max-inferred-column-defaults"


def test_a_wide_table_has_statistics_of_every_column(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, WIDE, [{"f000": 1, "g": "x"}])
    numbers = of(lake.table(table_name).stats())
    assert {path: n.values for path, n in numbers.items()} == {
        **{f"f{i:03}": 1 for i in range(130)},
        "f000": 2,
        "g": 1,
    }
    assert (numbers["f129"].low, numbers["g"].high) == (129, "x")


@pytest.mark.nightly
@pytest.mark.iceberg_only("of Iceberg's metrics")
def test_a_table_that_was_made_before_gets_them_with_its_next_column(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, WIDE)
    lake.sql(f"alter table {table_name} unset tblproperties ('{METRICS}')")
    table = lake.table(table_name)
    ingest(lake, tmp_path, table_name, WIDE)
    assert METRICS not in table.format.load().properties
    assert of(table.stats())["f129"].values is None
    assert of(table.stats(exact=True))["f129"].values == 2
    ingest(lake, tmp_path, table_name, [{"f129": 1, "g": 1}])
    assert METRICS in table.format.load().properties
    lake.sql(f"alter table {table_name} unset tblproperties ('{METRICS}')")
    lake.alter(f"ALTER TABLE {table_name} DROP COLUMN g")
    assert METRICS in table.format.load().properties


@pytest.mark.iceberg_only("of Iceberg's metrics")
def test_what_its_owner_says_of_metrics_stays(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, [{"f000": 1}])
    lake.sql(f"alter table {table_name} set tblproperties ('write.metadata.metrics.default' = 'none')")
    ingest(lake, tmp_path, table_name, WIDE)
    table = lake.table(table_name)
    assert METRICS not in table.format.load().properties
    lake.alter(f"ALTER TABLE {table_name} DROP COLUMN f001")
    assert METRICS not in table.format.load().properties


def test_maps_lists_of_lists_and_odd_names(lake, table_name):
    rows = lake.spark.sql(
        "select map('k', array(array(1, null), array(2))) as m, named_struct('b`c', 'x') as `s p`, cast(null as date) as d"
    )
    lake.table(table_name).ingest(rows)
    stats = lake.table(table_name).stats(exact=True)
    numbers = of(stats)
    assert (numbers["m.key"].values, numbers["m.key"].low) == (1, "k")
    inner = numbers["m.value.element.element"]
    assert (inner.values, inner.of, inner.low, inner.high) == (2, 3, 1, 2)
    (named,) = (c for c in stats.columns if outline(c.type) == "string" and c.path[0] == "s p")
    assert named.numbers.values == 1
    assert (numbers["d"].values, numbers["d"].density) == (0, 0.0)


@pytest.mark.nightly
def test_drift_inside_lists_is_divided(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, [{"i": [{"p": 1}, {"p": 2}]}], [{"i": [{"p": "x"}, {}]}])
    table = lake.table(table_name)
    without_a_scan = {n: p.records for n, p in types(table.stats(), "i.element.p").items()}
    if database(lake) is None:
        assert without_a_scan == {"long": None, "string": None}
    else:
        assert without_a_scan == {"long": 2, "string": 1}  # a DuckLake's catalog counts elements, too
    parts = types(table.stats(exact=True), "i.element.p")
    assert {name: part.records for name, part in parts.items()} == {"long": 2, "string": 1}
    assert parts["string"].sample == "x"
    assert of(table.stats(exact=True))["i.element.p"].of == 4


def test_quarantine_by_reason(lake, table_name, tmp_path):
    ingest(lake, tmp_path, table_name, [*DAY_1, "{", "nonsense", "rubbish"])
    stats = lake.table(table_name).stats()
    assert stats.quarantined == 3
    assert sum(w.records for w in stats.waiting) == 3
    assert stats.waiting[0].records == 2
    assert stats.waiting[0].sample in ("nonsense", "rubbish")
    assert stats.waiting[0].seen_in.startswith(str(tmp_path))
    refused = {reason: [batch.records for batch in batches] for reason, batches in stats.refused.items()}
    assert refused == {w.reason: [w.records] for w in stats.waiting}
    assert {batch.id for batches in stats.refused.values() for batch in batches} == {stats.known[0].id}
    assert lake.table(table_name).stats(over_time=False).refused == {}


def test_a_feed_all_of_whose_records_wait_is_listed(lake, table_name, tmp_path, monkeypatch):
    ingest(lake, tmp_path, table_name, ["{"])
    names = [name for name in lake.format.tables() if name.startswith(table_name)]
    assert names == [f"{table_name}__quarantine"]
    monkeypatch.setattr(type(lake.format), "tables", lambda _: names)
    (stats,) = lake.stats().tables
    assert (stats.table, stats.records, stats.quarantined) == (table_name, 0, 1)
    assert lake.stats().waiting == (stats,)


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_table_that_was_just_made_has_no_numbers(lake, table_name):
    lake.sql("create namespace if not exists t")
    lake.sql(f"create table {table_name} (a bigint, b array<string>) using iceberg")
    stats = lake.table(table_name).stats()
    assert (stats.records, stats.batches, stats.events[0].by) == (0, 0, "outside")
    assert of(stats)["a"].density is None
    assert lake.table(table_name).stats(exact=True).records == 0


def test_columns_of_driftline_itself_are_no_drift(lake, table_name):
    table = lake.table(table_name)
    table.ingest([{"id": 1, "at": 5}], key="id", order_by="at", metadata="batch")
    assert {"_order", "_source"} <= {dotted(column.path) for column in table.stats().columns}
    assert last_drift(table.stats()) is None


@pytest.mark.nightly
def test_a_ducklake_is_known_from_its_catalog_and_counted_by_a_scan(ducklake, table_name, tmp_path):
    ingest(ducklake, tmp_path, table_name, DAY_1, DAY_2)
    told, counted = ducklake.table(table_name).stats(), ducklake.table(table_name).stats(exact=True)
    assert {dotted(d.path) for d in told.drifted} == {"price", "who.id", "tags"}
    known = {path: n.values for path, n in of(told).items() if n.values is not None and not n.at_least}
    assert "price_string" in known
    assert known == {path: of(counted)[path].values for path in known}
    assert (told.records, counted.records) == (6, 6)
    assert {n: p.records for n, p in types(counted, "price").items()} == {"double": 3, "string": 2}


@pytest.mark.nightly
def test_files_are_counted_by_partition_and_small_ones_as_a_compaction_chooses_them(lake, table_name):
    table = lake.table(table_name)
    settings = {"partition_by": "day(at), kind"}
    for n in range(MANY):
        days = [{"at": "2026-03-02T08:00:00Z", "kind": "a", "n": n}]
        days += [{"at": "2026-03-03T08:00:00Z", "n": m} for m in range(9)] if n % 4 == 0 else []
        table.ingest(days, settings=settings if n == 0 else {})
    told = table.stats().to_dict()
    first, second = told["largest_partitions"]
    is_ducklake = database(lake) is not None
    assert (told["files"], told["small_files"], told["partitions"]) == (MANY + 2, MANY, 2)
    assert first["bytes"] + second["bytes"] == told["bytes"]
    day = {"2": "2", "3": "3"} if is_ducklake else {"2": "2026-03-02", "3": "2026-03-03"}
    assert first == {
        "partition": f"at_day={day['2']}/kind=a", "files": MANY, "bytes": first["bytes"], "small_files": MANY,
    }  # fmt: skip
    assert (second["partition"], second["files"], second["small_files"]) == (
        f"at_day={day['3']}/kind=null", 2, 0,
    )  # fmt: skip
    assert table.compact(dry_run=True).written_anew == told["small_files"]
    table.compact()
    assert table.stats().to_dict()["small_files"] == 0


def test_a_resolve_that_is_taken_back_leaves_no_share_that_is_known_to_be_zero(
    lake: Lake, folder, table_name: str
) -> None:
    """Its files are of the schema that lacked the columns which are back."""
    ingest(lake, folder, table_name, DAY_1 + DAY_2)
    table = lake.table(table_name)
    table.resolve("price", "string")
    table.undo(yes=True)
    told = {name: part.records for name, part in types(table.stats(), "price").items()}
    assert told == {"double": 3, "string": None}
