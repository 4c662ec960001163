"""What people reported of the service and its rivals ([cluster], [complete] in the collected bugs), one test each."""

import json
from dataclasses import replace

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import Caller, alive, pool, until

SLEEP = "import time; time.sleep(60)"
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def environment(caller: Caller, job_id: str, replica: str) -> dict[str, str]:
    text = until(lambda: caller.log(job_id, replica), lambda found: found.endswith("\n"))
    return dict(json.loads(text))


def test_b029_the_primary_is_chief_and_never_master(caller: Caller) -> None:
    """tensorflow/tfx#4587: KeyError 'master'."""
    job_id = caller.create(pool(f"{SHOW}; {SLEEP}"), pool(SLEEP))
    config = json.loads(environment(caller, job_id, "workerpool0-0")["TF_CONFIG"])
    assert (config["task"]["type"], sorted(config["cluster"])) == ("chief", ["chief", "worker"])
    caller.cancel(job_id)


def test_b039_a_job_can_fail_before_any_replica_wrote_a_line(caller: Caller) -> None:
    """PrefectHQ/prefect#22727: an image that cannot be pulled left the run pending for ever."""
    job_id = caller.create(pool("", image="gcr.io/nobody/nothing"))
    assert caller.finished(job_id)["state"] == "JOB_STATE_FAILED"
    assert caller.log(job_id, "service").endswith("Job failed.\n")
    assert caller.log(job_id, "workerpool0-0") == ""


def test_b041_a_cancelled_job_is_no_success_even_when_its_primary_exits_0(caller: Caller) -> None:
    """apache/airflow#57791."""
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)"
    job_id = caller.create(pool(f"{code}; time.sleep(60)"))
    until(lambda: caller.log(job_id, "workerpool0-0"), bool)
    caller.cancel(job_id)
    assert caller.finished(job_id)["state"] == "JOB_STATE_CANCELLED"


def test_b047_the_error_can_be_filled_after_the_end(options: Options) -> None:
    """The service fills `error` about a minute after the job has failed."""
    with JobServiceServer(replace(options, error_delay=60.0)) as server:
        caller = Caller(server.url)
        job_id = caller.create(pool("raise SystemExit(1)"))
        assert "error" not in caller.finished(job_id)
        caller.admin("clock", {"advance_seconds": 61})
        found = until(lambda: caller.get(job_id), lambda job: "error" in job)
        assert found["error"]["code"] == 13
        assert found["endTime"] < found["updateTime"]


def test_b087_a_worker_that_fails_after_the_primary_is_done_is_only_logged(caller: Caller) -> None:
    """tensorflow/tensorflow#58434: one replica leaves early and the others fail when training was done."""
    worker = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('peer gone'))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    primary = "import pathlib, time\nwhile not pathlib.Path('../workerpool1-0.log').exists(): time.sleep(0.02)"
    job_id = caller.create(pool(primary), pool(worker))
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert "peer gone" in caller.log(job_id, "workerpool1-0")


def test_b088_b099_b100_roles_and_places(caller: Caller) -> None:
    """kubeflow/trainer#1213: an evaluator inside the cluster; empty TASK_INDEX; no TF_CONFIG for one replica."""
    job_id = caller.create(pool(SLEEP), {}, {}, pool(f"{SHOW}; {SLEEP}"))
    found = environment(caller, job_id, "workerpool3-0")
    config = json.loads(found["TF_CONFIG"])
    assert (config["task"]["type"], list(config["cluster"])) == ("evaluator", ["chief"])
    assert found["TASK_INDEX"] == ""
    caller.cancel(job_id)
    alone = caller.create(pool(SHOW))
    found = environment(caller, alone, "workerpool0-0")
    assert "TF_CONFIG" not in found
    assert list(json.loads(found["CLUSTER_SPEC"])["cluster"]) == ["workerpool0"]


def test_b090_a_parameter_server_that_never_ends_is_stopped_with_the_job(caller: Caller) -> None:
    """kubeflow/trainer#634: the chief has finished, the job runs on."""
    job_id = caller.create(
        pool("import time; time.sleep(0.3)"), {}, pool(f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}")
    )
    pid = until(lambda: caller.replicas(job_id), lambda found: "workerpool2-0" in found)["workerpool2-0"]
    assert caller.finished(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert not alive(pid)
