"""Python packages and ``/gcs``, against the real Cloud Storage emulator."""

import io
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from deploy.local.job_service.environment import Json
from deploy.local.job_service.mounting import can_mount
from deploy.local.job_service.preparing import find_buckets, map_paths, needs_environment
from deploy.local.processes import free_port, listens
from deploy.local.stack import storage_binary
from tests.job_service.calls import Caller, pool, until

WHEEL = "mine-1-py3-none-any.whl"
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"


@pytest.fixture(scope="module")
def objects() -> Iterator[storage.Bucket]:
    """A bucket named ``stuff``; STORAGE_EMULATOR_HOST leads to it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    flags = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", url, "-backend", "memory"]
    with (
        subprocess.Popen([storage_binary(), *flags, "-log-level", "error"]) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        until(lambda: listens(port), bool)
        patch.setenv("STORAGE_EMULATOR_HOST", url)
        client = storage.Client(project="p", credentials=AnonymousCredentials())
        yield client.create_bucket("stuff")
        process.terminate()


def build_wheel(body: str, requires: str = "") -> bytes:
    """A package of one module, ``mine``. A wheel, since pip builds an sdist with seconds of setuptools."""
    info = "mine-1.dist-info"
    requires = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        "mine.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: mine\nVersion: 1\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def package_pool(uri: str, *args: str, count: int = 1) -> Json:
    spec = {"executorImageUri": PREBUILT, "packageUris": [uri], "pythonModule": "mine", "args": list(args)}
    return {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": count, "pythonPackageSpec": spec}


def test_a_python_package_is_installed_for_its_job_alone(caller: Caller, objects: storage.Bucket) -> None:
    body = "import sys, mine, pydantic\nprint(sys.argv[1:], mine.__file__, pydantic.__name__)\n"
    objects.blob(f"one/{WHEEL}").upload_from_string(build_wheel(body, "pydantic"))
    job_id = caller.create(package_pool(f"gs://stuff/one/{WHEEL}", "--epochs=3"))
    found = caller.finished(job_id)
    log = caller.log(job_id, "workerpool0-0")
    assert found["state"] == "JOB_STATE_SUCCEEDED", (found.get("error"), log)
    assert log.startswith("['--epochs=3']")
    assert f"{job_id}/environment0/" in log
    assert log.endswith("pydantic\n")
    with pytest.raises(ModuleNotFoundError):
        __import__("mine")


def test_a_package_that_cannot_be_installed_fails_the_job_with_pips_words(
    caller: Caller, objects: storage.Bucket
) -> None:
    objects.blob("pkg/train.py").upload_from_string(b"print(1)")
    job_id = caller.create(package_pool("gs://stuff/pkg/train.py"))
    found = caller.finished(job_id)
    assert found["state"] == "JOB_STATE_FAILED"
    assert (
        "workerpool0-0 exited with a non-zero status of 1: pip could not install gs://stuff/pkg/train.py"
        in found["error"]["message"]
    )
    assert "ERROR" in caller.log(job_id, "workerpool0-0")
    gone = caller.finished(caller.create(package_pool("gs://stuff/no/such.tar.gz")))
    assert "gs://stuff/no/such.tar.gz could not be fetched" in gone["error"]["message"]


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "mapped"])
def test_buckets_are_at_gcs_and_what_is_written_there_is_stored(
    caller: Caller, objects: storage.Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mounted: bool
) -> None:
    if not mounted:
        monkeypatch.setattr("deploy.local.job_service.launching.can_mount", lambda scratch: False)
    elif not can_mount(tmp_path):
        pytest.skip("this machine lets no process have mounts of its own")
    objects.blob("in/a b.txt").upload_from_string(b"hello")
    objects.blob("out.txt").upload_from_string(b"old")
    code = (
        "import os, pathlib, sys; source, target = map(pathlib.Path, sys.argv[1:])\n"
        "print(source.read_text(), os.environ['DATA'] + '|', os.getcwd(), flush=True)\n"
        "target.write_text(source.read_text() + ' again'); (target.parent / 'new' / 'x').parent.mkdir(exist_ok=True)\n"
        "(target.parent / 'new' / 'x').write_text('x')\n"
    )
    one = pool(code)
    one["containerSpec"]["args"] += ["/gcs/stuff/in/a b.txt", "/gcs/stuff/out.txt"]
    one["containerSpec"]["env"] = [{"name": "DATA", "value": "/gcs/stuff/in"}]
    job_id = caller.create(one)
    found = caller.finished(job_id)
    log = caller.log(job_id, "workerpool0-0")
    assert found["state"] == "JOB_STATE_SUCCEEDED", (found.get("error"), log)
    assert log.startswith("hello ")
    assert ("hello /gcs/stuff/in|" in log) == mounted
    assert objects.blob("out.txt").download_as_bytes() == b"hello again"
    assert objects.blob("new/x").download_as_bytes() == b"x"
    assert not Path("/gcs/stuff").exists()


def test_a_command_that_calls_pip_installs_into_its_jobs_own_environment(
    caller: Caller, objects: storage.Bucket
) -> None:
    """The command that `CustomJob.from_local_script` writes for an image of one's own, but for its pip upgrade."""
    objects.blob(f"two/{WHEEL}").upload_from_string(build_wheel("import mine; print(mine.__file__)\n"))
    one = pool("")
    shell = f"pip3 install -q --user /gcs/stuff/two/{WHEEL} && python3 -m mine"
    one["containerSpec"] = {"imageUri": "python", "command": ["sh", "-c", shell]}
    job_id = caller.create(one)
    found = caller.finished(job_id)
    log = caller.log(job_id, "workerpool0-0")
    assert found["state"] == "JOB_STATE_SUCCEEDED", (found.get("error"), log)
    assert f"{job_id}/environment0/user/" in log


def test_what_a_failed_job_wrote_is_stored_too(caller: Caller, objects: storage.Bucket) -> None:
    one = pool("import sys; open(sys.argv[1], 'w').write('checkpoint'); sys.exit(1)")
    one["containerSpec"]["args"].append("/gcs/stuff/checkpoint")
    assert caller.finished(caller.create(one))["state"] == "JOB_STATE_FAILED"
    assert objects.blob("checkpoint").download_as_bytes() == b"checkpoint"


def test_a_bucket_that_is_not_there_fails_the_job(caller: Caller, objects: storage.Bucket) -> None:
    one = pool("")
    one["containerSpec"]["args"].append("/gcs/nowhere/x")
    found = caller.finished(caller.create(one))
    assert found["state"] == "JOB_STATE_FAILED"
    assert "/gcs/nowhere could not be mounted" in found["error"]["message"]


def test_what_needs_preparing_is_seen_in_the_spec() -> None:
    package: Json = {"packageUris": ["gs://b-1/x.tar.gz"], "args": ["--out=/gcs/b-2/y"]}
    package["env"] = [{"name": "A", "value": "/gcs/b.3"}]
    shell = {"imageUri": "i", "command": ["sh", "-c", "pip3 install -q --user /gcs/b-4/p.tar.gz && python3 -m t"]}
    pools: list[Json] = [{"pythonPackageSpec": package}, {}, {"containerSpec": shell}, pool("print('pipeline')")]
    spec = {"workerPoolSpecs": pools}
    assert find_buckets(spec) == ["b-2", "b-4", "b.3"]
    assert [needs_environment(one) for one in pools] == [True, False, True, False]
    assert map_paths(["--x=/gcs/b-4/p", "gs://b-4/p"], Path("/s")) == ["--x=/s/b-4/p", "gs://b-4/p"]
