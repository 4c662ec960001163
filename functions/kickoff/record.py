"""Records what became of a job: from any hint to a written end, its announcement included. Effect.

Gather (the run, the trainer's reports, GetCustomJob, the model), decide (completion.py), apply (compare-and-set).
Safe to call any number of times, by any number of processes, with any hint; the sweep calls `Recorder.record_run`.

The end is announced at least once, always with the same CloudEvent id: the record is written as ended and due,
then the event is published, then the record says so. Who dies in between leaves it due, and the sweep goes on.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kickoff.bus import Bus
from kickoff.completion import (
    ACTIVE,
    ERROR_DELAY,
    Decision,
    Evidence,
    decide_completion,
    is_about,
    job_to_ask,
    wants_error,
)
from kickoff.costs import actual_cost
from kickoff.datasets import build_digest
from kickoff.duplicates import settle_at_end, storage_fence
from kickoff.errors import PublishFailed, StorageUnavailable
from kickoff.event_types import Event, JobHint
from kickoff.jobs import JobView, is_same_job, run_state
from kickoff.ledger.protocol import Ledger
from kickoff.log_lines import log_end
from kickoff.logs import read_last_lines
from kickoff.own_events import RUN_FINISHED, build_pubsub_message, build_run_finished
from kickoff.points import around
from kickoff.progress import build_note, final_words, write_note
from kickoff.runs import Run, State
from kickoff.settings import Settings
from kickoff.storage import Storage, split_uri
from kickoff.updating import update_run
from kickoff.vertex import Vertex
from kickoff.webhook import build_slack_message, post

log = logging.getLogger("kickoff")

_OBJECTS = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]/[^\r\n]+")

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class Recorded:
    """What became of a hint."""

    outcome: str
    """``recorded`` or ``ignored``."""
    reason: str
    run: Run | None = None
    """As it now stands."""
    ended: bool = False
    """This call wrote the run's end, so a slot of its recipe may be free."""


@dataclass(frozen=True)
class Recorder:
    ledger: Ledger
    vertex: Vertex
    bus: Bus
    storage: Storage
    settings: Settings
    now: Clock

    def record(self, event: Event) -> Recorded:
        """Take one event. Raises TransientError where delivering it again can help."""
        if not isinstance(event, JobHint):
            return Recorded("ignored", f"{type(event).__name__} tells of no job")
        run = self._find(event)
        if run is None:
            # A job that is not ours, or one whose name is not written yet: then the sweep sees its end.
            return Recorded("ignored", "no run has this job")
        noted = False
        if event.kind in ("epoch", "finished") and is_about(run, event):
            noted = write_note(self.ledger, build_note(event))
        name = job_to_ask(run, event)
        job = self.vertex.get(name) if name else None
        if job:
            fence = storage_fence(self.storage)
            run = settle_at_end(self.ledger, self.vertex, run, job, now=self.now, fence=fence)
            if run.job and run.job.id != job.id:
                job = self.vertex.get(run.job.name)
        recorded = self._apply(run, event, job)
        return Recorded("recorded", recorded.reason, recorded.run, recorded.ended) if noted else recorded

    def record_run(self, run: Run) -> Run | None:
        """The sweep's way in: look at the run's job, write what became of it, announce its end."""
        job_id = run.job.id if run.job else ""
        return self.record(JobHint(kind="state", job_id=job_id, run_id=run.run_id)).run

    def _find(self, hint: JobHint) -> Run | None:
        if hint.run_id:
            return self.ledger.get_run(hint.run_id)
        found = self.ledger.find_runs(job_id=hint.job_id) if hint.job_id else []
        return next((run for run in found if run.job and is_same_job(run.job.name, hint.job_id, hint.location)), None)

    def _apply(self, run: Run, hint: JobHint, job: JobView | None) -> Recorded:
        evidence = self._gather(run, job) if job and job.ended and run.state in ACTIVE else None
        decision = Decision()
        before = run

        def decide(current: Run) -> Run | None:
            nonlocal decision, before
            before = current
            decision = decide_completion(current, hint, job, self.now(), evidence)
            return decision.run

        run = update_run(self.ledger, run, decide)
        ended = run.terminal and not before.terminal
        if ended:
            log_end(run)
        if run.terminal and is_about(run, hint):
            run = self._announce(run)
        outcome = "recorded" if decision.run else "ignored"
        return Recorded(outcome, decision.reason, run, ended)

    def _gather(self, run: Run, job: JobView) -> Evidence:
        metrics, model_uri = final_words(self.ledger, run.run_id)
        cost = actual_cost(run.custom_job, job)
        if run_state(job.state) is not State.SUCCEEDED:
            return Evidence(metrics, cost_usd=cost)
        if not _OBJECTS.fullmatch(model_uri):
            model_uri = f"{run.output.rstrip('/')}/model/" if run.output else ""
        try:
            digest = self._model_digest(model_uri) if model_uri else ""
        except StorageUnavailable as error:
            return Evidence(metrics, model_uri, cost_usd=cost, note=f"the model could not be looked for: {error}")
        return Evidence(metrics, model_uri, digest, cost)

    def _model_digest(self, uri: str) -> str:
        """Over the objects below `uri`; empty where there are none."""
        bucket, prefix = split_uri(uri)
        with around("record.look-for-model"):
            objects = [found for found in self.storage.list(bucket, prefix).objects if found.size]
        return build_digest(objects, prefix) if objects else ""

    def _announce(self, run: Run) -> Run:
        """Publish the end, call the webhook, and say in the record that it is done."""
        if run.finished_published:
            if run.next_attempt_at is None or run.next_attempt_at > self.now():
                return run
        elif not self._publish(run):
            return run
        published = run.finished_published
        again = self.now() + ERROR_DELAY if wants_error(run) and not published else None

        def announced(current: Run) -> Run | None:
            if current.finished_published and not published:
                return None
            return current.model_copy(update={"finished_published": True, "next_attempt_at": again})

        return update_run(self.ledger, run, announced)

    def _publish(self, run: Run) -> bool:
        if self.settings.finished_topic:
            message = build_pubsub_message(
                RUN_FINISHED,
                f"//kickoff.dev/projects/{run.project}/locations/{run.region}",
                f"{run.run_id}/finished",
                run.history[-1].time,
                build_run_finished(run),
                subject=run.run_id,
                recipe=run.recipe,
                state=run.state.value,
            )
            try:
                self.bus.publish(self.settings.finished_topic, *message)
            except PublishFailed as error:
                log.warning("run %s has ended, and that could not be published yet: %s", run.run_id, error)
                return False
        if self.settings.webhook and run.state is not State.SUPERSEDED:
            lines = read_last_lines(self.settings.logging_endpoint, run) if run.state is State.FAILED else []
            post(self.settings.webhook, build_slack_message(run, lines, self.settings.dashboard_url))
        return True
