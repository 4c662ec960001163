"""The functions' source as Cloud Functions gets it: packed, unpacked into an empty environment that has what
functions/requirements.txt names and nothing else, and driven by functions-framework against the JobService emulator."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.gcp.pack import FUNCTIONS, pack, source_files
from deploy.local.job_service.images import parse_images
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer

PYTHONS = os.environ.get("KICKOFF_PYTHONS", sys.executable).split(":")
"""Each of them in turn; the functions are deployed on 3.12."""

IMAGE = "us-central1-docker.pkg.dev/kickoff-local/kickoff/trainer:latest"
TOPIC = "/projects/kickoff-local/topics"


def test_packing_is_repeatable_and_whole(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip")
    pack(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    packed = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {"main.py", "requirements.txt", "policy.yaml", "recipes/digits.yaml", "kickoff/settings.py"} <= set(packed)
    assert packed == [path.relative_to(FUNCTIONS).as_posix() for path in source_files(FUNCTIONS)]
    assert not [name for name in packed if name.endswith(".pyc") or name.startswith(("tests", "trainer", "deploy"))]


def test_a_folder_without_main_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no main\.py"):
        pack(tmp_path / "a.zip", tmp_path)
    assert not (tmp_path / "a.zip").exists()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, unpacked where nothing else of the checkout is."""
    folder = tmp_path_factory.mktemp("source")
    pack(folder / "functions.zip")
    zipfile.ZipFile(folder / "functions.zip").extractall(folder / "workspace")
    return folder / "workspace"


@pytest.fixture(scope="module", params=PYTHONS)
def python(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has the functions' requirements alone."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([request.param, "-m", "venv", str(folder)], check=True, timeout=120)
    program = str(folder / "bin" / "python")
    argv = [program, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*argv, "-r", str(source / "requirements.txt")], check=True, timeout=400)
    return program


@contextmanager
def serving(python: str, target: str, source: Path, environ: dict[str, str]) -> Iterator[str]:
    """The URL of one function, run as the Python buildpack runs it, in a process group that is ended afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [python, "-m", "functions_framework", "--target", target, "--host", "127.0.0.1", "--port", str(port)]
    clean = {"PATH": os.environ["PATH"], "HOME": str(source.parent), "NO_PROXY": "127.0.0.1", **environ}
    process = subprocess.Popen(argv, cwd=source, env=clean, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None and time.monotonic() < deadline, f"{target} did not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def pushed(data: dict[str, Any], subscription: str, number: int) -> dict[str, Any]:
    """The body of a Pub/Sub push."""
    message = {"data": base64.b64encode(json.dumps(data).encode()).decode(), "messageId": str(number)}
    return {"message": message, "subscription": f"projects/kickoff-local/subscriptions/{subscription}"}


@pytest.mark.timeout(900)
def test_the_packed_source_starts_a_job_and_records_its_end(python: str, source: Path, tmp_path: Path) -> None:
    images = parse_images(json.dumps({IMAGE: "instant"}), "tests")
    pools = [
        {
            "machine_spec": {"machine_type": "n1-standard-4"},
            "replica_count": 1,
            "container_spec": {"image_uri": IMAGE},
        }
    ]
    request = {"worker_pool_specs": pools, "scheduling": {"timeout": "3600s"}, "idempotency_key": "packed"}
    with JobServiceServer(Options(state=tmp_path / "vertex", images=images)) as vertex:
        environ = {
            "KICKOFF_PROJECT": "kickoff-local",
            "KICKOFF_LEDGER": f"sqlite://{tmp_path}/runs.db",
            "KICKOFF_VERTEX_ENDPOINT": vertex.url,
            "KICKOFF_TRAINER_IMAGE": IMAGE,
        }
        with serving(python, "start_training", source, environ) as url:
            (first,) = post(url, pushed(request, "training-requests-push", 1))
            (again,) = post(url, pushed(request, "training-requests-push", 2))
        assert (first["outcome"], again["outcome"]) == ("accepted", "duplicate"), (first, again)
        assert first["run_id"] == again["run_id"]
        with serving(python, "record_completion", source, environ) as url:
            hint = {"resource": {"type": "ml_job", "labels": {"job_id": job_id(vertex), "task_name": "service"}}}
            line = {**hint, "textPayload": "Job completed successfully.", "insertId": "1"}
            recorded = post(url, pushed(line, "job-logs-push", 3))
        assert (recorded["outcome"], recorded["run_id"]) == ("recorded", first["run_id"]), recorded


def job_id(vertex: JobServiceServer) -> str:
    """The one job that there is, once it has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with urllib.request.urlopen(
            f"{vertex.url}/v1/projects/kickoff-local/locations/us-central1/customJobs"
        ) as answer:
            (job,) = json.load(answer)["customJobs"]
        if job["state"] == "JOB_STATE_SUCCEEDED":
            return str(job["name"].rpartition("/")[2])
        time.sleep(0.2)
    raise AssertionError("the job did not end within 60 s")


def test_the_requirements_hold_nothing_of_the_trainer_or_the_tools() -> None:
    names = {line.partition("==")[0].lower() for line in (FUNCTIONS / "requirements.txt").read_text().splitlines()}
    assert not names & {"tensorflow", "tf-keras", "keras", "pillow", "typer", "rich", "grpcio", "scikit-learn"}
