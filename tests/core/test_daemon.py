"""The place from which Spark's Python workers import pyspark."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyspark
import pytest

from driftline.runtime.daemon import ending_with_spark, without_archives

HOME = Path(pyspark.__file__).parent
ARCHIVES = [
    str(HOME / place)
    for place in ("python/lib/pyspark.zip", "python/lib/py4j-src.zip", "jars/spark-core.jar")
]
INSTALLED = str(HOME.parent)


def test_spark_s_archives_go_and_the_rest_keeps_its_order() -> None:
    path = ["/here", *ARCHIVES, "/mine", INSTALLED]
    assert without_archives(path, HOME) == ["/here", "/mine", INSTALLED]


def test_a_link_to_the_same_spark_is_the_same(tmp_path: Path) -> None:
    link = tmp_path / "spark"
    link.symlink_to(HOME)
    assert without_archives([*ARCHIVES, INSTALLED], link) == [INSTALLED]


@pytest.mark.parametrize("rest", [[], [INSTALLED]])
def test_a_spark_that_is_not_the_installed_one_keeps_them(tmp_path: Path, rest: list[str]) -> None:
    path = [str(tmp_path / "python/lib/pyspark.zip"), *rest]
    assert without_archives(path, tmp_path) == path


def test_a_worker_ends_where_spark_has_closed_its_connection() -> None:
    def main(stream: BytesIO) -> None:
        if not stream.read(1):
            raise EOFError

    ending_with_spark(main)(BytesIO(b"a"))
    with pytest.raises(SystemExit):
        ending_with_spark(main)(BytesIO())
