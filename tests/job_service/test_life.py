"""The life of jobs whose replicas are real processes."""

import itertools
import json
import signal
import socket
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.job_service.clock import Clock
from deploy.local.job_service.logs import Logs
from deploy.local.job_service.options import REJECT, Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import Caller, Json, alive, call, family, job, pool, state_of, until

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
ONCE = (
    "import os, pathlib, sys, time; seen = pathlib.Path('seen'); n = len(seen.read_text()) if seen.exists() else 0\n"
    "seen.write_text('x' * (n + 1)); print('try', n, os.environ['CLOUD_ML_JOB_ID'], flush=True)\n"
)
"""Counts its tries in its working directory, which a restart finds again."""


def test_a_job_succeeds_when_its_primary_exits_0_and_the_rest_are_stopped(caller: Caller) -> None:
    listen = (
        "import json, os, socket, time\n"
        "spec = json.loads(os.environ['CLUSTER_SPEC']); task = spec['task']\n"
        "host, port = spec['cluster'][task['type']][task['index']].split(':')\n"
        "server = socket.create_server((host, int(port)))\n"
    )
    workers = f"{listen}connection, _ = server.accept(); print('met the primary', flush=True); time.sleep(60)"
    primary = (
        "import json, os, socket, time\n"
        "spec = json.loads(os.environ['CLUSTER_SPEC'])\n"
        "for peer in spec['cluster']['workerpool1']:\n"
        "    host, port = peer.split(':')\n"
        "    for _ in range(200):\n"
        "        try: socket.create_connection((host, int(port))); break\n"
        "        except OSError: time.sleep(0.05)\n"
        "    else: raise SystemExit('no peer')\n"
        "time.sleep(0.2)\n"
    )
    job_id = caller.create(pool(primary), pool(workers, 2))
    pids = until(lambda: caller.replicas(job_id), lambda found: len(found) == 3)
    found = caller.finished(job_id)
    assert found["state"] == "JOB_STATE_SUCCEEDED", found
    assert found["createTime"] <= found["startTime"] <= found["endTime"] == found["updateTime"]
    assert "error" not in found
    assert not any(map(alive, pids.values()))
    assert [caller.log(job_id, f"workerpool1-{n}") for n in range(2)] == ["met the primary\n"] * 2


def test_argv_and_environment_reach_the_replica_as_they_are(caller: Caller) -> None:
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    odd = "a b; $HOME `x` \"y\" 'z' * ä\n"
    one = pool(code)
    one["containerSpec"]["args"] += [odd, "--flag=1 2", ""]
    one["containerSpec"]["env"] = [{"name": "ODD", "value": odd}]
    job_id = caller.create(one)
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert json.loads(caller.log(job_id, "workerpool0-0")) == [[odd, "--flag=1 2", ""], odd]


def test_a_failure_names_the_replica_its_status_and_its_last_words(caller: Caller) -> None:
    job_id = caller.create(pool(SLEEP), pool("import sys; print('so it goes', file=sys.stderr); sys.exit(1)"))
    found = caller.finished(job_id)
    assert found["state"] == "JOB_STATE_FAILED"
    assert found["error"]["code"] == 13
    assert found["error"]["message"].startswith("The replica workerpool1-0 exited with a non-zero status of 1.")
    assert "so it goes" in found["error"]["message"]


def test_a_program_that_cannot_be_started_is_a_start_error(caller: Caller) -> None:
    one = pool("")
    one["containerSpec"] = {"imageUri": "python", "command": ["trainer.task"]}
    found = caller.finished(caller.create(one))
    assert (
        "workerpool0-0 exited with a non-zero status of 128. Termination reason: StartError"
        in found["error"]["message"]
    )


def test_an_unknown_image_fails_the_job_without_a_line_of_a_replica(caller: Caller) -> None:
    job_id = caller.create(pool("", image="gcr.io/nobody/nothing:1"))
    found = caller.finished(job_id)
    assert (found["state"], found["error"]["code"]) == ("JOB_STATE_FAILED", 5)
    assert "gcr.io/nobody/nothing:1" in found["error"]["message"]
    assert "startTime" not in found
    assert caller.log(job_id, "workerpool0-0") == ""


