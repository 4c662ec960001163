"""CLUSTER_SPEC, TF_CONFIG and AIP_*, value by value."""

import json
from typing import Any

from deploy.local.job_service.environment import Ports, Replica, build_environment, list_replicas

Json = dict[str, Any]
IMAGE = {"containerSpec": {"imageUri": "i"}, "machineSpec": {"machineType": "n1-standard-4"}}


def environment(spec: Json, pool: int, index: int = 0) -> dict[str, str]:
    replicas = list(list_replicas(spec))
    ports = {replica: Ports(3000 + n, 4000 + n, 5000 + n) for n, replica in enumerate(replicas)}
    return build_environment(spec, Replica(pool, index), ports, job_id="7", project_number="123", region="us-central1")


def spec(*counts: int, **more: Any) -> Json:
    return {"workerPoolSpecs": [{**IMAGE, "replicaCount": str(count)} if count else {} for count in counts], **more}


def test_a_job_of_one_replica_has_cluster_spec_and_no_tf_config() -> None:
    one = spec(1)
    found = environment(one, 0)
    assert json.loads(found["CLUSTER_SPEC"]) == {
        "cluster": {"workerpool0": ["127.0.0.1:3000"]},
        "environment": "cloud",
        "task": {"type": "workerpool0", "index": 0},
        "job": one,
    }
    assert "TF_CONFIG" not in found
    assert not [name for name in found if name.startswith("AIP_") and name.endswith("_DIR")]
    assert found["CLOUD_ML_JOB_ID"] == "7"
    assert (found["TASK_TYPE"], found["TASK_INDEX"]) == ("", "")
    assert (found["AIP_TF_PROFILER_PORT"], found["AIP_HTTP_HANDLER_PORT"]) == ("4000", "5000")


def test_a_distributed_job_has_chief_worker_ps_and_no_evaluator_in_its_cluster() -> None:
    whole = spec(1, 2, 1, 1)
    config = json.loads(environment(whole, 1, 1)["TF_CONFIG"])
    cluster = {"chief": ["127.0.0.1:3000"], "worker": ["127.0.0.1:3001", "127.0.0.1:3002"], "ps": ["127.0.0.1:3003"]}
    assert config["cluster"] == cluster
    assert config["environment"] == "cloud"
    assert config["job"] == whole
    assert {key: config["task"][key] for key in ("type", "index")} == {"type": "worker", "index": 1}
    evaluator = environment(whole, 3)
    assert json.loads(evaluator["TF_CONFIG"])["cluster"] == cluster
    assert json.loads(evaluator["TF_CONFIG"])["task"]["type"] == "evaluator"
    assert set(json.loads(evaluator["CLUSTER_SPEC"])["cluster"]) == {f"workerpool{n}" for n in range(4)}


def test_a_skipped_pool_leaves_a_gap() -> None:
    found = environment(spec(1, 0, 0, 1), 0)
    assert set(json.loads(found["CLUSTER_SPEC"])["cluster"]) == {"workerpool0", "workerpool3"}
    assert set(json.loads(found["TF_CONFIG"])["cluster"]) == {"chief"}


def test_a_reduction_server_is_no_parameter_server() -> None:
    whole = spec(1, 1, 1)
    reduction = {"imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"}
    whole["workerPoolSpecs"][2]["containerSpec"] = reduction
    assert set(json.loads(environment(whole, 0)["TF_CONFIG"])["cluster"]) == {"chief", "worker"}
    assert "TF_CONFIG" not in environment(whole, 2)


def test_output_directories_end_with_a_slash_once() -> None:
    for prefix in ("gs://bucket/out", "gs://bucket/out/"):
        found = environment(spec(1, baseOutputDirectory={"outputUriPrefix": prefix}), 0)
        assert found["AIP_MODEL_DIR"] == "gs://bucket/out/model/"
        assert found["AIP_CHECKPOINT_DIR"] == "gs://bucket/out/checkpoints/"
        assert found["AIP_TENSORBOARD_LOG_DIR"] == "gs://bucket/out/logs/"


def test_the_jobs_own_variables_come_last() -> None:
    whole = spec(1)
    variables = [{"name": "A", "value": "b c"}, {"name": "TASK_TYPE", "value": "mine"}, {"name": "EMPTY"}]
    whole["workerPoolSpecs"][0]["containerSpec"] = {"imageUri": "i", "env": variables}
    found = environment(whole, 0)
    assert (found["A"], found["TASK_TYPE"], found["EMPTY"]) == ("b c", "mine", "")
