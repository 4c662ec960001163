"""`kickoff tensorboard` over fake-gcs-server: copies are whole, and TensorBoard gets their folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from kickoff.ledger import open_ledger
from kickoff.runs import Run, State

from tests.kickoff.making import make_run
from tests.kickoff.uploading import storage_server
from tests.local.test_cli import kickoff

BUCKET = "kickoff-local-models"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    with storage_server() as url:
        client = storage.Client("p", credentials=AnonymousCredentials(), client_options={"api_endpoint": url})
        yield client.create_bucket(BUCKET)


@pytest.fixture
def environ(tmp_path: Path, bucket: Any) -> dict[str, str]:
    """A deployment without TensorBoard: nothing but an empty folder is on the PATH."""
    (tmp_path / "bin").mkdir()
    return {
        "KICKOFF_PROJECT": "kickoff-local",
        "KICKOFF_LEDGER": f"sqlite://{tmp_path}/runs.db",
        "STORAGE_EMULATOR_HOST": os.environ["STORAGE_EMULATOR_HOST"],
        "PATH": str(tmp_path / "bin"),
    }


def record(environ: dict[str, str], name: str, **fields: Any) -> Run:
    ledger = open_ledger(environ["KICKOFF_LEDGER"])
    run = ledger.create_run(make_run(name, state=State.SUCCEEDED, **fields))
    ledger.close()
    return run


def write(bucket: Any, run: Run, name: str, data: bytes) -> None:
    bucket.blob(f"flowers/{run.run_id}/logs/{name}").upload_from_string(data)


def test_logs_are_copied_and_what_to_install_is_said(environ: dict[str, str], bucket: Any, tmp_path: Path) -> None:
    run = record(environ, "a")
    write(bucket, run, "events.out.tfevents.1", b"scalars")
    write(bucket, run, "plugins/profile/1/host.pb", b"profile")
    write(bucket, run, "../../../../escaped", b"outside")
    folder = tmp_path / "boards"
    done = kickoff("tensorboard", run.run_id, "--folder", str(folder), **environ)
    assert done.returncode == 1
    assert "pip install tensorboard" in done.stderr and f"--logdir {folder}" in done.stderr
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        f"{run.run_id}/events.out.tfevents.1": b"scalars",
        f"{run.run_id}/plugins/profile/1/host.pb": b"profile",
    }
    assert not list(tmp_path.rglob("escaped"))


def test_several_runs_are_shown_in_one_board(environ: dict[str, str], bucket: Any, tmp_path: Path) -> None:
    """TensorBoard itself is 30 MB that no test needs: a program of its name tells how it was called."""
    program = tmp_path / "bin" / "tensorboard"
    program.write_text('#!/bin/sh\necho "called with $*"\nexit 3\n')
    program.chmod(0o755)
    runs = [record(environ, name) for name in ("b", "c")]
    for run in runs:
        write(bucket, run, "events.out.tfevents.1", b"scalars")
    folder = tmp_path / "boards"
    done = kickoff("tensorboard", *(run.run_id for run in runs), "--folder", str(folder), "--port", "7007", **environ)
    assert done.returncode == 3, done.stderr
    assert f"called with --logdir {folder} --port 7007" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == sorted(run.run_id for run in runs)


def test_a_run_without_logs_says_so(environ: dict[str, str], tmp_path: Path) -> None:
    run = record(environ, "empty")
    done = kickoff("tensorboard", run.run_id, "--folder", str(tmp_path / "x"), **environ)
    assert (done.returncode, "left no TensorBoard logs" in done.stderr) == (1, True)
    refused = record(environ, "refused", custom_job={})
    done = kickoff("tensorboard", refused.run_id, "--folder", str(tmp_path / "x"), **environ)
    assert (done.returncode, "has no output directory" in done.stderr) == (1, True)
