"""The embedded engine: a local Spark session on a lake, with its JVM, jars and catalog."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.config import DURABILITY, SENSITIVE, has_secret
from driftline.errors import SetupError, UsageError
from driftline.runtime import class_data, file_io, temporary
from driftline.runtime.bare_java import quiet_py4j
from driftline.runtime.failure import BRING, java_process
from driftline.runtime.jars import bundles, cache_folder, find_jars
from driftline.runtime.java import QUICK, Java, check_limits, default_memory, find_java, launcher_home
from driftline.runtime.spark_conf import activate, own_settings, runs_here
from driftline.runtime.spark_version import java_type, quiet_errors, release_of
from driftline.runtime.stores import configured, is_stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With these pyspark makes sessions of Spark Connect only. It sets the second one with its first of them.
_MODES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_INSTEAD = (
    "or write its rows as Parquet files, and ingest those in another process; see docs/spark-connect.md"
)


def must_be_classic(handed: object) -> None:
    """Raise UsageError for a session or a DataFrame of Spark Connect."""
    # An append whose client was killed is committed there seconds later, so that no token keeps a batch
    # from entering twice; and schema and rows are two commits.
    if type(handed).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            f"a {type(handed).__name__} of Spark Connect cannot be used: the tables are written in the driver's own process",
            hint=f"create it in a classic session, SparkSession.builder.master(…); {_INSTEAD}",
        )


def must_start_classic() -> None:
    """Raise SetupError if pyspark makes no classic session in this process."""
    if mode := next((name for name in _MODES if name in os.environ), None):
        raise SetupError(
            f"{mode} is set, so pyspark makes sessions of Spark Connect only: the lake's own Spark cannot start",
            hint="Open the lake in a process without it, and without a session of Spark Connect; see docs/spark-connect.md",
        )


OURS = "spark.driftline.embedded"  # marks a session that has our jars
CATALOG_KEYS = ("spark.sql.catalog.", "spark.sql.defaultCatalog")
LOCAL = "local[*]"
_HERE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # With Spark's own daemon each task takes 0.14 s longer: two thirds of the CPU of a small batch.
    "spark.python.daemon.module": "driftline.runtime.daemon",
}
_TEMPORARY = ("spark.local.dir", "spark.hadoop.hadoop.tmp.dir")  # which hold rows
_AT_LAUNCH = ("spark.driver.extraJavaOptions", "spark.jars.repositories")  # later would be too late for these
# They call any method of Java's, and so reach the environment.
_REFLECTION = ("reflect", "java_method", "try_reflect")
_CLASS_PATH = "spark.driver.extraClassPath"
_SQLITE = "jdbc:sqlite:"
_NAME_ONE = 'name it in driftline.toml: [catalog] with type = "rest", "glue" or "jdbc", and its uri'
HINT = "run `driftline doctor` to find the cause."


def open_session(
    lake: Path | None,
    *,
    catalog: str | None = "lake",
    properties: Mapping[str, str] | None = None,
    app_name: str = "driftline",
    notify: Callable[[str], None] | None = None,
) -> SparkSession:
    """A local Spark session with the lake as its default catalog; the process's open one if it has it.

    `lake` None: it is a DuckLake in a store. `properties` are those of an existing Iceberg catalog (`type`,
    `uri`, ...), used in place of the embedded one; keys that begin with `spark.` are settings of Spark.
    `catalog` None: no Iceberg at all. `notify` is called with a line about work that takes long. Raises
    SetupError without Java or jars, or if Spark does not start or is another program's in here."""
    must_start_classic()
    properties = properties or {}
    if lake is not None and is_embedded(properties):
        make_lake(lake)
    settings = catalog_settings(lake, catalog, properties)
    more = bundles(properties)
    if session := _running(settings, more):
        activate(session)
        return session
    java = prepare_environment()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    jars, master = find_jars(notify, more), settings.get("spark.master", LOCAL)
    archive = class_data.Archive.of(cache_folder(), java, jars, Path(os.environ["SPARK_HOME"]))
    options = " ".join(f'"{flag}"' for flag in class_data.flags(archive))

    def started(options: str) -> SparkSession:
        """Start Java with these ``options``, and Spark in it."""
        needed = with_settings(engine_settings(jars, master, options), settings)
        _launch_java(needed)
        engine: dict[str, bool | float | int | str | None] = {**needed}
        return _first(SparkSession.builder.appName(app_name).config(map=engine).getOrCreate())

    try:
        try:
            return started(options)
        except PySparkException:
            if archive is None or not options or not archive.remove():
                raise
            return started("")
    except (PySparkException, Py4JError) as error:
        cause = getattr(error, "java_exception", None)
        reason = str(error if cause is None else cause.getMessage() or cause).split("\n", 1)[0]
        raise SetupError(f"Spark did not start: {reason}", HINT) from error


