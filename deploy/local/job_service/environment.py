"""What a replica finds in its environment. Pure.

https://cloud.google.com/vertex-ai/docs/training/distributed-training and
https://cloud.google.com/vertex-ai/docs/training/code-requirements
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_TF_TASKS = ("chief", "worker", "ps", "evaluator")
REDUCTION_SERVER = "reductionserver"


@dataclass(frozen=True, order=True)
class Replica:
    """One replica of a worker pool, by its place: `workerpool1-0` is the first of the second pool."""

    pool: int
    index: int

    @property
    def name(self) -> str:
        return f"workerpool{self.pool}-{self.index}"


@dataclass(frozen=True)
class Ports:
    """The replica's ports on 127.0.0.1."""

    cluster: int
    profiler: int
    http_handler: int


def list_replicas(spec: Json) -> Iterator[Replica]:
    """Every replica of a CustomJobSpec, the primary first."""
    for number, pool in enumerate(spec.get("workerPoolSpecs", [])):
        for index in range(int(pool.get("replicaCount", 0))):
            yield Replica(number, index)


def get_image(pool: Json) -> str:
    """The container image of a worker pool spec, also of one with a Python package."""
    uri = pool.get("containerSpec", {}).get("imageUri") or pool.get("pythonPackageSpec", {}).get("executorImageUri")
    return str(uri or "")


def is_reduction_server(pool: Json) -> bool:
    return REDUCTION_SERVER in get_image(pool)


def build_environment(
    spec: Json, replica: Replica, ports: Mapping[Replica, Ports], *, job_id: str, project_number: str, region: str
) -> dict[str, str]:
    """The variables that the service sets for `replica`, and then those of its own spec."""
    pool = spec["workerPoolSpecs"][replica.pool]
    own = ports[replica]
    environment = {
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_PROJECT_ID": project_number,
        "CLOUD_ML_REGION": region,
        "CLUSTER_SPEC": json.dumps(build_cluster_spec(spec, replica, ports)),
        "TASK_TYPE": "",
        "TASK_INDEX": "",
        "AIP_TF_PROFILER_PORT": str(own.profiler),
        "AIP_HTTP_HANDLER_PORT": str(own.http_handler),
        **build_output_variables(spec),
    }
    if len(ports) > 1 and not is_reduction_server(pool):
        environment["TF_CONFIG"] = json.dumps(build_tf_config(spec, replica, ports, job_id))
    task = pool.get("containerSpec") or pool.get("pythonPackageSpec") or {}
    return environment | {variable["name"]: variable.get("value", "") for variable in task.get("env", [])}


def build_cluster_spec(spec: Json, replica: Replica, ports: Mapping[Replica, Ports]) -> Json:
    """CLUSTER_SPEC: on every replica, also of a job that has one only."""
    cluster: dict[str, list[str]] = {}
    for other in sorted(ports):
        cluster.setdefault(f"workerpool{other.pool}", []).append(_address(ports[other]))
    task = {"type": f"workerpool{replica.pool}", "index": replica.index}
    return {"cluster": cluster, "environment": "cloud", "task": task, "job": spec}


def build_tf_config(spec: Json, replica: Replica, ports: Mapping[Replica, Ports], job_id: str) -> Json:
    """TF_CONFIG of a distributed job. An evaluator is in no `cluster`; nor is a reduction server."""
    pools: Sequence[Json] = spec["workerPoolSpecs"]
    cluster: dict[str, list[str]] = {}
    for other in sorted(ports):
        if _TF_TASKS[other.pool] != "evaluator" and not is_reduction_server(pools[other.pool]):
            cluster.setdefault(_TF_TASKS[other.pool], []).append(_address(ports[other]))
    task = {"type": _TF_TASKS[replica.pool], "index": replica.index, "cloud": f"{job_id}-ml"}
    return {"cluster": cluster, "environment": "cloud", "job": spec, "task": task}


def build_output_variables(spec: Json) -> dict[str, str]:
    """AIP_MODEL_DIR and its kin; unset without a base output directory, as on the service."""
    base = spec.get("baseOutputDirectory", {}).get("outputUriPrefix", "").rstrip("/")
    if not base:
        return {}
    variables = {
        "AIP_MODEL_DIR": f"{base}/model/",
        "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": f"{base}/logs/",
    }
    if spec.get("tensorboard"):
        variables["AIP_TENSORBOARD_RESOURCE_NAME"] = spec["tensorboard"]
    return variables


def _address(ports: Ports) -> str:
    return f"127.0.0.1:{ports.cluster}"
