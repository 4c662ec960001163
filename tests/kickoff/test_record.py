"""record.py over the real parts: SQLite, the JobService and Pub/Sub emulators, fake-gcs-server."""

import base64
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from google.cloud import pubsub_v1, storage
from kickoff.bus import Bus
from kickoff.errors import VertexUnavailable
from kickoff.events import parse_event
from kickoff.own_events import RunFinished
from kickoff.progress import list_epochs
from kickoff.record import Recorded, Recorder
from kickoff.runs import Run, State
from kickoff.storage import Storage

from deploy.local.job_service.images import Image
from deploy.local.pubsub.server import PubSubServer
from tests.kickoff.lab import Lab
from tests.kickoff.uploading import storage_server

TOPIC = "projects/kickoff-local/topics/run-finished"
SUBSCRIPTION = "projects/kickoff-local/subscriptions/ends"
BUCKET = "kickoff-local-models"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Pub/Sub's endpoint; storage is in the environment."""
    with storage_server(), PubSubServer(http_port=None) as pubsub:
        storage.Client(project="kickoff-local").create_bucket(BUCKET)
        yield pubsub.endpoint


class Ends:
    """What was published on ``run-finished``."""

    def __init__(self) -> None:
        self.publisher, self.subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        self.publisher.create_topic(name=TOPIC)
        self.subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)

    def pull(self) -> list[Any]:
        found = self.subscriber.pull(
            subscription=SUBSCRIPTION, max_messages=100, return_immediately=True, timeout=10
        ).received_messages
        if found:
            self.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[each.ack_id for each in found])
        return [each.message for each in found]

    def close(self) -> None:
        self.subscriber.delete_subscription(subscription=SUBSCRIPTION)
        self.publisher.delete_topic(topic=TOPIC)
        self.subscriber.close()