def _launch_java(settings: Mapping[str, str]) -> None:
    """Launches Java, if this process has none, with the settings that it needs at launch.

    These become arguments of its command line, which everybody on the machine can read. So settings that
    hold secrets are not among them: Spark gets those over the connection to Java.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    check_limits(temporary.folder())
    at_launch = [
        (key, value)
        for key, value in settings.items()
        if key in _AT_LAUNCH or not (key.startswith("spark.sql.") or has_secret(key, value))
    ]
    # No private file of properties instead: it would replace the user's `spark-defaults.conf`.
    conf, gateway = SparkConf(loadDefaults=False).setAll(at_launch), SparkContext._gateway
    if gateway is None:
        # Signals that come to the whole process group are not for it: a batch under way comes to its end. It
        # ends with this process, which holds the other end of its input.
        gateway = launch_gateway(conf, {"start_new_session": True})
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _only_sql(session: SparkSession) -> SparkSession:
    """The session without the functions that call any method of Java's: a query must only read."""
    jvm: Any = session._jvm
    java: Any = session._jsparkSession
    functions = java.sessionState().functionRegistry()
    for name in _REFLECTION:
        functions.dropFunction(java_type(jvm, "org.apache.spark.sql.catalyst.FunctionIdentifier")(name))
    return session


def _first(session: SparkSession) -> SparkSession:
    """The first session in a Java."""
    without_checksums(session._jvm, session.sparkContext._jsc.hadoopConfiguration())
    return _only_sql(session)


def without_checksums(jvm: Any, configuration: Any) -> None:
    """Have Hadoop write no checksums beside files on disks.

    Each is one more file to sync and to delete, and costs a process that sets its mode: 4 ms of CPU.
    """
    java_type(jvm, "org.apache.hadoop.fs.FileSystem").getLocal(configuration).setWriteChecksum(False)


def session_beside(session: SparkSession) -> SparkSession:
    """Another session of the same Spark, with the same settings and no views, for other threads."""
    other = _only_sql(session.newSession())
    for key, value in own_settings(session).items():
        # Those of all of Spark, which nobody can set, are the same
        if other.conf.get(key, None) != value:
            other.conf.set(key, value)
    return other


def stop_session(session: SparkSession) -> None:
    """Stop Spark with all its sessions in this process. A second call does nothing."""
    if not _forget_ended():
        session.stop()


def _forget_ended() -> bool:
    """Have pyspark forget a Java that has ended, so that the next session starts another; True if it had."""
    java = java_process()
    if java is None or java.poll() is None:
        return False
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if context := SparkContext._active_spark_context:
        context._jsc = None  # or `stop` would call Java
        context.stop()
    if gateway := SparkContext._gateway:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    return True


def check_workers(session: SparkSession) -> None:
    """Raise SetupError if a session's tasks, which run on this machine, have a Python without driftline.

    Small batches would go in all the same, as the driver reads them, and the first large one would fail.
    """
    context = session.sparkContext
    python, archives = shutil.which(context.pythonExec), context._python_includes
    # Not the files behind links: the Python of an environment is a link to one without its packages.
    if (
        not runs_here(context)
        or archives
        or python is None
        or Path(python).absolute() == Path(sys.executable)
    ):
        return
    looks = [python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('driftline') is None)"]
    if subprocess.run(looks, capture_output=True, check=False).returncode == 1:
        raise SetupError(f"the Python that runs Spark's tasks has no driftline: {python}", BRING)


