"""All jobs: which may start, which wait for quota, what happened to those that a dead emulator left behind."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from deploy.local.job_service import marked, states
from deploy.local.job_service.clock import timestamp
from deploy.local.job_service.environment import Replica, list_replicas
from deploy.local.job_service.errors import CODES, ApiError, failed_precondition, not_found
from deploy.local.job_service.execution import CUSTOM_JOBS, Execution, Json, get_seconds
from deploy.local.job_service.options import REJECT
from deploy.local.job_service.quotas import describe_exceeded, find_exceeded, measure_usage
from deploy.local.job_service.services import Services

_DEFAULT_MAX_WAIT = 86_400.0
_SLOW_PERIOD = 0.1
"""Seconds: a slowed replica runs a tenth of each and is stopped for the rest."""


class Supervisor:
    """Jobs come in with `submit`; everything after that happens on the loop's thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.RLock()
        self._running: dict[str, Execution] = {}
        self._waiting: list[Execution] = []
        self._slow: set[tuple[str, Replica]] = set()
        self._keeper: subprocess.Popen[bytes] | None = None
        self.on_job_end: Any = lambda job_id: None

    def start(self) -> None:
        """Clear up after an earlier emulator on the same state, then begin."""
        marked.kill_marked(self._services.mark)
        self._services.loop.start()
        for job in self._services.store.unfinished(CUSTOM_JOBS):
            self._take_over(job)

    def stop(self) -> None:
        """End every replica. Jobs that ran are found and failed at the next start."""
        self._services.loop.stop()
        groups = [process for execution in self._running.values() for process in execution.processes.values()]
        for process in groups:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        for process in groups:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(self._services.options.grace / max(1, len(groups)))
        marked.kill_marked(self._services.mark)
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()
            self._keeper.wait(10)

    def submit(self, job: Json, project: str, region: str) -> Json:
        """Store a new job, which starts at once or waits for quota. Returns it as it then is.

        Raises ApiError (429) where quotas reject.
        """
        store, clock = self._services.store, self._services.clock
        with self._lock:
            over = self._exceeded(job["jobSpec"], project, region)
            if over and self._services.options.quota_mode == REJECT:
                raise ApiError(429, describe_exceeded(over))
            store.add(CUSTOM_JOBS, project, region, job)
            execution = Execution(job, project, region, self._services, self._ended)
            self._services.logs.service(execution.id, project, "Waiting for job to be provisioned.")
            self._arm_max_wait(execution)
            if over:
                self._waiting.append(execution)
                return job
            self._running[execution.id] = execution
            pending = store.move(CUSTOM_JOBS, execution.id, states.PENDING, timestamp(clock.now()))
        self._keep(execution)
        self._services.loop.post(execution.start)
        return pending or job

    def cancel(self, job_id: str) -> None:
        """Begin to cancel: CANCELLING when this returns. Raises ApiError where the job has ended."""
        now = timestamp(self._services.clock.now())
        with self._lock:
            document = self._services.store.get(CUSTOM_JOBS, job_id)
            if document is None:
                raise not_found(f"The CustomJob {job_id}")
            if document["state"] == states.CANCELLING:
                return
            if not self._services.store.move(CUSTOM_JOBS, job_id, states.CANCELLING, now):
                raise failed_precondition(
                    f"CustomJob {document['name']} is in state {document['state']} and cannot be cancelled."
                )
            execution = self.find(job_id)
        if execution:
            self._services.loop.post(execution.cancel)

    def find(self, job_id: str) -> Execution | None:
        """The job's execution while it lives."""
        with self._lock:
            waiting = (execution for execution in self._waiting if execution.id == job_id)
            return self._running.get(job_id) or next(waiting, None)

    def disturb(self, job_id: str, what: str, name: str, number: int = signal.SIGKILL) -> None:
        """Kill, preempt, freeze, thaw or slow a replica. Raises ApiError where that is not possible."""
        execution = self.find(job_id)
        if execution is None:
            raise not_found(f"A running job {job_id}")
        replica = next((replica for replica in list_replicas(execution.spec) if replica.name == name), None)
        if replica is None or replica not in execution.processes:
            raise not_found(f"A running replica {name} of job {job_id}")
        if what == "preempt":
            if execution.spec.get("scheduling", {}).get("strategy") != "SPOT":
                raise failed_precondition(f"Job {job_id} does not use strategy SPOT; only Spot VMs are preempted.")
            self._services.loop.post(lambda: execution.preempt(replica))
        elif what == "slow":
            self._slow.add((job_id, replica))
            self._services.loop.post(lambda: self._slow_down(execution, replica, stop=True))
        else:
            self._slow.discard((job_id, replica))
            execution.signal(replica, {"freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}.get(what, number))

    def stats(self) -> Json:
        """Counts, and what each living job is at."""
        with self._lock:
            living = [*self._running.values(), *self._waiting]
            jobs = [
                {
                    "id": execution.id,
                    "project": execution.project,
                    "restarts": execution.total_restarts,
                    "retries": execution.retries,
                    "replicas": {replica.name: process.pid for replica, process in list(execution.processes.items())},
                }
                for execution in living
            ]
        return {"states": self._services.store.count_by_state(CUSTOM_JOBS), "living": jobs}

    def _ended(self, execution: Execution) -> None:
        with self._lock:
            self._running.pop(execution.id, None)
            if execution in self._waiting:
                self._waiting.remove(execution)
            self._slow = {pair for pair in self._slow if pair[0] != execution.id}
        self.on_job_end(execution.id)
        self._admit()

    def _admit(self) -> None:
        """Start what waits and fits now, first come first served."""
        now = timestamp(self._services.clock.now())
        with self._lock:
            for execution in list(self._waiting):
                if self._exceeded(execution.spec, execution.project, execution.region):
                    continue
                self._waiting.remove(execution)
                if self._services.store.move(CUSTOM_JOBS, execution.id, states.PENDING, now):
                    self._running[execution.id] = execution
                    self._keep(execution)
                    self._services.loop.post(execution.start)

    def _exceeded(self, spec: Json, project: str, region: str) -> list[str]:
        """The quota metrics that one more job of `spec` would exceed."""
        used: Counter[str] = Counter()
        for other in self._running.values():
            if (other.project, other.region) == (project, region):
                used += measure_usage(other.spec)
        return find_exceeded(measure_usage(spec), used, self._services.options.quotas)

    def _arm_max_wait(self, execution: Execution) -> None:
        """https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec#Scheduling: 0 waits for ever."""
        wait = get_seconds(execution.spec, "maxWaitDuration")
        if wait is None and execution.spec.get("scheduling", {}).get("strategy") == "FLEX_START":
            wait = _DEFAULT_MAX_WAIT
        if wait:
            limit = wait
            self._services.loop.post(lambda: self._services.loop.after(limit, lambda: self._max_wait_over(execution)))

    def _max_wait_over(self, execution: Execution) -> None:
        document = self._services.store.get(CUSTOM_JOBS, execution.id)
        if document and document["state"] in (states.QUEUED, states.PENDING):
            execution.expire()

    def _take_over(self, job: Json) -> None:
        """A job of an emulator that is gone: queued ones start, the others' replicas are dead."""
        job_id = str(job["name"]).rpartition("/")[2]
        project, region = self._services.store.place(job_id)
        execution = Execution(job, project, region, self._services, self._ended)
        if job["state"] == states.QUEUED:
            with self._lock:
                self._waiting.append(execution)
            self._arm_max_wait(execution)
            self._services.loop.post(self._admit)
            return
        now = timestamp(self._services.clock.now())
        state, code, words = (
            states.FAILED,
            CODES["INTERNAL"],
            "The emulator ended while the job ran; its replicas were ended.",
        )
        if job["state"] == states.CANCELLING:
            state, code, words = states.CANCELLED, 1, "CANCELED"
        self._services.store.move(
            CUSTOM_JOBS, job_id, state, now, endTime=now, webAccessUris=None, error={"code": code, "message": words}
        )
        severity = "ERROR" if state == states.FAILED else "WARNING"
        self._services.logs.service(
            job_id, project, "Job failed." if state == states.FAILED else "Job cancelled.", severity=severity
        )

    def _keep(self, execution: Execution) -> None:
        """Before the first process: have something that ends the replicas if this process is SIGKILLed."""
        with self._lock:
            if self._keeper is None:
                program = [sys.executable, "-I", "-S", str(Path(marked.__file__)), self._services.mark]
                self._keeper = subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True)

    def _slow_down(self, execution: Execution, replica: Replica, *, stop: bool) -> None:
        if (execution.id, replica) not in self._slow:
            return
        execution.signal(replica, signal.SIGSTOP if stop else signal.SIGCONT)
        share = 0.9 if stop else 0.1
        self._services.loop.after_real(_SLOW_PERIOD * share, lambda: self._slow_down(execution, replica, stop=not stop))
