"""One job of a run trains, whatever races there were before."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Launch
from trainer.errors import AccessDenied, StorageFailed
from trainer.fence import fence_uri, wins


def test_the_fence_stands_beside_the_model() -> None:
    environ = {"AIP_MODEL_DIR": "gs://b/runs/7/model/", "CLOUD_ML_JOB_ID": "11"}
    assert fence_uri(environ) == "gs://b/runs/7/winner"
    assert fence_uri({"AIP_MODEL_DIR": "gs://b/runs/7/model/"}) is None
    assert fence_uri({"CLOUD_ML_JOB_ID": "11"}) is None


def test_one_of_many_wins_in_cloud_storage(gcs_client: Any) -> None:
    gcs_client.create_bucket("fences")
    with ThreadPoolExecutor(8) as pool:
        jobs = [str(number) for number in range(8)]
        outcomes = list(pool.map(lambda job: wins("gs://fences/run/winner", job, primary=True), jobs))
    assert sum(outcomes) == 1
    winner = jobs[outcomes.index(True)]
    assert wins("gs://fences/run/winner", winner, primary=True), "a restart of the same job goes on"
    assert wins("gs://fences/run/winner", winner, primary=False)
    assert not wins("gs://fences/run/winner", "another", primary=False)
    assert wins("gs://fences/new/winner", "any", primary=False), "a worker that asks before its primary goes on"


def test_a_duplicate_ends_well_and_touches_nothing(tmp_path: Path, digits: Path, launch: Launch) -> None:
    (tmp_path / "winner").write_text("1")
    env = {"AIP_MODEL_DIR": f"{tmp_path}/model/", "CLOUD_ML_JOB_ID": "2"}
    (replica,) = launch(["--model=digits", f"--data={digits}"], env=env)
    assert replica.wait(30) == 0
    assert replica.text.startswith("duplicate: ")
    assert [path.name for path in tmp_path.iterdir()] == ["winner"]


class _Denied(BaseHTTPRequestHandler):
    """Cloud Storage as it answers a service account that has no role."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps({"error": {"code": 403, "message": "does not have storage.objects.create access"}}).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_denied_bucket_is_said_in_one_line_before_anything_is_trained(launch: Launch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denied) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{server.server_port}",
            "AIP_MODEL_DIR": "gs://closed/run/model/",
            "CLOUD_ML_JOB_ID": "1",
            "CLOUD_ML_PROJECT_ID": "kickoff-local",
        }
        (replica,) = launch(["--model=digits", "--data=gs://closed/data/"], env=env)
        status = replica.wait(60)
        server.shutdown()
    assert status == AccessDenied.exit_status, replica.text
    assert len(replica.lines) == 1
    assert replica.text.startswith(
        "trainer: cannot create gs://closed/run/winner: the service account is denied access"
    )


def test_an_empty_fence_is_no_other_jobs(tmp_path: Path) -> None:
    """On a disk the file is there before its content: a restart must not take itself for a duplicate."""
    (tmp_path / "winner").touch()
    with pytest.raises(StorageFailed, match="is empty"):
        wins(str(tmp_path / "winner"), "1", primary=True)
