"""The entry point of `driftline` and `python -m driftline`."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the command line and run it. A Ctrl-C while it is loading ends it with one line, too."""
    try:
        from driftline.cli import main as command  # late: a Ctrl-C may come meanwhile

        command()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    finally:
        # After a Ctrl-C within an `exec` of text, `python -m` ends by that signal and not with the exit code;
        # the next `exec` makes it forget.
        exec("")  # noqa: S102  no text of anyone's


if __name__ == "__main__":
    main()
