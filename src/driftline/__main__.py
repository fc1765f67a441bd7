"""`driftline`, and `python -m driftline`: the command line."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the command line and run it. A Ctrl-C while it is loading ends it with one line, too."""
    try:
        from driftline.cli import main as command  # late: a Ctrl-C may come meanwhile
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
