"""Log entries: kept, listed, and sent to a topic as a Cloud Logging sink sends them."""

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.job_service.calls import Caller, call, pool, until

Json = dict[str, Any]
LINES = [
    "Waiting for job to be provisioned.",
    "Vertex AI is provisioning job running framework.",
    "Vertex AI is setting up this job.",
    "Waiting for training program to start.",
    "Job is preparing.",
    "Job is running.",
    "Tearing down training program.",
    "Finished tearing down training program.",
    "Job completed successfully.",
]


@pytest.fixture(scope="module")
def job_id(server: JobServiceServer) -> str:
    """A job that wrote on both streams, some of it JSON, and once without a last newline."""
    code = (
        "import json, sys, time\n"
        "print('out'); print(json.dumps({'message': 'structured', 'n': 1}))\n"
        "print('Job completed successfully.', flush=True); time.sleep(0.1)\n"
        "sys.stderr.buffer.write(b'TF says hello\\r\\nno newline \\xff')\n"
    )
    caller = Caller(server.url)
    found = caller.create(pool(code))
    assert caller.finished(found)["state"] == "JOB_STATE_SUCCEEDED"
    return found


def entries(caller: Caller, job_id: str, more: str = "", **fields: Any) -> list[Json]:
    body = {
        "resourceNames": ["projects/p"],
        "filter": f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"{more}',
    }
    status, answer = caller.post("/v2/entries:list", body | fields)
    assert status == 200, answer
    return list(answer.get("entries", []))


def test_the_services_lines_come_in_vertexs_words_and_order(caller: Caller, job_id: str) -> None:
    found = entries(caller, job_id, ' AND resource.labels.task_name="service"')
    assert [entry["textPayload"] for entry in found] == LINES
    assert {entry["severity"] for entry in found} == {"INFO"}
    assert found[0]["resource"] == {
        "type": "ml_job",
        "labels": {"job_id": job_id, "project_id": "p", "task_name": "service"},
    }
    assert caller.log(job_id, "service").splitlines() == LINES


def test_a_replicas_streams_have_severities_and_timestamps(caller: Caller, job_id: str) -> None:
    found = entries(caller, job_id, ' AND resource.labels.task_name="workerpool0-0"')
    assert [(entry["severity"], entry["jsonPayload"]["message"]) for entry in found][:4] == [
        ("INFO", "out"),
        ("INFO", "structured"),
        ("INFO", "Job completed successfully."),
        ("ERROR", "TF says hello"),
    ]
    assert found[1]["jsonPayload"]["n"] == 1
    assert len(found) == 5
    assert found[4]["jsonPayload"]["message"].startswith("no newline")
    assert [entry["timestamp"] for entry in found] == sorted(entry["timestamp"] for entry in found)
    assert len({entry["insertId"] for entry in found}) == 5


@pytest.mark.parametrize(
    ("more", "count"),
    [
        (' AND timestamp>="2000-01-01T00:00:00+00:00"', 14),
        (' AND timestamp<"2000-01-01T00:00:00Z"', 0),
        (" AND severity>=ERROR", 2),
        (" severity=ERROR", 2),
        (' AND (jsonPayload.message="out" OR textPayload="Job is running.")', 2),
        (' AND NOT resource.labels.task_name="service"', 5),
        (' AND jsonPayload.message:"NEWLINE"', 1),
        (' AND insertId>"000000000012"', 1),
    ],
)
def test_filters_of_entries(caller: Caller, job_id: str, more: str, count: int) -> None:
    assert len(entries(caller, job_id, more)) == count


def test_entries_come_in_pages_and_either_order(caller: Caller, job_id: str) -> None:
    body: Json = {"filter": f'resource.labels.job_id="{job_id}"', "pageSize": 10}
    first = caller.post("/v2/entries:list", body)[1]
    second = caller.post("/v2/entries:list", body | {"pageToken": first["nextPageToken"]})[1]
    assert (len(first["entries"]), len(second["entries"])) == (10, 4)
    assert "nextPageToken" not in second
    assert caller.post("/v2/entries:list", body | {"pageToken": "3"})[0] == 400
    backwards = entries(caller, job_id, orderBy="timestamp desc")
    assert backwards == (first["entries"] + second["entries"])[::-1]


@pytest.mark.parametrize(
    "text", ["resource.type=", "a=b AND (", ")", "timestamp>yesterday AND resource.labels.job_id=7"]
)
def test_a_filter_that_cannot_be_read_gets_400(caller: Caller, text: str) -> None:
    assert caller.post("/v2/entries:list", {"filter": text})[0] == 400


def test_the_link_in_a_failure_leads_to_the_log(caller: Caller) -> None:
    job_id = caller.create(pool("raise SystemExit('that was it')"))
    link = caller.finished(job_id)["error"]["message"].rpartition(" ")[2]
    status, text = call(link)
    assert status == 200
    assert "ERROR   workerpool0-0: that was it\n" in text


class Topic(BaseHTTPRequestHandler):
    """A Pub/Sub endpoint that keeps what is published and refuses the first request."""

    published: list[tuple[str, Json]]
    refusals: int

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = type(self).refusals > 0
        type(self).refusals -= 1
        if not refused:
            type(self).published += [(self.path, message) for message in body["messages"]]
        self.send_response(503 if refused else 200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Topic]]:
    Topic.published, Topic.refusals = [], 1
    with HTTPServer(("127.0.0.1", 0), Topic) as endpoint:
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{endpoint.server_address[1]}")
        yield Topic
        endpoint.shutdown()


def test_service_lines_go_to_the_topic_in_order_and_once(options: Options, topic: type[Topic]) -> None:
    with JobServiceServer(replace(options, logs_topic="projects/p/topics/job-logs")) as server:
        caller = Caller(server.url)
        job_id = caller.create(pool("print('Job completed successfully.')"))
        caller.finished(job_id)
        until(lambda: list(topic.published), lambda found: len(found) >= len(LINES))
    assert {path for path, _ in topic.published} == {"/v1/projects/p/topics/job-logs:publish"}
    sent = [json.loads(base64.b64decode(message["data"])) for _, message in topic.published]
    assert [entry["textPayload"] for entry in sent] == LINES
    assert {entry["resource"]["labels"]["task_name"] for entry in sent} == {"service"}
    assert topic.published[0][1]["attributes"] == {"logging.googleapis.com/timestamp": sent[0]["timestamp"]}
    assert sent[0]["logName"] == f"projects/p/logs/ml.googleapis.com%2F{job_id}"
