"""The Java libraries: their versions, and the folder that keeps them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from driftline.errors import SetupError
from driftline.runtime.spark_version import NEWEST, installed_release

_RELEASE = installed_release()
PACKAGES = _RELEASE.packages
_SPARKS_OWN = (
    "org.apache.hadoop:*",
    "org.slf4j:*",
    "org.lz4:*",
    "org.xerial.snappy:*",
    "com.google.code.findbugs:*",
)
# What Spark's resolver is asked for, one after the other, and what it is to leave out each time.
RESOLVED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (PACKAGES, ()),
    ((_RELEASE.kafka,), (*_SPARKS_OWN, _RELEASE.kafka_tokens.rpartition(":")[0])),
    ((_RELEASE.kafka_tokens,), (*_SPARKS_OWN, "org.apache.kafka:*")),
)
_MEGABYTES, _OF_BUNDLE = 70, 60  # of a download, about

# What Iceberg needs beside, of each kind of store: the signs by which a catalog's properties tell of it. What
# begins a property's name, what begins a value, and what a class is named by.
BUNDLES = {
    "s3": f"org.apache.iceberg:iceberg-aws-bundle:{_RELEASE.iceberg}",
    "gs": f"org.apache.iceberg:iceberg-gcp-bundle:{_RELEASE.iceberg}",
    "abfss": f"org.apache.iceberg:iceberg-azure-bundle:{_RELEASE.iceberg}",
}
# Hadoop's own way to S3, by which Spark reads files that are no table's of Iceberg's; Amazon's client in the
# version that Iceberg's bundle has.
HADOOP_S3 = f"org.apache.hadoop:hadoop-aws:{_RELEASE.hadoop or NEWEST.hadoop}"
_AWS = "2.54.17"
# Google's way to its store. One jar has all that it needs, under a classifier, which Spark's resolver does
# not take: it is asked for a POM of ours, which asks for the jar.
# hadoop-gcp 3.5, Hadoop's own, takes neither an endpoint nor an anonymous login, and moves files by a
# request that the emulator does not know.
HADOOP_GOOGLE = "com.google.cloud.bigdataoss:gcs-connector:3.1.9:shaded"
_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>driftline</groupId><artifactId>{artifact}</artifactId><version>{version}</version><packaging>pom</packaging>
<dependencies><dependency>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version><classifier>{classifier}</classifier>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>"""
# What a package is asked for with, and what is left out: all of Amazon's clients are half a gigabyte.
_WITH = {
    HADOOP_S3: (
        tuple(
            f"software.amazon.awssdk:{name}:{_AWS}"
            for name in ("s3-transfer-manager", "apache-client", "sts")
        ),
        ("software.amazon.awssdk:bundle", "org.slf4j:*", "io.netty:*"),
    )
}
_SIGNS = {
    "s3": (("s3.", "client.", "glue."), ("s3:", "s3a:", "glue"), ".aws."),
    "gs": (("gcs.",), ("gs:",), ".gcp."),
    "abfss": (("adls.",), ("abfs:", "abfss:"), ".azure."),
    "s3a": ((), (), ".fs.s3a."),
    "google": ((), (), ".hadoop.fs.gcs."),
}


def bundles(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The packages for the stores that a catalog's properties mention.

    >>> bundles({"type": "rest", "warehouse": "s3://bucket/lake"})[0].rpartition(":")[0]
    'org.apache.iceberg:iceberg-aws-bundle'
    """

    def named(names: tuple[str, ...], values: tuple[str, ...], class_: str) -> bool:
        """True if a property has a key or value with one of these beginnings, or the class in its value."""
        return any(
            key.startswith(names) or value.startswith(values) or class_ in value
            for key, value in properties.items()
        )

    ours = {**BUNDLES, "s3a": HADOOP_S3, "google": HADOOP_GOOGLE}
    return tuple(package for kind, package in ours.items() if named(*_SIGNS[kind]))


def cache_folder() -> Path:
    """The folder that keeps jars between runs; created if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("DRIFTLINE_CACHE") or Path(base, "driftline")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cached_jars(more: Collection[str] = ()) -> list[Path]:
    """The cached jars of RESOLVED, of ``more`` packages and of their dependencies; none if one is missing."""
    names = _jar_list(more)
    jars = [names.with_name(name) for name in names.read_text().split()] if names.is_file() else []
    return jars if all(jar.is_file() for jar in jars) else []


def find_jars(notify: Callable[[str], None] | None = None, more: Collection[str] = ()) -> list[Path]:
    """The jars, downloaded by Spark's own resolver if the cache lacks them.

    Raises SetupError if that fails.
    """
    if jars := cached_jars(more):
        return jars
    if notify:
        size = _MEGABYTES + _OF_BUNDLE * len(more)
        notify(f"Downloading the Java libraries of Iceberg and Kafka, once (about {size} MB)")
    names = _jar_list(more)
    names.parent.mkdir(exist_ok=True)
    # Another process may do the same at this moment: each has a folder of its own, and renames what is whole.
    with TemporaryDirectory(dir=names.parent) as draft:
        for packages, left_out in _resolved(more):
            _resolve(Path(draft), packages, left_out)
        drafts = sorted(Path(draft, "jars").glob("*.jar"))
        jars = [jar.replace(names.with_name(jar.name)) for jar in drafts]
        Path(draft, "names").write_text("\n".join(jar.name for jar in jars))
        Path(draft, "names").replace(names)
    return jars


def _resolved(more: Collection[str]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    wanted_packages = ((package, *_WITH.get(package, ((), ()))) for package in more)
    return (*RESOLVED, *(((package, *others), left_out) for package, others, left_out in wanted_packages))


def _jar_list(more: Collection[str]) -> Path:
    key = sha256(repr(_resolved(more)).encode()).hexdigest()[:12]
    return cache_folder() / "jars" / f"{key}.txt"


# Spark's resolver needs no host names here, and follows the mirror that a company has set for it.
def _resolve(folder: Path, packages: Sequence[str], left_out: Sequence[str]) -> None:
    """Have Spark download the packages into `folder`/jars: it does so
    before it starts anything, and then we end it.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    asked = [_by_pom(folder, package) for package in packages]
    conf = SparkConf(loadDefaults=False).setAll(
        [
            ("spark.jars.packages", ",".join(asked)),
            ("spark.jars.excludes", ",".join(left_out)),
            ("spark.jars.ivy", str(folder)),
        ]
    )
    if asked != list(packages):
        conf.set("spark.jars.repositories", _poms(folder).as_uri())
    log = folder / "log"
    with log.open("w") as output:
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        except PySparkException as error:
            text = log.read_text()
            missing = dict.fromkeys(re.findall(r"unresolved dependency: ([^:\s]+)", text))
            raise SetupError(
                f"cannot download the Java libraries: {', '.join(missing) or text.strip()[-500:]}",
                "Check the network connection. Behind a mirror, name its Ivy settings file as spark.jars.ivySettings "
                "in the spark-defaults.conf of SPARK_CONF_DIR.",
            ) from error
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _poms(folder: Path) -> Path:
    return folder / "poms"


def _by_pom(folder: Path, package: str) -> str:
    """The package as Spark's resolver takes it: one with a classifier by a POM, written into `_poms`."""
    group, artifact, version, *classifier = package.split(":")
    if not classifier:
        return package
    pom = _poms(folder) / "driftline" / artifact / version / f"{artifact}-{version}.pom"
    pom.parent.mkdir(parents=True)
    pom.write_text(_POM.format(group=group, artifact=artifact, version=version, classifier=classifier[0]))
    return f"driftline:{artifact}:{version}"
