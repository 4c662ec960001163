"""What a hint and Vertex AI's answer mean for a record: every state, any order, twice, late, of other jobs."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kickoff.completion import GONE, SOON, STALLED, Evidence, decide_completion, is_about, job_to_ask
from kickoff.event_types import JobHint
from kickoff.jobs import JOB_STATES, JobView, is_end, run_state, state_name
from kickoff.runs import JobRecord, Run, State

from tests.kickoff.making import NOW, make_run

NAME = "projects/kickoff-local/locations/us-central1/customJobs/4567890123456789"
ID = "4567890123456789"
MODEL = Evidence({"accuracy": 0.97}, "gs://m/model/", "d1g3st", 1.25)
LATER = NOW + timedelta(minutes=10)


def active(state: State = State.RUNNING, **fields: Any) -> Run:
    return make_run(state=state, job=JobRecord(name=NAME, state="JOB_STATE_RUNNING"), **fields)


def view(state: str = "JOB_STATE_RUNNING", **fields: Any) -> JobView:
    # Vertex AI answers with the project's number.
    return JobView(name=NAME.replace("kickoff-local", "123456789012"), state=state, **fields)


def log(text: str = "Job is running.", **fields: Any) -> JobHint:
    return JobHint(**{"kind": "log", "job_id": ID, "data": {"text": text, "severity": "INFO"}, "time": NOW, **fields})


def epoch(**fields: Any) -> JobHint:
    data = {"epoch": 1, "epochs": 3, "metrics": {"loss": 0.5}}
    return JobHint(**{"kind": "epoch", "job_id": ID, "run_id": make_run().run_id, "data": data, **fields})


def finished(**metrics: float) -> JobHint:
    return epoch(kind="finished", data={"metrics": metrics, "model_uri": "gs://m/model/"})


@pytest.mark.parametrize("number", range(len(JOB_STATES)))
@pytest.mark.parametrize("before", [State.SUBMITTED, State.RUNNING])
def test_every_job_state_has_its_meaning_by_name_and_by_number(number: int, before: State) -> None:
    name = JOB_STATES[number]
    assert state_name(number) == state_name(str(number)) == name and run_state(number) is run_state(name)
    run = decide_completion(active(before), log(), view(name), LATER, MODEL).run or active(before)
    expected = run_state(name)
    if expected in (None, State.SUBMITTED):
        assert run.state is before
    else:
        assert run.state is expected
    assert run.terminal is is_end(name)
    assert run.model_uri == ("gs://m/model/" if name == "JOB_STATE_SUCCEEDED" else "")


def test_a_cancelled_job_is_no_success_although_its_model_is_there() -> None:
    run = decide_completion(active(), log("Job completed successfully."), view("JOB_STATE_CANCELLED"), LATER, MODEL).run
    assert run and run.state is State.CANCELLED and not run.model_uri


@pytest.mark.parametrize("text", ["Job completed successfully.", "Job failed.", "Job cancelled."])
def test_a_line_proves_no_end(text: str) -> None:
    decision = decide_completion(active(), log(text), view("JOB_STATE_RUNNING"), LATER)
    assert decision.run and decision.run.state is State.RUNNING
    assert decision.run.next_attempt_at == LATER + SOON


def test_a_success_without_its_model_says_so() -> None:
    run = decide_completion(
        active(), log(), view("JOB_STATE_SUCCEEDED"), LATER, Evidence(model_uri="gs://m/model/")
    ).run
    assert run and run.state is State.SUCCEEDED and run.model_missing and not run.model_uri
    assert run.history[-1].note == "no model at gs://m/model/"


def test_the_end_is_written_whole() -> None:
    job = view("JOB_STATE_SUCCEEDED", start_time=NOW, end_time=LATER)
    run = decide_completion(active(waiting_for="x"), log(), job, LATER, MODEL).run
    assert run and run.job
    assert (run.metrics, run.model_uri, run.model_digest, run.cost_usd) == (
        MODEL.metrics,
        "gs://m/model/",
        "d1g3st",
        1.25,
    )
    assert (run.job.name, run.job.state, run.job.end_time) == (NAME, "JOB_STATE_SUCCEEDED", LATER)
    assert run.next_attempt_at == LATER and not run.waiting_for and not run.model_missing


@pytest.mark.parametrize(
    ("state", "evidence", "note", "noted"),
    [
        ("JOB_STATE_SUCCEEDED", MODEL, "", ()),
        ("JOB_STATE_SUCCEEDED", Evidence(), "no model at any place the job named", ()),
        ("JOB_STATE_SUCCEEDED", replace(MODEL, note="403"), "", ("403",)),
        ("JOB_STATE_FAILED", Evidence(), "out of memory", ()),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", MODEL, "Vertex AI says partially succeeded: some results may be missing", ()),
    ],
)
def test_the_history_says_why(state: str, evidence: Evidence, note: str, noted: tuple[str, ...]) -> None:
    error = "out of memory" if state == "JOB_STATE_FAILED" else ""
    run = decide_completion(active(), log(), view(state, error=error), LATER, evidence).run
    assert run and run.history[-1].note == note and run.notes == noted


def test_an_unknown_state_is_looked_at_again_and_named() -> None:
    decision = decide_completion(active(), log(), view("JOB_STATE_SOMETHING_NEW"), LATER)
    assert decision.run and decision.run.state is State.RUNNING
    assert "JOB_STATE_SOMETHING_NEW" in decision.run.waiting_for
    assert decision.run.next_attempt_at and decision.run.next_attempt_at > LATER


@pytest.mark.parametrize(
    ("hint", "about"),
    [
        (log(), True),
        (log(location="us-central1"), True),
        (log(location="europe-west4"), False),
        (log(job_id="1"), False),
        (epoch(), True),
        (epoch(job_id=""), True),
        (epoch(run_id="flowers-other"), False),
    ],
    ids=["id", "id and region", "another region", "another id", "run and job", "run alone", "another run"],
)
def test_a_job_is_known_by_its_id_and_region(hint: JobHint, about: bool) -> None:
    run = active()
    assert is_about(run, hint) is about
    assert bool(job_to_ask(active(State.SUBMITTED), hint)) is about
    if not about:
        assert decide_completion(run, hint, None, LATER).run is None


def test_a_duplicate_jobs_words_are_not_the_runs() -> None:
    run = make_run(state=State.SUBMITTING, duplicate_jobs=(NAME,))
    assert not is_about(run, epoch()) and is_about(run, epoch(job_id="9"))


def test_an_epoch_asks_vertex_only_while_the_record_lags() -> None:
    assert job_to_ask(active(State.SUBMITTED), epoch()) == NAME
    assert job_to_ask(active(State.RUNNING), epoch()) == ""
    assert job_to_ask(active(State.RUNNING), log()) == job_to_ask(active(State.RUNNING), finished()) == NAME
    assert decide_completion(active(), epoch(), None, LATER).run is None
    run = decide_completion(active(State.SUBMITTED), epoch(), view(), LATER).run
    assert run and run.state is State.RUNNING


@pytest.mark.parametrize("state", [State.HELD, State.QUEUED, State.SUBMITTING])
@pytest.mark.parametrize("hint", [log(job_id=""), epoch(), finished()])
def test_before_the_record_names_the_job_nothing_is_written(state: State, hint: JobHint) -> None:
    run = make_run(state=state)
    assert job_to_ask(run, hint) == ""
    assert decide_completion(run, hint, None, LATER).run is None


def test_a_finished_event_sets_when_to_look_again_once() -> None:
    first = decide_completion(active(), finished(), view(), LATER).run
    assert first and first.state is State.RUNNING and first.next_attempt_at == LATER + SOON
    assert decide_completion(first, finished(), view(), LATER + timedelta(seconds=1)).run is None
    overdue = decide_completion(first, finished(), view(), LATER + timedelta(minutes=1)).run
    assert overdue and overdue.next_attempt_at == LATER + timedelta(minutes=1) + SOON


def test_a_line_that_tells_nothing_new_writes_nothing() -> None:
    assert decide_completion(active(), log(), view(), LATER).run is None
    told_when = decide_completion(active(), log(), view(create_time=NOW), LATER).run
    assert told_when and told_when.next_attempt_at is None
    assert decide_completion(told_when, log(), view(create_time=NOW), LATER).run is None


@pytest.mark.parametrize(
    ("known", "hint", "next_look"),
    [
        (None, log(), None),
        (-60, log(), None),
        (60, log(), 60),
        (5, log("Job failed."), 5),
        (60, log("Job failed."), 15),
        (-60, finished(), 15),
    ],
)
def test_the_next_look_is_the_sooner_one(known: int | None, hint: JobHint, next_look: int | None) -> None:
    def after(seconds: int | None) -> datetime | None:
        return None if seconds is None else LATER + timedelta(seconds=seconds)

    run = active(next_attempt_at=after(known))
    assert (decide_completion(run, hint, view(), LATER).run or run).next_attempt_at == after(next_look)


def test_restarts_are_one_end_with_their_exits() -> None:
    run = active()
    line = "The replica workerpool1-0 exited with a non-zero status of 1. To find out more, see the logs."
    for seconds in (1, 1, 2):  # the first line comes twice
        hint = log(line, time=NOW + timedelta(seconds=seconds))
        run = decide_completion(run, hint, view(), LATER).run or run
    assert [(exit.replica, exit.status) for exit in run.replica_exits] == [("workerpool1-0", 1)] * 2
    run = decide_completion(run, log(), view("JOB_STATE_SUCCEEDED"), LATER, MODEL).run or run
    assert run.state is State.SUCCEEDED and len(run.replica_exits) == 2


def test_an_exit_that_a_line_told_is_not_counted_again_from_the_error() -> None:
    line = "The replica workerpool1-0 exited with a non-zero status of 1."
    run = decide_completion(active(), log(line), view(), LATER).run
    assert run
    error = f"{line} The replica workerpool0-0 exited with a non-zero status of 9."
    run = decide_completion(run, log(), view("JOB_STATE_FAILED", error=error), LATER).run
    assert run and [(exit.replica, exit.status) for exit in run.replica_exits] == [
        ("workerpool1-0", 1),
        ("workerpool0-0", 9),
    ]


def test_an_error_that_comes_late_completes_the_record() -> None:
    failed = decide_completion(active(), log("Job failed."), view("JOB_STATE_FAILED"), LATER).run
    assert failed and failed.job and not failed.job.error
    assert job_to_ask(failed, JobHint("state", ID)) == NAME and job_to_ask(failed, epoch()) == ""
    assert decide_completion(failed, JobHint("state", ID), view("JOB_STATE_FAILED", end_time=LATER), LATER).run is None
    error = "The replica workerpool0-0 exited with a non-zero status of 137."
    filled = decide_completion(failed, JobHint("state", ID), view("JOB_STATE_FAILED", error=error), LATER).run
    assert filled and filled.job and filled.job.error == error
    assert filled.history == failed.history and filled.replica_exits[0].status == 137
    assert job_to_ask(filled, JobHint("state", ID)) == ""


@pytest.mark.parametrize("hint", [log(), epoch(), finished(), JobHint("state", ID), JobHint("audit", ID)])
def test_weeks_later_nothing_changes(hint: JobHint) -> None:
    ended = decide_completion(active(), log(), view("JOB_STATE_SUCCEEDED"), LATER, MODEL).run
    assert ended
    assert job_to_ask(ended, hint) == ""
    assert decide_completion(ended, hint, None, LATER + timedelta(weeks=3)).run is None


def test_metrics_that_come_after_the_end_are_kept() -> None:
    of_last_epoch = replace(MODEL, metrics={"accuracy": 0.5})
    ended = decide_completion(active(), log(), view("JOB_STATE_SUCCEEDED"), LATER, of_last_epoch).run
    assert ended and ended.metrics == {"accuracy": 0.5}
    run = decide_completion(ended, finished(accuracy=0.9), None, LATER).run
    assert run and run.metrics == {"accuracy": 0.9} and run.history == ended.history
    failed = decide_completion(active(), log(), view("JOB_STATE_FAILED", error="x"), LATER).run
    assert failed and decide_completion(failed, finished(accuracy=0.9), None, LATER).run is None


def test_a_job_that_vertex_does_not_start_is_said_to_wait() -> None:
    run = active(State.SUBMITTED)
    job = view("JOB_STATE_PENDING", create_time=NOW)
    early = decide_completion(run, log(), job, NOW + timedelta(minutes=1)).run
    assert early and not early.waiting_for and early.next_attempt_at == NOW + STALLED
    late = decide_completion(early, JobHint("state", ID), job, NOW + STALLED).run
    assert late and "JOB_STATE_PENDING since 2026-12-01 12:00" in late.waiting_for
    running = decide_completion(late, log(), view(create_time=NOW), NOW + 2 * STALLED).run
    assert running and running.state is State.RUNNING and not running.waiting_for


def test_a_job_that_is_gone_ends_its_run_only_after_a_while() -> None:
    run = active()
    assert decide_completion(run, log(), None, NOW + GONE / 2).run is None
    ended = decide_completion(run, log(), None, NOW + GONE).run
    assert ended and ended.state is State.FAILED and "gone from Vertex AI" in ended.history[-1].note
    assert decide_completion(run, epoch(), None, NOW + GONE).run is None  # which asks nothing, so it tells nothing


HINTS = [log(), log("Job completed successfully."), log("Job failed."), epoch(), finished(accuracy=0.9)]
HINTS += [JobHint("state", ID), JobHint("audit", ID), log(job_id="1"), epoch(run_id="other")]


@given(
    hints=st.lists(st.tuples(st.sampled_from(HINTS), st.integers(0, 3)), max_size=25),
    ends=st.sampled_from(["SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"]),
    start=st.sampled_from([State.SUBMITTED, State.RUNNING]),
)
@settings(max_examples=200, deadline=None)
def test_any_hints_in_any_order_reach_the_one_end(hints: list[tuple[JobHint, int]], ends: str, start: State) -> None:
    """Time passes between hints; whatever they claim, the record follows the job, and its end is written once."""
    life = ["JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_RUNNING", f"JOB_STATE_{ends}"]
    run, at, now = active(start), 0, NOW
    for hint, passing in [*hints, (JobHint("state", ID), 3)]:
        at = min(at + passing, len(life) - 1)
        now += timedelta(seconds=30)
        run = _take(run, hint, view(life[at]), now)
        assert not run.terminal or at == len(life) - 1
    assert run.state is run_state(life[-1])
    assert sum(change.state is run.state for change in run.history) == 1


def _take(run: Run, hint: JobHint, job: JobView, now: datetime) -> Run:
    asked = job if job_to_ask(run, hint) else None
    return decide_completion(run, hint, asked, now, MODEL).run or run
