"""The chaos run: many requests, several deliveries of each, and everything that can go wrong meanwhile.

    python -m bench.chaos [--requests 10000] [--seed N]

Eight processes run start_training, two record_completion, one sweeps; they are killed at random and at random points.
Three requests in ten are delivered two to five times under other ids; what is not answered 200 is delivered again, as
Pub/Sub does. Of the ends of jobs some are told by log lines, and some by none, so that the sweep must find them.
One call in ten to the JobService emulator meets a fault, and the ledger is locked now and then for longer than its
time-out. At the end nothing may be lost and nothing doubled. Jobs are instant, and no submission limit is set.
"""

import argparse
import http.client
import os
import queue
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kickoff.runs import Run, State

from deploy.local.job_service.faults import parse_fault
from deploy.local.job_service.images import parse_images
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.chaos.world import Services, World, Zygote, pubsub_server
from tests.kickoff.uploading import storage_server

WORKERS = 8
CREATE_TIMEOUT, MARGIN = 4, 4
RECIPE = """
name: chaos
when: {message: {}}
job: {image: "{trainer_image}", machine_type: n1-standard-4, output: "gs://{project}-models/chaos/{run_id}"}
limits: {max_active: 0}
"""
FAULTS: list[dict[str, Any]] = [
    {"method": "create", "kind": "lose_answer", "rate": 0.04},
    {"method": "create", "kind": "status", "status": 429, "rate": 0.02},
    {"method": "create", "kind": "status", "status": 503, "rate": 0.02},
    {"method": "create", "kind": "reset", "rate": 0.02},
    {"method": "get", "kind": "status", "status": 500, "rate": 0.03},
    {"method": "list", "kind": "status", "status": 503, "rate": 0.05},
]
POINTS = [
    f"{effect}:{side}"
    for effect in ("ledger.create_run", "ledger.replace_run", "vertex.create", "bus.publish")
    for side in ("before", "after")
]


@dataclass
class Function:
    """A function process that is started again whenever it is found dead."""

    world: World
    target: str
    dice: random.Random
    tally: Counter[str]
    calm: threading.Event
    pid: int = 0
    port: int = 0

    def post(self, body: bytes, timeout: float = 120) -> int:
        """The HTTP status; 0 where the connection broke."""
        if not self.pid or self._ended():
            self._start()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", "/", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status
        except (http.client.HTTPException, OSError):
            return 0
        finally:
            connection.close()

    def kill(self) -> None:
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
                self.tally["processes killed at a random moment"] += 1
            except ProcessLookupError:
                return

    def _start(self) -> None:
        environ = self.world.environ()
        if not self.calm.is_set() and self.dice.random() < 0.5:
            environ["KICKOFF_CRASH_POINT"] = f"{self.dice.choice(POINTS)}#{self.dice.randint(1, 200)}"
        started = self.world.services.zygote.ask(target=self.target, environ=environ, skew=0, requests=10**9)
        self.pid, self.port = started["pid"], started["port"]

    def _ended(self) -> bool:
        status = self.world.services.zygote.ask(reap=self.pid)["status"]
        if status is not None:
            self.tally["processes that died"] += 1
        return status is not None


class ChaosWorld(World):
    def environ(self) -> dict[str, str]:
        return {
            **super().environ(),
            "KICKOFF_LEDGER": f"sqlite://{self.folder}/runs.db?timeout=1",
            "KICKOFF_CREATE_TIMEOUT": str(CREATE_TIMEOUT),
            "KICKOFF_LEASE_MARGIN": str(MARGIN),
        }


