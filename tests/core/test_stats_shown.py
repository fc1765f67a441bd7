"""Statistics for people: in a terminal, and on the page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from driftline.core.columns.file_sizes import FileSizes, PartitionSize
from driftline.core.columns.statistics import SeenIn
from driftline.core.schema.types import STRING, TIMESTAMP
from driftline.errors import UsageError
from driftline.ingest.route import Route
from driftline.ingest.split_by_field import SplitByField
from driftline.report.page import INDEX, page, pages
from driftline.report.stats_text import bar, lake, of_pattern, percent, spark, stats
from driftline.sql.lost import WaitingValues
from driftline.stats.lake import LakeStats, made_by
from driftline.stats.model import DriftedField, ExpectationOverTime, TypeShare
from stats_models import AT, EXPECTED, HOSTILE, column, hostile, made, small, wide


def text(of, width=120, shown=stats, **more) -> list[str]:
    console = Console(width=width, file=StringIO(), highlight=False, emoji=False, markup=False)
    for one in shown(of, **more):
        console.print(one)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def line(lines, start: str) -> str:
    return next(x for x in lines if x.strip().startswith(start))


def test_the_table_is_one_line():
    assert (
        text(small())[0] == "shop.orders  100 records, 2 batches, 3 columns, 1 drifted field, 3 in quarantine"
    )

    assert text(replace(small(), records=1))[0].startswith("shop.orders  1 record, ")
    assert text(replace(small(), records=None))[0].startswith("shop.orders  ? records, ")


def test_a_drifted_field_stands_with_its_types():
    lines = text(small())
    head = next(i for i, x in enumerate(lines) if "drifted field " in x and "share" in x)
    first, second = (x.split() for x in lines[head + 1 : head + 3])
    assert first == ["price", "long", "70", "█████▋", "70", "%", "12", "2026-03-02", "08:00Z", "price"]
    assert second == ["string", "30", "██▍", "30", "%", "1", "EUR", "2026-03-02", "08:00Z", "price_string"]


@pytest.mark.parametrize("width", [80, 120])
def test_an_expectation_stands_with_its_violations_and_their_trend(width):
    gone = ExpectationOverTime("old")
    lines = text(replace(small(), expectations=(EXPECTED, gone)), width=width)

    head = next(i for i, x in enumerate(lines) if x.strip().startswith("expectation "))
    first, second = (x.split() for x in lines[head + 1 : head + 3])
    time, trend = ([], []) if width == 80 else (["08:00Z"], ["▆█·"])
    assert first == ["price", "quarantine", "54", "5", "%", "2026-03-02", *time, *trend, "price", ">=", "0"]
    assert second == ["old", "0", "no", "longer", "expected"]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("of", [small(), wide()], ids=["small", "wide"])
def test_types_of_a_drifted_field_are_whole_in_80_characters(of):
    lines = text(of, width=80)
    assert max(map(len, lines)) <= 80
    head = next(i for i, x in enumerate(lines) if "drifted field " in x)
    first, second = (x.split() for x in lines[head + 1 : head + 3])
    assert first[1] == "long" and second[0] == "string"
    assert "%" in first and "%" in second


@pytest.mark.parametrize("width", [80, 120])
def test_counts_of_types_that_are_unknown_or_about_say_so_at_any_width(width):
    of = small()
    long, string = of.drifted[0].parts
    parts = (replace(long, records=None, share=None), replace(string, about=True))
    lines = text(replace(of, drifted=(DriftedField(("price",), parts),)), width=width)
    assert " ? " in line(lines, "price")
    assert "~30" in line(lines, "string")


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("exact", [False, True])
def test_names_samples_and_bounds_are_cut_and_no_column_of_the_terminal_is_lost(width, exact):
    seen, bounds = SeenIn(AT, "b1"), {"low": "a text of many words", "high": "text of some more words"}
    columns = [
        column(1, "one_column_of_a_long_name", type_=TIMESTAMP, values=100, distinct=7, trend=(1.0,) * 12, **bounds),
        column(2, "another_column_string", type_=STRING, values=99, last=seen, **bounds),
    ]  # fmt: skip
    path = ("customer", "address", "postal_code")
    part = TypeShare(
        ((*path[:-1], "postal_code_string"),), (STRING,), 99, share=0.99, sample="x" * 30, first=seen
    )
    lines = text(replace(made(columns, [DriftedField(path, (part,))]), exact=exact), width=width)
    assert max(map(len, lines)) <= width
    drifted = line(lines, "customer")
    assert all(words in drifted for words in ("custom", " string ", "99 %", " xxx", "2026-03-02", " postal_"))
    assert " timestamptz " in line(lines, "one_") and " a t" in line(lines, "one_")
    assert "99 %" in line(lines, "anoth") and " text" in line(lines, "anoth")
    assert ("distin" in line(lines, "column ")) == exact  # rich before 14.3 cuts two letters of it
    assert ("2026-03-02" in line(lines, "anoth")) == (width > 80 or not exact)
    assert ("have room for counts by type, times and trends" in lines[-1]) == (width < 100)
    assert line(lines, "one_").endswith("█" * 12) == (width >= 100)


def test_bounds_of_one_width_share_the_room_in_one_order():
    """Of ``min`` and ``max`` the latter gets the odd character, whatever seed Python hashes texts with."""
    bounds = {"low": "2026-03-02T09:12:00", "high": "2026-03-03T08:15:00"}
    table = made([column(1, "one_column_of_a_long_name", type_=TIMESTAMP, values=100, **bounds)])
    for width in range(80, 120):
        shown = next(x for x in text(table, width=width) if "one_col" in x)
        low, high = (cell for cell in shown.split() if cell.startswith("2026"))
        assert len(high) - len(low) in {0, 1}


def test_columns_tell_what_is_known_and_mark_what_is_not():
    lines = text(small())
    assert line(lines, "id").split() == [
        "id",
        "long",
        "100",
        "100",
        "%",
        "1",
        "100",
        "2026-03-02",
        "08:00Z",
        "██",
    ]
    assert line(lines, "tags").split() == ["tags", "list<string>", "?", "?"]
    assert line(lines, "price_string ← price").split()[-1] == "·▆"


@pytest.mark.slow
def test_a_wide_table_shows_what_drifted_and_counts_the_rest():
    lines = text(wide(groups=10))
    assert sum("group_00.field_" in x for x in lines) == 10
    assert lines[-1] == "1,000 columns: --all lists them, driftline stats TABLE PATH… some of them"
    assert len(text(wide(groups=10), all_columns=True)) > 1000


def test_what_waits_is_told_with_since_when_and_how_to_promote_it():
    waits = (WaitingValues("`a b`.value.x", 7, "1.50", SeenIn(AT, "b1")), WaitingValues("c", 1, HOSTILE))
    of = replace(small(), rest=waits)
    lines = text(of)
    assert line(lines, "rest  7") == "  rest  7 × `a b`.value.x  since 2026-03-02 08:00Z  1.50"
    assert line(lines, "rest  1") == f"  rest  1 × c  {HOSTILE}"
    assert line(lines, "driftline promote").startswith(
        "  driftline promote shop.orders '`a b`.value.x' makes"
    )
    html = page(of)
    assert "<code>`a b`.value.x</code> since 2026-03-02 08:00" in html and HOSTILE not in html
    assert of.to_dict()["rest"][0]["first_seen"] == {"at": "2026-03-02T08:00:00Z", "batch": "b1"}


@pytest.mark.parametrize(("share", "shown"), [(0, "0 %"), (0.004, "<1 %"), (0.999, ">99 %"), (1.0, "100 %")])
def test_a_share_is_never_rounded_to_none_or_all(share, shown):
    assert percent(share) == shown
    assert len(bar(share)) == 8
    assert bar(share).strip() != "" or share == 0


def test_a_batch_without_values_is_not_one_that_is_not_known():
    assert spark((0.0, 0.001, None, 1.0)) == "·▁ █"


# The page -----------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.data = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.data.append(data)


def test_an_expectation_has_its_violations_by_batch():
    html = page(replace(small(), expectations=(EXPECTED, ExpectationOverTime("old"))))

    assert '<a href="#expectations">' in html and "<code>price &gt;= 0</code> else quarantine" in html
    assert "<b>54</b> records (5 %), last <time>2026-03-02 08:00Z</time> · b1b1b1b1" in html
    said = 'aria-label="Violations of price by batch. 2026-03-01: 50 not as expected; 2026-03-02 08:00Z: 4 not as expected"'
    assert said in html
    rows = (
        "2026-03-01, batches that had any, 1,000 records (5 %)<td>50",
        " · b2b2b2b2, 40 records (0 %)<td>0",
    )
    assert all(row in html for row in rows)
    assert "no longer expected" in html and "No record was counted" in html
    assert 'id="expectations"' not in page(small())


def test_data_never_becomes_markup():
    benign, bad = Elements(page(small())), Elements(page(hostile()))
    assert bad.tags.count("script") == benign.tags.count("script") == 2
    assert "img" not in bad.tags
    assert [name for _, name, _ in bad.attributes if name.startswith("on")] == []
    assert HOSTILE in "".join(bad.data)


def test_the_page_asks_the_network_for_nothing():
    html = page(small())
    links = [
        value for _, name, value in Elements(html).attributes if name in ("src", "href", "action", "srcset")
    ]
    assert [value for value in links if not value.startswith("#")] == []
    assert "default-src 'none'" in html
    assert re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", html) == []


def test_the_page_is_the_same_for_the_same_statistics():
    assert page(small()) == page(small())


def test_the_field_that_would_split_the_table_stands_with_its_command():
    split = SplitByField(("a", "b.c"), 58, 140, 0.043, 5000)
    told = " ".join(" ".join(text(replace(small(), split=split))).split())
    command = "split driftline split shop.orders --by 'a.`b.c`'"
    assert (
        f"{command} would make 58 tables of 140 columns (median), with 4% of the cells, by 5,000 of its rows"
        in told
    )


def by_event(name: str, *values: str, namespace: str = "hooks", **more):
    route = Route(f"{namespace}.{{event}}", tuple((value,) for value in values)) if values else None
    return replace(small(), table=f"{namespace}.{name}", route=route, **more)


def hooks():
    """Tables of a pattern and the `_other` beside them, one by itself in their namespace, and one of another pattern."""
    return [
        by_event("ping", "ping", namespace="a"),
        by_event("_other", records=3, drifted=(), leaves=1),
        by_event("by_hand", records=5),
        by_event("ping", "ping", at=AT + 60_000),
        by_event("push", "push", "Push", leaves=7),
    ]


def test_tables_of_a_pattern_have_one_line_in_which_their_numbers_are_summed_up():
    found = [line.split() for line in text(hooks(), shown=lake)]
    commit = ["2026-03-02", "08:01Z"]
    assert [row[0] for row in found] == ["table", "a.ping", "hooks.{event}", "hooks.by_hand", "the"]
    assert found[2] == ["hooks.{event}", "3", "tables", "203", "1–7", "2", "9", "0", *commit]
    assert len(text(hooks(), shown=lake, all_tables=True)) == 6
    unknown = [*hooks(), by_event("zip", "zip", records=None)]
    assert text(unknown, shown=lake)[2].split()[3] == "?"


def test_tables_of_one_pattern_stand_with_the_values_that_named_them():
    rows = text(made_by("hooks.{event}", hooks()), shown=of_pattern)
    assert [row.partition(" ")[0] for row in rows[1:]] == ["hooks._other", "hooks.ping", "hooks.push"]
    assert "push and Push" in rows[3]
    with pytest.raises(UsageError, match=r"no table of hooks\.\{kind\}"):
        made_by("hooks.{kind}", hooks())


def test_the_other_beside_tables_of_two_patterns_stands_by_itself():
    second = by_event("push_1", "push")
    second = replace(second, route=Route("hooks.{event}_{n}", (("push", "1"),)))
    assert [table.table for table in made_by("hooks.{event}", [*hooks(), second])] == [
        "hooks.ping",
        "hooks.push",
    ]


def test_the_index_has_the_tables_of_a_pattern_behind_a_line_that_opens():
    index = dict(pages(LakeStats("lake", tuple(hooks()), at=AT)))[INDEX]
    assert re.findall(r'<tr data-(opens|of)="2">.*?>([\w.{}]+)</[ab]', index) == [
        ("opens", "hooks.{event}"), ("of", "hooks._other"), ("of", "hooks.ping"), ("of", "hooks.push"),
    ]  # fmt: skip


def test_files_stand_with_their_partitions_where_there_are_many_and_small_ones_with_what_gathers_them():
    few = replace(small(), files=7, bytes=7_000)
    assert not any("files" in x for x in text(few))
    sizes = FileSizes(
        8, 12, tuple(PartitionSize(f"day=2026-03-0{n}", n, n * 1000, 8 % n) for n in range(9, 0, -1))
    )
    lines = text(replace(few, files=45, sizes=sizes))
    assert line(lines, "45 files").split(", ") == [
        "  45 files in 12 partitions", "7 kB", "8 small: driftline compact shop.orders gathers them",
    ]  # fmt: skip
    first = lines.index(line(lines, "partition "))
    assert [x.split() for x in lines[first + 1 : first + 3]] == [
        ["day=2026-03-09", "9", "8", "9", "kB"], ["day=2026-03-08", "8", "8", "kB"],
    ]  # fmt: skip
    assert len([x for x in lines if "day=" in x]) == 5
    html = page(replace(few, sizes=sizes))
    assert "12 partitions, the 9 largest" in html and '<th scope="row">day=2026-03-01</th>' in html
    assert "8 files are small: <code>driftline compact shop.orders</code>" in html
    hostile_name = FileSizes(0, 2, (PartitionSize(HOSTILE, 1, 1, 0), PartitionSize("", 1, 1, 0)))
    assert HOSTILE not in page(replace(few, sizes=hostile_name))