@pytest.mark.parametrize("code", [SLEEP, STUBBORN], ids=["obliging", "ignores SIGTERM"])
def test_cancel_ends_the_whole_group(caller: Caller, code: str) -> None:
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {code!r}]);"
    job_id = caller.create(pool(child + code))
    caller.running(job_id)
    until(lambda: caller.log(job_id, "workerpool0-0"), lambda text: "up" in text)
    (pid,) = caller.replicas(job_id).values()
    group = family(pid)
    caller.cancel(job_id)
    assert caller.get(job_id)["state"] in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")
    found = caller.finished(job_id)
    assert (found["state"], found["error"]) == ("JOB_STATE_CANCELLED", {"code": 1, "message": "CANCELED"})
    assert not any(map(alive, group))


def test_cancelling_what_has_ended_is_refused_and_changes_nothing(caller: Caller) -> None:
    job_id = caller.create(pool("", image="instant"))
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    status, answer = caller.post(f"/v1/projects/p/locations/us-central1/customJobs/{job_id}:cancel")
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert caller.get(job_id)["state"] == "JOB_STATE_SUCCEEDED"


def test_a_killed_worker_restarts_in_place_and_a_worker_that_exited_0_does_not(caller: Caller) -> None:
    primary = "import os, time, pathlib\nwhile not pathlib.Path('../workerpool1-0/done').exists(): time.sleep(0.02)"
    worker = ONCE + "if n < 2: os.kill(os.getpid(), 9)\npathlib.Path('done').touch()"
    job_id = caller.create(pool(primary), pool(worker), {}, pool("print('once')"))
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert caller.log(job_id, "workerpool1-0").count("try") == 3
    assert caller.log(job_id, "workerpool3-0") == "once\n"
    assert caller.log(job_id, "service").count("exited with a non-zero status of 137") == 2


def test_restart_job_on_worker_restart_restarts_every_replica(caller: Caller) -> None:
    primary = ONCE + "time.sleep(60 if n == 0 else 0)"
    worker = ONCE + "time.sleep(0.3)\nif n == 0: os.kill(os.getpid(), 9)\ntime.sleep(60)"
    job_id = caller.create(pool(primary), pool(worker), scheduling={"restartJobOnWorkerRestart": True})
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert caller.log(job_id, "workerpool0-0").count("try") == 2


def test_five_restarts_then_three_retries_then_the_end(caller: Caller) -> None:
    job_id = caller.create(pool(ONCE + "os.kill(os.getpid(), 9)"))
    assert caller.finished(job_id)["state"] == "JOB_STATE_FAILED"
    assert caller.log(job_id, "workerpool0-0").count("try") == 4 * 6


def test_disable_retries_overrides_restarts(caller: Caller) -> None:
    scheduling = {"restartJobOnWorkerRestart": True, "disableRetries": True}
    job_id = caller.create(pool(ONCE + "os.kill(os.getpid(), 9)"), scheduling=scheduling)
    assert caller.finished(job_id)["state"] == "JOB_STATE_FAILED"
    assert caller.log(job_id, "workerpool0-0").count("try") == 1


def test_a_preempted_spot_replica_starts_again_and_others_cannot_be_preempted(caller: Caller) -> None:
    code = ONCE + "time.sleep(60 if n == 0 else 0)"
    job_id = caller.create(pool(code), scheduling={"strategy": "SPOT"})
    until(lambda: caller.log(job_id, "workerpool0-0"), lambda text: "try 0" in text)
    caller.admin(f"jobs/{job_id}:preempt", {"replica": "workerpool0-0"})
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert "workerpool0-0 was preempted" in caller.log(job_id, "service")
    other = caller.create(pool(SLEEP))
    caller.running(other)
    assert caller.post(f"/admin/jobs/{other}:preempt")[1]["error"]["status"] == "FAILED_PRECONDITION"
    caller.cancel(other)


def test_a_missing_replica_is_named_at_the_start_up_deadline(caller: Caller) -> None:
    caller.admin("faults", {"kind": "missing", "replica": "workerpool1-1"})
    job_id = caller.create(pool(SLEEP), pool(SLEEP, 2))
    until(lambda: caller.replicas(job_id), lambda found: len(found) == 2)
    assert caller.get(job_id)["state"] == "JOB_STATE_PENDING"
    caller.admin("clock", {"advance_seconds": 601})
    found = caller.finished(job_id)
    assert found["state"] == "JOB_STATE_FAILED"
    assert found["error"]["message"] == "Replicas did not start within 600 s: workerpool1-1."


