"""Turns Spark, Java and task errors into one sentence with a cause and a fix."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import Popen, TimeoutExpired
from typing import Any
from urllib.parse import unquote

from driftline.errors import DataError, DriftlineError, SetupError, UsageError

_CLOSING = 1.0  # seconds from the end of Java's connections to its own
_MEMORY = "set DRIFTLINE_DRIVER_MEMORY=8g to give Java more; on a cluster, raise spark.executor.memory"
WHOLE = "check that the file is in this format, and complete"
_ROOM = (
    "free some disk space, for temporary files (TMPDIR) too, and run the batch again; nothing was committed"
)

_GONE = "{0}: the file no longer exists"
_CLOSED, _ALLOW = "{0}: Permission denied", "let this user read and write it"
_BROKEN = "{0}: cannot be read: {cause}"
_FAILED_READ = r"\[FAILED_READ_FILE[\w.]*\] Encountered error while reading file (.+?)\.\s"
# Before 4.1, Spark's library for Parquet knows fewer types. An error that comes often has no message.
_NEWER = r"NullPointerException(?:: .+parquet\.format\.LogicalType|\s+at .+ParquetMetadataConverter\.getLogicalType)"
_STRANGE = "has a column of a type that this version of Spark does not know, such as VARIANT or GEOMETRY"
_OPENS = "Spark 4.1 opens it"
_ENDED = "Java, in which Spark runs, stopped unexpectedly"
_LOG = "see the system log for the cause, such as a lack of memory; then run the batch again"
_SHARE = (
    "see the system log for the cause; if memory was short, set DRIFTLINE_DRIVER_MEMORY=2g to give Java less. "
    "A batch is committed as a whole or not at all: run it again (in Python, open the lake again first)"
)
_STOPPED = "Spark was stopped in this process"
_OF_STOPPED = "stopped SparkContext"

# Java's errors by which a catalog says nothing, or is not reached; a refusal has a class of its own.
_AWAY = (
    "org.apache.iceberg.exceptions.RESTException",
    "org.apache.iceberg.exceptions.ServiceFailureException",
    "org.apache.iceberg.exceptions.ServiceUnavailableException",
    "org.apache.iceberg.jdbc.UncheckedSQLException",
)
_NOT_REACHED = ("java.net.", "org.apache.iceberg.exceptions.NotAuthorized")  # in a query
ASK_DOCTOR = "run `driftline doctor` to find the cause"

# Signs of a cause, anywhere in an error's text: the
# sentence, with what was matched, and the hint.
_YEARS = "a date or timestamp is before the year 1 or after 9999, and Python has none of these"
NO_DRIFTLINE = "the Python that runs Spark's tasks has no {0}"
BRING = (
    "set PYSPARK_PYTHON to the path of this Python before the session starts; "
    "on a cluster, install driftline where the tasks run (docs/cluster.md)"
)
_CAUSES: tuple[tuple[str, str, str | None], ...] = (
    (
        r"ModuleNotFoundError: No module named '(driftline|arro3|fastavro|msgspec|numpy|pyarrow)\b",
        NO_DRIFTLINE,
        BRING,
    ),
    (
        r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version:? ([\d.]+)",
        "Spark's tasks run by Python {0}, not by the version of this process",
        BRING,
    ),
    (r"(Too many open files)", "{0} (ulimit -n)", "raise the limit: ulimit -n 4096"),
    (
        r"unable to create (?:new )?native thread",
        "Java cannot start a thread: a limit of processes, threads or memory is reached (ulimit -u)",
        "raise it, or end other processes; then run the batch again",
    ),
    (r"(No space left on device|Disk quota exceeded|File too large)", "{0}", _ROOM),
    (r"OutOfMemoryError: ([^\n]+)", "Java ran out of memory: {0}", _MEMORY),
    (
        # The other error: of two concurrent commands, the one that is left loses its connection.
        r"Python worker exited unexpectedly|CancelledKeyException",
        "a Python process of Spark's stopped unexpectedly",
        _LOG,
    ),
    (r"\A\[Errno 111\]|trying to connect to the Java server|Answer from Java side is empty", _ENDED, _SHARE),
    (r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (.+?)\.\s", _GONE, None),
    (r"Path does not exist: (.+?)\.(?:\s|$)", _GONE, None),
    (r"\[Errno 2\] No such file or directory: '([^'\n]+)'", _GONE, None),
    (r"FileNotFoundException: (.+) \(Permission denied\)", _CLOSED, _ALLOW),
    (r"\[Errno 13\] Permission denied: '([^'\n]+)'", _CLOSED, _ALLOW),
    (rf"{_FAILED_READ}(?s:.*){_NEWER}", f"{{0}}: {_STRANGE}", _OPENS),
    (_NEWER, f"a Parquet file {_STRANGE}", _OPENS),
    (_FAILED_READ, _BROKEN, WHOLE),
    (r"ValueError: year -?\d+ is out of range|OverflowError: date value out of range", _YEARS, None),
    (r"RuntimeException: (.+) is not a Parquet file", _BROKEN, WHOLE),
    (r"Problem opening stripe \d+ footer in (.+)\.$", _BROKEN, WHOLE),  # of ORC; Spark 3.5 says no more
    (r"Could not read file: (.+)", _BROKEN, WHOLE),
)
# Texts around a cause, which say nothing of it.
_AROUND = ("Job aborted", "Exception thrown in", "An error occurred while calling")
_NO_CAUSE = re.compile(r"^(Encountered error while reading file .+?\.(\s+|$)|Could not read file: .+)")
_LOST_TASK = re.compile(r"Lost task [^\n]*?\): ([^\n]+)")
_NESTED = re.compile(r"^(?:Caused by: |: )([\w.$]+)(?:: ([^\n]*))?$", re.MULTILINE)
_BARE = re.compile(r"-?\d+|(?:\w+[./])+[A-Z]\w*")
_EMPTY = {"EOFException": "it ends too early"}
# The first line that is not indented says what was raised; of several tracebacks, the last is what came out.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t][^\n]*\n)+)([^\s][^\n]*)")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_OURS = re.compile(r"driftline\.errors\.\w+: ([^\n]+)(?:\n(?!\s)([^\n]+))?")


def explained(error: BaseException) -> tuple[str, str | None]:
    """The cause in one sentence, and what to do about it where that is known."""
    return of_text(text_of(error))


def is_away(java_class: str) -> bool:
    """True if an error of this Java class means that the catalog does not respond."""
    return java_class in _AWAY


def java_ended(error: BaseException, process: Popen[Any] | None = None) -> SetupError | None:
    """The error to report if the Java that Spark runs in has ended, which caused ``error``.

    None if it runs, or runs elsewhere. ``process``: that Java; by default the one of this process.
    """
    process = process or java_process()
    if process is None:
        return None
    with suppress(TimeoutExpired):
        # A Java that is killed closes its connections first, and ends a moment later.
        process.wait(_CLOSING if is_cut_off(error) or _is_stopped(error) else 0)
        ended = SetupError(_ENDED, _SHARE)
        ended.__cause__ = error
        return ended
    return None


def java_process() -> Popen[Any] | None:
    """The Java that Spark runs in, a child of this process; None if there is none, or it runs elsewhere."""
    spark = sys.modules.get("pyspark.core.context")
    return getattr(spark and spark.SparkContext._gateway, "proc", None)


def spark_ended(error: Exception, java: Popen[Any] | None) -> SetupError | None:
    """The error to report if Java has ended, or Spark was stopped, which caused ``error``."""
    stopped = _is_stopped(error)
    if isinstance(error, DriftlineError) and not (stopped or is_cut_off(error)):
        return None
    if isinstance(error, SetupError) and error.message in (_ENDED, _STOPPED):
        return None
    if (ended := java_ended(error, java)) or not stopped:
        return ended
    ended = SetupError(_STOPPED, "open the lake again")
    ended.__cause__ = error
    return ended


def _is_stopped(error: BaseException) -> bool:
    """True for an error of Spark's after it was stopped, as by a Java that is about to end."""
    return any(_OF_STOPPED in str(link) for link in _chain(error) if not _is_lost(link))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    # One that is raised again may stand behind itself
    passed: list[BaseException] = []
    while error is not None and not any(error is link for link in passed):
        passed.append(error)
        yield error
        error = error.__cause__ or error.__context__


