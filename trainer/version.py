"""Which code trained a model."""

import hashlib
from pathlib import Path

from trainer import __version__


def code_version() -> str:
    """The release, and the first 12 hex digits of the sha256 of this package's sources: what was edited shows."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
