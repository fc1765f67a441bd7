"""Errors as Spark, Java and Python print them, and what a person is told instead."""

from __future__ import annotations

from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from driftline.config import hide_secrets
from driftline.errors import DataError, SetupError
from driftline.ingest import attempts
from driftline.runtime.failure import BRING, WHOLE, explained, is_cut_off, java_ended, of_text
from driftline.runtime.front import front

JOB = (
    "An error occurred while calling o82.load.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 "
    "in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): "
)
AT = "\n\tat org.apache.spark.util.ThreadUtils$.parmap(ThreadUtils.scala:389)\n"

# What is printed, the sentence, and whether there is a hint that says what to do (or which).
TOLD: dict[str, tuple[str, str, str | None]] = {
    "too few open files": (
        "OSError: [Errno 24] Too many open files: '/lake/a.parquet'",
        "Too many open files (ulimit -n)",
        "raise the limit: ulimit -n 4096",
    ),
    "too few threads": (
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory or process/resource limits reached",
        "Java cannot start a thread: a limit of processes, threads or memory is reached (ulimit -u)",
        "raise it, or end other processes; then run the batch again",
    ),
    "no driftline in tasks": (
        (f"{JOB}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    func = read()\n'
        f"ModuleNotFoundError: No module named 'driftline'\n{AT}"),
        "the Python that runs Spark's tasks has no driftline",
        BRING,
    ),
    "another Python in tasks": (
        ("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions."),
        "Spark's tasks run by Python 3.12, not by the version of this process",
        BRING,
    ),
    "half a Parquet file": (
        (f"{JOB}org.apache.spark.SparkException: Exception thrown in awaitResult: {AT}"
        "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while "
        "reading file file:/in/a b.parquet. Could not read footer. Please ensure that the file is in either ORC or Parquet "
        f"format.\nIf not, please convert it to a valid format. SQLSTATE: KD001{AT}"
        "Caused by: java.lang.RuntimeException: file:/in/a b.parquet is not a Parquet file. Expected magic number at "
        "tail, but found [-72, 11, 34, 16]\n\t... 9 more\n\nDriver stacktrace:\n"),
        "/in/a b.parquet: cannot be read: is not a Parquet file. Expected magic number at tail, but found [-72, 11, 34, 16]",
        WHOLE,
    ),
    "an Avro file that is cut off": (
        ("An error occurred while calling o596.collectToPython.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] "
        f"Encountered error while reading file file:///in/half.avro.  SQLSTATE: KD001{AT}"
        f"Caused by: org.apache.avro.AvroRuntimeException: java.io.EOFException{AT}"
        "Caused by: java.io.EOFException\n\t... 27 more\n"),
        "/in/half.avro: cannot be read: it ends too early",
        WHOLE,
    ),
    "a file that cannot be read, and no reason": (
        ("An error occurred while calling z:org.apache.spark.sql.classic.Dataset.ofRows.\n: org.apache.spark.SparkException: "
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/bad.orc.  SQLSTATE: KD001{AT}"),
        "/in/bad.orc: cannot be read",
        WHOLE,
    ),
    "an ORC file that is broken inside, on Spark 3.5": (
        (f"{JOB}java.io.IOException: Problem opening stripe 0 footer in file:/in/a b.c000.snappy.orc.{AT}"
        f"Caused by: java.lang.IllegalArgumentException: Buffer size too small. size = 262144 needed = 2965090{AT}"),
        "/in/a b.c000.snappy.orc: cannot be read: Buffer size too small. size = 262144 needed = 2965090",
        WHOLE,
    ),
    "a Parquet file with a VARIANT, on Spark 3.5": (
        (f'{JOB}java.lang.NullPointerException: Cannot invoke "org.apache.parquet.format.LogicalType$_Fields.ordinal()" because '
        f'the return value of "org.apache.parquet.format.LogicalType.getSetField()" is null{AT}'),
        "a Parquet file has a column of a type that this version of Spark does not know, such as VARIANT or GEOMETRY",
        "Spark 4.1 opens it",
    ),
    "a Parquet file with a VARIANT, on Spark 4.0": (
        (f"{JOB}org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        f"file:///in/a%20b.parquet.  SQLSTATE: KD001{AT}"
        f'Caused by: java.lang.NullPointerException: Cannot invoke "org.apache.parquet.format.LogicalType$_Fields.ordinal()" because '
        f'the return value of "org.apache.parquet.format.LogicalType.getSetField()" is null{AT}'),
        "/in/a b.parquet: has a column of a type that this version of Spark does not know, such as VARIANT or GEOMETRY",
        "Spark 4.1 opens it",
    ),
    # Java gives an error that comes often no message.
    "the same for the thousandth time": (
        (f"{JOB}org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        f"file:///in/x.parquet.  SQLSTATE: KD001{AT}"
        "Caused by: java.lang.NullPointerException\n"
        "\tat org.apache.parquet.format.converter.ParquetMetadataConverter.getLogicalTypeAnnotation(ParquetMetadataConverter.java:1145)\n"),
        "/in/x.parquet: has a column of a type that this version of Spark does not know, such as VARIANT or GEOMETRY",
        "Spark 4.1 opens it",
    ),
    "no Avro file": (
        ("An error occurred while calling o632.load.\n: org.apache.spark.SparkException: Could not read file: file:/in/text.avro"
        f"{AT}Caused by: java.io.IOException: Not an Avro data file.\n\t... 9 more\n"),
        "/in/text.avro: cannot be read: Not an Avro data file",
        WHOLE,
    ),
    "a file that is gone": (
        ("[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///in/x.csv. File does not exist. It is "
        "possible the underlying files have been updated.\nYou can explicitly invalidate the cache in Spark SQLSTATE: KD001"),
        "/in/x.csv: the file no longer exists",
        None,
    ),
    "a path that is gone": (
        "[PATH_NOT_FOUND] Path does not exist: file:/in/x.json. SQLSTATE: 42K03",
        "/in/x.json: the file no longer exists",
        None,
    ),
    "gone, in a task": (
        f"{JOB}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/w/worker.py", line 1, in main\n    process()\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/in/x.json'\n" + AT,
        "/in/x.json: the file no longer exists",
        None,
    ),
    "no permission": (
        f"{JOB}java.io.FileNotFoundException: /in/x.parquet (Permission denied){AT}",
        "/in/x.parquet: Permission denied",
        "let this user read and write it",
    ),
    "no permission, in Python": (
        "[Errno 13] Permission denied: '/in/x.json'",
        "/in/x.json: Permission denied",
        "let this user read and write it",
    ),
    "out of memory": (
        ("An error occurred while calling z:org.apache.spark.sql.classic.Dataset.ofRows.\n: java.lang.OutOfMemoryError: Java heap "
        f"space{AT}"),
        "Java ran out of memory: Java heap space",
        "set DRIFTLINE_DRIVER_MEMORY=8g to give Java more; on a cluster, raise spark.executor.memory",
    ),
    "a Python worker that was killed": (
        (f"{JOB}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting "
        f"'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled'{AT}"
        "Caused by: java.io.EOFException\n\t... 29 more\n\nDriver stacktrace:\n"),
        "a Python process of Spark's stopped unexpectedly",
        "see the system log for the cause, such as a lack of memory; then run the batch again",
    ),
    "Java is gone": (
        "[Errno 111] Connection refused",
        "Java, in which Spark runs, stopped unexpectedly",
        ("see the system log for the cause; if memory was short, set DRIFTLINE_DRIVER_MEMORY=2g to give Java less. "
        "A batch is committed as a whole or not at all: run it again (in Python, open the lake again first)"),
    ),
    "a Python function": (
        ("\n  An exception was thrown from the Python worker. Please see the stack trace below.\nTraceback (most recent call last):"
        '\n  File "/w/job.py", line 56, in boom\n    def boom(x): raise ValueError("boom here: %s"%x)\n'
        "                 ^^^^^^^^^^^^^^^^^\nValueError: boom here: 1\n\n"),
        "the Python function boom (/w/job.py:56) raised ValueError: boom here: 1",
        None,
    ),
    "our own words, from a task": (
        f"{JOB}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/w/worker.py", line 1, in main\n    process()\n'
        "driftline.errors.DataError: /in/a.json.gz: broken gzip: Error -3\nthe file is cut off or damaged: copy it again\n\n" + AT,
        "/in/a.json.gz: broken gzip: Error -3",
        "the file is cut off or damaged: copy it again",
    ),
    "our own words, without advice": (
        f"{JOB}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/w/worker.py", line 1, in main\n    process()\n'
        "driftline.errors.DataError: /in/a.json.gz: broken" + AT,
        "/in/a.json.gz: broken",
        None,
    ),
    "a Python function that asks elsewhere": (
        ('Traceback (most recent call last):\n  File "/w/job.py", line 5, in ask\n    connect()\n'
        "ConnectionRefusedError: [Errno 111] Connection refused\n"),
        "the Python function ask (/w/job.py:5) raised ConnectionRefusedError: [Errno 111] Connection refused",
        None,
    ),
    "raise_error": ("[USER_RAISED_EXCEPTION] my own text SQLSTATE: P0001", "my own text", None),
    "a cast": (
        "[CAST_INVALID_INPUT] The value 'x' of the type \"STRING\" cannot be cast to \"INT\" because it is malformed. SQLSTATE: 22018",
        "The value 'x' of the type \"STRING\" cannot be cast to \"INT\" because it is malformed",
        None,
    ),
    "a disk that is full": (
        (f"{JOB}java.io.UncheckedIOException: Failed to create Parquet file{AT}"
        "Caused by: java.io.IOException: No space left on device\n\t... 25 more\n"),
        "No space left on device",
        "free some disk space, for temporary files (TMPDIR) too, and run the batch again; nothing was committed",
    ),
    "a folder that is none": (
        (f"{JOB}java.io.UncheckedIOException: Failed to create Parquet file{AT}"
        "Caused by: org.apache.hadoop.fs.FileAlreadyExistsException: Destination exists and is not a directory: /lake/data"
        "\n\t... 25 more\n\nDriver stacktrace:\n"),
        "Destination exists and is not a directory: /lake/data",
        None,
    ),
    "nothing but the frame": (f"{JOB}", "Spark gives no reason", None),
}  # fmt: skip


@pytest.mark.parametrize(("printed", "says", "hint"), TOLD.values(), ids=TOLD)
def test_what_a_person_is_told(printed: str, says: str, hint: str | None) -> None:
    assert of_text(printed) == (says, hint)


def test_an_exception_without_words() -> None:
    assert explained(RuntimeError()) == ("RuntimeError", None)


def test_a_batch_that_lost_its_java_is_no_fault_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    batch: Any = SimpleNamespace(table=SimpleNamespace(name="s.t"), files={}, load=load)
    with Popen(["true"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        with pytest.raises(SetupError, match="stopped unexpectedly"):
            attempts.Attempts(batch, dry_run=False, audit=attempts.NO_AUDIT).next()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(DataError, match=r"s\.t: Java"):
        attempts.Attempts(batch, dry_run=False, audit=attempts.NO_AUDIT).next()


def test_a_java_that_has_ended_is_the_reason_of_what_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    error = DataError("Spark gives no reason")
    error.__cause__ = ConnectionResetError()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert java_ended(error) is None
    with Popen(["sleep", "60"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        assert java_ended(DataError("the data say no")) is None
        java.kill()
        ended = java_ended(error)
    assert ended is not None
    assert (ended.exit_code, ended.__cause__) == (3, error)
    assert ended.message == "Java, in which Spark runs, stopped unexpectedly"


def test_an_answer_of_java_s_is_no_lost_connection() -> None:
    answer, lost = (
        type(name, (Exception,), {"__module__": "py4j.protocol"})()
        for name in ("Py4JJavaError", "Py4JNetworkError")
    )
    for cause, cut_off in ((answer, False), (lost, True), (ConnectionResetError(), True)):
        error = DataError("the table refused the change")
        error.__cause__ = cause
        assert is_cut_off(error) is cut_off


def test_an_error_that_stands_behind_itself_is_looked_at_once() -> None:
    error, cause = DataError("the table refused the change"), ValueError("of py4j's")
    error.__cause__, cause.__context__ = cause, error
    assert not is_cut_off(error)
    hide_secrets(error, {"token": "s3cret"})
    assert error.__cause__ is cause


def test_error_of_duckdb_reaches_nobody_raw() -> None:
    @front
    class Table:
        def read(self) -> None:
            duckdb.sql("SELECT 'x'::DATE").fetchall()

    with pytest.raises(DataError, match=r"^DuckDB says: Conversion Error: .*\"x\"") as caught:
        Table().read()
    assert isinstance(caught.value.__cause__, duckdb.Error)


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("java.lang.NegativeArraySizeException: -11377", "NegativeArraySizeException: -11377"),
        ("java.lang.NoClassDefFoundError: com/x/Brotli", "NoClassDefFoundError: com/x/Brotli"),
        ("java.net.UnknownHostException: store.example", "store.example"),
        ("java.lang.ArithmeticException: long overflow", "long overflow"),
    ],
)
def test_message_that_says_nothing_alone_stands_behind_its_class(java: str, said: str) -> None:
    assert of_text(f"{JOB}{java}\nCaused by: {java}")[0] == said
