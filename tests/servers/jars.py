"""Java libraries of the servers: named in `kafka.xml` and `rest.xml`, resolved by Ivy, which Spark brings, and cached."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from driftline.runtime.jars import cache_folder
from driftline.runtime.session import prepare_environment


def java() -> str:
    """The Java that Spark runs on; also has the environment name it."""
    prepare_environment()
    return str(Path(os.environ["JAVA_HOME"], "bin", "java"))


def class_path(server: str) -> str:
    """The jars of a server, as one class path; downloaded when the cache has not got them."""
    wanted = Path(__file__).with_name(f"{server}.xml")
    key = sha256(wanted.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "servers" / f"{server}-{key}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        # Another process may do the same at this moment: what stands under the name is whole.
        with TemporaryDirectory(dir=folder.parent) as draft:
            _resolve(wanted, Path(draft))
            _place(Path(draft, "jars"), folder)
    return f"{folder}/*"


def _resolve(wanted: Path, folder: Path) -> None:
    runner = java()
    (ivy,) = Path(os.environ["SPARK_HOME"], "jars").glob("ivy-*.jar")
    jars = f"{folder}/jars/[organisation]_[artifact]-[revision](-[classifier]).[ext]"
    done = subprocess.run(
        [runner, "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(folder / "cache"), "-ivy", str(wanted),
         "-types", "jar", "bundle", "-retrieve", jars],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(
            f"the jars of {wanted.name} could not be downloaded:\n{done.stdout[-3000:]}{done.stderr}"
        )


def _place(draft: Path, folder: Path) -> None:
    try:
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
