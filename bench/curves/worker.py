"""One curve in a process of its own, in the product's environment.

    python bench/curves/worker.py FOLDER JSON

The JSON says which curve, with which sizes. Tells the runner on standard output, a JSON object a line, when a job begins
and ends, and what it found.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from measure import cpu

from curves.batches import captured
from curves.jobs import Jobs


def main() -> None:
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is for the log
    warnings.simplefilter("ignore")

    def tell(event: str, **more: object) -> None:
        print(json.dumps({"event": event, **more}), file=told)

    if asked["curve"] == "batches":
        for found in captured(folder, asked["line"], asked["sizes"]):
            tell("found", **found)
        return
    me = psutil.Process()
    jobs = Jobs(folder, asked["sides"])
    for job in jobs.of(asked["curve"], asked["sizes"], asked["rounds"]):
        gc.collect()
        os.sync()  # what was written before is no load of this one
        tell("begin", line=job.line, size=job.size)
        start, used = time.perf_counter(), cpu(me)
        job.run()
        tell("end", seconds=time.perf_counter() - start, cpu=cpu(me) - used)


if __name__ == "__main__":
    main()
