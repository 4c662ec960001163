"""One deployment for one history of disasters: its own project, ledger and buckets; real function processes."""

import base64
import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from kickoff.clients import Clients
from kickoff.events import parse_event
from kickoff.jobs import JobView
from kickoff.ledger import Ledger
from kickoff.runs import Run
from kickoff.settings import Settings
from kickoff.start import start
from kickoff.wiring import sweep_all

from deploy.local.job_service.faults import parse_fault
from deploy.local.job_service.server import JobServiceServer

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-central1"
LEASE, MARGIN = 10.0, 60.0
_projects = itertools.count(1)

RECIPES = """
name: flowers
when: {upload: {bucket: "{project}-data", root: "flowers/", match: "**/*.jpg", complete: {quiet: 1s}}}
job:
  image: "{trainer_image}"
  machine_type: n1-standard-4
  args: {data: "{dataset.snapshot}"}
  output: "gs://{project}-models/flowers/{run_id}"
---
name: plain
when: {message: {}}
job: {image: "{trainer_image}", machine_type: n1-standard-4, output: "gs://{project}-models/plain/{run_id}"}
limits: {max_active: 1}
---
name: long
when: {message: {}}
job:
  image: "us-central1-docker.pkg.dev/{project}/kickoff/long:1"
  machine_type: n1-standard-4
  output: "gs://{project}-models/long/{run_id}"
"""


class Zygote:
    """See zygote.py. Thread-safe."""

    def __init__(self, log: IO[bytes]) -> None:
        environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.zygote"],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._read()

    def ask(self, **command: Any) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            return self._read()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the zygote ended"
        found: dict[str, Any] = json.loads(line)
        return found


@dataclass(frozen=True)
class Services:
    """What all histories share."""

    zygote: Zygote
    vertex: JobServiceServer
    storage: str
    pubsub: str


@dataclass
class Call:
    """One request to one function process."""

    pid: int
    status: int = 0
    """HTTP; 0: the connection broke."""
    body: Any = None
    exit: int | None = None

    @property
    def killed(self) -> bool:
        return self.exit == -signal.SIGKILL


