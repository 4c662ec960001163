"""A recipe's job -> worker pool specs in REST JSON. Pure.

Pools by index: 0 the primary replica, 1 workers, 2 parameter servers or reduction servers, 3 evaluators. An empty
object keeps the place of a pool that is absent, and trailing ones are cut.
https://cloud.google.com/vertex-ai/docs/training/distributed-training#configure_a_distributed_training_job
"""

from collections.abc import Mapping
from typing import Any

from kickoff.recipe_models import REDUCTION_SERVER_IMAGE, Accelerator, Job, Pool

PRIMARY, WORKERS, SERVERS, EVALUATORS = range(4)
POOL_NAMES = ("primary", "workers", "parameter or reduction servers", "evaluators")


def build_worker_pool_specs(job: Job) -> list[dict[str, Any]]:
    """One spec per pool, for a job whose strings are filled already."""
    pools: list[dict[str, Any]] = [
        _trained(job, Pool(replicas=1)),
        _trained(job, Pool(replicas=job.replicas - 1)) if job.replicas > 1 else {},
        _servers(job),
        _trained(job, job.evaluators) if job.evaluators else {},
    ]
    while not pools[-1]:
        pools.pop()
    return pools


def _servers(job: Job) -> dict[str, Any]:
    if job.ps:
        # A parameter server has no use for an accelerator: it gets one only when its own section asks.
        return _spec(job, job.ps, job.ps.accelerator, _container(job, job.ps.image or job.image))
    if job.reduction_servers:
        pool = job.reduction_servers
        container = {"imageUri": pool.image or REDUCTION_SERVER_IMAGE}
        return _spec(job, pool, pool.accelerator, container)
    return {}


def _trained(job: Job, pool: Pool) -> dict[str, Any]:
    return _spec(job, pool, pool.accelerator or job.accelerator, _container(job, pool.image or job.image))


def _spec(job: Job, pool: Pool, accelerator: Accelerator | None, container: Mapping[str, Any]) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": pool.machine_type or job.machine_type}
    if accelerator:
        machine |= {"acceleratorType": accelerator.type, "acceleratorCount": accelerator.count}
    spec: dict[str, Any] = {"machineSpec": machine, "replicaCount": pool.replicas, "containerSpec": dict(container)}
    if job.disk:
        spec["diskSpec"] = {"bootDiskType": job.disk.type, "bootDiskSizeGb": job.disk.size_gb}
    return spec


def _container(job: Job, image: str) -> dict[str, Any]:
    container: dict[str, Any] = {"imageUri": image}
    if job.command:
        container["command"] = list(job.command)
    if job.args:
        container["args"] = [f"--{name}={value}" for name, value in job.args.items()]
    if job.env:
        container["env"] = [{"name": name, "value": str(job.env[name])} for name in sorted(job.env)]
    return container
