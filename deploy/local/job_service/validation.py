"""The rules that Vertex AI checks at CreateCustomJob, in its words where they are known. Pure.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec and
https://cloud.google.com/vertex-ai/docs/training/distributed-training; paths are the proto's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kickoff.machines import BOOT_DISK_TYPES, FLEX_START_ACCELERATORS, accelerator_fault

from deploy.local.job_service.errors import Violation
from deploy.local.job_service.schema import ENUMS

Json = Mapping[str, Any]
Violations = Iterator[Violation]

MAX_POOLS = 4
MAX_LABELS = 64
MAX_DISPLAY_NAME = 128
_LABELS = (
    "There can be no more than 64 labels attached to a single resource. Label keys and values can only contain "
    "lowercase letters, numbers, dashes and underscores. Label keys must start with a letter or number, must be less "
    "than 64 characters in length. Label values must be less than 64 characters in length."
)
_NETWORK = re.compile(r"projects/\d+/global/networks/[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_BUCKET = re.compile(r"gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9](?:/.*)?", re.DOTALL)
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")
_MAX_FLEX_START = 7 * 86_400.0


def find_violations(job: Json) -> Violations:
    """Everything that is wrong with a CustomJob in canonical JSON."""
    name = job.get("displayName", "")
    if not name:
        yield Violation("display_name", "Display name is required.")
    elif len(name) > MAX_DISPLAY_NAME:
        yield Violation(
            "display_name", f"Display name has {len(name)} characters; it must have at most {MAX_DISPLAY_NAME}."
        )
    yield from _find_in_labels(job.get("labels", {}))
    if "jobSpec" not in job:
        yield Violation("job_spec", "Job spec is required.")
        return
    yield from find_in_spec(job["jobSpec"], "job_spec")


def find_in_spec(spec: Json, path: str) -> Violations:
    """Everything that is wrong with a CustomJobSpec."""
    pools = spec.get("workerPoolSpecs", [])
    where = f"{path}.worker_pool_specs"
    if not pools:
        yield Violation(where, "At least one worker pool spec is required.")
    if len(pools) > MAX_POOLS:
        yield Violation(where, f"There are {len(pools)} worker pool specs; there can be at most {MAX_POOLS}.")
    for index, pool in enumerate(pools):
        yield from _find_in_pool(pool, f"{where}[{index}]", primary=index == 0)
    yield from _find_in_scheduling(spec.get("scheduling", {}), pools, f"{path}.scheduling")
    yield from _find_in_tpus(pools, where)
    if spec.get("tensorboard") and not spec.get("serviceAccount"):
        words = f"custom_job.{path}.service_account must be specified when uploading to TensorBoard"
        yield Violation(f"{path}.service_account", words, alone=True)
    if "network" in spec and not _NETWORK.fullmatch(spec["network"]):
        words = f"Network {spec['network']!r} must have the form projects/<project number>/global/networks/<name>."
        yield Violation(f"{path}.network", words)
    prefix = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    if "baseOutputDirectory" in spec and not (prefix and _BUCKET.fullmatch(prefix)):
        field = f"{path}.base_output_directory.output_uri_prefix"
        yield Violation(field, f"The Cloud Storage path {prefix!r} is not valid; it must begin with gs://<bucket>/.")


def _find_in_labels(labels: Mapping[str, str]) -> Violations:
    fine = len(labels) <= MAX_LABELS and all(
        re.fullmatch(r"[a-z0-9][-_a-z0-9]{0,62}", key) and re.fullmatch(r"[-_a-z0-9]{0,63}", value)
        for key, value in labels.items()
    )
    if not fine:
        yield Violation("labels", _LABELS, alone=True)


def _find_in_pool(pool: Json, path: str, *, primary: bool) -> Violations:
    if not pool and not primary:
        return
    count = int(pool.get("replicaCount", 0))
    if ("machineSpec" in pool) != (count != 0):
        yield Violation(path, "Both or none of `machine_spec` and `replica_count` should be specified.", alone=True)
    elif primary and count != 1:
        words = "Replica count for master worker pool (worker_pool_specs[0].replica_count) should be 1."
        yield Violation(f"{path}.replica_count", words, alone=True)
    if count < 0:
        yield Violation(f"{path}.replica_count", f"Replica count {count} must be at least 1.")
    yield from _find_in_machine(pool.get("machineSpec", {}), f"{path}.machine_spec", given="machineSpec" in pool)
    machine_type = pool.get("machineSpec", {}).get("machineType", "")
    yield from _find_in_disk(pool.get("diskSpec", {}), f"{path}.disk_spec", machine_type)
    yield from _find_in_task(pool, path)


def _find_in_machine(machine: Json, path: str, *, given: bool) -> Violations:
    kind, count = machine.get("acceleratorType", ""), machine.get("acceleratorCount", 0)
    machine_type = machine.get("machineType", "")
    if given and not machine_type:
        yield Violation(f"{path}.machine_type", "Machine type is required.")
    if isinstance(kind, int) or (kind and kind not in ENUMS["AcceleratorType"]):
        yield Violation(f"{path}.accelerator_type", f"Accelerator type {kind} is not known.")
    elif count < 0:
        yield Violation(f"{path}.accelerator_count", f"Accelerator count {count} must be at least 0.")
    elif bool(kind) != bool(count):
        words = "Both `accelerator_type` and `accelerator_count` should be specified or none."
        yield Violation(f"{path}.accelerator_type", words)
    elif kind and machine_type:
        words = accelerator_fault(machine_type, kind, count)
        if words:
            yield Violation(f"{path}.accelerator_type", words, alone=True)


def default_disk_type(machine_type: str) -> str:
    """https://cloud.google.com/compute/docs/disks/hyperdisks: the newest machines boot from Hyperdisk alone."""
    return "hyperdisk-balanced" if machine_type.startswith(_HYPERDISK_ONLY) else "pd-ssd"


