"""The first line that a machine which cannot be set up prints."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import preflight
from deploy.local.stack import ROOT


def test_a_fit_python_lacks_nothing() -> None:
    assert preflight.missing("demo") == ""


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_an_unfit_python_is_told_what_to_run(version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    said = preflight.missing("demo")
    assert said.startswith("Kickoff needs Python 3.11 to 3.13")
    assert said.endswith(f"this is 3.{version[1]}. Install one and run: make PYTHON=python3.12 demo")


def test_a_python_without_venv_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    assert f"apt-get install python3.{sys.version_info[1]}-venv" in preflight.missing()


def test_make_says_first_that_there_is_no_python(tmp_path: Path) -> None:
    argv = [
        "make",
        "-f",
        str(ROOT / "Makefile"),
        "-C",
        str(ROOT),
        "PYTHON=/nonexistent",
        f"VENV={tmp_path}/venv",
        "demo",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode
    assert done.stderr.startswith("There is no /nonexistent here.")
    assert "make PYTHON=python3.12 demo" in done.stderr
