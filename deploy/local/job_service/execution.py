"""One job while it lives: its replicas, restarts and time limits. Everything here runs on the loop's thread.

What an exit means is decided in `states.decide_exit`; this carries it out.
"""

import contextlib
import signal
import sqlite3
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from deploy.local.job_service import states
from deploy.local.job_service.buckets import BucketError
from deploy.local.job_service.clock import timestamp
from deploy.local.job_service.environment import Replica, get_image, list_replicas
from deploy.local.job_service.errors import CODES
from deploy.local.job_service.images import Image, find_image
from deploy.local.job_service.launching import Launcher
from deploy.local.job_service.marked import kill_marked
from deploy.local.job_service.preparing import PreparationFailed, needs_preparation, prepare
from deploy.local.job_service.processes import ReplicaProcess
from deploy.local.job_service.sentences import LAST_LINES, describe_exit, describe_start_error, describe_unknown_image
from deploy.local.job_service.services import Services
from deploy.local.job_service.states import Action, Policy

Json = dict[str, Any]
CUSTOM_JOBS = "customJobs"
_STORE_AGAIN = 1.0
"""Seconds until a job's end is written again where it could not be."""
_DEFAULT_TIMEOUT = 7 * 86_400.0


class Execution:
    """A job that has been admitted, until it ends."""

    def __init__(
        self, job: Json, project: str, region: str, services: Services, on_end: Callable[["Execution"], None]
    ) -> None:
        self.id = str(job["name"]).rpartition("/")[2]
        self.spec: Json = job["jobSpec"]
        self.project, self.region = project, region
        self.restarts: Counter[str] = Counter()
        self.total_restarts = 0
        self.retries = 0
        self.processes: dict[Replica, ReplicaProcess] = {}
        self._replicas = list(list_replicas(self.spec))
        self._services = services
        self._on_end = on_end
        number = services.project_number(project)
        self._launcher = Launcher(self.id, self.spec, services.options.state, project_number=number, region=region)
        self._images: dict[int, Image] = {}
        self._up: set[Replica] = set()
        self._attempt = 0
        """Grows with every start of all replicas: timers and exits of an earlier one mean nothing."""
        self._preempted: set[Replica] = set()
        self._limit: float | None = None
        self._after_stop: Callable[[], None] | None = None
        self._ended = False

    # Starting.

    def start(self) -> None:
        """Admitted: resources are there."""
        self._safely(self._start)

    def _start(self) -> None:
        lines = ("Vertex AI is provisioning job running framework.", "Vertex AI is setting up this job.")
        self._log(*lines, "Waiting for training program to start.", "Job is preparing.")
        for number, pool in enumerate(self.spec["workerPoolSpecs"]):
            image = find_image(self._services.options.images, get_image(pool))
            if image is None and int(pool.get("replicaCount", 0)):
                self._fail_unknown_image(get_image(pool))
                return
            self._images[number] = image or Image()
        if self._has_processes() and (self._services.options.mounts or needs_preparation(self.spec)):
            threading.Thread(target=self._prepare, name=f"prepare-{self.id}", daemon=True).start()
        else:
            self._launch()

    def _prepare(self) -> None:
        """Install packages and fetch buckets, on a thread of its own; the loop goes on with what comes of it."""
        post, launcher, mounts = self._services.loop.post, self._launcher, self._services.options.mounts
        try:
            launcher.prepared = prepare(self.spec, launcher.folder, launcher.base_environ(), mounts)
        except PreparationFailed as error:
            failure = error
            post(self._guarded(lambda: self._preparation_failed(failure)))
        except Exception:
            traceback.print_exc()
            post(self._guarded(self._internal_error))
        else:
            post(self._guarded(self._launch))

    def _preparation_failed(self, failure: PreparationFailed) -> None:
        if failure.replica:
            lines = [*failure.output.splitlines(), str(failure)]
            self._services.logs.replica(self.id, self.project, failure.replica, lines, error=True)
        self._log(str(failure), severity="ERROR")
        last = "".join(f"\n{line}" for line in failure.output.splitlines()[-10:])
        self._stop_all(lambda: self._end(states.FAILED, "INTERNAL", f"{failure}{last}"))

    def _launch(self) -> None:
        self._attempt += 1
        self._up.clear()
        if self._has_processes():
            self._launcher.hold_ports(self._replicas)
        self._services.loop.after(self._services.options.startup_deadline, self._guarded(self._startup_deadline))
        notes = list(self._launcher.notes())
        if notes and self._attempt == 1:
            self._log(*notes)
        for replica in self._replicas:
            if self._services.faults.take_missing(replica.name):
                continue
            self._launch_replica(replica)
            if self._ended or self._after_stop:
                return
        self._announce_if_up()

    def _launch_replica(self, replica: Replica) -> None:
        image = self._images[replica.pool]
        if image.instant is not None:
            self._up.add(replica)
            status = image.instant
            self._services.loop.post(self._guarded(lambda: self._exited(replica, status)))
            return
        try:
            process = self._launcher.start(replica, image)
        except (OSError, ValueError) as error:
            self._start_failed(replica, f"failed to start the container: {error}")
            return
        self._watch(replica, process)

    def _watch(self, replica: Replica, process: Any) -> None:
        services, attempt = self._services, self._attempt

        def lines(found: list[str], error: bool) -> None:
            services.logs.replica(self.id, self.project, replica.name, found, error=error)

        def ended(status: int) -> None:
            services.loop.post(lambda: self._process_ended(replica, started, status, attempt))

        started = ReplicaProcess(process, lines, ended)
        self.processes[replica] = started
        self._up.add(replica)
        services.watcher.watch(started)

    def _announce_if_up(self) -> None:
        if self._ended or self._after_stop or len(self._up) < len(self._replicas):
            return
        uris = None
        if self.spec.get("enableWebAccess"):
            uris = {r.name: f"{self._services.url()}/web/{self.id}/{r.name}" for r in self._replicas}
        if self._move(states.RUNNING, "startTime", webAccessUris=uris):
            self._log("Job is running.")
            if self._limit is None:
                self._limit = get_seconds(self.spec, "timeout") or _DEFAULT_TIMEOUT
                self._services.loop.after(self._limit, self._timed_out)

    # Time limits.

    def expire(self) -> None:
        """Waited longer than max_wait_duration without running."""
        words = "The job waited longer than max_wait_duration for its resources."
        if not self._ended:
            self._stop_all(lambda: self._end(states.EXPIRED, "DEADLINE_EXCEEDED", words))

    def _startup_deadline(self) -> None:
        missing = [replica.name for replica in self._replicas if replica not in self._up]
        if missing:
            words = (
                f"Replicas did not start within {self._services.options.startup_deadline:g} s: {', '.join(missing)}."
            )
            self._stop_all(lambda: self._end(states.FAILED, "DEADLINE_EXCEEDED", words))

    def _timed_out(self) -> None:
        words = f"The job ran longer than its timeout of {self._limit:g}s and was cancelled."
        if not self._ended and self._move(states.CANCELLING):
            self._stop_all(lambda: self._end(states.CANCELLED, "CANCELLED", words))

    # Exits.

    def _process_ended(self, replica: Replica, process: ReplicaProcess, status: int, attempt: int) -> None:
        if self.processes.get(replica) is process:
            del self.processes[replica]
        if self._after_stop:
            self._finish_stop()
        elif not self._ended and attempt == self._attempt:
            self._exited(replica, status)

    def _exited(self, replica: Replica, status: int) -> None:
        preempted = replica in self._preempted
        self._preempted.discard(replica)
        scheduling = self.spec.get("scheduling", {})
        policy = Policy(
            bool(scheduling.get("restartJobOnWorkerRestart")),
            bool(scheduling.get("disableRetries")),
            self._services.options.permanent_exits,
        )
        restarts = self.restarts[replica.name]
        action = states.decide_exit(replica.name, status, restarts, self.retries, policy, preempted=preempted)
        if action == Action.NOTHING:
            return
        if action == Action.SUCCEED:
            self._log("Tearing down training program.")
            self._stop_all(lambda: self._end(states.SUCCEEDED))
            return
        tail = self._services.logs.tail(self.id, replica.name)
        number = self._services.project_number(self.project)
        words = describe_exit(replica.name, status, tail, viewer=self._services.url(), project=number, job_id=self.id)
        self._log(words, severity="ERROR")
        if action == Action.FAIL:
            self._log("Tearing down training program.")
            self._stop_all(lambda: self._end(states.FAILED, "INTERNAL", words))
        else:
            self._restart(replica, action)

    def _restart(self, replica: Replica, action: Action) -> None:
        self.total_restarts += 1
        delay, loop = self._services.options.restart_delay, self._services.loop
        if action == Action.RESTART_REPLICA:
            self.restarts[replica.name] += 1
            self._up.discard(replica)
            loop.after_real(delay, self._guarded(lambda: self._relaunch(replica)))
            return
        if action == Action.RETRY_JOB:
            self.retries += 1
            self.restarts.clear()
            self._log("Job failed.", "Waiting for job to be provisioned.", severity="WARNING")
            self._move(states.PENDING)
        else:
            self.restarts[replica.name] += 1
        self._stop_all(lambda: loop.after_real(delay, self._guarded(self._launch)))

    def _relaunch(self, replica: Replica) -> None:
        self._launch_replica(replica)
        self._announce_if_up()

    def _start_failed(self, replica: Replica, why: str) -> None:
        self._services.logs.replica(self.id, self.project, replica.name, [f"StartError: {why}"], error=True)
        words = describe_start_error(replica.name, why)
        self._log(words, severity="ERROR")
        self._stop_all(lambda: self._end(states.FAILED, "INTERNAL", words))

    def _fail_unknown_image(self, uri: str) -> None:
        words = describe_unknown_image(uri)
        self._log(words, severity="ERROR")
        self._end(states.FAILED, "NOT_FOUND", words)

    # From outside.

    def cancel(self) -> None:
        """The job is CANCELLING already: stop everything, then it is CANCELLED."""
        if not self._ended:
            self._stop_all(lambda: self._end(states.CANCELLED, "CANCELLED", "CANCELED"))

    def preempt(self, replica: Replica) -> None:
        """Take a SPOT replica's machine away."""
        if replica in self.processes:
            self._preempted.add(replica)
            self._log(f"The replica {replica.name} was preempted.", severity="WARNING")
            self.processes[replica].signal(signal.SIGKILL)

    def signal(self, replica: Replica, number: int) -> None:
        process = self.processes.get(replica)
        if process:
            process.signal(number)

    # Stopping.

    def _stop_all(self, then: Callable[[], None]) -> None:
        """SIGTERM to every group, SIGKILL after the grace, then `then`; a later call replaces an earlier one's."""
        first = self._after_stop is None
        self._after_stop = then
        if first and self.processes:
            for process in self.processes.values():
                process.signal(signal.SIGCONT)
                process.signal(signal.SIGTERM)
            attempt = self._attempt
            self._services.loop.after_real(self._services.options.grace, lambda: self._kill_all(attempt))
        self._finish_stop()

    def _kill_all(self, attempt: int) -> None:
        if self._after_stop and attempt == self._attempt:
            for process in self.processes.values():
                process.signal(signal.SIGKILL)

    def _finish_stop(self) -> None:
        """Once no replica is left: what they wrote below ``/gcs`` goes to its buckets, and then on."""
        if self.processes or self._after_stop is None:
            return
        if self._has_processes():
            kill_marked(self._launcher.mark)
        then, self._after_stop = self._after_stop, None
        self._attempt += 1
        if self._launcher.prepared.gcs is None:
            then()
        else:
            arguments = [self._guarded(then)]
            threading.Thread(target=self._store_changes, args=arguments, name=f"store-{self.id}", daemon=True).start()

    def _store_changes(self, then: Callable[[], None]) -> None:
        try:
            self._launcher.prepared.store_changes()
        except (BucketError, OSError) as error:
            self._log(f"What was written below /gcs could not be stored: {error}", severity="ERROR")
        self._services.loop.post(then)

    def _internal_error(self) -> None:
        words = "Internal error occurred for the current attempt."
        self._log(words, severity="ERROR")
        self._stop_all(lambda: self._end(states.FAILED, "INTERNAL", words))

    def _end(self, state: str, status: str = "", words: str = "") -> None:
        """The last thing that happens to a job; again, until the store takes it: its disk may be full for a while."""
        self._ended = True
        self._launcher.release_ports()
        error = {"code": CODES.get(status, 1), "message": words} if status else None
        delay = self._services.options.error_delay if state == states.FAILED else 0.0
        try:
            moved = self._move(state, "endTime", error=None if delay else error, webAccessUris=None)
        except sqlite3.Error as trouble:
            with contextlib.suppress(OSError):
                print(f"job {self.id} cannot be stored as {state}, trying again: {trouble}", file=sys.stderr)
            self._services.loop.after_real(_STORE_AGAIN, lambda: self._end(state, status, words))
            return
        if not moved:
            # Somebody cancelled while it was being torn down: a cancelled job never counts as a success.
            state = states.CANCELLED
            self._move(state, "endTime", error={"code": 1, "message": "CANCELED"}, webAccessUris=None)
        elif delay:
            self._services.loop.after(delay, lambda: self._fill_error(error))
        self._log("Finished tearing down training program.")
        words, severity = LAST_LINES[state]
        self._log(words, severity=severity)
        self._on_end(self)

    def _fill_error(self, error: Json | None) -> None:
        document = self._services.store.get(CUSTOM_JOBS, self.id)
        if document:
            now = timestamp(self._services.clock.now())
            self._services.store.update(document | {"error": error, "updateTime": now})

    # Small things.

    def _move(self, state: str, stamp: str = "", **changes: Any) -> bool:
        """Take the job to `state`, with the time under the key `stamp` too. False where the table refuses."""
        now = timestamp(self._services.clock.now())
        changes |= {stamp: now} if stamp else {}
        return self._services.store.move(CUSTOM_JOBS, self.id, state, now, **changes) is not None

    def _log(self, *lines: str, severity: str = "INFO") -> None:
        self._services.logs.service(self.id, self.project, *lines, severity=severity)

    def _guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call`, unless this try of the job is over by then."""
        attempt = self._attempt

        def run() -> None:
            if not self._ended and self._after_stop is None and attempt == self._attempt:
                self._safely(call)

        return run

    def _safely(self, call: Callable[[], None]) -> None:
        """`call`; an error of the emulator's own fails the job, which would hang otherwise."""
        try:
            call()
        except Exception:
            traceback.print_exc()
            if not self._ended:
                self._internal_error()

    def _has_processes(self) -> bool:
        return any(image.instant is None for image in self._images.values())


def get_seconds(spec: Json, name: str) -> float | None:
    """A duration of the spec's scheduling, None where it is not set."""
    text = spec.get("scheduling", {}).get(name)
    return float(text.removesuffix("s")) if text else None
