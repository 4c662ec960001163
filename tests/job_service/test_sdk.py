"""The stock clients over REST, unchanged but for their endpoint: google.cloud.aiplatform and JobServiceClient."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform, storage
from google.cloud.aiplatform import jobs, training_jobs
from google.cloud.aiplatform_v1 import JobServiceClient, JobState
from PIL import Image

from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import Caller, until
from tests.job_service.conformance import conforms
from tests.job_service.test_buckets import PREBUILT, WHEEL, build_wheel
from tests.job_service.test_buckets import objects as objects  # the fixture

SDK, CLIENT = "google-cloud-aiplatform", "aiplatform_v1.JobServiceClient"
PARENT = "projects/p/locations/us-central1"
SERVING = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"


def pool(code: str, count: int = 1, **machine: Any) -> dict[str, Any]:
    return {
        "machine_spec": {"machine_type": "n1-standard-4", **machine},
        "replica_count": count,
        "container_spec": {"image_uri": "python", "args": ["-c", code]},
    }


@pytest.fixture(scope="module")
def sdk(server: JobServiceServer) -> Iterator[Caller]:
    """`aiplatform` pointed at the emulator, and polling fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_JOB_WAIT_TIME", 0.05)
        patch.setattr(training_jobs, "_JOB_WAIT_TIME", 0.05)
        aiplatform.init(
            project="p",
            location="us-central1",
            staging_bucket="gs://stuff",
            credentials=AnonymousCredentials(),
            api_endpoint=server.url,
            api_transport="rest",
        )
        yield Caller(server.url)


@conforms(SDK, "CustomJob.run", "runs every replica, waits, SUCCEEDED; times, labels and name are set")
def test_a_custom_job_runs(sdk: Caller) -> None:
    job = aiplatform.CustomJob("a job", [pool("print(1)"), pool("print(2)", 2)], labels={"team": "ml"})
    job.run(timeout=600, restart_job_on_worker_restart=True)
    assert job.state == JobState.JOB_STATE_SUCCEEDED
    assert job.labels == {"team": "ml"}
    assert job.create_time <= job.start_time <= job.end_time
    assert aiplatform.CustomJob.get(job.resource_name).display_name == "a job"


@conforms(SDK, "CustomJob.run (codelab, multi-worker)", "the cell as written: two pools of one V100 each")
def test_the_multi_worker_cell_of_the_codelab(sdk: Caller) -> None:
    worker_pool_specs = [
        {
            "replica_count": 1,
            "machine_spec": {
                "machine_type": "n1-standard-8",
                "accelerator_type": "NVIDIA_TESLA_V100",
                "accelerator_count": 1,
            },
            "container_spec": {"image_uri": "gcr.io/p/multiworker:cassava"},
        }
    ] * 2
    my_multiworker_job = aiplatform.CustomJob(
        display_name="multiworker-cassava-sdk", worker_pool_specs=worker_pool_specs, staging_bucket="gs://stuff"
    )
    my_multiworker_job.run()
    assert my_multiworker_job.state == JobState.JOB_STATE_SUCCEEDED
    assert sdk.log(my_multiworker_job.name, "workerpool0-0") == "chief of {'chief': 1, 'worker': 1}\n"


@conforms(SDK, "CustomJob.run (failing)", "RuntimeError with the service's sentence and the last lines")
def test_a_failure_reaches_the_caller(sdk: Caller) -> None:
    job = aiplatform.CustomJob("failing", [pool("raise SystemExit('no data')")])
    with pytest.raises(RuntimeError, match=r"replica workerpool0-0 exited with a non-zero status of 1(?s:.*)no data"):
        job.run()
    assert job.error.code == 13


@conforms(SDK, "CustomJob.submit, cancel, delete", "CANCELLED with error code 1; then gone")
def test_submit_cancel_delete(sdk: Caller) -> None:
    job = aiplatform.CustomJob("sleeper", [pool("import time; time.sleep(60)")])
    job.submit(enable_web_access=True)
    until(lambda: job.state, lambda state: state == JobState.JOB_STATE_RUNNING)
    assert set(job.web_access_uris) == {"workerpool0-0"}
    job.cancel()
    until(lambda: job.state, lambda state: state == JobState.JOB_STATE_CANCELLED)
    assert job.error.code == 1
    name = job.resource_name
    job.delete()
    with pytest.raises(exceptions.NotFound):
        aiplatform.CustomJob.get(name)


