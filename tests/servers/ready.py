"""Makes what tests take from the cache, before two processes of them want it at once: driftline's jars and those of the
servers, the servers of stores, and last the archive of classes, with which a command's Java takes a third less. Jars that come
later would make the archive stale.
"""

from __future__ import annotations

import os
import subprocess
import sys

from driftline.runtime.jars import BUNDLES, find_jars
from driftline.runtime.session import prepare_environment
from servers.google import Google
from servers.jars import class_path
from servers.s3 import S3


def main() -> None:
    found = {**os.environ}
    prepare_environment()
    find_jars(print)
    find_jars(print, [BUNDLES["s3"]])
    for server in ("kafka", "rest"):
        class_path(server)
    for store in (S3, Google):
        store.program()
    # Java tells of each class that it leaves out.
    archive = [sys.executable, "-m", "driftline.cli.class_data"]
    subprocess.run(archive, env=found, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
