"""Finds and kills replicas by a mark in their environment, which every process that they start inherits.

Run as a program, ``python marked.py MARK``, it waits for the end of its standard input, which the emulator
holds open, and then kills everything marked. So replicas do not outlive an emulator that was SIGKILLed,
whatever sessions or groups they made for themselves. Standard library alone, and light: it idles.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "KICKOFF_REPLICA"
"""Its value is ``<state folder>#<job id>#<replica>``."""


def find_marked(mark: str) -> Iterator[int]:
    """Processes whose mark begins with `mark`. Linux only; none elsewhere."""
    wanted = f"{VARIABLE}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(variable.startswith(wanted) for variable in variables) and int(folder.name) != os.getpid():
            yield int(folder.name)


def kill_marked(mark: str, seconds: float = 5.0) -> int:
    """SIGKILL them until none is left, or `seconds` have passed. Returns how many were found at first."""
    deadline = time.monotonic() + seconds
    first = found = list(find_marked(mark))
    while found and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.02)
        found = list(find_marked(mark))
    return len(first)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
