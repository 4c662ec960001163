"""The message to people: what it holds, that it is escaped, and that it fits."""

from datetime import timedelta

from kickoff.runs import JobRecord, ReplicaExit, State
from kickoff.webhook import build_slack_message, post

from tests.kickoff.making import NOW, make_run


def test_it_says_what_failed_in_slacks_form() -> None:
    job = JobRecord(
        name="projects/p/locations/us-central1/customJobs/77",
        state="JOB_STATE_FAILED",
        start_time=NOW,
        end_time=NOW + timedelta(minutes=12),
        error="<script>alert(1)</script> & more",
    )
    exits = (ReplicaExit(replica="workerpool1-0", status=137),)
    run = make_run(state=State.FAILED, job=job, replica_exits=exits)
    message = build_slack_message(run, ["Epoch 1", "Killed ```"], "https://runs.example/")
    texts = [block["text"]["text"] for block in message["blocks"]]
    assert message["text"] == f":x: *flowers* FAILED: `{run.run_id}` after 0:12:00"
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in texts[1]
    assert "• `workerpool1-0` exited with status 137" in texts[1]
    assert texts[2] == "```Epoch 1\nKilled '''```"
    assert f"<https://runs.example/runs/{run.run_id}|The run>" in texts[3]
    assert "us-central1/training/77?project=kickoff-local|" in texts[3]


def test_it_fits_into_slacks_sections() -> None:
    job = JobRecord(name="projects/p/locations/r/customJobs/7", error="&" * 5000)
    run = make_run(state=State.FAILED, job=job)
    message = build_slack_message(run, ["<" * 1000] * 100)
    assert all(0 < len(block["text"]["text"]) <= 3000 for block in message["blocks"])


def test_a_success_has_its_metrics_model_and_cost() -> None:
    run = make_run(state=State.SUCCEEDED, metrics={"accuracy": 0.97123}, model_uri="gs://m/model/", cost_usd=1.234)
    text = str(build_slack_message(run))
    assert "accuracy 0.9712" in text and "gs://m/model/" in text and "1.23 USD" in text


def test_an_address_that_does_not_answer_is_only_logged() -> None:
    assert post("http://127.0.0.1:9/", {}) is False
    assert post("no address", {}) is False
