"""Every gcloud command of the README, run by the real gcloud against the recorder, where people copy it from."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.gcp.checkout import ROOT
from tests.gcp.conftest import PROJECT
from tests.gcp.recorder import recording
from tests.gcp.warm_gcloud import available, warm

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not available(), reason="gcloud is not installed: the README's commands were not run"),
]


def commands() -> list[str]:
    """The lines of the README's code blocks that call gcloud, continued lines joined, comments cut."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("gcloud ")]


def test_every_command_is_one_that_gcloud_takes(tmp_path: Path) -> None:
    found = commands()
    assert found
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "0.png").write_bytes(b"x")
    with recording() as recorder, warm(tmp_path) as tools:
        environ = {**os.environ, **recorder.environ(PROJECT), "CLOUDSDK_CONFIG": str(tmp_path / "config")}
        environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        recorder.put("storage", "b/kickoff-local-data", {"name": "kickoff-local-data", "location": "US-CENTRAL1"})
        for command in found:
            before = len(recorder.calls)
            argv = shlex.split(command, comments=True)
            done = subprocess.run(argv, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert len(recorder.calls) > before, f"{command} asked nobody"
