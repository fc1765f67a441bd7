"""The command line: `driftline COMMAND …`. Each command calls a module and prints its result."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from driftline.cli.commands import app
from driftline.cli.grouped import joined
from driftline.cli.process import EXIT_CODE, log_failure, logs_json
from driftline.cli.scope import Invocation
from driftline.errors import DriftlineError, UsageError
from driftline.runtime.failure import explained, java_ended

_GLOBAL = {
    "--lake": True,
    "--config": True,
    "--debug": False,
    "--log-format": True,
}  # and whether a value follows


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command, and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names and values come in any script
    if os.environ.get("_DRIFTLINE_COMPLETE") == "complete_bash":
        _complete_in_bash()
        sys.exit()
    scope = Invocation()
    scope.interrupt.listen()
    try:
        arguments = _globals_first(sys.argv[1:] if argv is None else argv)
        result = app(arguments, prog_name="driftline", obj=scope, standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except TyperException as error:
        code = _misused(scope, error)
    except KeyboardInterrupt:
        code = scope.interrupt.code
    except BrokenPipeError:
        code = 0
    except Exception as error:
        code = scope.interrupt.code if scope.interrupt.cancels else _fail(scope, java_ended(error) or error)
    _flush()
    # Ended behind its commit with a report, or by typer, which knows Ctrl-C alone.
    if scope.interrupt.asked and code in (0, EXIT_CODE):
        code = scope.interrupt.code
    if scope.interrupt.asked and code == scope.interrupt.code and scope.interrupt.outcome and not logs_json():
        typer.echo(scope.interrupt.outcome, err=True)
    if code == 0 and (class_data := sys.modules.get("driftline.runtime.class_data")):
        class_data.make_soon()  # for the next command that starts Java
    sys.exit(code)


def _complete_in_bash() -> None:
    """Print what completes the word at the cursor: bash split the words at each `=`, and replaces what stands
    behind the last one.
    """
    words, cursor = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    before, word = joined(words, cursor)
    os.environ["COMP_WORDS"] = "\n".join([*words[:1], *_globals_first(before), word])
    os.environ["COMP_CWORD"] = str(1 + len(before))
    with redirect_stdout(StringIO()) as found, suppress(SystemExit):
        app([], prog_name="driftline", obj=Invocation())
    name, assigned, _ = word.rpartition("=")
    for line in found.getvalue().splitlines():
        print(line.removeprefix(name + assigned))


def _globals_first(argv: Sequence[str]) -> list[str]:
    """The arguments as the parser wants them: options of all commands in front, `help` as an option.

    >>> _globals_first(["schema", "a.b", "--lake", "x"])
    ['--lake', 'x', 'schema', 'a.b']
    >>> _globals_first(["help", "schema"])
    ['schema', '--help']
    >>> _globals_first(["capture", "kafka://h/t", "--metadata", "--into", "a.b"])
    ['capture', 'kafka://h/t', '--kafka-metadata', '--into', 'a.b']
    """
    front: list[str] = []
    remaining = list(argv)
    i = 0
    while i < len(remaining) and remaining[i] != "--":
        option, equals, _ = remaining[i].partition("=")
        if option in _GLOBAL and (_GLOBAL[option] or not equals):
            count = 1 + int(_GLOBAL[option] and not equals)
            front += remaining[i : i + count]
            del remaining[i : i + count]
        else:
            i += 1
    if remaining[:1] == ["capture"]:  # whose --metadata had no value before
        behind = [*remaining[1:], "--"]
        remaining = [
            "--kafka-metadata"
            if argument == "--metadata" and (following.startswith("--") or "://" in following)
            else argument
            for argument, following in zip(remaining, behind, strict=True)
        ]
    if remaining[:1] == ["help"]:
        remaining = [*remaining[1:], "--help"]
    return front + remaining


def _misused(scope: Invocation, error: Any) -> int:
    """Print an error of the parser, or the help that it brings; returns the exit code."""
    message: str = error.format_message().replace(": Value error, ", ": ")  # which is pydantic's
    if message.startswith("Usage:"):
        typer.echo(message, err=True)
        return UsageError.exit_code
    hint = None if error.ctx is None else f"see `{error.ctx.command_path} --help`"
    return _fail(scope, UsageError(message[:1].lower() + message[1:].rstrip("."), hint))


def _fail(scope: Invocation, error: Exception) -> int:
    """Print the error; returns the exit code."""
    if isinstance(error, DriftlineError):
        error.spell(scope.advice)
        message, todo, code = error.message, error.hint, error.exit_code
    else:
        cause, hint = explained(error)
        message = f"internal error: {type(error).__name__}: {cause}"
        todo, code = hint or "run again with --debug to see where", 1
    debug = bool(os.environ.get("DRIFTLINE_DEBUG"))
    if logs_json():
        log_failure(message, todo, error, code, trace=debug)
        return code
    if debug:
        typer.echo(scope.redact("".join(traceback.format_exception(error))), err=True)
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(_wrapped(scope.redact(message), len("error: ")), err=True)
    if todo:
        typer.echo(f"  {_wrapped(scope.redact(todo), 2)}", err=True)
    return code


def _wrapped(text: str, first: int) -> str:
    """The text in lines of words as wide as the terminal, indented by two characters; as it is without a
    terminal. ``first``: the characters that are taken of the first line. A later line that is indented stays
    so.
    """
    if not sys.stderr.isatty():
        return text
    width = get_terminal_size().columns
    lines = (
        fill(
            line,
            width,
            initial_indent="" if number and line.startswith(" ") else " " * (2 if number else first),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, line in enumerate(text.split("\n"))
    )
    return "\n".join(lines)[first:]


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, and Python would complain of it at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
