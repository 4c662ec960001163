"""The trainer's image: rules in the manner of hadolint, and what is copied against what the trainer imports."""

import ast
import sys
from pathlib import Path

import pytest

from tests.gcp.checkout import ROOT
from tests.gcp.dockerfile import copied, parse, problems

DOCKERFILE = ROOT / "Dockerfile"
IMPORTED_AS = {
    "google": {"google-cloud-pubsub", "google-cloud-storage"},
    "google_crc32c": {"google-cloud-storage"},
    "PIL": {"pillow"},
    "tensorflow": {"tensorflow"},
    "keras": {"tensorflow"},
    "tf_keras": {"tf-keras"},
    "numpy": {"tensorflow"},
    "tensorflow_datasets": set(),  # only where the user has it
}
"""Module: the requirements that bring it."""


def test_the_dockerfile_breaks_no_rule() -> None:
    assert list(problems(DOCKERFILE.read_text())) == []


def test_only_the_trainer_is_copied() -> None:
    sources = copied(DOCKERFILE.read_text())
    assert sources
    assert not [each for each in sources if each.partition("/")[0] != "trainer"], sources


def test_everything_the_trainer_imports_is_in_the_image() -> None:
    """Its own modules by COPY, the others by its requirements; nothing of the functions or of deploy."""
    sources = copied(DOCKERFILE.read_text())
    required = {
        line.partition("==")[0].partition("[")[0].strip().lower()
        for line in (ROOT / "trainer" / "requirements.txt").read_text().splitlines()
        if line.strip() and not line.startswith(("#", "-"))
    }
    for path in sorted((ROOT / "trainer").rglob("*.py")):
        relative = path.relative_to(ROOT)
        assert any(
            str(relative).startswith(f"{each}/") or str(relative) == each or Path(relative).match(each)
            for each in sources
        ), relative
        for module in imported(path) - set(sys.stdlib_module_names) - {"trainer"}:
            assert module in IMPORTED_AS, f"{relative} imports {module}: which requirement brings it?"
            assert IMPORTED_AS[module] <= required, f"{relative} imports {module}"


def imported(path: Path) -> set[str]:
    """The top-level names of everything that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("FROM python", "DL3006"),
        ("FROM python:latest", "DL3007"),
        ("RUN apt-get update && apt-get install -y git", "DL3015"),
        ("RUN pip install --no-cache-dir tensorflow", "DL3013"),
        ("RUN pip install -r requirements.txt", "DL3042"),
        ("ADD https://example.invalid/x.tgz /x", "DL3020"),
        ("ENTRYPOINT python -m trainer.task", "DL3025"),
        ("WORKDIR app", "DL3000"),
        ("USER root", "DL3002"),
    ],
)
def test_each_rule_can_fail(line: str, rule: str) -> None:
    good = 'FROM python:3.11.9-slim\nCOPY trainer /app/trainer\nUSER 1000\nENTRYPOINT ["python"]\n'
    assert list(problems(good)) == []
    assert [each for each in problems(good + line) if rule in each]


def test_continued_lines_are_one_instruction() -> None:
    (run,) = parse("# a comment\nRUN a \\\n  # another\n  b\n")
    assert (run.line, run.text) == (2, "a b")
