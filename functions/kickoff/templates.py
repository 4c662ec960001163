"""Named values in recipes, and placeholders that people forgot to fill. Pure; no expression language.

``{run_id}`` is replaced by its value; a name that is not in VALUES is a fault. What looks like a left-over from a
codelab or a script (``{your-gcs-bucket}``, ``<PROJECT>``, ``${IMAGE}``, ``{{x}}``, ``YOUR_PROJECT_ID``) is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kickoff.settings import Settings

AT_LOAD = ("project", "region", "trainer_image", "recipe")
AT_BUILD = ("run_id", "dataset.uri", "dataset.snapshot", "dataset.digest")
VALUES = (*AT_LOAD, *AT_BUILD)

_NAMED = re.compile(r"\{([a-z_][a-z0-9_.]*)\}")
_LEFT_OVER = re.compile(
    r"\{\{.{0,200}?\}\}|\$\{[^{}]*\}|\{[A-Za-z_][A-Za-z0-9_. -]*\}|<[A-Za-z][A-Za-z0-9_. -]*>"
    r"|(?<![A-Za-z0-9])(?i:your)[-_](?i:gcs|gcp|cloud|project|bucket|region|image|repo|model|data|service|account|org|id"
    r"|name|key|zone|network|job|display)[A-Za-z0-9_-]*"
)
_SAMPLE = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)+|\$[A-Za-z_][A-Za-z0-9_]*")
_SAMPLE_SEGMENT = re.compile(
    r"(?<![^/:=@])(?:PROJECT_ID|PROJECT_NAME|PROJECT|BUCKET_NAME|BUCKET|REPOSITORY|REPO_NAME|IMAGE_NAME|IMAGE_URI"
    r"|LOCATION|REGION|\$[A-Za-z_][A-Za-z0-9_]*)(?![^/:@.])"
)


@dataclass(frozen=True)
class TemplateValues:
    """What recipes may name before there is a run."""

    project: str
    region: str
    trainer_image: str = ""
    staging: str = ""
    """``gs://bucket/prefix`` of Kickoff's own objects: watched by no recipe."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "TemplateValues":
        return cls(settings.project, settings.region, settings.trainer_image, settings.staging)

    def mapping(self, recipe: str) -> dict[str, str]:
        return {
            "project": self.project,
            "region": self.region,
            "trainer_image": self.trainer_image,
            "recipe": recipe,
        }


def unknown_values(text: str) -> list[str]:
    """The names in braces that are not in VALUES."""
    return [name for name in _NAMED.findall(text) if name not in VALUES]


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with the values that are there; a name without a value, or with an empty one, stays as it is."""
    return _NAMED.sub(lambda match: values.get(match[1]) or match[0], text)


def fixed_prefix(text: str) -> str:
    """The part before the first value that is not known yet."""
    match = _NAMED.search(text)
    return text[: match.start()] if match else text


def left_over(text: str) -> str:
    """The first placeholder that somebody forgot to fill; empty: none. For any text."""
    match = _LEFT_OVER.search(text)
    return match[0] if match else ""


def left_over_name(text: str) -> str:
    """As `left_over`, and also what the documentation's samples put for a name: MACHINE_TYPE, gcr.io/PROJECT_ID/x."""
    if found := left_over(text):
        return found
    if _SAMPLE.fullmatch(text):
        return text
    match = _SAMPLE_SEGMENT.search(text)
    return match[0] if match else ""
