"""The emulator as a program: start, ends of every kind, what it leaves behind and finds again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.store import Store
from tests.job_service.calls import DEADLINE, Caller, alive, family, job, pool, until

SLEEP = "import time; time.sleep(60)"
PARENT_OF_ONE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); {SLEEP}"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


class Program:
    """``python -m deploy.local.job_service`` on one state folder."""

    def __init__(self, state: Path, *flags: str) -> None:
        images = state.parent / "images.json"
        images.write_text(f'{{"python": ["{sys.executable}"], "instant": "instant"}}')
        module = [sys.executable, "-m", "deploy.local.job_service", "--state", str(state), "--images", str(images)]
        self.process = subprocess.Popen([*module, *flags], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout
        self.caller = Caller(self.process.stdout.readline().strip())

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.wait()
        assert program.process.stdout
        program.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_behind_however_it_ends_and_no_job_is_forgotten(
    tmp_path: Path, programs: list[Program], number: signal.Signals
) -> None:
    state = tmp_path / "state"
    programs.append(Program(state))
    caller = programs[0].caller
    done = caller.create(pool("", image="instant"))
    caller.finished(done)
    job_id = caller.create(pool(PARENT_OF_ONE), pool(STUBBORN, 2))
    caller.running(job_id)
    replicas = caller.replicas(job_id)
    until(lambda: family(replicas["workerpool0-0"]), lambda found: len(found) == 2)
    pids = [pid for replica in replicas.values() for pid in family(replica)]
    assert programs[0].end(number) == (0 if number != signal.SIGKILL else -number)
    until(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, 10)
    programs.append(Program(state))
    again = programs[1].caller
    assert again.get(done)["state"] == "JOB_STATE_SUCCEEDED"
    found = again.get(job_id)
    assert found["state"] == "JOB_STATE_FAILED"
    assert "The emulator ended while the job ran" in found["error"]["message"]
    assert again.log(job_id, "service").endswith("Job failed.\n")


def test_a_queued_job_starts_under_the_next_emulator(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(tmp_path / "state", "--quota", "custom_model_training_cpus=4"))
    caller = programs[0].caller
    caller.create(pool(SLEEP))
    waiting = caller.create(pool("print('at last')"))
    assert caller.get(waiting)["state"] == "JOB_STATE_QUEUED"
    programs[0].end(signal.SIGKILL)
    programs.append(Program(tmp_path / "state"))
    assert programs[1].caller.finished(waiting)["state"] == "JOB_STATE_SUCCEEDED"
    assert programs[1].caller.log(waiting, "workerpool0-0") == "at last\n"


def test_one_emulator_a_state_folder(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(tmp_path / "state"))
    command = [sys.executable, "-m", "deploy.local.job_service", "--state", str(tmp_path / "state")]
    second = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert second.returncode == 2
    assert "another JobService emulator runs on" in second.stderr


def test_a_wrong_image_table_is_refused_with_everything_wrong_in_it(tmp_path: Path) -> None:
    (tmp_path / "images.json").write_text('{"a": 1, "b": "instant:900", "c": []}')
    flags = ["--state", str(tmp_path / "s"), "--images", str(tmp_path / "images.json")]
    command = [sys.executable, "-m", "deploy.local.job_service", *flags]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert run.returncode == 2
    assert "a is 1; it must be a list of strings" in run.stderr
    assert "b is 'instant:900'" in run.stderr


def test_it_starts_fast_idles_light_and_lists_a_thousand_jobs(tmp_path: Path, programs: list[Program]) -> None:
    store = Store(tmp_path / "state")
    for number in range(1000):
        name = f"projects/p/locations/us-central1/customJobs/{number}"
        times = {"createTime": f"2026-01-01T00:{number:06d}Z", "updateTime": "2026-01-01T00:00:00Z"}
        finished = {"name": name, **job(pool(""), labels={"n": str(number)}), "state": "JOB_STATE_SUCCEEDED", **times}
        store.add("customJobs", "p", "us-central1", finished)
    store.close()
    programs.append(Program(tmp_path / "state"))
    program = programs[0]
    words = Path(f"/proc/{program.process.pid}/stat").read_text().rpartition(")")[2].split()
    assert sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK") < 0.5, "seconds of processor time until it was ready"
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 80 * 1024
    caller = program.caller
    before = time.monotonic()
    assert len(caller.list(pageSize="1000")) == 1000
    assert time.monotonic() - before < 2.0
    assert len(caller.list(filter="labels.n=500")) == 1


def test_a_replica_starts_as_soon_as_by_hand(tmp_path: Path, programs: list[Program]) -> None:
    """Create to first line, against starting the same program by hand: within 0.2 s, best of five."""
    programs.append(Program(tmp_path / "state"))
    caller = programs[0].caller
    code = "import time; print(time.time())"
    served, by_hand = [], []
    for _ in range(5):
        before = time.time()
        job_id = caller.create(pool(code))
        caller.finished(job_id)
        served.append(float(caller.log(job_id, "workerpool0-0")) - before)
        before = time.time()
        by_hand.append(float(subprocess.check_output([sys.executable, "-c", code], timeout=DEADLINE)) - before)
    assert min(served) - min(by_hand) < 0.2, (served, by_hand)


def test_the_mark_finds_processes_by_what_they_inherited() -> None:
    from deploy.local.job_service.marked import VARIABLE, find_marked, kill_marked

    mark = f"/nowhere/{os.getpid()}#"
    environ = {**os.environ, VARIABLE: f"{mark}7#workerpool0-0"}
    with subprocess.Popen(["sleep", "60"], env=environ, start_new_session=True) as process:
        assert until(lambda: list(find_marked(mark)), bool) == [process.pid]
        assert list(find_marked(f"{mark}8#")) == []
        assert kill_marked(mark) == 1
        assert process.wait(DEADLINE) == -signal.SIGKILL
