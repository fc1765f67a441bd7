"""The printed forms of results, in Python and in a notebook."""

from driftline import Lake
from driftline.ingest.result import Result
from driftline.verify.verdict import Mismatch, Verdict


def test_results_print_as_the_command_line_shows_them():
    assert Lake is not None  # whose import says how
    result = Result("shop.orders", "b1", 3, 2, 1)
    assert repr(result) == str(result) == "shop.orders  3 records read, 2 written, 1 in quarantine"
    verdict = Verdict(3, 2, 0, 1, (Mismatch("a.b", "f.jsonl:2", "7", "is not in the table"),))
    assert repr(verdict).splitlines() == [
        "1 of 3 records not found  2 in the table",
        "  a.b         7 (f.jsonl:2)  is not in the table",
    ]


def test_a_notebook_shows_them_in_html_with_nothing_of_the_data_taken_for_markup():
    html = Result("shop.<b>orders</b>", "b1", 3, 2, 1)._repr_html_()
    assert html is not None
    assert html.startswith("<pre style=")
    assert "shop.&lt;b&gt;orders&lt;/b&gt;" in html
    assert "1 in quarantine" in html
