"""Which replica this is, and who its peers are. Pure.

Vertex AI sets CLUSTER_SPEC on every replica and TF_CONFIG on distributed jobs only:
https://cloud.google.com/vertex-ai/docs/training/distributed-training#cluster-variables
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.errors import InvalidArguments

_POOLS = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}
# AI Platform Training, the service before Vertex AI, called the primary "master".
_TASK_TYPES = {"master": "chief", **_POOLS}


@dataclass(frozen=True)
class Cluster:
    """`hosts` maps chief, worker and ps to "host:port" addresses; an evaluator is never among them."""

    task_type: str = "chief"
    task_index: int = 0
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def synchronous(self) -> tuple[str, ...]:
        """Addresses of the replicas that share gradients: the chief, then the workers."""
        return (*self.hosts.get("chief", ()), *self.hosts.get("worker", ()))

    @property
    def address(self) -> str | None:
        """This replica's own address; None for an evaluator or a single process."""
        mine = self.hosts.get(self.task_type, ())
        return mine[self.task_index] if self.task_index < len(mine) else None

    @property
    def peers(self) -> Mapping[str, str]:
        """Every other replica of the cluster: "worker 1" -> its address."""
        return {
            f"{task_type} {index}": address
            for task_type, addresses in self.hosts.items()
            for index, address in enumerate(addresses)
            if (task_type, index) != (self.task_type, self.task_index)
        }

    @property
    def has_parameter_servers(self) -> bool:
        return bool(self.hosts.get("ps"))

    @property
    def is_primary(self) -> bool:
        """True for the one replica whose files become visible: the chief, or worker 0 where there is none."""
        if "chief" in self.hosts or not self.hosts:
            return self.task_type == "chief"
        return self.task_type == "worker" and self.task_index == 0

    def __str__(self) -> str:
        return f"{self.task_type} {self.task_index}"


def parse_cluster(environ: Mapping[str, str]) -> Cluster:
    """The cluster from TF_CONFIG, else from CLUSTER_SPEC, else a single process.

    Raises InvalidArguments naming the variable and what is wrong in it.
    """
    for variable in ("TF_CONFIG", "CLUSTER_SPEC"):
        if environ.get(variable):
            cluster = _parse(variable, environ[variable])
            if len(cluster.synchronous) > 1 or cluster.has_parameter_servers or cluster.task_type == "evaluator":
                return cluster
    return Cluster()


def select_strategy(requested: str, cluster: Cluster, devices: int) -> str:
    """none, mirrored, multi-worker or parameter-server. Pure; raises InvalidArguments when they cannot fit."""
    workers = len(cluster.synchronous)
    if requested == "auto":
        if cluster.has_parameter_servers or cluster.task_type == "evaluator":
            return "parameter-server"
        return "multi-worker" if workers > 1 else "mirrored" if devices > 1 else "none"
    if requested in ("none", "mirrored") and workers > 1:
        raise InvalidArguments(
            f"--strategy is {requested} and the cluster has {workers} replicas, which would each train alone; "
            "use auto or multi-worker"
        )
    if requested == "parameter-server" and not cluster.has_parameter_servers:
        raise InvalidArguments("--strategy is parameter-server and the cluster has none; fill worker pool 2")
    if requested == "multi-worker" and cluster.has_parameter_servers:
        raise InvalidArguments("--strategy is multi-worker and the cluster has parameter servers; empty worker pool 2")
    return requested


def _parse(variable: str, text: str) -> Cluster:
    try:
        document = json.loads(text)
        hosts = {_task_type(name): _addresses(addresses) for name, addresses in document.get("cluster", {}).items()}
        task = document.get("task", {})
        task_type, index = _task_type(str(task.get("type", "chief"))), int(task.get("index", 0))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArguments(f"{variable} cannot be read: {error}; its value is {text[:200]!r}") from error
    hosts.pop("evaluator", None)  # in the cluster it would be waited for, and it never joins
    cluster = Cluster(task_type, index, {name: addresses for name, addresses in hosts.items() if addresses})
    if task_type in _TASK_TYPES.values() and task_type != "evaluator" and cluster.hosts and cluster.address is None:
        raise InvalidArguments(f"{variable}.task is {cluster}, which {variable}.cluster does not list")
    return cluster


def _task_type(name: str) -> str:
    return _TASK_TYPES.get(name, name)


def _addresses(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(address, str) for address in value):
        raise TypeError("a cluster entry must be a list of host:port")
    return tuple(value)