def test_a_timeout_cancels_the_job_on_the_emulators_clock(caller: Caller) -> None:
    job_id = caller.create(pool(SLEEP), scheduling={"timeout": "3600s"})
    caller.running(job_id)
    caller.admin("clock", {"advance_seconds": 3500})
    assert caller.get(job_id)["state"] == "JOB_STATE_RUNNING"
    caller.admin("clock", {"advance_seconds": 101})
    found = caller.finished(job_id)
    assert found["state"] == "JOB_STATE_CANCELLED"
    assert "timeout of 3600s" in found["error"]["message"]


def test_a_frozen_replica_is_cancelled_all_the_same(caller: Caller) -> None:
    job_id = caller.create(pool(SLEEP))
    caller.running(job_id)
    (pid,) = caller.replicas(job_id).values()
    caller.admin(f"jobs/{job_id}:freeze")
    until(lambda: state_of(pid), lambda letter: letter == "T")
    caller.cancel(job_id)
    assert caller.finished(job_id)["state"] == "JOB_STATE_CANCELLED"
    assert not alive(pid)


def test_accelerators_that_are_not_here_become_cpu_devices(caller: Caller) -> None:
    code = "import os; print(os.environ.get('KICKOFF_CPU_DEVICES'))"
    job_id = caller.create(pool(code, acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=2))
    caller.finished(job_id)
    if not Path("/dev/nvidia0").exists():
        assert caller.log(job_id, "workerpool0-0") == "2\n"
        assert "workerpool0's replicas see 2 CPU devices each" in caller.log(job_id, "service")


def test_a_reduction_server_idles_until_the_primary_is_done(caller: Caller) -> None:
    server = pool("", image="us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest")
    del server["containerSpec"]["args"]
    job_id = caller.create(pool("import time; time.sleep(0.3)"), {}, server)
    until(lambda: caller.replicas(job_id), lambda found: "workerpool2-0" in found)
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert "workerpool2 is a reduction server" in caller.log(job_id, "service")


def test_what_a_replica_detached_is_ended_with_it(caller: Caller) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True,\n"
        "    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(child.pid)\n"
    )
    job_id = caller.create(pool(code))
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert not alive(int(caller.log(job_id, "workerpool0-0")))


def test_a_job_beyond_the_quota_waits_its_turn(options: Options) -> None:
    quotas = {"custom_model_training_nvidia_t4_gpus": 2}
    with JobServiceServer(replace(options, quotas=quotas)) as server:
        caller = Caller(server.url)
        gpus: Json = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
        first, second = caller.create(pool(SLEEP, **gpus)), caller.create(pool("", **gpus))
        third = caller.create(pool(""))
        caller.running(first)
        assert caller.get(second)["state"] == "JOB_STATE_QUEUED"
        assert caller.finished(third)["state"] == "JOB_STATE_SUCCEEDED"
        caller.cancel(first)
        assert caller.finished(second)["state"] == "JOB_STATE_SUCCEEDED"


def test_a_queued_job_can_be_cancelled_and_can_expire(options: Options) -> None:
    with JobServiceServer(replace(options, quotas={"custom_model_training_cpus": 4})) as server:
        caller = Caller(server.url)
        first = caller.create(pool(SLEEP))
        caller.running(first)
        second, third = caller.create(pool("")), caller.create(pool(""), scheduling={"maxWaitDuration": "60s"})
        caller.cancel(second)
        assert caller.finished(second)["state"] == "JOB_STATE_CANCELLED"
        caller.admin("clock", {"advance_seconds": 61})
        found = caller.finished(third)
        assert (found["state"], found["error"]["code"]) == ("JOB_STATE_EXPIRED", 4)
        assert caller.get(first)["state"] == "JOB_STATE_RUNNING"
        caller.cancel(first)
        caller.finished(first)


def test_quota_and_rate_can_answer_429(options: Options) -> None:
    limits = replace(options, quotas={"custom_model_training_cpus": 7}, quota_mode=REJECT, submissions_per_minute=2)
    with JobServiceServer(limits) as server:
        caller = Caller(server.url)
        error = caller.refused(job(pool(SLEEP), pool(SLEEP)))
        assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert error["message"].endswith("limits: aiplatform.googleapis.com/custom_model_training_cpus")
        caller.create(pool("", image="instant"))
        assert "submission requests per minute" in caller.refused(job(pool("", image="instant")))["message"]
        caller.admin("clock", {"advance_seconds": 61})
        caller.create(pool("", image="instant"))