@conforms(SDK, "CustomJob.list(filter, order_by)", "filters of AIP-160 by display name, state, labels and times")
def test_list(sdk: Caller) -> None:
    job = aiplatform.CustomJob("listed", [pool("")], labels={"listed": "yes"})
    job.run()
    for text in ('display_name="listed"', "labels.listed=yes", 'labels.listed:* AND state="JOB_STATE_SUCCEEDED"'):
        assert [found.resource_name for found in aiplatform.CustomJob.list(filter=text)] == [job.resource_name]
    assert aiplatform.CustomJob.list(filter='display_name="listed"', order_by="create_time")


@conforms(SDK, "CustomJob.from_local_script (prebuilt image)", "the package is built, uploaded, installed, run")
def test_from_local_script(sdk: Caller, objects: storage.Bucket, tmp_path: Path) -> None:
    script = tmp_path / "task.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], os.environ['GREETING'], os.environ['AIP_MODEL_DIR'])\n")
    job = aiplatform.CustomJob.from_local_script(
        "local script",
        script_path=str(script),
        container_uri=PREBUILT,
        args=["--epochs", "2"],
        environment_variables={"GREETING": "hello"},
        base_output_dir="gs://stuff/out",
        staging_bucket="gs://stuff",
    )
    job.run()
    assert sdk.log(job.name, "workerpool0-0").splitlines()[-1] == "['--epochs', '2'] hello gs://stuff/out/model/"


@conforms(SDK, "CustomContainerTrainingJob.run", "a pipeline, its CustomJob, and a Model at <output>/model")
def test_a_container_training_job_makes_a_model(sdk: Caller, server: JobServiceServer) -> None:
    job = aiplatform.CustomContainerTrainingJob(
        "container",
        container_uri="python",
        command=[sys.executable, "-c", "import os, sys; print(sys.argv[1:], os.environ['A'])"],
        model_serving_container_image_uri=SERVING,
    )
    model = job.run(
        args=["--x", 1, 2.5],
        environment_variables={"A": "b"},
        base_output_dir="gs://stuff/model-out",
        model_display_name="flowers",
    )
    assert (model.display_name, model.uri) == ("flowers", "gs://stuff/model-out/model")
    backing = job.gca_resource.training_task_metadata["backingCustomJob"].rpartition("/")[2]
    assert sdk.log(backing, "workerpool0-0") == "['--x', '1', '2.5'] b\n"
    assert job.resource_name in [found.resource_name for found in aiplatform.CustomContainerTrainingJob.list()]
    job.delete()


