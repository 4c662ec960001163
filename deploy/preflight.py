"""Says in one line what a machine lacks to set up `.venv`. Runs before any install, on any Python from 3.6."""

import importlib.util
import sys

OLDEST = (3, 11)
NEWEST = (3, 13)
"""The newest Python that the pinned TensorFlow is built for: https://pypi.org/project/tensorflow/2.21.0/#files"""


def missing(target: str = "") -> str:
    """The reason why set-up cannot go on, or an empty string; `target` is what make was asked for."""
    have = ".".join(map(str, sys.version_info[:2]))
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        needed = f"Kickoff needs Python 3.11 to 3.13 (TensorFlow has no other builds); this is {have}."
        return f"{needed} Install one and run: make PYTHON=python3.12 {target}".rstrip()
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        return f"This Python has no venv module. Install it, e.g.: apt-get install python{have}-venv"
    return ""


if __name__ == "__main__":
    sys.exit(missing(" ".join(sys.argv[1:])) or 0)