def _find_in_disk(disk: Json, path: str, machine_type: str) -> Violations:
    kind, size = disk.get("bootDiskType", ""), disk.get("bootDiskSizeGb", 0)
    if kind in BOOT_DISK_TYPES and machine_type.startswith(_HYPERDISK_ONLY) and kind != "hyperdisk-balanced":
        yield Violation(
            f"{path}.boot_disk_type", f"Machine type {machine_type!r} needs boot disk type hyperdisk-balanced."
        )
    if kind and kind not in BOOT_DISK_TYPES:
        yield Violation(
            f"{path}.boot_disk_type", f"Boot disk type {kind!r} must be one of {', '.join(BOOT_DISK_TYPES)}."
        )
    if size and not 100 <= size <= 64_000:
        yield Violation(f"{path}.boot_disk_size_gb", f"Boot disk size {size} must be from 100 to 64000 GB.")


def _find_in_task(pool: Json, path: str) -> Violations:
    container, package = pool.get("containerSpec"), pool.get("pythonPackageSpec")
    if container is None and package is None:
        yield Violation(path, "Either `container_spec` or `python_package_spec` is required.")
    elif container is not None:
        path = f"{path}.container_spec"
        if not container.get("imageUri"):
            yield Violation(f"{path}.image_uri", "Image URI is required.")
        yield from _find_in_environment(container.get("env", []), f"{path}.env")
    elif package is not None:
        yield from _find_in_package(package, f"{path}.python_package_spec")


def _find_in_package(package: Json, path: str) -> Violations:
    uris = package.get("packageUris", [])
    if not package.get("executorImageUri"):
        yield Violation(f"{path}.executor_image_uri", "Executor image URI is required.")
    if not package.get("pythonModule"):
        yield Violation(f"{path}.python_module", "Python module is required.")
    if not 1 <= len(uris) <= 100:
        yield Violation(f"{path}.package_uris", f"There are {len(uris)} package URIs; there must be from 1 to 100.")
    for index, uri in enumerate(uris):
        if not _BUCKET.fullmatch(uri):
            yield Violation(f"{path}.package_uris[{index}]", f"The Cloud Storage path {uri!r} is not valid.")
    yield from _find_in_environment(package.get("env", []), f"{path}.env")


def _find_in_environment(variables: list[Json], path: str) -> Violations:
    if len(variables) > 100:
        yield Violation(path, f"There are {len(variables)} environment variables; there can be at most 100.")
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        if not name or "=" in name or "\0" in name:
            yield Violation(f"{path}[{index}].name", f"Environment variable name {name!r} is not valid.")
        elif "\0" in value:
            yield Violation(
                f"{path}[{index}].value", f"The value of environment variable {name} holds a NUL character."
            )


def _find_in_scheduling(scheduling: Json, pools: list[Json], path: str) -> Violations:
    for field, key in (("timeout", "timeout"), ("max_wait_duration", "maxWaitDuration")):
        if scheduling.get(key, "0s").startswith("-"):
            yield Violation(f"{path}.{field}", f"{field} {scheduling[key]} must not be negative.")
    strategy = scheduling.get("strategy", "")
    if isinstance(strategy, int):
        yield Violation(f"{path}.strategy", f"Strategy {strategy} is not known.")
    if strategy != "FLEX_START":
        return
    machines = [pool["machineSpec"] for pool in pools if "machineSpec" in pool]
    kinds = {machine.get("acceleratorType", "none") for machine in machines}
    if not kinds <= FLEX_START_ACCELERATORS:
        words = f"FLEX_START needs accelerators of {', '.join(sorted(FLEX_START_ACCELERATORS))}."
        yield Violation(f"{path}.strategy", words)
    if len({machine.get("machineType") for machine in machines}) > 1:
        yield Violation(f"{path}.strategy", "FLEX_START needs the same machine type in every worker pool.")
    if float(scheduling.get("timeout", "0s").removesuffix("s")) > _MAX_FLEX_START:
        yield Violation(f"{path}.timeout", "FLEX_START jobs can run for at most 7 days.")


def _find_in_tpus(pools: list[Json], path: str) -> Violations:
    tpus = [pool for pool in pools if str(pool.get("machineSpec", {}).get("acceleratorType", "")).startswith("TPU")]
    if tpus and (len([pool for pool in pools if pool]) > 1 or int(tpus[0].get("replicaCount", 0)) > 1):
        yield Violation(path, "A TPU job has one worker pool with one replica.")
