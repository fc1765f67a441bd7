"""The border of the Python interface, where arguments are checked and errors become ours."""

from __future__ import annotations

import builtins
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from inspect import Parameter, getattr_static, isfunction
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from driftline.config import hide_secrets
from driftline.core.schema.naming import nearest
from driftline.core.schema.text import with_article
from driftline.core.settings.surfaces import in_python
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.runtime.failure import explained, spark_ended
from driftline.runtime.stores import all_configured

_WITH_SECRETS = ("properties", "ducklake", "kafka", "registry")  # arguments
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

T = TypeVar("T")


def front(cls: type[T]) -> type[T]:
    """Have the public methods and properties of a class take and raise what its users should pass and see.

    An argument of another type than its annotation is refused before anything is done. Python's users see an
    error with all that is behind it: no secret may stand there, and hints name arguments, not flags. Once
    Java has died, each library that meets it fails in its own way: that becomes one sentence. An object says
    by ``_java`` which process its Spark runs in, by ``_configured`` the settings that may hold secrets.
    """
    for name in dir(cls):
        member = getattr_static(cls, name)
        if name.startswith("_"):
            continue
        if isfunction(member):
            setattr(cls, name, _guarded(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(_guarded(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            # A base's examples are no doctests of this class: pytest would run them.
            doc = None if name in vars(cls) else (member.__doc__ or "").partition("\n\n")[0]
            setattr(cls, name, property(_guarded(member.fget), doc=doc))
        elif isinstance(member, cached_property):
            member.func = _guarded(member.func)
    return cls


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    # Spark checks what its own methods take
    ours = method.__module__.startswith("driftline.")

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        # TypeError, as for each function of Python
        bound = signature.bind(self, *args, **kwargs)
        try:
            if ours:
                _check(method, signature, bound.arguments)
            return method(self, *args, **kwargs)
        except Exception as error:
            raised = spark_ended(error, getattr(self, "_java", None)) or _of_library(error) or error
            # In this one place, where errors leave the Python interface: at each `raise … from` it would be
            # forgotten once.
            hide_secrets(raised, *_with_secrets(kwargs), *getattr(self, "_configured", ()), *all_configured())
            if isinstance(raised, DriftlineError):
                raised.spell(in_python)
            if raised is error:
                raise
        # Here, so that nothing but its cause is behind it
        raise raised

    return call


def _with_secrets(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The arguments that may hold secrets, as settings."""
    for name in _WITH_SECRETS:
        value = arguments.get(name)
        if isinstance(value, Mapping):
            yield {str(key): str(text) for key, text in value.items()}
        elif isinstance(value, str):
            yield {"": value}


def _of_library(error: Exception) -> DriftlineError | None:
    """The error to report for one that a library raised and nobody met; None for one of ours, or of the
    caller's own code.
    """
    library = type(error).__module__.partition(".")[0]
    if library in ("duckdb", "_duckdb"):
        raised: DriftlineError = DataError(f"DuckDB says: {_first_line(error)}")
    elif library == "pyarrow":
        raised = DataError(f"Arrow says: {_first_line(error)}")
    elif library in ("pyspark", "py4j"):
        raised = DataError(*explained(error))
    elif type(error) is ValueError and "null byte" in str(error):
        raised = UsageError("a path with a NUL character", "no file has such a name")
    elif isinstance(error, UnicodeEncodeError):
        raised = UsageError(f"{error.object!r} has half of a surrogate, and is no text", "change it")
    elif isinstance(error, OSError) and error.filename is not None:
        raised = SetupError(f"{os.fsdecode(error.filename)}: {error.strerror}")
    else:
        return None
    raised.__cause__ = error
    return raised


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _check(method: Callable[..., Any], signature: inspect.Signature, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that is none of its annotation's types."""
    for name, value in list(arguments.items())[1:]:
        parameter = signature.parameters[name]
        # Settings, which have values of their own
        if parameter.kind is Parameter.VAR_KEYWORD:
            continue
        type_ = _annotated(parameter.annotation, method)
        for item in value if parameter.kind is Parameter.VAR_POSITIONAL else (value,):
            if not _fits(item, type_):
                raise _refused(f"{method.__qualname__}: {name}", item, type_, str(parameter.annotation))


def _refused(argument: str, value: Any, type_: Any, annotation: str) -> UsageError:
    words = [word for part in _alternatives(type_) if get_origin(part) is Literal for word in get_args(part)]
    if words and isinstance(value, str):
        hint = nearest(value, words) or f"one of {', '.join(words)}"
        return UsageError(f"{argument.rpartition(' ')[2]} = {value!r} is not possible", hint)
    holds = ", with what it cannot hold" if isinstance(value, Mapping | list | tuple) else ""
    return UsageError(f"{argument} is {with_article(type(value).__name__)}{holds}", f"pass {annotation}")


class _Unloaded:
    """Base of classes that stand for those that only type checkers import."""


class _Names(dict[str, Any]):
    """The names that an annotation can use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or type(name, (_Unloaded,), {})


def _annotated(annotation: Any, method: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, {}, _Names(vars(inspect.getmodule(method))))  # noqa: S307  our own source


def _alternatives(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)


def _fits(value: Any, type_: Any) -> bool:
    """True if a value has a type, as far as that can be seen without consuming it.

    >>> _fits(1, float), _fits("1", float), _fits({"a": 1}, Mapping[str, str]), _fits([1], Sequence[str])
    (True, False, False, False)
    """
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in arguments)
    if origin is Literal:
        return any(isinstance(value, type(word)) and value == word for word in arguments)
    if type_ is None or type_ is NoneType:
        return value is None
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(item, arguments[1]) for key, item in value.items()
        )
    if origin is Sequence:
        return isinstance(value, Sequence) and all(_fits(item, arguments[0]) for item in value)
    return _is_instance(value, origin or type_)


def _is_instance(value: Any, class_: Any) -> bool:
    # A type variable, or what is checked by who reads it
    if class_ is Any or not isinstance(class_, type):
        return True
    if issubclass(class_, _Unloaded):
        return any(base.__name__ == class_.__name__ for base in value.__class__.__mro__)  # as isinstance asks
    if class_ is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool"  # NumPy's, too
    # Numbers of NumPy, too, whose classes are none of Python's
    if class_ in (int, float):
        return hasattr(value, "__index__" if class_ is int else "__float__")
    return isinstance(value, class_)
