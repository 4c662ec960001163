"""The seams of the tree: who may import whom, and what every change must leave true."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KICKOFF = ROOT / "functions" / "kickoff"

FORBIDDEN = [
    ("trainer", ROOT / "trainer", {"kickoff", "functions", "deploy", "tests"}),
    ("kickoff", KICKOFF, {"trainer", "deploy", "tests"}),
    ("deploy", ROOT / "deploy", {"trainer", "tests"}),
]

PURE = [
    "errors.py", "runs.py", "settings.py", "events.py", "recipes.py", "request.py", "worker_pools.py", "custom_job.py",
    "machines.py", "policy.py", "datasets.py", "completeness.py", "manifests.py", "completion.py", "jobs.py",
    "check.py", "plan.py",
]  # fmt: skip


def imports(path: Path, *, top_only: bool = False) -> Iterator[str]:
    """The modules that a file imports; `top_only`: at import time, not inside functions."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize(("package", "folder", "forbidden"), FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
def test_no_package_reaches_across_its_seam(package: str, folder: Path, forbidden: set[str]) -> None:
    files = sorted(folder.rglob("*.py"))
    assert files
    for path in files:
        crossing = {name for name in imports(path) if name.partition(".")[0] in forbidden}
        assert not crossing, f"{path.relative_to(ROOT)} imports {crossing}"


@pytest.mark.parametrize("name", PURE)
def test_the_pure_core_knows_no_client_no_clock_and_no_environment(name: str) -> None:
    path = KICKOFF / name
    foreign = {module for module in imports(path) if module.partition(".")[0] in {"google", "time", "requests"}}
    assert not foreign
    names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not names & {"environ", "getenv", "now", "utcnow", "today"}


def test_no_function_pays_for_a_client_that_it_does_not_use() -> None:
    """Importing the entry points, as a cold start does, loads no Google client."""
    code = (
        "import sys, functions_framework; before = set(sys.modules); import main;"
        "print(*[m for m in sys.modules if m.startswith(('google.cloud', 'grpc', 'pydantic')) and m not in before])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "functions", capture_output=True, text=True, timeout=60, check=True
    )
    assert out.stdout.split() == []


def tracked() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30, check=True)
    return [ROOT / name for name in out.stdout.decode().split("\0") if name]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_the_repository_names_no_machine_and_holds_no_large_file() -> None:
    for path in filter(Path.is_file, tracked()):
        assert path.stat().st_size < 1_000_000, f"{path} is large"
        text = path.read_bytes()
        for word in (b"/work/" + b"main", b"/work/" + b"shared", b"/root/" + b"."):
            assert word not in text, f"{path.relative_to(ROOT)} names {word.decode()}"


def test_no_catch_all_modules() -> None:
    names = {path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    assert not names & {"utils.py", "helpers.py", "common.py", "misc.py"}
