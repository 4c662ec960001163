"""The simplest JobService that can do all that the real one is known to do wrong: for the model-based test alone.

Everything else is tested against the emulator over the wire. Here thousands of short histories run, so jobs live in a
dictionary; a job that reaches its fence behaves as our trainer does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kickoff.errors import JobRejected, QuotaExceeded, VertexUnavailable
from kickoff.jobs import NONCE_LABEL, RUN_LABEL, JobView
from kickoff.points import around
from kickoff.runs import Run

PREFIX = "projects/p/locations/us-central1/customJobs/"


@dataclass
class VertexModel:
    now: datetime
    answers: list[str] = field(default_factory=list)
    """What the next creates answer: ok, lost, quota, rejected, unavailable."""
    jobs: dict[str, JobView] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """Names that lists do not show yet."""
    winners: dict[str, str] = field(default_factory=dict)
    """Run id to the id of the job that trains."""

    def create(self, project: str, region: str, custom_job: Mapping[str, Any], nonce: str) -> JobView:
        answer = self.answers.pop(0) if self.answers else "ok"
        with around("vertex.create"):
            if answer == "quota":
                raise QuotaExceeded("submissions per minute")
            if answer == "rejected":
                raise JobRejected("List of found errors: 1.Field: job_spec")
            if answer == "unavailable":
                raise VertexUnavailable("503")
            job = JobView(
                name=f"{PREFIX}{len(self.jobs) + 1:04}",
                state="JOB_STATE_PENDING",
                create_time=self.now,
                labels={**custom_job["labels"], NONCE_LABEL: nonce},
            )
            self.jobs[job.name] = job
            if answer == "lost":
                self.hidden.add(job.name)
                raise VertexUnavailable("connection reset")
        return job

    def get(self, name: str) -> JobView | None:
        return self.jobs.get(name)

    def find_by_run(self, project: str, region: str, run_id: str) -> list[JobView]:
        return [job for job in self._listed() if job.labels[RUN_LABEL] == run_id]

    def list_active(self, project: str, region: str) -> list[JobView]:
        return [job for job in self._listed() if not job.ended]

    def cancel(self, name: str) -> None:
        with around("vertex.cancel"):
            if not self.jobs[name].ended:
                self._set(name, "JOB_STATE_CANCELLED")

    def advance(self, name: str, end: str = "JOB_STATE_SUCCEEDED") -> None:
        """One step further: it starts and meets its fence, or it ends."""
        job = self.jobs[name]
        if job.state == "JOB_STATE_PENDING":
            winner = self.winners.setdefault(job.labels[RUN_LABEL], job.id)
            self._set(name, "JOB_STATE_RUNNING" if winner == job.id else "JOB_STATE_SUCCEEDED")
        elif not job.ended:
            self._set(name, end)

    def fence(self, run: Run) -> str:
        return self.winners.get(run.run_id, "")

    def of_run(self, run_id: str) -> list[JobView]:
        return [job for job in self.jobs.values() if job.labels[RUN_LABEL] == run_id]

    def _listed(self) -> list[JobView]:
        return [job for job in self.jobs.values() if job.name not in self.hidden]

    def _set(self, name: str, state: str) -> None:
        self.jobs[name] = replace(self.jobs[name], state=state, update_time=self.now)
