"""Opens the lake of the `driftline.toml` in the working directory, works a little, and prints as JSON what others could
see meanwhile: the command lines of all processes, Java's system properties, and what Spark's page says of its settings.
"""

import json
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from driftline.cli.scope import Invocation
from driftline.runtime.session import open_session, stop_session


def watch(lines: set[str], done: threading.Event) -> None:
    while not done.is_set():
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                lines.add(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        time.sleep(0.1)


def main() -> None:
    lines: set[str] = set()
    done = threading.Event()
    watching = threading.Thread(target=watch, args=(lines, done))
    watching.start()
    try:
        config = Invocation().config
        spark = open_session(config.lake, properties=config.catalog)
        spark.sql("select count(*) from range(3)").collect()
        other = open_session(config.lake, properties={**config.catalog, "uri": "jdbc:sqlite:other.db"})
        other.sql("select count(*) from range(4)").collect()
        context = spark.sparkContext
        url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment"
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        properties = str(spark._jvm.java.lang.System.getProperties().toString())
        stop_session(spark)
    finally:
        done.set()
        watching.join()
    print(json.dumps({"lines": sorted(lines), "page": page, "properties": properties}))


if __name__ == "__main__":
    main()
