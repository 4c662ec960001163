"""Vertex AI's documented rules over a CustomJob in REST JSON, all faults at once. Pure.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec
Where Vertex AI's own words are known (public reports), they are used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kickoff.errors import Fault
from kickoff.faults import KeyPath, fault, shown
from kickoff.labels import MAX_DISPLAY_NAME
from kickoff.machines import BOOT_DISK_TYPES, FLEX_START_ACCELERATORS, accelerator_fault
from kickoff.spec_fields import snake
from kickoff.spec_values import EMAIL, ENV_NAME, GCS, IMAGE, KMS_KEY, MACHINE, NETWORK, TENSORBOARD, seconds, timeout_of

Json = Mapping[str, Any]

MAX_POOLS = 4
MAX_ENV = 100
MAX_PACKAGES = 100
MAX_FLEX_START = 7 * 86400

RESERVED_ENV = "KICKOFF_"


@dataclass
class Rules:
    """Checks one job. `camel` says how the request spelled its fields, so that paths read as it does."""

    camel: bool = False
    pools_key: str = "workerPoolSpecs"
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def check(self, job: Json, prefix: KeyPath = (), spec_key: str = "jobSpec") -> None:
        """`prefix` and `spec_key` place the job in what the user wrote."""
        name = job.get("displayName", "")
        if not 1 <= len(name) <= MAX_DISPLAY_NAME:
            self._add((*prefix, "displayName"), f"has {len(name)} characters; it must have 1 to {MAX_DISPLAY_NAME}")
        key = job.get("encryptionSpec", {}).get("kmsKeyName", "")
        if "encryptionSpec" in job and not KMS_KEY.fullmatch(key):
            self._add(
                (*prefix, "encryptionSpec", "kmsKeyName"),
                f"is {shown(key)}; it must be projects/P/locations/L/keyRings/R/cryptoKeys/K",
            )
        self.spec(job.get("jobSpec", {}), (*prefix, spec_key) if spec_key else prefix)

    def spec(self, spec: Json, path: KeyPath) -> None:
        pools = spec.get("workerPoolSpecs", [])
        where = (*path, self.pools_key)
        if not pools:
            self._add(where, "is empty; at least the primary replica's pool is needed")
        if len(pools) > MAX_POOLS:
            self._add(
                where,
                f"has {len(pools)} pools; at most {MAX_POOLS} are possible: primary, workers, servers, evaluators",
            )
        for index, pool in enumerate(pools):
            self._pool(pool, index, (*where, index), bool(spec.get("persistentResourceId")))
        self._scheduling(spec, path)
        self._tpu(pools, where)
        self._names(spec, path)

    def _pool(self, pool: Json, index: int, path: KeyPath, persistent: bool) -> None:
        if not pool:
            if index == 0:
                self._add(path, "is empty; pool 0 is the primary replica and cannot be skipped")
            return
        machine, count = pool.get("machineSpec"), pool.get("replicaCount")
        if (machine is None) != (count is None) or (machine is None and not persistent):
            self._add(path, "needs both: Both or none of `machine_spec` and `replica_count` should be specified.")
        if index == 0 and count is not None and count != 1:
            words = "Replica count for master worker pool (worker_pool_specs[0].replica_count) should be 1."
            self._add((*path, "replicaCount"), f"is {count}; it must be 1. Vertex AI: {words}")
        elif count is not None and count < 1:
            self._add((*path, "replicaCount"), f"is {count}; it must be at least 1")
        if machine is not None:
            self._machine(machine, (*path, "machineSpec"))
        self._task(pool, path)
        self._disk(pool, (*path, "diskSpec"))
        for kind in ("nfsMounts", "lustreMounts"):
            for mount, item in enumerate(pool.get(kind, [])):
                needed = ("server", "path", "mountPoint") if kind == "nfsMounts" else ("instanceIp", "mountPoint")
                self._require(item, needed, (*path, kind, mount))

    def _machine(self, machine: Json, path: KeyPath) -> None:
        kind, accelerator = machine.get("machineType", ""), machine.get("acceleratorType", "")
        count = machine.get("acceleratorCount", 0)
        if not kind:
            self._add((*path, "machineType"), "is missing")
        elif not MACHINE.fullmatch(kind):
            self._add((*path, "machineType"), f"is {shown(kind)}; it must be a machine type such as n1-standard-4")
        if "tpuTopology" in machine:
            if accelerator or count:
                self._add(
                    (*path, "tpuTopology"), "cannot go with accelerator_type and accelerator_count; leave them out"
                )
            return
        if bool(accelerator) != (count > 0) or count < 0:
            words = "Both `accelerator_type` and `accelerator_count` should be specified or none."
            self._add((*path, "acceleratorType"), f"is {accelerator or 'not set'} and the count is {count}. {words}")
        elif accelerator and kind and (problem := accelerator_fault(kind, accelerator, count)):
            self._add(
                (*path, "acceleratorCount" if "count" in problem else "acceleratorType"), f"is refused: {problem}"
            )

    def _task(self, pool: Json, path: KeyPath) -> None:
        container, package = pool.get("containerSpec"), pool.get("pythonPackageSpec")
        names = " and ".join(self._case(each) for each in ("containerSpec", "pythonPackageSpec"))
        if container is not None and package is not None:
            self._add(path, f"has {names}; exactly one of them is possible")
        elif container is None and package is None:
            self._add(path, f"has neither of {names}; exactly one of them is needed")
        if container is not None:
            self._image(container, "imageUri", (*path, "containerSpec"))
            self._env(container, (*path, "containerSpec", "env"))
        if package is not None:
            self._package(package, (*path, "pythonPackageSpec"))

    def _package(self, package: Json, path: KeyPath) -> None:
        self._image(package, "executorImageUri", path)
        self._env(package, (*path, "env"))
        self._require(package, ("pythonModule",), path)
        uris = package.get("packageUris", [])
        if not 1 <= len(uris) <= MAX_PACKAGES:
            self._add((*path, "packageUris"), f"has {len(uris)} entries; it must have 1 to {MAX_PACKAGES}")
        for index, uri in enumerate(uris):
            where = (*path, "packageUris", index)
            if not GCS.fullmatch(uri):
                self._add(where, f"is {shown(uri)}; it must be gs://bucket/object")
            elif not uri.endswith((".tar.gz", ".zip", ".whl")):
                self._warn(where, f"is {shown(uri)}, which pip will not install: it is no .tar.gz, .zip or .whl")
        for index, text in enumerate(package.get("args", [])):
            if text.startswith(("/tmp/", "/home/", "/Users/")):
                self._warn((*path, "args", index), f"is {shown(text)}, a path on the sender's disk, not gs:// or /gcs/")

    def _image(self, task: Json, name: str, path: KeyPath) -> None:
        image = task.get(name, "")
        if not image:
            self._add((*path, name), "is missing")
        elif not IMAGE.fullmatch(image) or ".." in image:
            self._add(
                (*path, name),
                f"is {shown(image)}; it must be an image with its registry: HOST/PROJECT/REPOSITORY/IMAGE:TAG",
            )

    def _env(self, task: Json, path: KeyPath) -> None:
        env = task.get("env", [])
        if len(env) > MAX_ENV:
            self._add(path, f"has {len(env)} variables; at most {MAX_ENV} are possible")
        seen: set[str] = set()
        for index, item in enumerate(env):
            name = item.get("name", "")
            if not ENV_NAME.fullmatch(name):
                self._add((*path, index, "name"), f"is {shown(name)}; it must be a C identifier")
            elif name in seen:
                self._add((*path, index, "name"), f"is {shown(name)}, which is set twice")
            seen.add(name)

    def _disk(self, pool: Json, path: KeyPath) -> None:
        disk = pool.get("diskSpec", {})
        kind, size = disk.get("bootDiskType", "pd-ssd"), disk.get("bootDiskSizeGb", 100)
        if kind not in BOOT_DISK_TYPES:
            self._add((*path, "bootDiskType"), f"is {shown(kind)}; it must be one of {', '.join(BOOT_DISK_TYPES)}")
        if not 100 <= size <= 64000:
            self._add((*path, "bootDiskSizeGb"), f"is {size}; it must be 100 to 64000")
        if pool.get("machineSpec", {}).get("machineType", "").startswith("a3-ultragpu") and kind.startswith("pd-"):
            self._add((*path, "bootDiskType"), f"is {kind}; a3-ultragpu machines need hyperdisk-balanced")

    def _scheduling(self, spec: Json, path: KeyPath) -> None:
        scheduling = spec.get("scheduling", {})
        where = (*path, "scheduling")
        if "timeout" in scheduling and seconds(scheduling["timeout"]) < 1:
            self._add((*where, "timeout"), f"is {scheduling['timeout']}; it must be at least 1s")
        if scheduling.get("strategy") != "FLEX_START":
            return
        if timeout_of(spec) > MAX_FLEX_START:
            self._add((*where, "timeout"), f"is {timeout_of(spec)}s; FLEX_START allows {MAX_FLEX_START}s at most")
        machines = [pool.get("machineSpec", {}) for pool in spec.get("workerPoolSpecs", []) if pool]
        types = sorted({machine.get("acceleratorType", "none") for machine in machines})
        if bad := [each for each in types if each not in FLEX_START_ACCELERATORS]:
            allowed = ", ".join(sorted(FLEX_START_ACCELERATORS))
            self._add(
                (*where, "strategy"), f"is FLEX_START, with accelerator {', '.join(bad)}; it must be one of {allowed}"
            )
        if len({machine.get("machineType") for machine in machines}) > 1:
            self._add((*where, "strategy"), "is FLEX_START; every pool must have the same machine type")

    def _tpu(self, pools: list[Json], path: KeyPath) -> None:
        machines = [pool.get("machineSpec", {}) for pool in pools if pool]
        if not any("tpuTopology" in each or each.get("acceleratorType", "").startswith("TPU") for each in machines):
            return
        if sum(pool.get("replicaCount", 1) for pool in pools if pool) > 1:
            self._add(path, "has a TPU and several replicas; a TPU job has one pool with one replica")

    def _names(self, spec: Json, path: KeyPath) -> None:
        account, board = spec.get("serviceAccount", ""), spec.get("tensorboard", "")
        checks: tuple[tuple[str, re.Pattern[str], str], ...] = (
            ("serviceAccount", EMAIL, "the e-mail address of a service account"),
            ("network", NETWORK, "projects/NUMBER/global/networks/NAME, with the project's number"),
            ("tensorboard", TENSORBOARD, "projects/P/locations/L/tensorboards/ID"),
        )
        for name, pattern, words in checks:
            if spec.get(name) and not pattern.fullmatch(spec[name]):
                self._add((*path, name), f"is {shown(spec[name])}; it must be {words}")
        if board and not account:
            self._add((*path, "serviceAccount"), "must be specified when uploading to TensorBoard, and is missing")
        output = spec.get("baseOutputDirectory")
        if output is not None and not GCS.fullmatch(output.get("outputUriPrefix", "")):
            found = shown(output.get("outputUriPrefix", ""))
            self._add((*path, "baseOutputDirectory", "outputUriPrefix"), f"is {found}; it must be gs://bucket/prefix")

    def _require(self, value: Json, names: tuple[str, ...], path: KeyPath) -> None:
        for name in names:
            if not value.get(name):
                self._add((*path, name), "is missing")

    def _case(self, name: str) -> str:
        return name if self.camel else snake(name)

    def _path(self, path: KeyPath) -> KeyPath:
        return tuple(self._case(part) if isinstance(part, str) else part for part in path)

    def _add(self, path: KeyPath, rest: str) -> None:
        self.faults.append(fault(self._path(path), rest))

    def _warn(self, path: KeyPath, rest: str) -> None:
        self.warnings.append(fault(self._path(path), rest).message)