def is_cut_off(error: BaseException) -> bool:
    """True if an error, or one behind it, may come of a lost connection to Java. An error of Java's own is an
    answer.
    """
    return any(_is_lost(link) for link in _chain(error))


def _is_lost(link: BaseException) -> bool:
    return isinstance(link, ConnectionError) or (
        type(link).__module__.startswith("py4j.") and type(link).__name__ != "Py4JJavaError"
    )


def of_text(text: str) -> tuple[str, str | None]:
    """The message and hint for an error as Python or Java prints it, with its causes.

    >>> of_text("Job aborted: Lost task 0.0 (TID 1): java.lang.OutOfMemoryError: Java heap space")[0]
    'Java ran out of memory: Java heap space'
    """
    if ours := _OURS.search(text):  # raised in a task, and said well there
        return ours[1], ours[2]
    for pattern, words, hint in _CAUSES:
        if match := re.search(pattern, text, re.MULTILINE):
            matched = next((group for group in match.groups() if group), "")
            cause = _innermost(text).removeprefix(matched).strip(" :")
            return words.format(_path(matched), cause=cause).removesuffix(": "), hint
    if raised := _RAISED.findall(text):
        *_, (lines, last) = raised
        frames = [frame for frame in _FRAME.findall(lines) if "/pyspark/" not in frame[0]]
        function = "the Python function {2} ({0}:{1})".format(*frames[-1]) if frames else "a Python function"
        return f"{function} raised {last}", None
    return _innermost(text) or "Spark gives no reason", None


