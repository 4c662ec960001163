"""The Google Cloud CLI as a function: arguments in, its JSON out, its own words where it fails."""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kickoff.errors import ConfigurationError, KickoffError


class GcloudFailed(KickoffError):
    """gcloud ended with an error; the text is what it wrote."""


Gcloud = Callable[..., Any]
"""``gcloud("pubsub", "topics", "list")``: the answer, parsed. Raises GcloudFailed."""


@dataclass(frozen=True)
class InstalledGcloud:
    """The `gcloud` on PATH, always with an explicit project and never with a question."""

    project: str
    timeout: float = 120.0

    def __call__(self, *arguments: str) -> Any:
        text = self.text(*arguments, "--format=json")
        return json.loads(text) if text.strip() else None

    def text(self, *arguments: str) -> str:
        """What it prints. Raises GcloudFailed; ConfigurationError where gcloud is not installed."""
        program = require("gcloud", "https://cloud.google.com/sdk/docs/install")
        argv = [program, *arguments, f"--project={self.project}", "--quiet"]
        return run(argv, self.timeout)


def require(program: str, where: str) -> str:
    """The path of a program. Raises ConfigurationError that says where to get it."""
    found = shutil.which(program)
    if not found:
        raise ConfigurationError(f"{program} is not installed; see {where}")
    return found


def run(argv: Sequence[str], timeout: float) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise GcloudFailed(f"{' '.join(argv[:4])} did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise GcloudFailed(done.stderr.strip() or f"{argv[0]} ended with exit status {done.returncode}")
    return done.stdout
