"""The command line over a real ledger: in this process where that is quick, else as a process of its own."""

import csv
import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kickoff.ledger import Ledger, open_ledger
from kickoff.progress import EPOCHS
from kickoff.runs import FaultRecord, JobRecord, Run, State
from typer.testing import CliRunner

from deploy.cli import app
from deploy.local.stack import ROOT
from tests.kickoff.making import make_run

BEFORE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The ledger of the deployment that the environment names."""
    for name, value in {
        "KICKOFF_PROJECT": "kickoff-local",
        "KICKOFF_LEDGER": f"sqlite://{tmp_path}/runs.db",
        "KICKOFF_VERTEX_ENDPOINT": "http://127.0.0.1:9",
        "KICKOFF_LOGGING_ENDPOINT": "http://127.0.0.1:9",
        "KICKOFF_DASHBOARD_URL": "http://127.0.0.1:8080",
    }.items():
        monkeypatch.setenv(name, value)
    ledger = open_ledger(f"sqlite://{tmp_path}/runs.db")
    yield ledger
    ledger.close()


def call(*argv: str) -> str:
    result = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def kickoff(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "deploy.cli", *argv]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/functions", **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def job() -> JobRecord:
    return JobRecord(name="projects/kickoff-local/locations/us-central1/customJobs/7", state="JOB_STATE_RUNNING")


def report(ledger: Ledger, run: Run, epoch: int, **metrics: float) -> None:
    data = {"epoch": epoch, "epochs": 8, "metrics": metrics, "images_per_second": 9.0, "time": None}
    ledger.create_document(EPOCHS, f"{run.run_id}/{epoch:06d}", data)


def test_runs_lists_what_waits_and_why(ledger: Ledger) -> None:
    assert "no runs yet" in call("runs")
    queued = ledger.create_run(make_run("a", waiting_for="a free slot"))
    running = ledger.create_run(make_run("b", recipe="digits", state=State.RUNNING, job=job()))
    report(ledger, running, 3, val_accuracy=0.5)
    text = call("runs")
    assert queued.run_id in text and "a free slot" in text and "3/8" in text and "0.5000" in text
    assert queued.run_id not in call("runs", "--recipe", "digits")
    assert running.run_id not in call("runs", "--state", "QUEUED", "--state", "HELD")


def test_json_is_a_run_a_line_with_numbers_as_numbers(ledger: Ledger) -> None:
    running = ledger.create_run(make_run("b", state=State.RUNNING, job=job()))
    report(ledger, running, 3, val_accuracy=0.5)
    (row,) = map(json.loads, call("runs", "--json").splitlines())
    assert (row["run_id"], row["epoch"], row["epochs"], row["accuracy"]) == (running.run_id, 3, 8, 0.5)
    assert Run.model_validate_json(call("show", running.run_id, "--json")).run_id == running.run_id


def test_show_tells_all_and_takes_the_beginning_of_an_id(ledger: Ledger) -> None:
    fault = FaultRecord(path="replicas", message="replicas is 0; [it] must be at least 1")
    run = ledger.create_run(make_run("refused", state=State.REJECTED, faults=(fault,)))
    text = call("show", run.run_id[:-4])
    assert run.run_id in text and fault.message in text


def test_export_gives_every_record_whole(ledger: Ledger) -> None:
    made = [ledger.create_run(make_run(str(n))).run_id for n in range(5)]
    exported = [Run.model_validate_json(line) for line in call("export").splitlines()]
    assert sorted(run.run_id for run in exported) == sorted(made)
    assert exported == [ledger.get_run(run.run_id).model_copy(update={"version": ""}) for run in exported]  # type: ignore[union-attr]
    rows = list(csv.DictReader(io.StringIO(call("export", "--format", "csv"))))
    assert {row["run_id"] for row in rows} == set(made) and rows[0]["state"] == "QUEUED"


def test_cancel_ends_a_queued_run_and_refuses_one_that_has_ended(ledger: Ledger) -> None:
    run = ledger.create_run(make_run("a"))
    assert "CANCELLED" in call("cancel", run.run_id)
    again = kickoff("cancel", run.run_id)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"kickoff: run {run.run_id} has ended CANCELLED; there is nothing to cancel\n"


def test_pause_and_resume(ledger: Ledger) -> None:
    assert "kickoff resume" in call("pause")
    assert "start again" in call("resume")


@pytest.mark.parametrize(
    ("argv", "environ", "status", "says"),
    [
        (["show", "nothing"], {}, 1, "none has an id that begins with 'nothing'; `kickoff runs` lists them"),
        (["export", "--format", "xml"], {}, 1, "format is 'xml'; it must be jsonl or csv"),
        (["runs", "--state", "DONE"], {}, 2, "'DONE' is not one of"),
        (["runs", "--limit", "0"], {}, 2, "--limit"),
        (["nonsense"], {}, 2, "nonsense"),
        (["open"], {"KICKOFF_DASHBOARD_URL": ""}, 1, "KICKOFF_DASHBOARD_URL is not set"),
        (["runs"], {"KICKOFF_LEDGER": "mysql://x"}, 1, "KICKOFF_LEDGER is 'mysql://x'; it must be sqlite:///PATH"),
        (["runs"], {"KICKOFF_LEDGER": "sqlite:////proc/none/runs.db"}, 75, "the ledger cannot be opened"),
    ],
)
def test_errors_say_the_next_step_and_set_the_status(
    ledger: Ledger, argv: list[str], environ: dict[str, str], status: int, says: str
) -> None:
    done = kickoff(*argv, **environ)
    assert done.returncode == status, done.stderr
    assert says in re.sub(r"\s*│\s*", " ", BEFORE.sub("", done.stderr))
    assert "Traceback" not in done.stderr


def test_without_a_target_it_says_how_to_get_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "deploy.cli", "runs"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("KICKOFF_")}
    env |= {"KICKOFF_STATE": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT}/functions"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Start one with `kickoff local`" in done.stderr


def test_the_variables_of_a_stack_that_has_ended_are_told_apart_at_once(tmp_path: Path) -> None:
    gone = {"KICKOFF_PROJECT": "kickoff-local", "PUBSUB_EMULATOR_HOST": "127.0.0.1:9"}
    done = kickoff("runs", **gone, KICKOFF_STATE=str(tmp_path))
    assert done.returncode != 0
    assert "these are the variables of a local stack that has ended. Start one with `kickoff local`" in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = kickoff("local", "--only", "vertex", "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port} is taken by another program; choose another with --port" in done.stderr


def test_logs_say_why_there_are_none(ledger: Ledger) -> None:
    refused = ledger.create_run(make_run("a", state=State.REJECTED))
    done = kickoff("logs", refused.run_id)
    assert (done.returncode, "never had a job" in done.stderr) == (1, True)
    failed = ledger.create_run(make_run("b", state=State.FAILED, job=job()))
    done = kickoff("logs", "-f", failed.run_id)
    assert (done.returncode, "Cloud Logging did not answer" in done.stderr) == (75, True)


def test_a_reader_that_leaves_early_is_no_error(ledger: Ledger) -> None:
    for n in range(300):
        ledger.create_run(make_run(str(n)))
    argv = [sys.executable, "-m", "deploy.cli", "export"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/functions"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_open_launches_the_page_of_a_run(ledger: Ledger, tmp_path: Path) -> None:
    run = ledger.create_run(make_run("a"))
    opened = tmp_path / "opened"
    opener = tmp_path / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    opener.chmod(0o755)
    done = kickoff("open", run.run_id[:-3], PATH=f"{opener.parent}:{os.environ['PATH']}", DISPLAY=":9")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"http://127.0.0.1:8080/runs/{run.run_id}"
    deadline = time.monotonic() + 10
    while not (opened.exists() and opened.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)  # the browser is started, and not waited for
    assert opened.read_text() == done.stdout


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self._end, other = pty.openpty()
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/functions", "TERM": "xterm", "COLUMNS": "160", "LINES": "30"}
        command = [sys.executable, "-m", "deploy.cli", *argv]
        self.process = subprocess.Popen(
            command, env=env, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        self.output = ""

    def wait_for(self, text: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in BEFORE.sub("", self.output):
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.output[-2000:]!r}"
            if select.select([self._end], [], [], 0.2)[0]:
                self.output += os.read(self._end, 65536).decode(errors="replace")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._end)


@pytest.fixture
def watching(ledger: Ledger) -> Iterator[Any]:
    opened: list[Terminal] = []

    def start(*argv: str) -> Terminal:
        opened.append(Terminal(*argv))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_watch_keeps_up_with_a_bar_of_epochs_and_never_blanks_the_screen(ledger: Ledger, watching: Any) -> None:
    run = ledger.create_run(make_run("a", state=State.RUNNING, job=job()))
    terminal = watching("runs", "--watch")
    terminal.wait_for(run.run_id)
    report(ledger, run, 5, val_accuracy=0.5)
    terminal.wait_for("5/8")
    assert "━" in terminal.output
    stored = ledger.get_run(run.run_id)
    assert stored
    ledger.replace_run(stored.moved(State.SUCCEEDED, stored.updated))
    terminal.wait_for("SUCCEEDED")
    assert terminal.output.count("\x1b[2J") <= 1, "the screen was cleared between two drawings: it flickers"
    assert terminal.interrupt() == 130


def test_watch_as_json_tells_each_change_once(ledger: Ledger) -> None:
    run = ledger.create_run(make_run("a"))
    argv = [sys.executable, "-u", "-m", "deploy.cli", "runs", "--watch", "--json"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/functions"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            first = json.loads(process.stdout.readline())
            ledger.replace_run(run.moved(State.CANCELLED, run.updated))
            second = json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
    assert [first["state"], second["state"]] == ["QUEUED", "CANCELLED"]
    assert process.returncode == 130
