"""What an answer of the JobService says: over the wire, from the emulator and from a server that misbehaves."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from kickoff.errors import JobRejected, QuotaExceeded, VertexUnavailable
from kickoff.jobs import NONCE_LABEL
from kickoff.settings import Settings
from kickoff.vertex import Vertex

from tests.kickoff.lab import Lab
from tests.kickoff.making import make_custom_job

NAME = "projects/p/locations/us-central1/customJobs/1"


def test_a_job_is_created_found_read_and_cancelled(lab: Lab) -> None:
    place = (lab.project, "us-central1")
    first = lab.vertex.create(*place, make_custom_job("flowers-1", "idle"), "aaaa")
    second = lab.vertex.create(*place, make_custom_job("flowers-1", "idle"), "bbbb")
    lab.vertex.create(*place, make_custom_job("flowers-2", "instant"), "cccc")
    assert [job.id for job in lab.vertex.find_by_run(*place, "flowers-1")] == [first.id, second.id]
    assert [job.labels[NONCE_LABEL] for job in lab.vertex.find_by_run(*place, "flowers-1")] == ["aaaa", "bbbb"]
    assert {job.id for job in lab.vertex.list_active(*place)} >= {first.id, second.id}
    lab.vertex.cancel(first.name)
    found = lab.vertex.get(first.name)
    assert found and found.state in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")
    assert found.create_time and found.create_time.tzinfo
    assert json.dumps(found.record().model_dump(mode="json"))


def test_a_job_that_is_gone_or_has_ended_is_no_error_to_cancel(lab: Lab) -> None:
    job = lab.vertex.create(lab.project, "us-central1", make_custom_job("flowers-1"), "aaaa")
    lab.vertex.cancel(job.name)
    lab.vertex.cancel(job.name.replace(job.id, "404404"))
    assert lab.vertex.get(job.name.replace(job.id, "404404")) is None


def test_a_list_of_several_pages_is_read_to_its_end(lab: Lab) -> None:
    for n in range(103):
        lab.vertex.create(lab.project, "us-central1", make_custom_job("flowers-1"), f"{n:04}")
    assert len(lab.vertex.find_by_run(lab.project, "us-central1", "flowers-1")) == 103


def test_a_job_that_cannot_be_written_as_a_message_is_refused_before_it_is_sent(lab: Lab) -> None:
    wrong: list[dict[str, Any]] = [
        {"jobSpec": {"replicaCounts": 1}},
        {"labels": 7},
        {"jobSpec": 7},
        {"labels": {"a": 7}},
    ]
    for job in wrong:
        with pytest.raises(JobRejected, match="the CustomJob is not valid"):
            lab.vertex.create(lab.project, "us-central1", job, "aaaa")


class Misbehaving(BaseHTTPRequestHandler):
    """Answers each request with what the test asks for, and counts them."""

    status, body, content_type, requests = 200, b"", "application/json", 0

    def do_POST(self) -> None:
        type(self).requests += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def misbehaving() -> Iterator[Vertex]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Misbehaving.requests = 0
    environ = {"KICKOFF_PROJECT": "p", "KICKOFF_VERTEX_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    yield Vertex(Settings.from_environ({**environ, "KICKOFF_CREATE_TIMEOUT": "5"}))
    server.shutdown()
    server.server_close()


def _error(code: int, status: str, message: str, reason: str = "") -> bytes:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    return json.dumps({"error": {"code": code, "status": status, "message": message, "details": details}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, _error(400, "INVALID_ARGUMENT", "List of found errors: 1."), JobRejected),
        (403, _error(403, "PERMISSION_DENIED", "Permission denied on resource project."), JobRejected),
        (403, _error(403, "PERMISSION_DENIED", "Quota exceeded", "RATE_LIMIT_EXCEEDED"), QuotaExceeded),
        (404, b"<html>not found</html>", JobRejected),
        (409, _error(409, "ALREADY_EXISTS", "there"), JobRejected),
        (409, _error(409, "ABORTED", "try again"), VertexUnavailable),
        (429, _error(429, "RESOURCE_EXHAUSTED", "Quota exceeded for custom_model_training_cpus"), QuotaExceeded),
        (408, b"", VertexUnavailable),
        (499, _error(499, "CANCELLED", "client closed"), VertexUnavailable),
        (500, _error(500, "INTERNAL", "oops"), VertexUnavailable),
        (501, b"", VertexUnavailable),
        (503, b"<html>", VertexUnavailable),
        (504, _error(504, "DEADLINE_EXCEEDED", "late"), VertexUnavailable),
        (200, b"<html>a proxy's page</html>", VertexUnavailable),
        (200, b'{"name": 7', VertexUnavailable),
        (200, b"{}", VertexUnavailable),
        (302, b"", VertexUnavailable),
    ],
)
def test_every_answer_to_a_create_is_classified_and_nothing_is_sent_twice(
    misbehaving: Vertex, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, expected: type[Exception]
) -> None:
    monkeypatch.setattr(Misbehaving, "status", status)
    monkeypatch.setattr(Misbehaving, "body", body)
    with pytest.raises(expected):
        misbehaving.create("p", "us-central1", make_custom_job("flowers-1"), "aaaa")
    assert Misbehaving.requests == 1


def test_vertex_s_own_words_are_kept(misbehaving: Vertex, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Replica count for master worker pool (worker_pool_specs[0].replica_count) should be 1."
    monkeypatch.setattr(Misbehaving, "status", 400)
    monkeypatch.setattr(Misbehaving, "body", _error(400, "INVALID_ARGUMENT", words))
    with pytest.raises(JobRejected) as caught:
        misbehaving.create("p", "us-central1", make_custom_job("flowers-1"), "aaaa")
    assert (str(caught.value), caught.value.code) == (words, 400)


@pytest.mark.filterwarnings("ignore:Unrecognized JobState")
def test_a_state_newer_than_this_code_keeps_its_number(misbehaving: Vertex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "body", json.dumps({"name": NAME, "state": 42, "newField": {}}).encode())
    found = misbehaving.get(NAME)
    assert found and found.state == "JOB_STATE_42"
    assert not found.ended


def test_nobody_listening_is_unavailable() -> None:
    vertex = Vertex(Settings.from_environ({"KICKOFF_PROJECT": "p", "KICKOFF_VERTEX_ENDPOINT": "http://127.0.0.1:9"}))
    with pytest.raises(VertexUnavailable):
        vertex.create("p", "us-central1", make_custom_job("flowers-1"), "aaaa")


def test_each_region_has_its_own_endpoint_and_plain_http_never_gets_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endpoint(of: Vertex, region: str) -> str:
        return str(of._client(region).transport.host)

    local = Vertex(Settings.from_environ({"KICKOFF_PROJECT": "p", "KICKOFF_VERTEX_ENDPOINT": "http://127.0.0.1:9"}))
    assert endpoint(local, "europe-west4") == endpoint(local, "us-central1") == "http://127.0.0.1:9"
    assert type(local._client("us-central1").transport._credentials).__name__ == "AnonymousCredentials"
    monkeypatch.setattr("google.auth.default", lambda *args, **kwargs: (AnonymousCredentials(), "p"))
    cloud = Vertex(Settings.from_environ({"KICKOFF_PROJECT": "p", "KICKOFF_REGION": "us-central1"}))
    assert endpoint(cloud, "europe-west4") == "https://europe-west4-aiplatform.googleapis.com"
    assert endpoint(cloud, "us-central1") == "https://us-central1-aiplatform.googleapis.com"