def test_web_access_uris_stand_while_the_job_runs(caller: Caller) -> None:
    job_id = caller.create(pool(SLEEP), enableWebAccess=True)
    uris = caller.running(job_id)["webAccessUris"]
    until(lambda: call(uris["workerpool0-0"]), lambda answer: answer == (200, "up\n"))
    caller.cancel(job_id)
    assert "webAccessUris" not in caller.finished(job_id)


def test_ports_are_held_until_they_are_handed_over() -> None:
    from deploy.local.job_service.ports import hold_port

    held = hold_port()
    with pytest.raises(OSError), socket.socket() as other:
        other.bind(("127.0.0.1", held.number))
    with pytest.raises(OSError, match="no free port"):
        hold_port(lambda: held.number)
    held.hand_over()
    with pytest.raises(OSError, match="no free port"):
        hold_port(lambda: held.number)
    with socket.socket() as replica:
        replica.bind(("127.0.0.1", held.number))
    held.release()
    hold_port(lambda: held.number).release()


def test_a_signal_reaches_the_replica(caller: Caller) -> None:
    code = f"import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0)); {SLEEP}"
    job_id = caller.create(pool(code))
    until(lambda: caller.log(job_id, "workerpool0-0"), lambda text: "up" in text)
    caller.admin(f"jobs/{job_id}:kill", {"signal": int(signal.SIGUSR1)})
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"


def test_an_error_of_the_emulators_own_fails_the_job_and_nothing_else(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_port() -> None:
        raise OSError("no free port")

    with monkeypatch.context() as patch:
        patch.setattr("deploy.local.job_service.launching.hold_port", no_port)
        found = caller.finished(caller.create(pool("")))
    assert (found["state"], found["error"]["code"]) == ("JOB_STATE_FAILED", 13)
    assert found["error"]["message"] == "Internal error occurred for the current attempt."
    assert caller.finished(caller.create(pool("")))["state"] == "JOB_STATE_SUCCEEDED"


def test_the_emulators_time_can_run_fast(options: Options) -> None:
    with JobServiceServer(replace(options, clock_speed=5000.0)) as server:
        caller = Caller(server.url)
        job_id = caller.create(pool(SLEEP), scheduling={"timeout": "3600s"})
        assert caller.finished(job_id)["state"] == "JOB_STATE_CANCELLED"
        caller.admin("clock", {"speed": 1})
        slow = caller.create(pool(SLEEP), scheduling={"timeout": "3600s"})
        caller.running(slow)
        caller.cancel(slow)
        assert caller.finished(slow)["error"]["message"] == "CANCELED"


def test_a_full_disk_delays_the_end_of_a_job_and_does_not_lose_it(options: Options, tmp_path: Path) -> None:
    """A job that stayed RUNNING would never be recorded. The limit on pages makes SQLite say that the disk is full."""
    code = (
        f"import pathlib, sys, time; go = pathlib.Path({str(tmp_path / 'go')!r}); print('up', flush=True)\n"
        "while not go.exists(): time.sleep(0.05)\n"
        "print('last words ' * 500, flush=True); sys.exit(1)"
    )
    with JobServiceServer(options) as server:
        caller = Caller(server.url)
        job_id = caller.create(pool(code), scheduling={"disableRetries": True})
        caller.running(job_id)
        db = server.services.store._db
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        for size in (2000, 200, 1):
            with pytest.raises(sqlite3.OperationalError, match="full"):
                for number in itertools.count():
                    row = (f"filler-{size}-{number}", "x" * size)
                    db.execute("INSERT INTO resources (id, document) VALUES (?, ?)", row)
        (tmp_path / "go").touch()
        until(lambda: caller.replicas(job_id), lambda living: not living)
        assert caller.get(job_id)["state"] == "JOB_STATE_RUNNING"
        db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert "last words" in caller.finished(job_id)["error"]["message"]


def test_a_full_disk_costs_whole_log_lines_and_raises_nothing(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    logs = Logs(tmp_path, Clock(), "")
    logs.service("7", "acme", "before")
    (tmp_path / "jobs" / "7" / "service.log").unlink()
    (tmp_path / "jobs" / "7" / "service.log").symlink_to(full)
    logs.service("7", "acme", "after")
    assert [entry["textPayload"] for entry in logs.entries("7")] == ["before", "after"]
