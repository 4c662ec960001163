"""One ledger, the JobService emulator over the wire, and a clock that tests move."""

import itertools
import json
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kickoff.adopting import adopt
from kickoff.duplicates import Fence, no_fence
from kickoff.jobs import JobView, run_state
from kickoff.ledger import Ledger, open_ledger
from kickoff.outbox import accept, submit
from kickoff.runs import Run, State
from kickoff.settings import Settings
from kickoff.sweep_pass import SweepReport, run_pass
from kickoff.updating import find_run, update_run
from kickoff.vertex import Vertex

from deploy.local.job_service.server import JobServiceServer
from tests.kickoff.making import NOW, make_run

_projects = itertools.count(1)


@dataclass
class Lab:
    folder: Path
    server: JobServiceServer
    project: str = field(default_factory=lambda: f"project-{next(_projects)}")
    time: datetime = NOW
    create_timeout: float = 5.0
    max_total: int = 0
    winners: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        environ = {
            "KICKOFF_PROJECT": self.project,
            "KICKOFF_LEDGER": f"sqlite://{self.folder}/runs.db",
            "KICKOFF_VERTEX_ENDPOINT": self.server.url,
            "KICKOFF_CREATE_TIMEOUT": str(self.create_timeout),
            "KICKOFF_LEASE_MARGIN": "60",
        }
        self.settings = Settings.from_environ(environ)
        self.ledger: Ledger = open_ledger(self.settings.ledger)
        self.vertex = Vertex(self.settings)
        self.fence: Fence = lambda run: self.winners.get(run.run_id, "") or no_fence(run)

    def now(self) -> datetime:
        return self.time

    def later(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def queued(self, name: str = "m-1", image: str = "idle", **fields: Any) -> Run:
        """An accepted run."""
        run = make_run(name, created=self.time, project=self.project, **fields)
        job = json.loads(json.dumps(run.custom_job).replace('"instant"', f'"{image}"'))
        return accept(self.ledger, run.model_copy(update={"custom_job": job})).run

    def submit(self, run: Run) -> Run:
        return submit(self.ledger, self.vertex, run.run_id, **self.how())

    def adopt(self, run: Run) -> Run:
        run = find_run(self.ledger, run.run_id)
        return adopt(self.ledger, self.vertex, run, settings=self.settings, now=self.now, fence=self.fence)

    def sweep(self, **options: Any) -> SweepReport:
        return run_pass(self.ledger, self.vertex, **{**self.how(), "record": self.record, **options})

    def record(self, run: Run) -> Run:
        """What record.py does, less its evidence: follow GetCustomJob."""
        job = self.vertex.get(run.job.name) if run.job else None
        state = run_state(job.state) if job else None

        def followed(current: Run) -> Run | None:
            if current.terminal:
                return current.model_copy(update={"next_attempt_at": None}) if current.next_attempt_at else None
            if job is None or state in (None, State.SUBMITTED, current.state):
                return None
            return current.moved(state, self.time, job=job.record())

        return update_run(self.ledger, run, followed)

    def how(self) -> dict[str, Any]:
        return {"settings": self.settings, "now": self.now, "max_total": self.max_total, "fence": self.fence}

    def run(self, run: Run) -> Run:
        return find_run(self.ledger, run.run_id)

    def jobs(self, run: Run) -> list[JobView]:
        return self.vertex.find_by_run(self.project, run.region, run.run_id)

    def going(self, run: Run) -> list[str]:
        """Names of the run's jobs that go on."""
        return [job.name for job in self.jobs(run) if not job.ended and job.state != "JOB_STATE_CANCELLING"]

    def fault(self, method: str, kind: str, **fields: Any) -> None:
        body = json.dumps({"method": method, "kind": kind, **fields}).encode()
        request = urllib.request.Request(f"{self.server.url}/admin/faults", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def clear_faults(self) -> None:
        self.server.services.faults.clear()
