"""What the emulator's tests share: raw calls, specs of small Python replicas, waiting with a deadline."""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deploy.local.job_service.images import Image, read_images
from deploy.local.job_service.states import TERMINAL

Json = dict[str, Any]
PYTHON = "python"
"""An image whose entry point is this interpreter."""
CELL = (
    "import json, os; config = json.loads(os.environ['TF_CONFIG'])\n"
    "print(config['task']['type'], 'of', {key: len(peers) for key, peers in config['cluster'].items()})\n"
)
"""What the codelab's container does here: it says where it stands in its cluster."""
IMAGES = {
    "gcr.io/p/multiworker:*": Image((sys.executable, "-c", CELL)),
    PYTHON: Image((sys.executable,)),
    "instant": Image(instant=0),
    **read_images(None),
}
PARENT = "/v1/projects/p/locations/us-central1"
DEADLINE = 30.0


def call(url: str, verb: str = "GET", body: object = None) -> tuple[int, Any]:
    """(status, parsed answer)."""
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, _read(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _read(error)


def _read(answer: Any) -> Any:
    text = answer.read().decode()
    return json.loads(text) if answer.headers.get_content_type() == "application/json" else text


def pool(code: str, count: int = 1, image: str = PYTHON, **machine: Any) -> Json:
    """A worker pool whose replicas run `code`."""
    return {
        "machineSpec": {"machineType": "n1-standard-4", **machine},
        "replicaCount": count,
        "containerSpec": {"imageUri": image, "args": ["-c", code]},
    }


def job(*pools: Json, name: str = "a job", labels: Json | None = None, **spec: Any) -> Json:
    return {"displayName": name, "labels": labels or {}, "jobSpec": {"workerPoolSpecs": list(pools), **spec}}


class Caller:
    """Calls one emulator."""

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, *pools: Json, **more: Any) -> str:
        """The new job's id."""
        status, answer = self.post(f"{PARENT}/customJobs", job(*pools, **more))
        assert status == 200, answer
        return str(answer["name"]).rpartition("/")[2]

    def refused(self, body: object) -> Json:
        """The error of a create that must not succeed."""
        status, answer = self.post(f"{PARENT}/customJobs", body)
        assert status != 200, answer
        return dict(answer["error"])

    def post(self, path: str, body: object = None) -> tuple[int, Any]:
        return call(self.url + path, "POST", {} if body is None else body)

    def admin(self, path: str, body: object = None) -> Json:
        status, answer = self.post(f"/admin/{path}", body)
        assert status == 200, answer
        return dict(answer)

    def get(self, job_id: str) -> Json:
        status, answer = call(f"{self.url}{PARENT}/customJobs/{job_id}")
        assert status == 200, answer
        return dict(answer)

    def list(self, **query: str) -> list[Json]:
        return list(call(f"{self.url}{PARENT}/customJobs?{urllib.parse.urlencode(query)}")[1].get("customJobs", []))

    def cancel(self, job_id: str) -> None:
        assert self.post(f"{PARENT}/customJobs/{job_id}:cancel")[0] == 200

    def finished(self, job_id: str) -> Json:
        """The job once it has ended."""
        return until(lambda: self.get(job_id), lambda found: found["state"] in TERMINAL)

    def running(self, job_id: str) -> Json:
        return until(lambda: self.get(job_id), lambda found: found["state"] == "JOB_STATE_RUNNING")

    def log(self, job_id: str, task: str) -> str:
        """A task's log, empty where there is none."""
        status, text = call(f"{self.url}/web/{job_id}/{task}")
        return str(text) if status == 200 else ""

    def replicas(self, job_id: str) -> dict[str, int]:
        """Names and process ids of a job's living replicas."""
        living = call(f"{self.url}/admin/jobs")[1]["living"]
        return next((dict(row["replicas"]) for row in living if row["id"] == job_id), {})


T = TypeVar("T")


def until(look: Callable[[], T], good: Callable[[T], Any], seconds: float = DEADLINE) -> T:
    """What `look` gives once it is good. Raises AssertionError at the deadline, with what was seen last."""
    deadline = time.monotonic() + seconds
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"after {seconds} s still {seen!r}"
        time.sleep(0.02)
    return seen


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return state_of(pid) != "Z"
    except OSError:
        return False


def state_of(pid: int) -> str:
    """The process's letter in proc(5): R, S, T, Z, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