@pytest.fixture
def ends(servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", servers)
    ends = Ends()
    yield ends
    ends.close()


@pytest.fixture
def recorder(lab: Lab, ends: Ends) -> Recorder:
    settings = replace(lab.settings, finished_topic=TOPIC)
    return Recorder(lab.ledger, lab.vertex, Bus(), Storage("kickoff-local"), settings, lab.now)


def submitted(lab: Lab, image: str = "instant", name: str = "m-1") -> Run:
    return lab.submit(lab.queued(name, image))


def ended(lab: Lab, run: Run) -> Run:
    """The run, once Vertex AI says that its job has ended."""
    assert run.job
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        job = lab.vertex.get(run.job.name)
        if job and job.ended:
            return run
        time.sleep(0.05)
    raise AssertionError("the job did not end")


def write_model(run: Run) -> None:
    name = f"{run.output.removeprefix(f'gs://{BUCKET}/')}/model/saved_model.pb"
    Storage("kickoff-local").create(BUCKET, name, b"model", content_type="application/octet-stream", run=run.run_id)


def send(recorder: Recorder, data: dict[str, Any], **attributes: str) -> Recorded:
    """As a push subscription delivers it, through the parser."""
    message = {"messageId": "1", "data": base64.b64encode(json.dumps(data).encode()).decode(), "attributes": attributes}
    return recorder.record(parse_event("POST", "/", {}, json.dumps({"message": message}).encode()))


def line(recorder: Recorder, run: Run, text: str) -> Recorded:
    labels = {"job_id": run.job.id if run.job else "", "project_id": run.project, "task_name": "service"}
    return send(recorder, {"logName": "l", "textPayload": text, "resource": {"type": "ml_job", "labels": labels}})


def report(recorder: Recorder, run: Run, kind: str, number: str = "1", **data: Any) -> Recorded:
    body = {"run_id": run.run_id, "job_id": run.job.id if run.job else "", **data}
    attributes = {"ce-specversion": "1.0", "ce-source": "trainer", "ce-id": f"{run.run_id}-{kind}-{number}"}
    return send(
        recorder,
        body,
        **attributes,
        **{"ce-type": f"dev.kickoff.training.{kind}.v1", "ce-time": f"2026-12-01T12:00:{int(number):02}Z"},
    )


def test_from_the_first_epoch_to_the_announced_end(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = submitted(lab)
    run = lab.ledger.replace_run(run.moved(State.RUNNING, lab.time))  # as a service line would; now epochs ask nobody
    for number in ("1", "2"):
        epoch = {"epoch": int(number), "epochs": 2, "metrics": {"accuracy": 0.4 * int(number)}}
        assert report(recorder, run, "epoch", number, **epoch).outcome == "recorded"
    write_model(run)
    report(recorder, run, "finished", metrics={"accuracy": 0.97}, model_uri=f"{run.output}/model/")
    line(recorder, ended(lab, run), "Job completed successfully.")
    run = lab.run(run)
    assert run.state is State.SUCCEEDED and run.metrics == {"accuracy": 0.97} and not run.model_missing
    assert run.model_uri == f"{run.output}/model/" and len(run.model_digest) == 64
    assert run.finished_published and run.next_attempt_at is None
    assert [epoch.metrics["accuracy"] for epoch in list_epochs(lab.ledger, run.run_id)] == [0.4, 0.8]
    [message] = ends.pull()
    said = RunFinished.model_validate_json(message.data)
    assert (said.run_id, said.state, said.metrics) == (run.run_id, State.SUCCEEDED, {"accuracy": 0.97})
    assert message.attributes["ce-type"] == "dev.kickoff.run.finished.v1"
    assert message.attributes["ce-id"] == f"{run.run_id}/finished"


def test_all_hints_again_and_late_change_and_publish_nothing(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = ended(lab, submitted(lab))
    assert line(recorder, run, "Job completed successfully.").ended
    assert len(ends.pull()) == 1
    before = lab.run(run)
    lab.later(21 * 86_400)
    assert not line(recorder, run, "Job completed successfully.").ended
    report(recorder, run, "finished", metrics={}, model_uri="gs://elsewhere/")
    recorder.record_run(lab.run(run))
    assert lab.run(run) == before and ends.pull() == []


def test_a_subscription_can_ask_for_successes_of_one_recipe(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    name = f"{SUBSCRIPTION}-of-flowers"
    only = 'attributes.ce-state = "SUCCEEDED" AND attributes.ce-recipe = "flowers"'
    ends.subscriber.create_subscription(request={"name": name, "topic": TOPIC, "filter": only})
    good, bad = submitted(lab, "instant"), submitted(lab, "broken", "m-2")
    for run in (bad, good):
        assert line(recorder, ended(lab, run), "Job completed successfully.").ended
    found = ends.subscriber.pull(subscription=name, max_messages=9, return_immediately=True, timeout=10)
    ends.subscriber.delete_subscription(subscription=name)
    assert [each.message.attributes["ce-subject"] for each in found.received_messages] == [good.run_id]
    assert len(ends.pull()) == 2


def test_two_at_once_write_one_end(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = ended(lab, submitted(lab))
    results: list[Recorded] = []
    threads = [
        threading.Thread(target=lambda: results.append(line(recorder, run, "Job completed successfully.")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [result.ended for result in results].count(True) == 1
    assert {message.attributes["ce-id"] for message in ends.pull()} == {f"{run.run_id}/finished"}


def test_a_failed_job_gives_its_slot_back_and_names_the_replica(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    first = lab.submit(lab.queued("m-1", "broken", max_active=1))
    second = lab.submit(lab.queued("m-2", "idle", max_active=1))
    assert first.slots and second.state is State.QUEUED
    line(recorder, ended(lab, first), "Job failed.")
    first = lab.run(first)
    assert first.state is State.FAILED and not first.slots and first.job and "non-zero status of 1" in first.job.error
    assert (first.replica_exits[0].replica, first.replica_exits[0].status) == ("workerpool0-0", 1)
    assert lab.submit(second).state is State.SUBMITTED
    [message] = ends.pull()
    assert "non-zero status of 1" in RunFinished.model_validate_json(message.data).error


def test_a_job_that_was_cancelled_after_its_model_was_written(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = submitted(lab, "idle")
    write_model(run)
    report(recorder, run, "finished", metrics={"accuracy": 1.0}, model_uri=f"{run.output}/model/")
    assert lab.run(run).state in (State.SUBMITTED, State.RUNNING)
    assert run.job
    lab.vertex.cancel(run.job.name)
    recorder.record_run(ended(lab, run))
    assert lab.run(run).state is State.CANCELLED and not lab.run(run).model_uri
    assert RunFinished.model_validate_json(ends.pull()[0].data).state is State.CANCELLED


def test_a_success_without_a_model_or_with_storage_out_of_reach(
    lab: Lab, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(lab, submitted(lab, name="without-model"))
    assert line(recorder, run, "Job completed successfully.").ended
    assert lab.run(run).model_missing
    other = ended(lab, submitted(lab, name="m-2"))
    lost = Storage("kickoff-local")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setattr("kickoff.storage.PATIENCE", 0.1)
    assert line(replace(recorder, storage=lost), other, "Job completed successfully.").ended
    assert "could not be looked for" in lab.run(other).notes[-1]


@pytest.mark.parametrize(
    "uri", ["", "gs://", "gs:///x", "gs://UP/x", "/gcs/b/model", "gs://kickoff-local-models", "x\x00y"]
)
def test_a_model_uri_that_is_no_place_is_looked_for_where_the_job_writes(
    lab: Lab, recorder: Recorder, uri: str
) -> None:
    run = submitted(lab, name=f"place-{uri!r}")
    write_model(run)
    report(recorder, ended(lab, run), "finished", metrics={"a": 1.0}, model_uri=uri)
    assert lab.run(run).model_uri == f"{run.output}/model/"


@pytest.mark.parametrize("text", ["Job completed successfully.", "Job failed."])
def test_a_line_while_the_job_runs_ends_nothing(lab: Lab, recorder: Recorder, ends: Ends, text: str) -> None:
    run = submitted(lab, "idle")
    assert not line(recorder, run, text).ended
    assert not lab.run(run).terminal and ends.pull() == []


def test_jobs_that_are_not_ours(lab: Lab, recorder: Recorder) -> None:
    run = submitted(lab, "idle")
    stranger = run.model_copy(
        update={"job": run.job and run.job.model_copy(update={"name": "projects/p/locations/r/customJobs/1"})}
    )
    assert line(recorder, stranger, "Job completed successfully.").reason == "no run has this job"
    assert report(recorder, stranger, "epoch", epoch=1, epochs=2).outcome == "ignored"
    assert list_epochs(lab.ledger, run.run_id) == []


def test_an_epoch_before_the_record_names_the_job_is_kept(lab: Lab, recorder: Recorder) -> None:
    lab.fault("create", "lose_answer", times=1)
    run = submitted(lab, "idle")
    assert lab.run(run).state is State.SUBMITTING
    [job] = lab.jobs(run)
    early = run.model_copy(update={"job": job.record()})
    assert report(recorder, early, "epoch", epoch=1, epochs=2, metrics={"loss": 0.1}).outcome == "recorded"
    assert lab.run(run).state is State.SUBMITTING
    assert [epoch.metrics for epoch in list_epochs(lab.ledger, run.run_id)] == [{"loss": 0.1}]


def test_an_epoch_again_after_a_restart_replaces_the_first_report(lab: Lab, recorder: Recorder) -> None:
    run = submitted(lab, "idle")
    for number, loss in (("1", 0.9), ("3", 0.7), ("2", 0.8), ("3", 0.6)):  # late, and once more
        report(recorder, run, "epoch", number, epoch=1, epochs=2, metrics={"loss": loss})
    assert [epoch.metrics for epoch in list_epochs(lab.ledger, run.run_id)] == [{"loss": 0.7}]


def test_vertex_out_of_reach_is_delivered_again(lab: Lab, recorder: Recorder) -> None:
    run = ended(lab, submitted(lab))
    lab.fault("get", "status", status=503, times=50)
    with pytest.raises(VertexUnavailable):
        line(recorder, run, "Job completed successfully.")
    lab.clear_faults()
    assert line(recorder, run, "Job completed successfully.").ended


def test_an_end_that_could_not_be_published_is_published_by_the_sweep(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = ended(lab, submitted(lab))
    nowhere = replace(recorder, settings=replace(recorder.settings, finished_topic="projects/p/topics/missing"))
    assert line(nowhere, run, "Job completed successfully.").ended
    assert not lab.run(run).finished_published and ends.pull() == []
    lab.sweep(record=recorder.record_run)
    assert lab.run(run).finished_published and len(ends.pull()) == 1
    lab.sweep(record=recorder.record_run)
    assert ends.pull() == []


def test_the_sweep_finds_an_end_that_no_event_told(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    run = ended(lab, submitted(lab))
    lab.sweep(record=recorder.record_run)
    assert lab.run(run).state is State.SUCCEEDED and len(ends.pull()) == 1


def test_the_sweep_announces_a_request_that_vertex_refused(lab: Lab, recorder: Recorder, ends: Ends) -> None:
    lab.fault("create", "status", status=400, times=1)
    run = submitted(lab)
    assert lab.run(run).state is State.REJECTED
    lab.sweep(record=recorder.record_run)
    said = RunFinished.model_validate_json(ends.pull()[0].data)
    assert said.state is State.REJECTED and said.error and not said.job


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]], Callable[[int], None]]]:
    taken: list[dict[str, Any]] = []
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", taken, lambda code: status.__setitem__(0, code)
    server.shutdown()
    server.server_close()


def test_the_webhook_says_what_failed_and_holds_nothing_up(
    lab: Lab, recorder: Recorder, webhook: tuple[str, list[dict[str, Any]], Callable[[int], None]]
) -> None:
    url, taken, answer = webhook
    recorder = replace(recorder, settings=replace(recorder.settings, webhook=url, dashboard_url="https://runs.example"))
    run = ended(lab, submitted(lab, "broken"))
    line(recorder, run, "Job failed.")
    text = json.dumps(taken)
    assert len(taken) == 1 and f"FAILED: `{run.run_id}`" in taken[0]["text"]
    assert "`workerpool0-0` exited with status 1" in text and f"https://runs.example/runs/{run.run_id}" in text
    answer(500)
    other = ended(lab, submitted(lab, name="m-2"))
    assert line(recorder, other, "Job completed successfully.").ended and lab.run(other).finished_published


def test_the_webhook_has_the_last_lines_of_the_replica_that_failed(
    lab: Lab, recorder: Recorder, webhook: tuple[str, list[dict[str, Any]], Callable[[int], None]]
) -> None:
    url, taken, _ = webhook
    code = "import sys; print('loading'); print('ValueError: no classes', file=sys.stderr); sys.exit(3)"
    lab.server._set_images({"talking": Image((sys.executable, "-c", code))})
    run = ended(lab, submitted(lab, "talking", "talking"))
    settings = replace(recorder.settings, webhook=url, logging_endpoint=lab.server.url)
    line(replace(recorder, settings=settings), run, "Job failed.")
    text = json.dumps(taken)
    assert "exited with status 3" in text and "loading\\nValueError: no classes" in text
    other = ended(lab, submitted(lab, "broken", "m-2"))
    line(replace(recorder, settings=replace(settings, logging_endpoint="http://127.0.0.1:9")), other, "Job failed.")
    assert len(taken) == 2 and lab.run(other).finished_published


class Crash(BaseException):
    """The process is gone: nothing catches this."""


def test_a_crash_at_any_step_is_made_good_by_the_sweep(
    lab: Lab, recorder: Recorder, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    crash_at = -1

    def point(name: str) -> None:
        passed.append(name)
        if len(passed) - 1 == crash_at:
            raise Crash(name)

    def end_a_run(name: str) -> Run:
        run = ended(lab, lab.submit(lab.queued(name, "instant", max_active=1)))
        write_model(run)
        with monkeypatch.context() as patch, suppress(Crash):
            patch.setattr("kickoff.points.point", point)
            passed.clear()
            line(recorder, run, "Job completed successfully.")
        return run

    end_a_run("whole")
    steps = list(passed)
    assert [step for step in steps if "publish" in step] and len(ends.pull()) == 1
    for crash_at in range(len(steps)):
        run = end_a_run(f"crash-{crash_at}")
        assert passed[-1] == steps[crash_at]
        lab.later(60)
        lab.sweep(record=recorder.record_run)
        lab.later(60)
        lab.sweep(record=recorder.record_run)
        run = lab.run(run)
        assert run.state is State.SUCCEEDED and run.finished_published and not run.slots, steps[crash_at]
        assert run.model_digest and run.next_attempt_at is None
        said = {message.attributes["ce-id"] for message in ends.pull()}
        assert said == {f"{run.run_id}/finished"}, steps[crash_at]
