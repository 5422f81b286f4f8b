"""The command line: `python -m advlab`, and the command `advlab`."""

import signal
import sys

from ._native import command_line


def main() -> None:
    """Runs the command line with this process's arguments, and exits with its status."""
    # Ctrl-C ends a command immediately, as it does in the program without Python.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(command_line(["advlab", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
