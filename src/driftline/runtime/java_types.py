"""Java classes by their full names."""

from __future__ import annotations

from typing import Any


def java_type(jvm: Any, name: str) -> Any:
    """The Java class of a full name, such as ``org.apache.iceberg.Files``; an inner class behind a ``$``.

    ``jvm.org.apache.iceberg.Files`` is the same, and slow: py4j asks Java about each part of the name,
    which looks for such a class in every jar. A name without a class fails where the class is first used.
    """
    from py4j.java_gateway import JavaClass  # late: many commands need no Spark

    return JavaClass(name, jvm._gateway_client)