@conforms(SDK, "CustomContainerTrainingJob.run (codelab, 2 GPUs)", "our trainer: MirroredStrategy over two devices")
def test_the_two_accelerator_cell_of_the_codelab(sdk: Caller, objects: storage.Bucket, tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for number in range(8):
            Image.new("L", (8, 8), number * 30).save(tmp_path / name / f"{number}.png")
    job = aiplatform.CustomContainerTrainingJob(
        display_name="flowers-multi-gpu",
        container_uri="us-central1-docker.pkg.dev/p/kickoff/trainer:single_machine",
        staging_bucket="gs://stuff",
    )
    words = ["--data", tmp_path, "--output", tmp_path / "out" / "model", "--model", "digits", "--epochs", 1]
    job.run(
        args=[word if isinstance(word, int) else str(word) for word in [*words, "--batch-size", 2]],
        replica_count=1,
        machine_type="n1-standard-4",
        accelerator_type="NVIDIA_TESLA_V100",
        accelerator_count=2,
    )
    backing = job.gca_resource.training_task_metadata["backingCustomJob"].rpartition("/")[2]
    if not Path("/dev/nvidia0").exists():
        assert "strategy mirrored: chief 0, 2 replicas" in sdk.log(backing, "workerpool0-0")


@conforms(SDK, "CustomContainerTrainingJob.run (failing)", "RuntimeError; PIPELINE_STATE_FAILED")
def test_a_failing_pipeline(sdk: Caller) -> None:
    job = aiplatform.CustomContainerTrainingJob(
        "failing", container_uri="python", command=[sys.executable, "-c", "raise SystemExit(2)"]
    )
    with pytest.raises(RuntimeError, match="exited with a non-zero status of 2"):
        job.run(base_output_dir="gs://stuff/x")
    assert job.has_failed


@conforms(SDK, "CustomPythonPackageTrainingJob.run", "the package is installed for the job alone, and run")
def test_a_python_package_training_job(sdk: Caller, objects: storage.Bucket) -> None:
    uri = f"gs://stuff/sdk/{WHEEL}"
    objects.blob(f"sdk/{WHEEL}").upload_from_string(build_wheel("import sys; print(sys.argv)\n"))
    job = aiplatform.CustomPythonPackageTrainingJob(
        "package", python_package_gcs_uri=uri, python_module_name="mine", container_uri=PREBUILT
    )
    job.run(args=["--a"], base_output_dir="gs://stuff/x")
    backing = job.gca_resource.training_task_metadata["backingCustomJob"].rpartition("/")[2]
    assert sdk.log(backing, "workerpool0-0").splitlines()[-1].endswith("mine.py', '--a']")


@pytest.fixture(scope="module")
def client(server: JobServiceServer) -> JobServiceClient:
    options = {"api_endpoint": server.url}
    return JobServiceClient(transport="rest", client_options=options, credentials=AnonymousCredentials())


@conforms(CLIENT, "create_custom_job, get_custom_job, list_custom_jobs", "create, read, pages")
def test_the_low_level_client(client: JobServiceClient) -> None:
    spec = {"worker_pool_specs": [pool("")], "scheduling": {"timeout": {"seconds": 3600}}}
    parent = "projects/low/locations/us-central1"
    names = [
        client.create_custom_job(parent=parent, custom_job={"display_name": f"low {n}", "job_spec": spec}).name
        for n in range(3)
    ]
    assert client.get_custom_job(name=names[0]).job_spec.scheduling.timeout.seconds == 3600
    listed = client.list_custom_jobs({"parent": parent, "page_size": 2})
    assert [found.name for found in listed] == names[::-1]


def custom_job(code: str, count: int = 1) -> dict[str, Any]:
    return {"display_name": "x", "job_spec": {"worker_pool_specs": [pool(code, count)]}}


@conforms(CLIENT, "cancel_custom_job, delete_custom_job", "CANCELLING at once; a done operation")
def test_the_low_level_client_cancels_and_deletes(client: JobServiceClient) -> None:
    job = client.create_custom_job(parent=PARENT, custom_job=custom_job("import time; time.sleep(60)"))
    client.cancel_custom_job(name=job.name)
    state = client.get_custom_job(name=job.name).state
    assert state in (JobState.JOB_STATE_CANCELLING, JobState.JOB_STATE_CANCELLED)
    until(lambda: client.get_custom_job(name=job.name).state, lambda found: found == JobState.JOB_STATE_CANCELLED)
    client.delete_custom_job(name=job.name).result(timeout=10)
    with pytest.raises(exceptions.NotFound):
        client.get_custom_job(name=job.name)


@conforms(CLIENT, "errors", "BadRequest for every 400, NotFound, Forbidden, ServiceUnavailable")
def test_errors_become_the_clients_exceptions(client: JobServiceClient, sdk: Caller) -> None:
    with pytest.raises(exceptions.BadRequest, match=r"worker_pool_specs\[0\].replica_count\) should be 1"):
        client.create_custom_job(parent=PARENT, custom_job=custom_job("", 2))
    with pytest.raises(exceptions.NotFound):
        client.get_custom_job(name=f"{PARENT}/customJobs/7")
    with pytest.raises(exceptions.Forbidden, match="CONSUMER_INVALID"):
        client.list_custom_jobs(parent="projects/No Such/locations/us-central1")
    sdk.admin("faults", {"method": "create", "kind": "status", "status": 503})
    with pytest.raises(exceptions.ServiceUnavailable):
        client.create_custom_job(parent=PARENT, custom_job=custom_job(""))
    done = client.create_custom_job(parent=PARENT, custom_job=custom_job(""))
    until(lambda: client.get_custom_job(name=done.name).state, lambda found: found == JobState.JOB_STATE_SUCCEEDED)
    with pytest.raises(exceptions.BadRequest, match="cannot be cancelled"):
        client.cancel_custom_job(name=done.name)
