"""driftline's command line, until it ends at its commit: `alter_dies.py WHO MOMENT ARGUMENTS…`.

WHO: `python` or `java` is killed, a `person` presses Ctrl-C; MOMENT: `before` or `after` the catalog has the commit.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from driftline import cli
from driftline.formats.ducklake import alteration as ducklake
from driftline.formats.iceberg import alteration as iceberg
from driftline.runtime.bare_java import BareJava


def main(who: str, moment: str, argv: list[str]) -> None:
    started: list[Any] = []
    start = BareJava.__init__

    def starting(self: BareJava, *args: Any) -> None:
        start(self, *args)
        started.append(self._process)

    def die() -> None:
        if who == "java":
            started[0].kill()
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
    cli.main(argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
