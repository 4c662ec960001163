"""`kickoff fault` and `kickoff local --only vertex`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kickoff.errors import ConfigurationError, InvalidRequest
from typer.testing import CliRunner

from deploy.cli import app
from tests.job_service.calls import DEADLINE, Caller, call, job, pool, until


def test_kickoff_fault_speaks_to_the_emulator(caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KICKOFF_VERTEX_ENDPOINT", caller.url)
    run = CliRunner().invoke(app, ["fault", "status", "--method", "create", "--status", "503"])
    assert run.exit_code == 0, run.output
    assert '"status": 503' in run.output
    assert caller.refused(job(pool("", image="instant")))["code"] == 503
    assert isinstance(CliRunner().invoke(app, ["fault", "kill"]).exception, InvalidRequest)
    monkeypatch.delenv("KICKOFF_VERTEX_ENDPOINT")
    monkeypatch.setenv("KICKOFF_STATE", str(tmp_path))
    assert isinstance(CliRunner().invoke(app, ["fault", "list"]).exception, ConfigurationError)


def test_kickoff_fault_kills_a_replica(caller: Caller) -> None:
    job_id = caller.create(pool("import time; time.sleep(60)"), scheduling={"disableRetries": True})
    until(lambda: caller.replicas(job_id), bool)
    run = CliRunner().invoke(app, ["fault", "kill", "--job", job_id, "--url", caller.url])
    assert run.exit_code == 0, run.output
    assert "status of 137" in caller.finished(job_id)["error"]["message"]


def test_the_emulator_runs_on_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.cli", "local", "--only", "vertex", "--port", "0", "--state", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert call(f"{url}/admin/jobs") == (200, {"states": {}, "living": []})
        process.send_signal(signal.SIGTERM)
        told = process.stdout.read()
        assert process.wait(DEADLINE) == 0
    assert f'api_endpoint="{url}"' in told
