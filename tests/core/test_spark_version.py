"""Versions of Spark: the known ones, each with the libraries built for it."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from driftline.core.schema.types import LONG, VARIANT, Field, List, Schema, Struct
from driftline.errors import DataError, SetupError
from driftline.formats.iceberg.unread import check_variants, readable
from driftline.lake import Lake
from driftline.runtime import spark_version
from driftline.runtime.spark_version import RELEASES, release_of

SCALA = {"3.5": "2.12", "4.0": "2.13", "4.1": "2.13"}


def test_versions_are_known_by_their_first_two_numbers() -> None:
    known = {"3.5.0": "3.5", "3.5.8": "3.5", "3.5.6-amzn-0": "3.5", "4.0.1": "4.0", "4.1.3": "4.1"}
    assert {version: release_of(version).spark for version in known} == known


@pytest.mark.parametrize("version", ["3.4.4", "3.50.0", "4.2.0", "5.0.0", ""])
def test_attaching_to_another_version_is_refused_before_anything_runs(version: str) -> None:
    session = Mock(SparkSession, version=version)
    with pytest.raises(SetupError, match=rf"^Spark {version} is not supported: .* 3\.5, 4\.0 and 4\.1"):
        Lake.attach(session)


def test_libraries_are_those_for_the_version_and_its_scala() -> None:
    assert {release.spark for release in RELEASES} == SCALA.keys()
    for release in RELEASES:
        scala = SCALA[release.spark]
        iceberg, avro, _ = release.packages
        assert iceberg.endswith(f"iceberg-spark-runtime-{release.spark}_{scala}:{release.iceberg}")
        assert all(f"_{scala}:" in package for package in (avro, release.kafka, release.kafka_tokens))


WITH_VARIANTS = Schema(
    Struct((Field("id", LONG, 1), Field("v", VARIANT, 2), Field("l", List(VARIANT, 4), 3)))
)


@pytest.mark.parametrize("spark", ["3.5.8", "4.0.1", "4.1.3"])
def test_a_variant_is_refused_where_spark_has_none(spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_version, "_running_release", lambda: release_of(spark))
    if spark != "3.5.8":
        check_variants("s.t", WITH_VARIANTS)
        assert readable(WITH_VARIANTS) == WITH_VARIANTS
        return
    with pytest.raises(DataError, match=r"^s\.t: v is a variant, a type that Spark 3\.5 does not have"):
        check_variants("s.t", WITH_VARIANTS)
    with pytest.raises(DataError, match=r"^s\.t: l\.element is a variant"):
        check_variants(
            "s.t", WITH_VARIANTS, replace(WITH_VARIANTS, struct=Struct(WITH_VARIANTS.struct.fields[:2]))
        )
    check_variants("s.t", WITH_VARIANTS, WITH_VARIANTS)
    assert [f.name for f in readable(WITH_VARIANTS).struct.fields] == ["id"]
