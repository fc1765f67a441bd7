"""driftline's commands, one after the other, each of which ends at its commit: `alter_dies.py JSON`, a list of WHO, MOMENT and
arguments. Code, output and errors of each come as a line of JSON, but for one that ends the process.

WHO: `python` or `java` is killed, a `person` presses Ctrl-C; MOMENT: `before` or `after` the catalog has the commit.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from answering import ended
from driftline.formats.ducklake import alteration as ducklake
from driftline.formats.iceberg import alteration as iceberg
from driftline.runtime.bare_java import BareJava


def main(deaths: list[tuple[str, str, list[str]]]) -> None:
    started: list[Any] = []
    who = moment = ""
    start = BareJava.__init__

    def starting(self: BareJava, *args: Any) -> None:
        start(self, *args)
        started.append(self._process)

    def die() -> None:
        if who == "java":
            started[-1].kill()
        else:
            os.kill(os.getpid(), signal.SIGKILL if who == "python" else signal.SIGINT)

    def deadly(commit: Callable[..., Any]) -> Callable[..., Any]:
        def committed(*args: Any) -> Any:
            if moment == "before":
                die()
            result = commit(*args)
            if moment == "after":
                die()
            return result

        return committed

    BareJava.__init__ = starting  # type: ignore[method-assign]
    iceberg.replace_metadata = deadly(iceberg.replace_metadata)
    ducklake.DuckLakeDraft.commit = deadly(ducklake.DuckLakeDraft.commit)  # type: ignore[method-assign]
    for who, moment, argv in deaths:  # noqa: B007  the functions above read the names
        print(json.dumps(ended(argv)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
