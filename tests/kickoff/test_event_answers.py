"""The functions as the framework serves them: every envelope, real or hostile, is answered with 2xx.

5xx would have Pub/Sub deliver the same bytes for days. start_training is asked with a ledger and recipes of its own,
but with no Vertex AI and no bucket: so only what asks for neither is sent there.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from functions_framework import create_app
from kickoff.ledger import open_ledger
from kickoff.runs import JobRecord, State

from tests.kickoff.event_cases import ROOT, Case, load_cases, read_body
from tests.kickoff.making import make_run

CASES = [case for case in load_cases() if "method" in case["input"]]
TO_START = [case for case in CASES if case["expected"]["becomes"] in ("refused", "hint", "message")]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A test client for each function, in one process."""
    environ = {
        "KICKOFF_PROJECT": "acme",
        "KICKOFF_LEDGER": f"sqlite:///{tmp_path_factory.mktemp('ledger')}/runs.db",
        "KICKOFF_VERTEX_ENDPOINT": "http://127.0.0.1:9",
        "KICKOFF_TRAINER_IMAGE": "us-central1-docker.pkg.dev/acme/kickoff/trainer@sha256:" + "0" * 64,
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
    }
    source = str(ROOT / "functions" / "main.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(source).parent))
        for name, value in environ.items():
            patch.setenv(name, value)
        yield {
            target: create_app(target=target, source=source, signature_type="http").test_client()
            for target in ("start_training", "record_completion")
        }
        sys.modules.pop("main", None)


def _send(client: Any, case: Case) -> tuple[int, Any]:
    given = case["input"]
    response = client.open(given["path"], method=given["method"], headers=given["headers"], data=read_body(given))
    return response.status_code, json.loads(response.data)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_record_completion_answers_2xx(clients: dict[str, Any], case: Case) -> None:
    status, said = _send(clients["record_completion"], case)
    expected = "rejected" if case["expected"]["becomes"] == "refused" else "ignored"
    assert (status, said["outcome"]) == (200, expected), said


@pytest.mark.parametrize("case", TO_START, ids=[case["id"] for case in TO_START])
def test_start_training_answers_2xx(clients: dict[str, Any], case: Case) -> None:
    status, said = _send(clients["start_training"], case)
    outcome = (said[0] if isinstance(said, list) else said)["outcome"]
    allowed = {"refused": {"rejected", "duplicate"}, "hint": {"ignored"}, "message": {"rejected", "duplicate"}}
    assert status == 200 and outcome in allowed[case["expected"]["becomes"]], said


def test_5xx_is_for_what_delivering_again_can_help(clients: dict[str, Any]) -> None:
    """Vertex AI is out of reach here: a line about a job of ours comes again, one about a stranger's does not."""
    case = next(case for case in CASES if case["id"] == "E70")
    assert _send(clients["record_completion"], case)[0] == 200
    ledger = open_ledger(os.environ["KICKOFF_LEDGER"])
    name = "projects/acme/locations/us-central1/customJobs/4567890123456789"
    ledger.create_run(make_run(state=State.RUNNING, job=JobRecord(name=name), project="acme"))
    ledger.close()
    status, said = _send(clients["record_completion"], case)
    assert (status, said["outcome"]) == (503, "unavailable")


@pytest.mark.parametrize("body", [b"", b"\x00" * 100, b"[" * 500_000, b"{" * 500_000, b"x" * 12_000_000, b"\xff\xfe"])
def test_hostile_bytes_are_answered_2xx(clients: dict[str, Any], body: bytes) -> None:
    for client in clients.values():
        for content_type in ("application/json", "application/cloudevents+json", "text/plain"):
            assert client.post("/", data=body, content_type=content_type).status_code == 200


def test_a_refusal_tells_its_own_fault_where_others_had_the_same_body(clients: dict[str, Any]) -> None:
    """Cloud Scheduler's calls have no body: what is wrong with them stands in the headers."""
    tick = {"X-CloudScheduler": "true", "X-CloudScheduler-JobName": "kickoff-digits"}
    said = [
        clients["start_training"].post("/", headers=headers).get_json()[0]
        for headers in ({}, tick, tick | {"X-CloudScheduler-ScheduleTime": "yesterday"}, tick)
    ]
    assert "body is empty" in said[0]["reason"]
    assert "scheduletime is missing" in said[1]["reason"]
    assert "'yesterday'" in said[2]["reason"]
    assert said[3]["run_id"] == said[1]["run_id"] and said[3]["outcome"] == "duplicate"