def sentence(text: str) -> str:
    """The first sentence of a message of Spark's, on one line, without its codes and its advice.

    >>> sentence("[DIVIDE_BY_ZERO] Division by\\nzero. Use `try_divide`. SQLSTATE: 22012")
    'Division by zero. Use `try_divide`.'
    """
    text = re.sub(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: [^$]*$", "", text.strip())
    # Spark breaks a sentence into lines, and puts advice and plans behind it.
    first = re.match(r"(?s)(.*?\.)(?:\s*\n|$)", text)
    words = " ".join((first[1] if first else text.split("\n\n")[0]).split())
    return _NO_CAUSE.sub("", words)


def _innermost(text: str) -> str:
    """The message of the innermost cause that has one."""
    sentences = [
        _with_class(class_.rpartition(".")[2], sentence(message)) for class_, message in _NESTED.findall(text)
    ]
    if lost := _LOST_TASK.search(text):
        sentences.insert(1, sentence(re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", lost[1])))
    useful = [one for one in sentences if one and not one.startswith(_AROUND)]
    alone = sentence(text)
    return (useful[-1] if useful else "" if alone.startswith(_AROUND) else alone).rstrip(".")


def _with_class(class_: str, message: str) -> str:
    """A message of Java's, behind its class if it says nothing alone: a number, or the name of a class."""
    return f"{class_}: {message}" if _BARE.fullmatch(message) else message or _EMPTY.get(class_, "")


def _path(text: str) -> str:
    """A local file as a path, if Spark names it as a URI."""
    return unquote(re.sub(r"^file:/+", "/", text)) if text.startswith("file:/") else text


def text_of(error: BaseException) -> str:
    """The whole text of an error; of Java's, with its causes."""
    return "\n".join([str(error) or type(error).__name__, *_caused(java_exception(error))])


def java_exception(error: BaseException) -> Any:
    """The exception of Java behind an error of py4j, or of PySpark, which makes some its own, or None."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _caused(java: Any) -> Iterator[str]:
    while java is not None:
        yield f"Caused by: {java.toString()}"
        java = java.getCause()


@contextmanager
def query_errors() -> Iterator[None]:
    """Raise errors of Spark as errors of the query."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise query_error(error) from error
        raise


def query_error(error: Exception) -> DataError | UsageError | SetupError:
    """The error of a query in Spark, in one line."""
    from pyspark.errors import ParseException

    text, hint = explained(error)
    if any(is_away(name) or name.startswith(_NOT_REACHED) for name in _causes(error)):
        return SetupError(f"the catalog does not respond: {text}", ASK_DOCTOR)
    position = re.search(r"\bline (\d+),? pos(?:ition)? (\d+)", str(error))
    where = f" (line {position[1]}, column {int(position[2]) + 1})" if position else ""
    kind = UsageError if isinstance(error, ParseException) else DataError
    if text == "Namespace does not exist:":  # Iceberg's, of SHOW VIEWS without one
        text, hint = "no namespace is named", "write `show views in NAMESPACE`"
    if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
        hint = "`driftline tables` lists what is there"
    return kind(f"SQL: {text}{where}", hint)


def _causes(error: BaseException) -> Iterator[str]:
    """The classes of a Java error and of its causes."""
    java = java_exception(error)
    while java is not None:
        yield java.getClass().getName()
        java = java.getCause()
