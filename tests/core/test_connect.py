"""What comes of Spark Connect is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from driftline.errors import UsageError
from driftline.lake import Lake
from driftline.sources.opening import opened


def of_connect(name: str) -> Any:
    members = {"__module__": f"pyspark.sql.connect.{name.lower()}", "selectExpr": None}
    return type(name, (), members)()


def test_a_session_and_a_dataframe_of_spark_connect_are_refused() -> None:
    with pytest.raises(UsageError, match="a SparkSession of Spark Connect cannot be used") as raised:
        Lake.attach(of_connect("SparkSession"))
    assert "classic session" in str(raised.value.hint)
    with (
        pytest.raises(UsageError, match="a DataFrame of Spark Connect cannot be used"),
        opened(None, of_connect("DataFrame")),  # type: ignore[arg-type]
    ):
        pass
