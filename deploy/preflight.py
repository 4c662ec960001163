"""Says in one line what a machine lacks to set up `.venv`. Runs before any install, on any Python from 3.6."""

import importlib.util
import sys

OLDEST = (3, 11)


def missing() -> str:
    """The reason why set-up cannot go on, or an empty string."""
    have = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info < OLDEST:
        return f"Kickoff needs Python 3.11 or newer; this is {have}. Install one and run: make PYTHON=python3.12"
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        return f"This Python has no venv module. Install it, e.g.: apt-get install python{have}-venv"
    return ""


if __name__ == "__main__":
    sys.exit(missing() or 0)
