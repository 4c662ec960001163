"""What some jobs need before their replicas can start: Python packages installed, buckets brought to ``/gcs``.

Python packages go into an environment of the job's own, made over the local interpreter's: what that has is
there, as in a prebuilt image; what the package needs besides is installed, and nothing outside the job changes.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deploy.local.job_service.buckets import BucketError, Stamp, fetch_bucket, fetch_object, scan, store_changes

Json = dict[str, Any]
_MOUNTED = re.compile(r"/gcs/([a-z0-9][-_.a-z0-9]{1,220}[a-z0-9])")
_PIP = re.compile(r"\bpip3?\b")
_INSTALL_SECONDS = 600


class PreparationFailed(Exception):
    """The job cannot start. `replica` is the one that the service would have blamed; `output` what it said."""

    def __init__(self, words: str, replica: str = "", output: str = "") -> None:
        super().__init__(words)
        self.replica = replica
        self.output = output


@dataclass
class Prepared:
    """What was made ready."""

    pythons: dict[int, Path] = field(default_factory=dict)
    """The interpreter of a pool's own environment."""
    gcs: Path | None = None
    """The folder to be seen at ``/gcs``."""
    buckets: dict[str, dict[str, Stamp]] = field(default_factory=dict)

    def store_changes(self) -> int:
        """Write what the replicas changed below ``/gcs`` back to the buckets. Raises BucketError, OSError."""
        folder, count = self.gcs or Path(), 0
        for name, before in self.buckets.items():
            count += store_changes(name, folder / name, before)
            self.buckets[name] = scan(folder / name)
        return count


def find_buckets(spec: Json) -> list[str]:
    """The buckets that a command line or a variable names as ``/gcs/<bucket>``. Pure."""
    texts = (text for pool in spec["workerPoolSpecs"] for text in _texts(pool))
    return sorted({bucket for text in texts for bucket in _MOUNTED.findall(text)})


def needs_environment(pool: Json) -> bool:
    """Whether the pool installs packages: by its spec, or because its command says pip. Pure."""
    return "pythonPackageSpec" in pool or any(_PIP.search(text) for text in _texts(pool, environment=False))


def needs_preparation(spec: Json) -> bool:
    """Whether `prepare` has anything to do. Pure."""
    return bool(find_buckets(spec)) or any(map(needs_environment, spec["workerPoolSpecs"]))


def prepare(spec: Json, folder: Path, environ: Mapping[str, str], mounts: Sequence[str] = ()) -> Prepared:
    """Install what the pools need, and bring the buckets that they name, and `mounts`, to ``/gcs``.

    Raises PreparationFailed. Takes as long as pip and the buckets take.
    """
    try:
        return _prepare(spec, folder, environ, sorted({*find_buckets(spec), *mounts}))
    except OSError as error:
        raise PreparationFailed(f"the job's files could not be made ready: {error}") from None


def _prepare(spec: Json, folder: Path, environ: Mapping[str, str], buckets: list[str]) -> Prepared:
    prepared = Prepared()
    made: dict[tuple[str, ...], Path] = {}
    for number, pool in enumerate(spec["workerPoolSpecs"]):
        if int(pool.get("replicaCount", 0)) and needs_environment(pool):
            uris = tuple(pool.get("pythonPackageSpec", {}).get("packageUris", ()))
            if uris not in made:
                made[uris] = _make_environment(folder / f"environment{number}", environ)
                _install(made[uris], uris, folder / f"packages{number}", environ, f"workerpool{number}-0")
            prepared.pythons[number] = made[uris]
    try:
        for bucket in buckets:
            prepared.gcs = folder / "gcs"
            prepared.buckets[bucket] = fetch_bucket(bucket, prepared.gcs / bucket)
    except BucketError as error:
        raise PreparationFailed(f"/gcs/{bucket} could not be mounted: {error}") from None
    return prepared


def map_paths(argv: list[str], gcs: Path) -> list[str]:
    """The command line with ``/gcs/`` replaced, for machines that allow no mount. Pure."""
    return [_MOUNTED.sub(lambda match: f"{gcs}/{match[1]}", word) for word in argv]


def _texts(pool: Json, *, environment: bool = True) -> Iterator[str]:
    task = pool.get("containerSpec") or pool.get("pythonPackageSpec") or {}
    yield from (*task.get("command", ()), *task.get("args", ()))
    if environment:
        yield from (variable.get("value", "") for variable in task.get("env", ()))


def _make_environment(folder: Path, environ: Mapping[str, str]) -> Path:
    """A virtual environment that sees this interpreter's packages; its interpreter."""
    command = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(folder)]
    _run(command, environ, "a Python environment could not be made")
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "local_interpreter.pth").write_text("".join(f"{path}\n" for path in here))
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{python}" -m pip "$@"\n')
        script.chmod(0o755)
    return python


def _install(python: Path, uris: tuple[str, ...], folder: Path, environ: Mapping[str, str], replica: str) -> None:
    files = []
    for uri in uris:
        target = folder / uri.rpartition("/")[2]
        try:
            fetch_object(uri, target)
        except BucketError as error:
            raise PreparationFailed(f"The package {uri} could not be fetched: {error}", replica) from None
        files.append(str(target))
    if files:
        options = ["--disable-pip-version-check", "--no-input", "--no-warn-script-location", "--no-warn-conflicts"]
        options += ["--no-build-isolation"] if find_spec("setuptools") else []
        words = f"The replica {replica} exited with a non-zero status of 1: pip could not install {', '.join(uris)}"
        _run([str(python), "-m", "pip", "install", *options, *files], environ, words, replica)
    shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], environ: Mapping[str, str], words: str, replica: str = "") -> None:
    own = {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET")}
    try:
        run = subprocess.run(
            command,
            env=own | {"PWD": os.sep},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_INSTALL_SECONDS,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreparationFailed(f"{words}: {error}", replica) from None
    if run.returncode:
        raise PreparationFailed(words, replica, run.stdout)
