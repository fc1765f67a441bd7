"""One contestant in a process of its own: takes the same files into two tables, cold and then warm, and then other
files into the second table.

    python bench/worker.py NAME FOLDER FILE... [--next FILE...]

Tells the runner on standard output, a JSON object a line, when a job begins and ends.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from contestants import ENTRIES


def main() -> None:
    name, folder, *files = sys.argv[1:]
    cut = files.index("--next") if "--next" in files else len(files)
    jobs = [("cold", "cold", files[:cut]), ("warm", "warm", files[:cut]), ("next", "warm", files[cut + 1 :])]
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is for the log
    warnings.simplefilter("ignore")

    def tell(event: str, **more: object) -> None:
        print(json.dumps({"event": event, **more}), file=told)

    try:
        contestant = ENTRIES[name].contestant()
        contestant.open(Path(folder))
        tell("ready", versions=contestant.versions())
        for job, table, paths in jobs:
            if paths:
                tell("begin", job=job)
                made = contestant.take([Path(path) for path in paths], table)
                tell("end", job=job, table=asdict(made))
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        tell("failed", error=f"{type(error).__name__}: {text}"[:500])
        raise


if __name__ == "__main__":
    main()
