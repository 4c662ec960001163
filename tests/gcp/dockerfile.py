"""A Dockerfile's instructions, and rules in the manner of hadolint that hold for ours."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    line: int
    name: str
    text: str


def parse(text: str) -> list[Instruction]:
    """Instructions with continued lines joined; comments and parser directives left out."""
    found, joined, start = [], "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not joined and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if joined and line.lstrip().startswith("#"):
            continue
        start = start or number
        joined += line.rstrip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            name, _, rest = joined.strip().partition(" ")
            found.append(Instruction(start, name.upper(), " ".join(rest.split())))
            joined, start = "", 0
    return found


def problems(text: str) -> Iterator[str]:
    """Each broken rule, with its line. The numbers are hadolint's: https://github.com/hadolint/hadolint#rules"""
    instructions = parse(text)
    stages = {each.text.split()[-1] for each in instructions if each.name == "FROM" and " AS " in each.text.upper()}
    uncached = any(each.name == "ENV" and "PIP_NO_CACHE_DIR=" in each.text for each in instructions)
    for each in instructions:
        for problem in _of(each, stages):
            if uncached and "DL3042" in problem:
                continue
            yield f"line {each.line}: {problem}"
    users = [each.text for each in instructions if each.name == "USER"]
    if not users or users[-1].partition(":")[0] in ("root", "0"):
        yield "the last USER is root (DL3002)"
    if not [each for each in instructions if each.name == "ENTRYPOINT"]:
        yield "there is no ENTRYPOINT: a recipe's args would be taken for the command"


def _of(each: Instruction, stages: set[str]) -> Iterator[str]:
    if each.name == "FROM":
        image = re.sub(r"--\S+ ", "", each.text).split()[0]
        if image not in stages and not re.search(r"(:[^:/]*\d|@sha256:)", image) and "$" not in image:
            yield f"{image} has no version (DL3006)"
        if image.endswith(":latest"):
            yield f"{image} is latest (DL3007)"
    elif each.name == "ADD":
        yield "ADD fetches and unpacks; COPY does not (DL3020)"
    elif each.name == "WORKDIR" and not each.text.startswith(("/", "$")):
        yield "WORKDIR is relative (DL3000)"
    elif each.name in ("CMD", "ENTRYPOINT"):
        try:
            json.loads(each.text)
        except ValueError:
            yield f"{each.name} is not a JSON list: signals would reach a shell (DL3025)"
    elif each.name == "RUN":
        yield from _of_run(each.text)


def _of_run(text: str) -> Iterator[str]:
    if re.search(r"\bsudo\b", text):
        yield "sudo in RUN (DL3004)"
    if re.search(r"apt-get .*\b(upgrade|dist-upgrade)\b", text):
        yield "apt-get upgrade makes another image every day (DL3005)"
    if "apt-get install" in text:
        if "--no-install-recommends" not in text:
            yield "apt-get install without --no-install-recommends (DL3015)"
        if "/var/lib/apt/lists" not in text and "--mount=type=cache" not in text:
            yield "apt's lists stay in the layer (DL3009)"
    if re.search(r"\bpip3? install\b", text):
        if "--no-cache-dir" not in text and "--mount=type=cache" not in text and "PIP_NO_CACHE_DIR" not in text:
            yield "pip's cache stays in the layer (DL3042)"
        if not re.search(r"-r |--requirement", text):
            yield "pip installs what no requirements file pins (DL3013)"
    if re.search(r"curl .*\|\s*(ba)?sh", text):
        yield "a fetched script is run unseen"


def copied(text: str) -> set[str]:
    """What is copied from the build's context: the sources of every COPY that names no other stage."""
    found: set[str] = set()
    for each in parse(text):
        if each.name == "COPY" and "--from=" not in each.text:
            words = [word for word in each.text.split() if not word.startswith("--")]
            found.update(word.strip('[]",').rstrip("/") for word in words[:-1])
    return found