def is_embedded(properties: Mapping[str, str]) -> bool:
    """True if the properties name no catalog, so that the lake's own is meant."""
    return all(key.startswith("spark.") for key in properties)


def in_store(lake: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The catalog properties of a lake with files at the URI ``lake``: its location and store options too.

    Raises UsageError if they name no catalog.
    """
    if is_embedded(properties) or properties.get("uri", "").startswith(f"{_SQLITE}{lake}"):
        raise UsageError(
            f"{lake}: a SQLite catalog cannot lie in a store, so this lake needs another", _NAME_ONE
        )
    # Catalogs of these kinds find the way to a store by themselves.
    finds = properties.get("type") in ("rest", "glue") or "catalog-impl" in properties
    by_scheme = {} if finds else {"io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
    store = file_io.properties(lake, configured(lake))
    return {"warehouse": lake, **by_scheme, **store, **properties}


def make_lake(lake: Path) -> None:
    """Create the folder of an embedded lake. Raises SetupError if it cannot be created or written to."""
    try:
        lake.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"Cannot make the lake folder {lake}: {error.strerror}.", "Pass another folder: --lake FOLDER."
        ) from error
    if not os.access(lake, os.W_OK | os.X_OK):
        raise SetupError(
            f"Cannot write to the lake folder {lake}.", "Allow it, or pass another folder: --lake FOLDER."
        )


def catalog_settings(lake: Path | None, catalog: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the catalog: the embedded one in the folder
    `lake`, or the one that `properties` name.
    """
    if catalog is None or lake is None:
        return dict(properties)
    spark = {key: value for key, value in properties.items() if key.startswith("spark.")}
    of_catalog = {key: value for key, value in properties.items() if key not in spark}
    prefix = f"spark.sql.catalog.{catalog}"
    # Other processes change tables too, and what a catalog hands out for each load is not for the next.
    # Iceberg keeps a table of REST and its credentials for five minutes, so they could expire during a batch.
    uncached = {"cache-enabled": "false"} | (
        {"rest-table-cache.max-entries": "0"} if of_catalog.get("type") == "rest" else {}
    )
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{
            f"{prefix}.{key}": value
            for key, value in {**uncached, **(of_catalog or embedded_catalog(lake))}.items()
        },
        "spark.sql.defaultCatalog": catalog,
        **spark,
    }


def with_durability(properties: Mapping[str, str], *, durable: bool, catalog: str = "lake") -> dict[str, str]:
    """Properties as `open_session` takes them, of a ``catalog`` whose tables are written with or without
    syncs.
    """
    return {**properties, f"spark.sql.catalog.{catalog}.{DURABILITY}": "full" if durable else "off"}


def embedded_catalog(lake: Path) -> dict[str, str]:
    """Iceberg's properties of the catalog in the folder ``lake``."""
    # Each process of Spark would resolve a relative path by itself
    folder = lake.resolve()
    return {
        "type": "jdbc",
        "uri": f"{_SQLITE}{folder}/catalog.db",
        "jdbc.schema-version": "V1",  # with views
        "jdbc.busy_timeout": "20000",  # ms to wait for another process
        "warehouse": str(folder),
    }


@lru_cache(maxsize=64)
def embedded_lake(spark: SparkSession, catalog: str) -> Path | None:
    """The folder of the lake whose embedded catalog a session has by this name; None for another catalog.

    A catalog of the same name whose tables lie in a store is one of a person's own.
    """
    uri, place = (
        spark.conf.get(f"spark.sql.catalog.{catalog}.{name}", None) or "" for name in ("uri", "warehouse")
    )
    folder = Path(uri.removeprefix(_SQLITE)).parent
    return folder if uri == f"{_SQLITE}{folder}/catalog.db" and not is_stored(place) else None


