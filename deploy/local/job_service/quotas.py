"""Quotas: how much of each metric a job uses, and which limits it would exceed. Pure.

https://cloud.google.com/vertex-ai/docs/quotas: custom model training counts vCPUs and accelerators, per
project and region; Spot VMs have metrics of their own.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_PREFIX = "custom_model_training_"
_SPOT = "custom_model_training_preemptible_"


def measure_usage(spec: Mapping[str, Any]) -> Counter[str]:
    """Quota metric, less ``aiplatform.googleapis.com/``, to amount."""
    prefix = _SPOT if spec.get("scheduling", {}).get("strategy") == "SPOT" else _PREFIX
    used: Counter[str] = Counter()
    for pool in spec.get("workerPoolSpecs", []):
        replicas, machine = int(pool.get("replicaCount", 0)), pool.get("machineSpec", {})
        used[f"{prefix}cpus"] += replicas * count_cpus(machine.get("machineType", ""))
        kind = machine.get("acceleratorType", "")
        if kind:
            used[f"{prefix}{_metric(str(kind))}"] += replicas * int(machine.get("acceleratorCount", 0))
    return +used


def count_cpus(machine_type: str) -> int:
    """vCPUs of a machine type, from its name: the number at its end where it means that, else none known."""
    match = re.fullmatch(r"[a-z]\w*-(?:standard|highmem|highcpu)-(\d+)", machine_type)
    return int(match[1]) if match else 0


def find_exceeded(wanted: Mapping[str, int], used: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """The metrics that go over their limit when `wanted` is added to `used`."""
    return sorted(
        metric
        for metric, amount in wanted.items()
        if metric in limits and amount + used.get(metric, 0) > limits[metric]
    )


def describe_exceeded(metrics: list[str]) -> str:
    """The service's sentence."""
    names = ", ".join(f"aiplatform.googleapis.com/{metric}" for metric in metrics)
    return f"The following quota metrics exceed quota limits: {names}"


def _metric(kind: str) -> str:
    """``NVIDIA_TESLA_T4`` to ``nvidia_t4_gpus``, ``TPU_V3`` to ``tpu_v3``."""
    name = kind.lower().replace("nvidia_tesla_", "nvidia_")
    return name if name.startswith("tpu") else f"{name}_gpus"
