"""Faults on request, as the chaos tests ask for them."""

import time
import urllib.error
from http.client import RemoteDisconnected

import pytest

from deploy.local.job_service.fault import main
from tests.job_service.calls import PARENT, Caller, call, job, pool, state_of, until

INSTANT = pool("", image="instant")
CREATE = f"{PARENT}/customJobs"


def counted(caller: Caller, name: str) -> int:
    return len(caller.list(filter=f'display_name="{name}"'))


def test_the_next_create_answers_what_was_asked_for_and_makes_nothing(caller: Caller) -> None:
    caller.admin("faults", {"method": "create", "kind": "status", "status": 503, "times": 2})
    for _ in range(2):
        error = caller.refused(job(INSTANT, name="refused"))
        assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert counted(caller, "refused") == 0
    caller.create(INSTANT, name="refused")
    assert counted(caller, "refused") == 1


@pytest.mark.parametrize(("kind", "made"), [("lose_answer", 1), ("reset", 0), ("timeout", 0)])
def test_an_answer_that_never_comes(caller: Caller, kind: str, made: int) -> None:
    name = f"dropped by {kind}"
    caller.admin("faults", {"method": "create", "kind": kind, "seconds": 0.2})
    with pytest.raises((RemoteDisconnected, urllib.error.URLError, ConnectionError)):
        caller.post(CREATE, job(INSTANT, name=name))
    assert counted(caller, name) == made


def test_a_lost_answer_can_be_a_503(caller: Caller) -> None:
    caller.admin("faults", {"method": "create", "kind": "lose_answer", "status": 503})
    assert caller.refused(job(INSTANT, name="made all the same"))["code"] == 503
    assert counted(caller, "made all the same") == 1


def test_a_delay_delays(caller: Caller) -> None:
    caller.admin("faults", {"method": "get", "kind": "delay", "seconds": 0.3})
    job_id = caller.create(INSTANT)
    before = time.monotonic()
    caller.get(job_id)
    assert time.monotonic() - before >= 0.3


def test_a_list_lags_behind_until_it_is_released(caller: Caller) -> None:
    old = caller.create(INSTANT, name="lag", labels={"kickoff-run": "x"})
    assert counted(caller, "lag") == 1
    caller.admin("faults", {"kind": "lag", "labels": {"kickoff-run": "y"}})
    new = caller.create(INSTANT, name="lag", labels={"kickoff-run": "y"})
    assert [row["name"].rpartition("/")[2] for row in caller.list(filter='display_name="lag"')] == [old]
    assert caller.get(new)["displayName"] == "lag"
    call(f"{caller.url}/admin/faults", "DELETE")
    assert counted(caller, "lag") == 2


def test_a_list_lags_behind_for_a_while(caller: Caller) -> None:
    caller.admin("faults", {"kind": "lag", "seconds": 60})
    caller.create(INSTANT, name="lag for a minute")
    assert counted(caller, "lag for a minute") == 0
    caller.admin("clock", {"advance_seconds": 61})
    assert counted(caller, "lag for a minute") == 1


def test_a_rate_hits_some_calls(caller: Caller) -> None:
    caller.admin("faults", {"method": "list", "kind": "status", "status": 500, "times": None, "rate": 0.5})
    codes = {call(f"{caller.url}{CREATE}")[0] for _ in range(60)}
    assert codes == {200, 500}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({}, "kind is None; it must be one of status"),
        ({"kind": "status", "method": "create"}, "status is missing"),
        ({"kind": "delay", "method": "create"}, "seconds is missing"),
        ({"kind": "reset", "method": "make"}, "method is 'make'; it must be one of create"),
        ({"kind": "reset", "method": "get", "tims": 3}, "tims is not a field of a fault"),
        ({"kind": "reset", "method": "get", "times": 0}, "times is 0; it must be a whole number of at least 1"),
    ],
)
def test_a_fault_that_is_wrong_is_refused(caller: Caller, fault: object, words: str) -> None:
    status, answer = caller.post("/admin/faults", fault)
    assert status == 400
    assert words in answer["error"]["message"]
    assert call(f"{caller.url}/admin/faults")[1] == {"faults": []}


def test_instant_jobs_need_no_process(caller: Caller) -> None:
    caller.admin("instant", {"status": 1})
    failed = caller.create(pool("", image="gcr.io/nobody/knows"), scheduling={"disableRetries": True})
    assert caller.finished(failed)["state"] == "JOB_STATE_FAILED"
    caller.admin("instant", {"enabled": False})
    assert "is not found" in caller.finished(caller.create(pool("", image="gcr.io/nobody/knows")))["error"]["message"]


def test_faults_from_a_shell(caller: Caller, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([caller.url, "status", "--method", "create", "--status", "429", "--times", "0"]) == 0
    assert '"times": null' in capsys.readouterr().out
    assert caller.refused(job(INSTANT))["status"] == "RESOURCE_EXHAUSTED"
    assert main([caller.url, "release"]) == 0
    caller.create(INSTANT)
    assert main([caller.url, "lag", "--label", "a=b"]) == 0
    assert main([caller.url, "list"]) == 0
    assert '"a": "b"' in capsys.readouterr().out
    assert main([caller.url, "kill", "--job", "7"]) == 1
    assert "A running job 7 is not found" in capsys.readouterr().err
    assert main([caller.url, "kill"]) == 1
    assert "kill needs the job's id" in capsys.readouterr().err
    assert main(["http://127.0.0.1:1", "list"]) == 1
    assert "no emulator answers" in capsys.readouterr().err


def test_a_slowed_replica_gets_a_tenth_of_its_time(caller: Caller) -> None:
    code = "import time\nwhile True: print('x', flush=True); time.sleep(0.01)"
    job_id = caller.create(pool(code))
    caller.running(job_id)
    until(lambda: len(caller.log(job_id, "workerpool0-0")), lambda size: size > 40)
    caller.admin(f"jobs/{job_id}:slow")
    (pid,) = caller.replicas(job_id).values()
    seen = set()
    for _ in range(300):
        seen.add(state_of(pid))
        time.sleep(0.002)
    assert "T" in seen and seen - {"T"}
    caller.cancel(job_id)
    assert caller.finished(job_id)["state"] == "JOB_STATE_CANCELLED"