@dataclass
class World:
    services: Services
    folder: Path
    skew: float = 0.0
    """Seconds that the functions' clock is ahead."""
    project: str = field(default_factory=lambda: f"chaos-{next(_projects)}")
    deliveries: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        recipes = self.folder / "recipes"
        recipes.mkdir(parents=True)
        for text in RECIPES.split("---\n"):
            name = text.split("name: ")[1].split("\n")[0]
            (recipes / f"{name}.yaml").write_text(text)
        self.settings = Settings.from_environ(self.environ())
        self.clients = Clients(self.settings)
        self.ledger: Ledger = self.clients.ledger
        self.vertex = self.clients.vertex

    def environ(self) -> dict[str, str]:
        return {
            "KICKOFF_PROJECT": self.project,
            "GOOGLE_CLOUD_PROJECT": self.project,
            "KICKOFF_LEDGER": f"sqlite://{self.folder}/runs.db",
            "KICKOFF_RECIPES": str(self.folder / "recipes"),
            "KICKOFF_VERTEX_ENDPOINT": self.services.vertex.url,
            "KICKOFF_TRAINER_IMAGE": f"{REGION}-docker.pkg.dev/{self.project}/kickoff/trainer:latest",
            "KICKOFF_FINISHED_TOPIC": f"projects/{self.project}/topics/run-finished",
            "KICKOFF_CREATE_TIMEOUT": str(LEASE),
            "KICKOFF_LEASE_MARGIN": str(MARGIN),
            "STORAGE_EMULATOR_HOST": self.services.storage,
            "PUBSUB_EMULATOR_HOST": self.services.pubsub,
        }

    def prepare(self) -> None:
        """Buckets and topics, as the deployment makes them."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        client = storage.Client(
            project=self.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.services.storage},
        )
        for name in ("data", "models", "staging"):
            client.create_bucket(f"{self.project}-{name}")
        self.storage = client
        self._create_topic("run-finished")

    def _create_topic(self, name: str) -> None:
        import grpc
        from google.pubsub_v1 import PublisherClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

        channel = grpc.insecure_channel(self.services.pubsub)
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        client.create_topic(name=f"projects/{self.project}/topics/{name}")
        channel.close()

    def message(self, payload: dict[str, Any], message_id: str | None = None) -> tuple[str, bytes]:
        """The push of a training request; a new message id each time unless one is given."""
        data = base64.b64encode(json.dumps(payload).encode()).decode()
        message = {"data": data, "messageId": message_id or uuid.uuid4().hex, "publishTime": "2026-12-01T00:00:00Z"}
        push = {"message": message, "subscription": f"projects/{self.project}/subscriptions/training-requests-push"}
        return "start_training", json.dumps(push).encode()

    def upload(self, name: str, data: bytes = b"x") -> tuple[str, bytes]:
        """Upload an object; the push of its notification."""
        blob = self.storage.bucket(f"{self.project}-data").blob(name)
        blob.upload_from_string(data)
        resource = {
            "bucket": f"{self.project}-data",
            "name": name,
            "generation": str(blob.generation),
            "size": str(len(data)),
            "crc32c": blob.crc32c,
            "metageneration": "1",
            "kind": "storage#object",
        }
        attributes = {
            "eventType": "OBJECT_FINALIZE",
            "payloadFormat": "JSON_API_V1",
            "bucketId": resource["bucket"],
            "objectId": name,
            "objectGeneration": str(blob.generation),
        }
        message = {
            "data": base64.b64encode(json.dumps(resource).encode()).decode(),
            "attributes": attributes,
            "messageId": uuid.uuid4().hex,
            "publishTime": "2026-12-01T00:00:00Z",
        }
        push = {"message": message, "subscription": f"projects/{self.project}/subscriptions/dataset-uploads-push"}
        return "start_training", json.dumps(push).encode()

    def completion(self, run: Run) -> tuple[str, bytes]:
        """The push of a service log line that tells of the end of the run's job."""
        entry = {
            "insertId": uuid.uuid4().hex,
            "resource": {
                "type": "ml_job",
                "labels": {"job_id": run.job.id if run.job else "", "project_id": self.project, "task_name": "service"},
            },
            "jsonPayload": {"message": "Job completed successfully."},
            "labels": {"ml.googleapis.com/endpoint": ""},
            "logName": f"projects/{self.project}/logs/ml.googleapis.com%2F{run.job.id if run.job else ''}",
            "timestamp": datetime.now(UTC).isoformat(),
            "severity": "INFO",
        }
        data = base64.b64encode(json.dumps(entry).encode()).decode()
        message = {"data": data, "messageId": uuid.uuid4().hex, "publishTime": "2026-12-01T00:00:00Z", "attributes": {}}
        push = {"message": message, "subscription": f"projects/{self.project}/subscriptions/job-logs-push"}
        return "record_completion", json.dumps(push).encode()

    def deliver(self, delivery: tuple[str, bytes], **trouble: str) -> Call:
        """One request to a new process of that function, and its end. `trouble`: variables of points.py."""
        call, connection = self.begin(delivery, **trouble)
        return self.finish(call, connection)

    def begin(self, delivery: tuple[str, bytes], **trouble: str) -> tuple[Call, http.client.HTTPConnection]:
        target, body = delivery
        environ = {**self.environ(), **{f"KICKOFF_{name}": value for name, value in trouble.items()}}
        started = self.services.zygote.ask(target=target, environ=environ, skew=self.skew, requests=1)
        connection = http.client.HTTPConnection("127.0.0.1", started["port"], timeout=60)
        connection.request("POST", "/", body, {"Content-Type": "application/json"})
        return Call(started["pid"]), connection

    def finish(self, call: Call, connection: http.client.HTTPConnection) -> Call:
        try:
            response = connection.getresponse()
            call.status, call.body = response.status, json.loads(response.read() or b"null")
        except (http.client.HTTPException, OSError):
            call.status = 0
        connection.close()
        deadline = time.monotonic() + 60
        while call.exit is None and time.monotonic() < deadline:
            call.exit = self.services.zygote.ask(reap=call.pid)["status"]
            if call.exit is None:
                time.sleep(0.005)
        return call

    def fault(self, method: str, kind: str, **fields: object) -> None:
        """See deploy/local/job_service/faults.py."""
        self.services.vertex.services.faults.add(parse_fault({"method": method, "kind": kind, **fields}))

    def await_quiet(self, seconds: float) -> None:
        """Cloud Storage's own clock decides about quiet datasets, and nobody moves that one."""
        time.sleep(seconds)

    def sweep(self, **trouble: str) -> Call:
        return self.deliver(("sweep", b""), **trouble)

    def later(self, seconds: float = LEASE + MARGIN + 1) -> None:
        self.skew += seconds

    def heal(self) -> None:
        """Everything is delivered again, then swept until nothing is left to do: the same code, in this process."""
        self.services.vertex.services.faults.clear()
        for _, body in self.deliveries:
            start(parse_event("POST", "/", {"content-type": "application/json"}, body), self.clients, self.now)
        report = None
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            self.later()
            report = sweep_all(self.clients, self.now)
            runs = self.runs()
            if runs and all(run.terminal and run.finished_published for run in runs) and not self.going():
                return
            self._end_long_jobs()
            # A dataset becomes quiet by Cloud Storage's clock, which nobody moves, and a job takes its time to stop.
            time.sleep(0.4 if not runs or self.going() else 0)
        raise AssertionError(f"not quiet: {[(run.run_id, run.state, run.notes) for run in self.runs()]}, {report}")

    def _end_long_jobs(self) -> None:
        """What runs until someone stops it is stopped once it is the only job left."""
        going = self.going()
        if len({job.labels["kickoff-run"] for job in going}) == len(going):
            for job in going:
                self.vertex.cancel(job.name)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.skew)

    def runs(self) -> list[Run]:
        return self.ledger.find_runs(limit=1000, oldest_first=True)

    def jobs(self, run: Run) -> list[JobView]:
        return self.vertex.find_by_run(self.project, run.region, run.run_id)

    def going(self) -> list[JobView]:
        return self.vertex.list_active(self.project, REGION)

    def close(self) -> None:
        self.ledger.close()


def await_stopped(pid: int, seconds: float = 30) -> None:
    """Until the process has stopped itself (SIGSTOP)."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the process did not reach its point"
        time.sleep(0.01)


@contextmanager
def pubsub_server() -> Iterator[str]:
    """The Pub/Sub emulator as a process of its own; its gRPC address."""
    command = [sys.executable, "-m", "deploy.local.pubsub", "--port", "0"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout
        yield process.stdout.readline().decode().split("grpc ")[1].split()[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
