"""The licences of all that driftline brings: the packages that it depends on, and Java's libraries in its cache.

    make licenses

A licence is the one that the package or jar states itself; where it states none, that is said, and the command fails.
Of Java's libraries these are the ones of the embedded engine, with Kafka and DuckLakes in stores.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from driftline.runtime.jars import HADOOP_GOOGLE, HADOOP_S3, find_jars

PINNED = Path(__file__).resolve().parents[1] / "requirements/local.txt"
UNKNOWN = "not stated"
# How a licence's text, or its address, begins or names itself.
TEXTS = {
    "Apache-2.0": r"apache license|apache\.org/licenses/LICENSE-2|apache-2|aws\.amazon\.com/apache",
    "MIT": r"\bmit\b|permission is hereby granted, free of charge",
    "BSD": r"\bbsd\b|redistribution and use in source and binary forms",
    "0BSD": r"0bsd|permission to use, copy, modify, and/or distribute this software",
    "GPL-2.0 with Classpath exception": r"classpath",
    "MIT-0": r"mit-0",
    "CC0": r"creativecommons\.org/publicdomain/zero|\bcc0\b",
}

# What a jar leaves to its project's file on Maven Central.
ON_CENTRAL = {
    "org.reactivestreams_reactive-streams": "MIT-0",
    "org.scala-lang.modules_scala-parallel-collections_2.13": "Apache-2.0",
}


def main() -> None:
    rows = [*packages(), *jars()]
    print("| what | version | licence |\n|---|---|---|")
    for name, version, licence in rows:
        print(f"| {name} | {version} | {licence} |")
    if missing := [name for name, _, licence in rows if licence == UNKNOWN]:
        sys.exit(f"{UNKNOWN}: {', '.join(missing)}")


def packages() -> Iterator[tuple[str, str, str]]:
    """The pinned packages that are installed here; others are for other machines."""
    names = re.findall(r"^([A-Za-z0-9._-]+)==", PINNED.read_text(), re.MULTILINE)
    for name in dict.fromkeys(names):  # some have a version for each Python
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield name, found.version, of_package(found)


def of_package(found: Distribution) -> str:
    """The licence that a package states: as an expression, by a class, by a word, or by its text."""
    told = found.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classes = [
        text.rpartition(" :: ")[2]
        for text in told.get_all("Classifier") or ()
        if text.startswith("License :: ")
    ]
    if named := [text for text in classes if text != "OSI Approved"]:
        return ", ".join(named)
    if (word := str(told.get("License") or "").strip().partition("\n")[0]) and word != "UNKNOWN":
        return word[:60]
    texts = (file for file in found.files or () if re.search(r"licen[cs]e|copying", file.name, re.IGNORECASE))
    return next(filter(None, (by_text(file.read_text()) for file in texts)), UNKNOWN)


def jars() -> Iterator[tuple[str, str, str]]:
    """The jars of the cache: Iceberg's and Kafka's, and those for a DuckLake's files in stores."""
    for jar in find_jars(print, [HADOOP_S3, HADOOP_GOOGLE]):
        name, _, version = jar.stem.removesuffix("-shaded").rpartition("-")
        licence = of_jar(jar)
        yield name, version, ON_CENTRAL.get(name, licence) if licence == UNKNOWN else licence


def of_jar(jar: Path) -> str:
    """The licence that a jar states, in its manifest, its project's file, or a text."""
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        manifest = archive.read("META-INF/MANIFEST.MF").decode() if "META-INF/MANIFEST.MF" in names else ""
        if stated := re.search(r"^Bundle-License: (.+(?:\r?\n .+)*)", manifest, re.MULTILINE):
            return by_text(re.sub(r"\r?\n ", "", stated[1])) or stated[1].strip()
        texts = [name for name in names if re.fullmatch(r"(META-INF/)?LICENSE(\.txt|\.md)?", name)]
        texts += [name for name in names if name.startswith("META-INF/maven/") and name.endswith("/pom.xml")]
        return next(filter(None, (by_text(archive.read(name).decode()) for name in texts)), UNKNOWN)


def by_text(text: str | None) -> str | None:
    """The licence whose text, name or address this is."""
    found = (name for name, pattern in TEXTS.items() if re.search(pattern, text or "", re.IGNORECASE))
    return next(found, None)


if __name__ == "__main__":
    main()