@dataclass
class Chaos:
    world: World
    requests: int
    seed: int
    tally: Counter[str] = field(default_factory=Counter)
    calm: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float) -> list[str]:
        """Returns what is wrong at the end; nothing, if all is well."""
        dice = random.Random(self.seed)
        deliveries: queue.Queue[bytes] = queue.Queue()
        for body in self._bodies(dice):
            deliveries.put(body)
        functions = [self._function("start_training", n) for n in range(WORKERS)]
        sweeper = self._function("sweep", WORKERS)
        recorders = [self._function("record_completion", WORKERS + n) for n in (1, 2)]
        workers = [threading.Thread(target=self._work, args=(one, deliveries)) for one in functions]
        others = [
            threading.Thread(target=self._sweep, args=(sweeper,)),
            *(threading.Thread(target=self._hint, args=(one, n)) for n, one in enumerate(recorders)),
            threading.Thread(target=self._kill, args=([*functions, *recorders, sweeper],)),
            threading.Thread(target=self._lock_ledger),
        ]
        for fault in FAULTS:
            self.world.services.vertex.services.faults.add(parse_fault({"times": None, **fault}))
        for thread in (*workers, *others):
            thread.start()
        for thread in workers:
            while thread.is_alive():
                thread.join(60)
                print(f"{deliveries.qsize():>8,}  deliveries to go", file=sys.stderr, flush=True)
        self.calm.set()
        self.world.services.vertex.services.faults.clear()
        deadline = time.monotonic() + seconds
        while not self._quiet() and time.monotonic() < deadline:
            time.sleep(0.5)
        self.done.set()
        for thread in others:
            thread.join()
        for function in (*functions, *recorders, sweeper):
            function.kill()
        return self._balance()

    def _bodies(self, dice: random.Random) -> list[bytes]:
        bodies = []
        for number in range(self.requests):
            times = dice.randint(2, 5) if dice.random() < 0.3 else 1
            request = {"recipe": "chaos", "idempotency_key": f"k-{number}"}
            bodies += [self.world.message(request)[1] for _ in range(times)]
        dice.shuffle(bodies)
        self.tally["requests"], self.tally["deliveries"] = self.requests, len(bodies)
        return bodies

    def _function(self, target: str, number: int) -> Function:
        return Function(self.world, target, random.Random(f"{self.seed} {number}"), self.tally, self.calm)

    def _work(self, function: Function, deliveries: "queue.Queue[bytes]") -> None:
        while True:
            try:
                body = deliveries.get_nowait()
            except queue.Empty:
                return
            status = function.post(body)
            self.tally[f"answers {status or 'lost'}"] += 1
            if status != 200:
                deliveries.put(body)

    def _sweep(self, function: Function) -> None:
        while not self.done.is_set():
            self.tally["sweeps"] += function.post(b"") == 200
            self.done.wait(0.2)

    def _hint(self, function: Function, part: int) -> None:
        """Log lines about ended jobs, newest run first; one in five is never sent."""
        while not self.done.wait(0.5):
            for run in self.world.ledger.find_runs(states=[State.SUBMITTED], limit=100):
                number = int(run.run_id[-4:], 16)
                if number % 2 == part and number % 5 and not self.done.is_set():
                    self.tally["log lines"] += function.post(self.world.completion(run)[1]) == 200

    def _kill(self, functions: list[Function]) -> None:
        dice = random.Random(f"{self.seed} kill")
        while not self.calm.wait(dice.expovariate(0.3)):
            dice.choice(functions).kill()

    def _lock_ledger(self) -> None:
        dice = random.Random(f"{self.seed} lock")
        path = self.world.settings.ledger.removeprefix("sqlite://").partition("?")[0]
        holder = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
        while not self.calm.wait(dice.uniform(5, 15)):
            holder.execute("BEGIN IMMEDIATE")
            self.tally["ledger outages"] += 1
            time.sleep(1.5)
            holder.execute("ROLLBACK")
        holder.close()

    def _quiet(self) -> bool:
        ended = self.world.ledger.count_runs(states=[State.SUCCEEDED, State.REJECTED, State.FAILED, State.CANCELLED])
        return ended >= self.requests and not self.world.ledger.find_runs(
            due_before=self.world.now(), states=list(State), limit=1
        )

    def _balance(self) -> list[str]:
        runs: list[Run] = []
        while page := self.world.ledger.find_runs(limit=1000, after=runs[-1].run_id if runs else ""):
            runs += page
        jobs = self._jobs_by_run()
        named = {run.run_id: run.job.id for run in runs if run.job}
        noted = sum(len(run.duplicate_jobs) for run in runs)
        made = sum(len(ids) for ids in jobs.values())
        self.tally.update({"run records": len(runs), "jobs made": made, "jobs dropped and noted": noted})
        self.tally["answers lost, then adopted"] = sum(
            "adopted" in change.note for run in runs for change in run.history
        )
        self.tally["runs submitted more than once"] = sum(run.submissions > 1 for run in runs)
        wrong = []
        if len(runs) != self.requests:
            wrong.append(f"{len(runs)} runs of {self.requests} requests")
        for run in runs:
            dropped = {name.rpartition("/")[2] for name in run.duplicate_jobs}
            if run.state is not State.SUCCEEDED or jobs[run.run_id] - dropped != {named.get(run.run_id)}:
                wrong.append(
                    f"{run.run_id} {run.state}: jobs {jobs[run.run_id]}, named {named.get(run.run_id)}, {run.notes}"
                )
        return wrong

    def _jobs_by_run(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for job in self.world.vertex._list(self.world.project, "us-central1", "labels.kickoff-run:*"):
            found[job.labels["kickoff-run"]].add(job.id)
        return found


def run_chaos(
    services: Services, folder: Path, requests: int, seed: int, seconds: float = 900
) -> tuple[Counter[str], list[str]]:
    """The tally, and what is wrong."""
    world = ChaosWorld(services, folder)
    (folder / "recipes" / "chaos.yaml").write_text(RECIPE)
    world.prepare()
    chaos = Chaos(world, requests, seed)
    try:
        return chaos.tally, chaos.run(seconds)
    finally:
        world.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"chaos: {options.requests} requests, seed {options.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, storage_server() as storage, pubsub_server() as pubsub:
        folder = Path(name)
        os.environ["PUBSUB_EMULATOR_HOST"] = pubsub
        images = parse_images('{"*/kickoff/trainer:*": "instant"}', "chaos")
        zygote = Zygote((folder / "functions.log").open("wb"))
        try:
            with JobServiceServer(Options(state=folder / "vertex", images=images)) as vertex:
                tally, wrong = run_chaos(
                    Services(zygote, vertex, storage, pubsub), folder / "world", options.requests, options.seed
                )
        finally:
            zygote.stop()
    tally["seconds"] = round(time.monotonic() - began)
    for what, count in sorted(tally.items()):
        print(f"{count:>8,}  {what}")
    for line in wrong[:20]:
        print(f"WRONG: {line}")
    print("nothing lost, nothing doubled" if not wrong else f"{len(wrong)} faults; seed {options.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
