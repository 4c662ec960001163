"""Says in one line what a machine lacks to set up `.venv`. Runs on any Python 3, before anything is installed."""

import importlib.util
import sys

OLDEST = (3, 11)


def missing():  # type: ignore[no-untyped-def]  # old Pythons must be able to read this file
    """The reason why set-up cannot go on, or an empty string."""
    if sys.version_info < OLDEST:
        have = "%d.%d" % sys.version_info[:2]  # noqa: UP031
        return "Kickoff needs Python 3.11 or newer; this is %s. Install one and run: make PYTHON=python3.12" % have  # noqa: UP031
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        return "This Python has no venv module. Install it, e.g.: apt-get install python%d.%d-venv" % sys.version_info[:2]  # noqa: UP031
    return ""


if __name__ == "__main__":
    reason = missing()
    if reason:
        sys.exit(reason)
