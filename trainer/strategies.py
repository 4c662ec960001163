"""The distribution strategy for a cluster and a machine; the first thing a process makes with TensorFlow.

Collective operations must be configured before anything else touches TensorFlow's runtime, so nothing here may
create a tensor first.
"""

import contextlib
import faulthandler
from typing import Any

import tensorflow as tf

from trainer.cluster import Cluster


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

    Both distributed strategies wait for their peers for ever, hold the GIL and ignore SIGTERM meanwhile, so only a
    C-level timer can end that. rendezvous.py has named the missing peer before it comes to it.
    """
    if name == "none":
        if not devices:
            _run_one_operation_at_a_time()
        return tf.distribute.get_strategy()
    if name == "mirrored":
        on_gpus = not devices or devices[0].startswith("GPU")
        reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(devices or None, cross_device_ops=reduction)
    faulthandler.dump_traceback_later(timeout, exit=True)
    try:
        if name == "parameter-server":
            return tf.distribute.ParameterServerStrategy(resolver(cluster))
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver(cluster))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _run_one_operation_at_a_time() -> None:
    """Each operation has all processors to itself: as fast, and a tenth less memory than several side by side."""
    with contextlib.suppress(RuntimeError):  # TensorFlow is already running in this process, with what it was given
        tf.config.threading.set_inter_op_parallelism_threads(1)


def cluster_spec(cluster: Cluster) -> Any:
    return tf.train.ClusterSpec({task: list(addresses) for task, addresses in cluster.hosts.items()})


def resolver(cluster: Cluster) -> Any:
    """Not TFConfigClusterResolver: that one would take an evaluator for a member, and wait for it."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster_spec(cluster), task_type=cluster.task_type, task_id=cluster.task_index, rpc_layer="grpc"
    )
