"""Batches on time axes, and the chart of stacked bars that shows them."""

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import driftline.report.shown  # noqa: F401  how values print
from driftline.core.columns.statistics import CommittedBatch
from driftline.core.columns.timeline import SLOTS, time_axes
from driftline.core.schema.types import BOOLEAN, LONG, STRING, List
from driftline.report.page import chart
from driftline.report.page.chart import Series, Tick
from stats_models import AT, HOSTILE, QUOTES, hostile, small

MINUTE, DAY = 60_000, 86_400_000  # milliseconds


def batches(*times: int) -> list[CommittedBatch]:
    return [CommittedBatch(at, f"b{i}", 10) for i, at in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([AT], []),
        ([AT, AT + 59_999], []),
        ([AT, AT + MINUTE], ["2026-03-02 08:00Z", "2026-03-02 08:01Z"]),
        ([AT, AT + DAY, AT + 2 * DAY], ["2026-03-02", "2026-03-03", "2026-03-04"]),
        ([AT, AT + 400 * DAY], ["2026", "2027"]),
    ],
)
def test_the_calendar_has_a_unit_that_fits(times, labels):
    assert [slot.label for slot in time_axes(batches(*times)).by_date] == labels


def test_eight_thousand_years_fit_too():
    slots = time_axes(batches(0, 253_402_300_799_000)).by_date
    assert (slots[0].label, slots[-1].label) == ("from 1800", "from 9800")


@pytest.mark.parametrize("count", [0, 1, 59, 60, 61, 1000, 10_000])
@pytest.mark.parametrize("step", [1, MINUTE, 7 * DAY // 10, 40 * DAY // 100])
def test_each_batch_is_once_on_each_axis_whatever_there_is(count, step):
    some = batches(*(AT + i * step for i in range(count)))
    axes = time_axes(some)
    assert len(axes.by_batch) <= SLOTS and len(axes.by_date) <= SLOTS
    assert len(axes.period_of) == count
    periods = set(axes.period_of)
    assert periods == set(range(len(periods))) and len(periods) <= 2 * SLOTS
    assert list(axes.period_of) == sorted(axes.period_of)
    for slots in filter(None, (axes.by_batch, axes.by_date)):
        assert list(itertools.chain(*(slot.periods for slot in slots))) == sorted(periods)
        assert sum(slot.batches for slot in slots) == count
        assert sum(slot.records for slot in slots) == 10 * count
        first = [slot.first.id for slot in slots if slot.first]
        assert first == sorted(first, key=lambda name: int(name[1:]))


def test_a_clock_that_runs_backwards_changes_no_order():
    axes = time_axes(batches(AT, AT + 5 * MINUTE, AT + 3 * MINUTE, AT + 6 * MINUTE))
    assert [slot.batches for slot in axes.by_date if slot.batches] == [1, 2, 1]


# The chart ----------------------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.texts, self.labels = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.labels += [value for name, value in attrs if name == "aria-label"]

    def handle_data(self, data):
        self.texts.append(data)


TICKS = [Tick("2026-03-02", "2026-03-02, batch b0"), Tick("2026-03-03", "2026-03-03, batch b1")]
PRICES = [Series("long", "whole", (60, 10)), Series("string", "text", (0, 30))]


def test_a_chart_says_in_words_what_it_shows():
    drawn = Parsed(chart.chart("Types of price", TICKS, PRICES, shares=True))
    assert drawn.labels[0] == "Types of price. 2026-03-02: 100 % long; 2026-03-03: 25 % long, 75 % string"
    assert "10 · 25 %" in drawn.texts and "30 · 75 %" in drawn.texts
    assert drawn.tags.count("tr") == 3 and drawn.tags.count("path") == 2
    counted = Parsed(chart.chart("In quarantine", TICKS, PRICES, legend=False))
    assert counted.labels[0] == "In quarantine. 2026-03-02: 60 long; 2026-03-03: 10 long, 30 string"


def test_bars_of_shares_are_of_one_height_and_what_is_not_known_has_none():
    unknown = [Series("long", "whole", (60, None, 0)), Series("string", "text", (20, 30, 0))]
    drawn = str(chart.chart("t", [*TICKS, Tick("x", "x")], unknown, shares=True))
    bars = [float(height) for height in re.findall(r"v([0-9.]+)h", drawn)]
    assert [round(height) for height in bars] == [62, 20]
    assert "<td>?" in drawn


def test_data_are_text_in_a_chart():
    drawn = Parsed(
        chart.chart(
            HOSTILE,
            [Tick(HOSTILE, QUOTES)],
            [Series(QUOTES, "text", (1,)), Series(HOSTILE, "text-2", (None,))],
        )
    )
    assert not {"script", "img"} & set(drawn.tags)
    assert HOSTILE in drawn.texts


def test_ten_thousand_batches_are_few_bytes():
    slots = time_axes(batches(*(AT + i * MINUTE for i in range(10_000)))).by_batch
    ticks = [Tick(slot.label, slot.label) for slot in slots]
    assert len(chart.chart("t", ticks, [Series("long", "whole", (7,) * len(ticks))] * 3)) < 15_000


def test_a_notebook_has_the_chart_with_a_style_of_its_own():
    drawn = Parsed(html := small()._repr_html_())
    assert drawn.tags.count("figure") == 1 and "100 % long" in html
    assert html.count("<pattern") == 2
    bad = Parsed(hostile()._repr_html_())
    assert not {"script", "img"} & set(bad.tags)
    assert "figure" not in Parsed(replace(small(), drifted=())._repr_html_()).tags


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return sum(v * weight for v, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("name", chart.palette())
def test_each_colour_stands_out_by_day_and_by_night(name):
    mine = luminance(chart.palette()[name])
    for paper in ("#ffffff", "#1c1f25"):
        low, high = sorted((mine, luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 3, paper


def test_each_kind_of_type_has_a_pattern_of_its_own():
    kinds = [chart.kind(type_) for type_ in (LONG, STRING, BOOLEAN, List(LONG))]
    assert set(kinds) < set(chart.KINDS)
    assert chart.shades(["text", "list", "text", "text", "text"]) == [
        "text",
        "list",
        "text-2",
        "text-3",
        "text-3",
    ]
    drawn = re.findall(r'<pattern id="p-([a-z0-9-]+)".*?</pattern>', str(chart.patterns()))
    assert len(drawn) == len(set(drawn)) == 3 * len(chart.palette())
    assert str(chart.patterns({"text"})).count("<pattern") == 1
