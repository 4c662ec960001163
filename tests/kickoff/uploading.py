"""A real bucket, a real ledger, and clients that upload: what the tests and the bench of settling share."""

import base64
import json
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google_crc32c
from kickoff.event_types import Upload
from kickoff.holds import holds
from kickoff.ledger import AlreadyExists, Ledger, open_ledger
from kickoff.lost import find_lost
from kickoff.recipes import Recipes, load_recipes
from kickoff.runs import build_run_id
from kickoff.settling import Held, NotCurrent, Settled, settle, settle_due
from kickoff.storage import Storage
from kickoff.templates import TemplateValues

from deploy.local.stack import storage_binary
from tests.kickoff.making import make_run

BUCKET = "acme-data"

RECIPE = """
name: {name}
when: {{upload: {{bucket: acme-data, root: {root}, match: "**/*.jpg"{complete}}}}}
job: {{args: {{data: "{{dataset.snapshot}}"}}}}
"""
HOWS = {
    "quiet": ", complete: {quiet: 1s}",
    "marker": ", complete: {marker: _SUCCESS, settle: 2s}",
    "manifest": ", complete: {manifest: manifest.json, settle: 2s}",
    "object": "",
}


@contextmanager
def storage_server() -> Iterator[str]:
    """fake-gcs-server on a free port, as ``STORAGE_EMULATOR_HOST`` says to the official client meanwhile."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-log-level", "error"]
    process = subprocess.Popen([storage_binary(), *flags], stderr=subprocess.DEVNULL)
    before = os.environ.get("STORAGE_EMULATOR_HOST")
    os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield os.environ["STORAGE_EMULATOR_HOST"]
    finally:
        process.kill()
        process.wait()
        if before is None:
            del os.environ["STORAGE_EMULATOR_HOST"]
        else:
            os.environ["STORAGE_EMULATOR_HOST"] = before


def make_recipes(root: str, *names: str) -> Recipes:
    """One recipe for each of `names`, all watching ``<root>/<name>/``."""
    files = {n: RECIPE.format(name=n, root=f"{root}/{n}/", complete=HOWS[n]) for n in names or HOWS}
    return load_recipes(files, TemplateValues("acme", "us-central1", "us-docker.pkg.dev/acme/t/t:1"))


@dataclass
class World:
    """One deployment's storage and ledger, and what start_training does with a settled dataset."""

    recipes: Recipes
    ledger: Ledger
    storage: Storage
    client: Any
    skew: timedelta = timedelta(0)
    """Added to the functions' clock; Cloud Storage keeps its own."""
    runs: dict[str, Settled] = field(default_factory=dict)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.skew

    def upload(self, name: str, data: bytes = b"x", **metadata: str) -> Upload:
        """Upload one object with the official client; the event that tells of it."""
        blob = self.client.bucket(BUCKET).blob(name)
        blob.metadata = metadata or None
        blob.upload_from_string(data)
        return Upload(BUCKET, name, int(blob.generation), len(data), blob.crc32c)

    def deliver(self, upload: Upload) -> list[Settled | Held | NotCurrent]:
        """Deliver an event as start_training does: every recipe that it matches, and a run for what is settled."""
        outcomes = []
        for match in self.recipes.match_upload(upload.bucket, upload.name):
            outcome = settle(match, upload, ledger=self.ledger, storage=self.storage, now=self.now())
            if isinstance(outcome, Settled):
                self.accept(outcome)
            outcomes.append(outcome)
        return outcomes

    def accept(self, settled: Settled) -> bool:
        """The outbox's first step: one atomic create. False: there is a run for this version."""
        try:
            self.ledger.create_run(make_run(key=settled.key, recipe=settled.recipe, dataset=settled.dataset))
            self.runs[build_run_id(settled.key)] = settled
            created = True
        except AlreadyExists:
            created = False
        settled.done()
        return created

    def sweep(self) -> None:
        services = {"ledger": self.ledger, "storage": self.storage, "now": self.now()}
        for settled in settle_due(self.recipes, **services):  # type: ignore[arg-type]
            self.accept(settled)

    def look_for_lost(self, **options: Any) -> list[Settled]:
        services = {"ledger": self.ledger, "storage": self.storage, "now": self.now()}
        found = []
        for settled in find_lost(self.recipes, **services, **options):  # type: ignore[arg-type]
            found.append(settled)
            self.accept(settled)
        return found

    def settle_all(self, seconds: float = 30) -> None:
        """Sweep until nothing is held."""
        deadline = time.monotonic() + seconds
        self.sweep()
        while waiting := holds(self.ledger):
            assert time.monotonic() < deadline, waiting
            time.sleep(0.1)
            self.sweep()

    def members(self, recipe: str) -> list[set[tuple[str, int]]]:
        """(name, generation) of what each run of a recipe trains on, in the order of their acceptance."""
        snapshots = [json.loads(s.snapshot) for s in self.runs.values() if s.recipe == recipe]
        return [{(m["name"], int(m["generation"])) for m in each["members"]} for each in snapshots]


def make_world(folder: Path, root: str, *names: str) -> World:
    storage = Storage("acme")
    client = storage._client
    if client.lookup_bucket(BUCKET) is None:
        client.create_bucket(BUCKET)
    return World(make_recipes(root, *names), open_ledger(f"sqlite://{folder}/ledger.db"), storage, client)


def build_manifest(files: dict[str, bytes], *, pinned: bool) -> bytes:
    """A manifest of `files` (relative name -> bytes), with checksums or names alone."""

    def entry(name: str, data: bytes) -> object:
        checksum = base64.b64encode(google_crc32c.value(data).to_bytes(4)).decode()
        return {"name": name, "crc32c": checksum, "size": len(data)} if pinned else name

    return json.dumps({"files": [entry(name, data) for name, data in files.items()]}).encode()


def upload_in_parallel(world: World, files: dict[str, bytes], chance: random.Random, clients: int = 16) -> list[str]:
    """Upload (name -> bytes) in random order by parallel clients, deliver each event once to three times, some late,
    while two sweeps run. Returns what went wrong."""
    order = list(files)
    chance.shuffle(order)
    repeats = {name: chance.choice([1, 1, 1, 2, 3]) for name in order}
    late: list[Upload] = []
    wrong: list[str] = []
    over = threading.Event()

    def upload(name: str) -> None:
        event = world.upload(name, files[name])
        late.extend([event] * (repeats[name] - 1))
        world.deliver(event)

    def sweep() -> None:
        while not over.wait(0.05):
            try:
                world.sweep()
            except Exception as error:
                wrong.append(repr(error))

    sweeps = [threading.Thread(target=sweep) for _ in range(2)]
    for each in sweeps:
        each.start()
    try:
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(upload, order, timeout=300))
            chance.shuffle(late)
            list(pool.map(world.deliver, late, timeout=300))
    finally:
        over.set()
        for each in sweeps:
            each.join(timeout=30)
    return wrong
