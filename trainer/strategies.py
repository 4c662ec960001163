"""The distribution strategy for a cluster and a machine; the first thing a process makes with TensorFlow.

Collective operations must be configured before anything else touches TensorFlow's runtime, so nothing here may
create a tensor first.
"""

import faulthandler
from typing import Any

import tensorflow as tf

from trainer.cluster import Cluster
from trainer.errors import InvalidArguments


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


def list_devices(cpu_devices: int) -> list[str]:
    """GPUs of this machine; none there and `cpu_devices` given: as many logical CPUs, for a laptop's rehearsal."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        return [f"GPU:{index}" for index in range(len(gpus))]
    if cpu_devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        wanted = [tf.config.LogicalDeviceConfiguration()] * cpu_devices
        if tf.config.get_logical_device_configuration(cpu) != wanted:
            tf.config.set_logical_device_configuration(cpu, wanted)
        return [f"CPU:{index}" for index in range(cpu_devices)]
    return []


def create_strategy(name: str, cluster: Cluster, devices: list[str], timeout: float) -> Any:
    """The strategy object; ends the process with a traceback when the peers are not there after `timeout` seconds.

    MultiWorkerMirroredStrategy waits for its peers for ever, holds the GIL and ignores SIGTERM meanwhile, so only
    a C-level timer can end it. rendezvous.py has named the missing peer before it comes to that.
    """
    if name == "none":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        on_gpus = not devices or devices[0].startswith("GPU")
        reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(devices or None, cross_device_ops=reduction)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({task: list(addresses) for task, addresses in cluster.hosts.items()}),
        task_type=cluster.task_type,
        task_id=cluster.task_index,
        rpc_layer="grpc",
    )
    faulthandler.dump_traceback_later(timeout, exit=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    finally:
        faulthandler.cancel_dump_traceback_later()


def check_devices(strategy: Any, cluster: Cluster, devices: int) -> None:
    """Refuses replicas with unequal numbers of accelerators: they would wait for each other for ever.

    Collective: every worker calls it. `devices` is this worker's number of GPUs.
    """
    workers = len(cluster.synchronous)
    if workers < 2:
        return

    def gather() -> Any:
        return tf.distribute.get_replica_context().all_gather(tf.constant([max(devices, 1)], tf.int32), axis=0)

    seen = tf.function(lambda: strategy.run(gather), autograph=False)()
    counts = set(strategy.experimental_local_results(seen)[0].numpy().tolist())
    if len(counts) > 1:
        raise InvalidArguments(f"the replicas have {sorted(counts)} GPUs each; every machine needs the same number")
