"""`gcloud ai custom-jobs`, stable and beta, with nothing set but endpoints."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import IMAGES, Caller
from tests.job_service.conformance import conforms

GCLOUD = "gcloud"
REGION = "--region=us-central1"
pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="the Google Cloud CLI is not installed"),
]


class Cloud:
    """Runs gcloud against the emulator."""

    def __init__(self, url: str, folder: Path) -> None:
        self.environ = {
            **os.environ,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{url}/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_PROJECT": "p",
            "CLOUDSDK_CONFIG": str(folder),
        }

    def run(self, *arguments: str) -> str:
        command = ["gcloud", *arguments, REGION]
        run = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=150)
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """An emulator whose clock nobody puts forward: gcloud asks for entries up to now."""
    with JobServiceServer(Options(state=tmp_path_factory.mktemp("gcloud"), images=IMAGES, grace=0.5)) as server:
        yield Caller(server.url)


@pytest.fixture(scope="module")
def cloud(caller: Caller, tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    return Cloud(caller.url, tmp_path_factory.mktemp("gcloud-config"))


@pytest.fixture(scope="module")
def created(cloud: Cloud) -> str:
    """A job made from flags; its id."""
    answer = cloud.run(
        "ai", "custom-jobs", "create", "--display-name=flags", "--labels=made=flags", "--format=json",
        "--worker-pool-spec=machine-type=n1-standard-4,replica-count=1,container-image-uri=python",
        "--worker-pool-spec=machine-type=n1-standard-4,replica-count=2,container-image-uri=python",
        "--command=python3", "--args=-c,print('from gcloud')",
    )  # fmt: skip
    return str(json.loads(answer)["name"]).rpartition("/")[2]


@conforms(GCLOUD, "ai custom-jobs create (flags)", "the job runs; labels and pools as given")
def test_create_from_flags(caller: Caller, created: str) -> None:
    found = caller.finished(created)
    assert (found["state"], found["labels"]) == ("JOB_STATE_SUCCEEDED", {"made": "flags"})
    assert [pool["replicaCount"] for pool in found["jobSpec"]["workerPoolSpecs"]] == ["1", "2"]


@conforms(GCLOUD, "ai custom-jobs describe", "state and times")
def test_describe(cloud: Cloud, caller: Caller, created: str) -> None:
    caller.finished(created)
    described = json.loads(cloud.run("ai", "custom-jobs", "describe", created, "--format=json"))
    assert described == caller.get(created)


@conforms(GCLOUD, "ai custom-jobs stream-logs", "the service's lines and the replicas', in order, to the end")
def test_stream_logs(cloud: Cloud, caller: Caller, created: str) -> None:
    caller.finished(created)
    text = cloud.run("ai", "custom-jobs", "stream-logs", created, "--polling-interval=1")
    assert text.index("Waiting for job to be provisioned.") < text.index("Job is running.")
    assert "workerpool0-0" in text
    assert "from gcloud" in text
    assert "Job completed successfully." in text


@conforms(GCLOUD, "beta ai custom-jobs create --config", "YAML in camelCase; v1beta1")
def test_create_from_a_config_file(cloud: Cloud, caller: Caller, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(
        "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-4}\n  replicaCount: 1\n"
        "  containerSpec: {imageUri: python, args: ['-c', 'import time; time.sleep(60)']}\n"
        "scheduling: {timeout: 7200s, strategy: SPOT}\n"
    )
    flags = ["--display-name=config", f"--config={config}", "--format=json"]
    answer = cloud.run("beta", "ai", "custom-jobs", "create", *flags)
    job_id = str(json.loads(answer)["name"]).rpartition("/")[2]
    assert caller.running(job_id)["jobSpec"]["scheduling"] == {"timeout": "7200s", "strategy": "SPOT"}
    cancelled(cloud, caller, job_id)


@conforms(GCLOUD, "ai custom-jobs cancel", "CANCELLED")
def cancelled(cloud: Cloud, caller: Caller, job_id: str) -> None:
    cloud.run("ai", "custom-jobs", "cancel", job_id)
    assert caller.finished(job_id)["state"] == "JOB_STATE_CANCELLED"


@conforms(GCLOUD, "beta ai custom-jobs list --filter", "the jobs that match")
def test_list(cloud: Cloud, created: str) -> None:
    listed = json.loads(cloud.run("beta", "ai", "custom-jobs", "list", "--filter=labels.made=flags", "--format=json"))
    assert [row["name"].rpartition("/")[2] for row in listed] == [created]
