"""Which local command stands in for a container image."""

import fnmatch
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kickoff.errors import ConfigurationError, Fault

INSTANT = "instant"
IDLE = "idle"
_WHAT = f'a list of strings, "{INSTANT}", "{INSTANT}:STATUS" or "{IDLE}"'


@dataclass(frozen=True)
class Image:
    """How an image runs here."""

    entrypoint: tuple[str, ...] = ()
    """The image's ENTRYPOINT; `command` of the spec takes its place, `args` follow it."""
    instant: int | None = None
    """No process: the replica has ended with this status as soon as it is up."""


BUILT_IN: Mapping[str, Image] = {
    "*-docker.pkg.dev/*/kickoff/trainer*": Image((sys.executable, "-m", "trainer.task")),
    "*docker.pkg.dev/vertex-ai*/training/reductionserver*": Image(
        (sys.executable, "-c", "import signal; signal.pause()")
    ),
    "*docker.pkg.dev/vertex-ai/*": Image(),
    "gcr.io/cloud-aiplatform/*": Image(),
}
"""Prebuilt training images have no entry point: they run the local interpreter's environment."""


def parse_images(text: str, source: str) -> dict[str, Image]:
    """Read ``{"<uri glob>": ["command", …] | "instant" | "instant:STATUS" | "idle"}``. Raises ConfigurationError."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{source} is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise ConfigurationError(f"{source} is a JSON {type(table).__name__}; it must be an object of image globs")
    faults: list[Fault] = []
    images: dict[str, Image] = {}
    for glob, value in table.items():
        image = _parse_image(value)
        if image is None:
            faults.append(Fault(glob, f"{source}: {glob} is {value!r}; it must be {_WHAT}"))
        else:
            images[glob] = image
    if faults:
        raise ConfigurationError.from_faults(faults)
    return images


def _parse_image(value: Any) -> Image | None:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return Image(tuple(value))
    if value == IDLE:
        return Image((sys.executable, "-c", "import signal; signal.pause()"))
    if isinstance(value, str):
        word, _, status = value.partition(":")
        if word == INSTANT and (status == "" or (status.isascii() and status.isdigit() and int(status) < 256)):
            return Image(instant=int(status or 0))
    return None


def read_images(path: Path | None) -> dict[str, Image]:
    """The table of the file, if any, before the built-in one: the first glob that matches counts."""
    try:
        own = parse_images(path.read_text(), str(path)) if path else {}
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    return own | {glob: image for glob, image in BUILT_IN.items() if glob not in own}


def find_image(images: Mapping[str, Image], uri: str) -> Image | None:
    return next((image for glob, image in images.items() if fnmatch.fnmatchcase(uri, glob)), None)


def build_argv(pool: dict[str, Any], image: Image) -> Sequence[str]:
    """The replica's command line: one argv each, no shell. Empty where neither spec nor image names a command."""
    package = pool.get("pythonPackageSpec")
    if package:
        return [sys.executable, "-m", package["pythonModule"], *package.get("args", [])]
    container = pool.get("containerSpec", {})
    command = container.get("command") or list(image.entrypoint)
    return [*command, *container.get("args", [])] if command or container.get("args") else []