def engine_settings(jars: Sequence[Path], master: str = LOCAL, options: str = "") -> dict[str, str]:
    """Spark's settings for an engine inside this machine: no port opened
    outwards, no litter, nothing on the terminal.

    With a ``master`` elsewhere, its executors are sent the jars.
    ``options``: further ones of this machine's Java.
    """
    folder = str(temporary.folder())
    levels = " -Ddriftline.log=warn -Ddriftline.raised=warn" if os.environ.get("DRIFTLINE_DEBUG") else ""
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    return {
        OURS: "true",
        "spark.master": master,
        "spark.driver.memory": os.environ.get("DRIFTLINE_DRIVER_MEMORY") or default_memory(),
        # Not spark.jars here: those would be copied and loaded apart, which takes seconds at each start.
        _CLASS_PATH: os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(
            [f'"-Djava.io.tmpdir={folder}"', f"-Dlog4j2.configurationFile={logging}{levels}", options]
        ).rstrip(),
        # On a cluster the workers say where their blocks lie.
        **(
            _HERE | dict.fromkeys(_TEMPORARY, folder)
            if master.startswith("local")
            else {"spark.jars": ",".join(map(str, jars))}
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Pages and event logs show neither such settings nor values with a login.
        "spark.redaction.regex": rf"(?i){SENSITIVE}|://[^/\s@]+@",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        # It takes eight calls to Java for each column, and says what Python's traceback says.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Names are data, and `${env:PASSWORD}` may be one
        "spark.sql.variable.substitute": "false",
        # Hive's makes a database in the working folder.
        "spark.sql.catalogImplementation": "in-memory",
        # Otherwise a view of a table with such a column is refused
        "spark.sql.geospatial.enabled": "true",
        # Listing thousands of files as Spark tasks takes seconds more than listing them here.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    }


def with_settings(engine: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Put ``settings`` over those of the engine; a class path of theirs goes behind the engine's."""
    paths = [given[_CLASS_PATH] for given in (engine, settings) if _CLASS_PATH in given]
    return {**engine, **settings, **({_CLASS_PATH: os.pathsep.join(paths)} if paths else {})}


def pyspark_version() -> str:
    """The version of the installed pyspark. Raises SetupError without one or for an unknown one."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError as error:
        raise SetupError("Spark is not installed.", "pip install 'driftline[local]'") from error
    release_of(installed)
    return installed


def prepare_environment() -> Java:
    """Set the environment for Spark to use this Python, this pyspark and a fitting Java, which is returned.

    Raises SetupError if one is missing.
    """
    pyspark_version()
    import pyspark

    if not os.environ.get("DRIFTLINE_DEBUG"):
        quiet_errors()
    quiet_py4j()
    java = find_java()
    os.environ["JAVA_HOME"] = str(launcher_home(java, cache_folder()))
    # The Java that only says how Spark's is to be started ends before its better compiler pays.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", f"{QUICK} -XX:+UseSerialGC")
    # Tasks need driftline, too, in the same version.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    # A cluster of many machines needs another
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return java


def _running(settings: Mapping[str, str], more: Sequence[str]) -> SparkSession | None:
    """The session of this process with this catalog, if Spark runs in it; a further one for another catalog.
    ``more``: the packages of its stores, which Spark takes when it starts.
    """
    if "pyspark" not in sys.modules or _forget_ended():
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    catalog = {key: value for key, value in settings.items() if key.startswith(CATALOG_KEYS)}
    if all(session.conf.get(key, None) == value for key, value in catalog.items()):
        return session
    if session.conf.get(OURS, None) is None:
        raise SetupError(
            "This process runs a Spark session of its own already.",
            "Use it with Lake.attach(spark, catalog=...), or stop it first.",
        )
    libraries = session.conf.get(_CLASS_PATH, None) or ""
    names = [package.split(":")[1] for package in more]
    if lacking := [name for name in names if name not in libraries]:
        raise SetupError(
            f"This process runs Spark without {', '.join(lacking)}, which the lake's store needs.",
            "Open the lake in the store first, or in another process.",
        )
    # Lakes in one process share one JVM, as a second one cannot be started; each has its own catalogs and
    # settings.
    session = _only_sql(session.newSession())
    for key, value in settings.items():
        if key.startswith("spark.sql."):  # the rest is settled when Java starts
            session.conf.set(key, value)
    return session
