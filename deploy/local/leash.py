"""Runs a command that dies with the process that started it: ``python leash.py COMMAND ARG…``.

A stack that is killed with SIGKILL cannot stop its parts. Linux can: PR_SET_PDEATHSIG survives exec
(prctl(2)), so the part gets SIGTERM the moment its parent is gone. Elsewhere this only runs the command.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Replace this process by the command. Exits at once where the parent has died already."""
    parent = int(os.environ.get("KICKOFF_LEASH", "0"))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if parent and os.getppid() != parent:
            sys.exit(0)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
