"""Turns a replica into a process: its command line, its environment, its ports, its folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.local.job_service.environment import Ports, Replica, build_environment, is_reduction_server
from deploy.local.job_service.images import Image, build_argv
from deploy.local.job_service.marked import VARIABLE
from deploy.local.job_service.mounting import can_mount, wrap
from deploy.local.job_service.ports import HeldPort, hold_port
from deploy.local.job_service.preparing import Prepared, map_paths
from deploy.local.job_service.processes import start_process

Json = dict[str, Any]
_NOT_PASSED = ("CLUSTER_SPEC", "TF_CONFIG", "AIP_", "CLOUD_ML_", "KICKOFF_")
"""What the emulator's own environment does not hand on: a replica has these from its job alone."""


class Launcher:
    """Starts the replicas of one job."""

    def __init__(self, job_id: str, spec: Json, state: Path, *, project_number: str, region: str) -> None:
        self.prepared = Prepared()
        self._job_id = job_id
        self._spec = spec
        self._state = state.absolute()
        self._project_number, self._region = project_number, region
        self._held: dict[Replica, tuple[HeldPort, HeldPort, HeldPort]] = {}

    @property
    def folder(self) -> Path:
        return self._state / "jobs" / self._job_id

    @property
    def mark(self) -> str:
        """How the job's processes are found again: see `marked`."""
        return f"{self._state}#{self._job_id}#"

    def hold_ports(self, replicas: list[Replica]) -> None:
        """New ports for every replica. Raises OSError."""
        self.release_ports()
        for replica in replicas:
            self._held[replica] = (hold_port(), hold_port(), hold_port())

    def release_ports(self) -> None:
        for held in self._held.values():
            for port in held:
                port.release()
        self._held.clear()

    def start(self, replica: Replica, image: Image) -> "subprocess.Popen[bytes]":
        """Raises OSError or ValueError where it cannot be started."""
        pool = self._spec["workerPoolSpecs"][replica.pool]
        argv = list(build_argv(pool, image))
        if not argv:
            raise OSError("No command specified")
        python = self.prepared.pythons.get(replica.pool)
        if python and argv[0] == sys.executable:
            argv[0] = str(python)
        environ = self._environ(replica, python)
        if self.prepared.gcs:
            argv, environ = self._with_buckets(argv, environ, replica)
        for port in self._held[replica]:
            port.hand_over()
        return start_process(argv, environ, self.folder / replica.name)

    def base_environ(self) -> dict[str, str]:
        """What the emulator hands on of its own environment, with the mark of the job."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
        own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own.get('PATH', os.defpath)}"
        return own | {"PYTHONUNBUFFERED": "1", VARIABLE: self.mark}

    def notes(self) -> Iterator[str]:
        """What people should know about how this machine differs from the one that was asked for."""
        for number, pool in enumerate(self._spec["workerPoolSpecs"]):
            count = count_cpu_devices(pool)
            if count:
                kind = pool["machineSpec"].get("acceleratorType")
                yield f"This machine has no {kind}: workerpool{number}'s replicas see {count} CPU devices each instead."
            if is_reduction_server(pool):
                yield f"workerpool{number} is a reduction server: it idles here, all-reduce goes between the workers."

    def _environ(self, replica: Replica, python: Path | None) -> dict[str, str]:
        environ = self.base_environ() | {VARIABLE: f"{self.mark}{replica.name}"}
        if python:
            environ["PATH"] = f"{python.parent}{os.pathsep}{environ['PATH']}"
            environ |= {"VIRTUAL_ENV": str(python.parents[1]), "PYTHONUSERBASE": str(python.parents[1] / "user")}
            environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
            # pip reads these two backwards: no isolated build, which needs a network; no look at every package's needs.
            environ |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_WARN_CONFLICTS": "0"}
        devices = count_cpu_devices(self._spec["workerPoolSpecs"][replica.pool])
        if devices:
            environ["KICKOFF_CPU_DEVICES"] = str(devices)
        ports = {other: Ports(*(port.number for port in held)) for other, held in self._held.items()}
        names = {"job_id": self._job_id, "project_number": self._project_number, "region": self._region}
        return environ | build_environment(self._spec, replica, ports, **names)

    def _with_buckets(
        self, argv: list[str], environ: Mapping[str, str], replica: Replica
    ) -> tuple[list[str], dict[str, str]]:
        """The command with ``/gcs`` mounted, or, where the machine allows no mount, with its paths mapped."""
        assert self.prepared.gcs
        if can_mount(self._state / "mounts"):
            root = self.folder / f"{replica.name}-root"
            root.mkdir(exist_ok=True)
            return wrap(argv, root, self.prepared.gcs), dict(environ)
        mapped = map_paths(list(environ.values()), self.prepared.gcs)
        return map_paths(argv, self.prepared.gcs), dict(zip(environ, mapped, strict=True))


def count_cpu_devices(pool: Json) -> int:
    """How many CPU devices stand in for the accelerators of a pool; 0 where there are none or they are real."""
    count = int(pool.get("machineSpec", {}).get("acceleratorCount", 0))
    return 0 if Path("/dev/nvidia0").exists() else count
