"""Labels and display names by Vertex AI's rules. Pure.

What Kickoff derives is made valid; what a user wrote is refused when it is not.
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs#CustomJob
"""

import re
from collections.abc import Iterator, Mapping

from kickoff.errors import Fault
from kickoff.faults import KeyPath, fault, shown

RUN_LABEL = "kickoff-run"
RECIPE_LABEL = "kickoff-recipe"
NONCE_LABEL = "kickoff-nonce"
RESERVED_PREFIX = "kickoff-"

MAX_LABELS = 64
MAX_DISPLAY_NAME = 128
_OWN_LABELS = 3

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_VALUE = re.compile(r"[a-z0-9_-]{0,63}", re.ASCII)


def derive_label(text: str) -> str:
    """A label value of any text: ``Raw Data/x.CSV`` -> ``raw-data-x-csv``; at most 63 characters."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:63].rstrip("-")


def label_faults(labels: Mapping[str, object], path: KeyPath = ("labels",)) -> Iterator[Fault]:
    """What is wrong with labels that a user gave."""
    if len(labels) > MAX_LABELS - _OWN_LABELS:
        yield fault(
            path, f"has {len(labels)} labels; at most {MAX_LABELS - _OWN_LABELS} beside Kickoff's own are possible"
        )
    for key, value in labels.items():
        if key.startswith(RESERVED_PREFIX):
            yield fault((*path, key), f"begins with {RESERVED_PREFIX}, which is kept for Kickoff's own labels")
        elif not _KEY.fullmatch(key):
            yield fault((*path, key), "is not a label key: 1 to 63 of a-z 0-9 _ -, beginning with a letter or digit")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            yield fault((*path, key), f"is {shown(value)}; a label value has at most 63 of a-z 0-9 _ -")
