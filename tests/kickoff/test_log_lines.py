"""The lines that alerts are made of: deploy/gcp/monitoring.tf looks for these fields."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kickoff.log_lines import log_end, log_sweep
from kickoff.runs import Change, Run, State, Trigger

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "gcp" / "monitoring.tf"


def run(state: State) -> Run:
    change = Change(state=state, time=NOW)
    return Run(
        run_id="digits-1",
        key=("digits", "message", "1"),
        recipe="digits",
        state=state,
        history=(change,),
        created=NOW,
        updated=NOW,
        trigger=Trigger(kind="message"),
    )


@pytest.mark.parametrize(("state", "severity"), [(State.FAILED, "ERROR"), (State.SUCCEEDED, "INFO")])
def test_an_end_is_one_line(state: State, severity: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_end(run(state))
    line = json.loads(capsys.readouterr().out)
    assert line["severity"] == severity
    assert {"kickoff": "run-ended", "run_id": "digits-1", "recipe": "digits", "state": state} == {
        name: line[name] for name in ("kickoff", "run_id", "recipe", "state")
    }


def test_a_sweep_tells_how_long_the_oldest_has_waited(capsys: pytest.CaptureFixture[str]) -> None:
    log_sweep({"errors": []}, run(State.QUEUED), NOW + timedelta(minutes=5))
    log_sweep({"errors": ["x"]}, None, NOW)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["oldest_queued_seconds"], first["severity"]) == (300, "INFO")
    assert (second["oldest_queued_seconds"], second["severity"]) == (0, "WARNING")


def test_the_alerts_read_fields_that_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    log_end(run(State.FAILED))
    log_sweep({"errors": []}, None, NOW)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    text = MONITORING.read_text()
    assert set(re.findall(r'jsonPayload\.kickoff=\\"([\w-]+)', text)) == {line["kickoff"] for line in lines}
    read = set(re.findall(r"EXTRACT\(jsonPayload\.(\w+)\)", text))
    assert read and read <= {name for line in lines for name in line}
