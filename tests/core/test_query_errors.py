"""Errors of Spark that a query may end in, in one sentence."""

import pytest

from driftline.runtime.failure import query_error


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("Namespace does not exist: ", "SQL: no namespace is named", "write `show views in NAMESPACE`"),
        ("Namespace does not exist: shop", "SQL: Namespace does not exist: shop", None),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `shop`.`order` cannot be found. SQLSTATE: 42P01; line 1 pos 14;",
            "SQL: The table or view `shop`.`order` cannot be found (line 1, column 15)",
            "`driftline tables` lists what is there",
        ),
    ],
)
def test_one_sentence(text: str, message: str, hint: str | None) -> None:
    error = query_error(RuntimeError(text))
    assert (error.message, error.hint) == (message, hint)
