"""Named points between receiving an event and answering it, where tests kill or stop the process.

Every effect has one before and one after it. In production both variables are unset and a point does nothing.

``KICKOFF_CRASH_POINT=NAME`` or ``NAME#N``: at the (N-th) passing of NAME the process kills itself, as SIGKILL does.
``KICKOFF_STOP_POINT``: it stops itself there until someone sends SIGCONT: a process that sleeps past its lease.
``KICKOFF_TRACE_POINTS=FILE``: appends the name of each point passed.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_passed: Counter[str] = Counter()
_environ: Mapping[str, str] = os.environ


def point(name: str) -> None:
    """Pass the point `name`: ``module.before-effect`` or ``module.after-effect``."""
    if trace := _environ.get("KICKOFF_TRACE_POINTS"):
        with Path(trace).open("a") as file:
            file.write(f"{name}\n")
    _passed[name] += 1
    for variable, number in (("KICKOFF_CRASH_POINT", signal.SIGKILL), ("KICKOFF_STOP_POINT", signal.SIGSTOP)):
        wanted, _, count = _environ.get(variable, "").partition("#")
        if wanted == name and _passed[name] == int(count or 1):
            os.kill(os.getpid(), number)


@contextmanager
def around(effect: str) -> Iterator[None]:
    """A point before the effect and one after it; none after an effect that raised."""
    point(f"{effect}:before")
    yield
    point(f"{effect}:after")
