"""Settling with anything happening at any moment: uploads, events, another sweep or a crash before every single call.

Time is simulated here, and the bucket with it (test_settling.py has the real one); the ledger is real.
"""

import base64
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kickoff.datasets import Listing, StoredObject
from kickoff.event_types import Upload
from kickoff.holds import CLOSING_LEASE, CLOSINGS, HOLDS, holds, list_all
from kickoff.ledger import AlreadyExists, Ledger, open_ledger
from kickoff.recipes import load_recipes
from kickoff.runs import build_run_id
from kickoff.settling import Settled, settle, settle_due
from kickoff.templates import TemplateValues

from tests.kickoff.making import make_run

BUCKET = "acme-data"
QUIET = timedelta(seconds=60)
RECIPE = """
name: r
when: {{upload: {{bucket: acme-data, root: {root}/, match: "*.jpg", complete: {how}}}}}
job: {{args: {{data: "{{dataset.snapshot}}"}}}}
"""
HOWS = {"quiet": "{quiet: 60s}", "marker": "{marker: _SUCCESS, settle: 60s}"}

_roots = itertools.count()

FILES = st.tuples(st.integers(0, 2), st.integers(0, 1))
"""Which file, and which of two contents."""

ACTIONS = st.one_of(
    st.tuples(st.just("send"), FILES),
    st.tuples(st.just("upload"), FILES),
    st.tuples(st.just("marker"), st.booleans()),
    st.tuples(st.just("deliver"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, 59, 61, 200])),
    st.tuples(st.just("sweep"), st.none()),
    st.tuples(st.just("crash"), st.none()),
)
Action = tuple[str, Any]


class Crash(BaseException):
    """The process dies: nothing catches it."""


class Hooked:
    """Calls `before` and then the method."""

    def __init__(self, inner: Any, before: Callable[[], None]) -> None:
        self._inner, self._before = inner, before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before()
            return method(*args, **kwargs)

        return call


class Bucket:
    """A bucket whose clock is ours."""

    def __init__(self) -> None:
        self.clock = datetime(2026, 12, 1, tzinfo=UTC)
        self.objects: dict[str, StoredObject] = {}
        self.versions: list[frozenset[tuple[str, int]]] = []

    def put(self, name: str, data: str) -> Upload:
        self.clock += timedelta(milliseconds=1)
        generation = int(self.clock.timestamp() * 1000)
        crc32c = base64.b64encode(data.ljust(4).encode()).decode()
        self.objects[name] = StoredObject(name, generation, crc32c, len(data), self.clock)
        self.versions.append(self.members())
        return Upload(BUCKET, name, generation, len(data), crc32c)

    def members(self) -> frozenset[tuple[str, int]]:
        return frozenset((o.name, o.generation) for o in self.objects.values() if o.name.endswith(".jpg"))

    def list(self, bucket: str, prefix: str) -> Listing:
        assert bucket == BUCKET
        return Listing(self.clock, [self.objects[name] for name in sorted(self.objects) if name.startswith(prefix)])


class Simulation:
    """One dataset of one recipe, and what the tests let happen to it."""

    def __init__(self, ledger: Ledger, mode: str, meddling: dict[int, Action]) -> None:
        self.root = f"m{next(_roots)}"
        files = {"r.yaml": RECIPE.format(root=self.root, how=HOWS[mode])}
        self.recipes = load_recipes(files, TemplateValues("acme", "us-central1", "us-docker.pkg.dev/acme/t/t:1"))
        self.mode, self.bucket, self.real_ledger = mode, Bucket(), ledger
        self.meddling, self.calls, self.depth = dict(meddling), 0, 0
        self.ledger: Any = Hooked(ledger, self.meddle)
        self.storage: Any = Hooked(self.bucket, self.meddle)
        self.events: list[Upload] = []
        self.undelivered: list[Upload] = []
        self.runs: list[tuple[Settled, datetime]] = []

    def meddle(self) -> None:
        """Before the n-th call to ledger or bucket: what was drawn for it, as another process would."""
        self.calls += 1
        if action := self.meddling.pop(self.calls, None):
            self.depth += 1
            try:
                self.act(action)
            finally:
                self.depth -= 1

    def act(self, action: Action) -> None:
        kind, value = action
        if kind in ("upload", "send"):
            self.put(f"{value[0]}.jpg", f"v{value[1]}", deliver=kind == "send")
        elif kind == "marker":
            self.put("_SUCCESS", "", deliver=value)
        elif kind == "deliver" and self.events:
            self.deliver(self.events[value % len(self.events)])
        elif kind == "wait":
            self.bucket.clock += timedelta(seconds=value)
        elif kind == "sweep":
            self.sweep()
        elif kind == "crash" and self.depth:
            raise Crash

    def put(self, name: str, data: str, deliver: bool) -> None:
        event = self.bucket.put(f"{self.root}/{name}", data)
        self.events.append(event)
        self.undelivered.append(event)
        if deliver:
            self.deliver(event)

    def deliver(self, event: Upload) -> None:
        for match in self.recipes.match_upload(event.bucket, event.name):
            outcome = settle(match, event, ledger=self.ledger, storage=self.storage, now=self.bucket.clock)
            if isinstance(outcome, Settled):
                self.accept(outcome)
        if event in self.undelivered:
            self.undelivered.remove(event)

    def sweep(self) -> None:
        for settled in settle_due(self.recipes, ledger=self.ledger, storage=self.storage, now=self.bucket.clock):
            self.accept(settled)

    def accept(self, settled: Settled) -> None:
        try:
            self.ledger.create_run(make_run(key=settled.key, recipe="r"))
            self.runs.append((settled, self.bucket.clock))
        except AlreadyExists:
            pass
        settled.done()

    def finish(self) -> None:
        """No more uploads: what was not acknowledged is delivered again, time passes, sweeps go on."""
        self.meddling.clear()
        if self.mode == "marker" and f"{self.root}/_SUCCESS" not in self.bucket.objects:
            self.put("_SUCCESS", "", deliver=False)
        for event in list(self.undelivered):
            self.deliver(event)
        for _ in range(6):
            self.bucket.clock += CLOSING_LEASE + timedelta(minutes=4)
            self.sweep()

    def check(self) -> None:
        waiting = [hold.waiting_for for hold in holds(self.real_ledger)]
        assert not waiting or (not self.bucket.members() and waiting[0].startswith("files: the marker is there"))
        for settled, at in self.runs:
            members = _members(settled)
            assert members in self.bucket.versions, "a run's dataset was there as a whole at some time"
            if self.mode == "quiet":
                assert settled.newest + QUIET <= at, "and was quiet for long enough"
        versions = {settled.dataset.digest for settled, _ in self.runs}
        assert len(versions) == len(self.runs), "one run for each version"
        if self.bucket.members():
            listing = self.bucket.list(BUCKET, self.root)
            newest = [o for o in listing.objects if o.name.endswith(".jpg")]
            wanted = {(o.name, o.crc32c) for o in newest}
            digests = [_contents(settled) for settled, _ in self.runs]
            assert wanted in digests, "the newest version has a run"
        for settled, _ in self.runs:
            assert self.real_ledger.get_run(build_run_id(settled.key))


def _members(settled: Settled) -> frozenset[tuple[str, int]]:
    return frozenset((m["name"], int(m["generation"])) for m in json.loads(settled.snapshot)["members"])


def _contents(settled: Settled) -> set[tuple[str, str]]:
    return {(m["name"], m["crc32c"]) for m in json.loads(settled.snapshot)["members"]}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    folder: Path = tmp_path_factory.mktemp("model")
    return open_ledger(f"sqlite://{folder}/ledger.db")


@pytest.mark.parametrize("mode", list(HOWS))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(ACTIONS, max_size=8), meddling=st.dictionaries(st.integers(1, 25), ACTIONS, max_size=3))
def test_whatever_happens_when(ledger: Ledger, mode: str, actions: list[Action], meddling: dict[int, Action]) -> None:
    simulation = Simulation(ledger, mode, meddling)
    for action in [("send", (0, 0)), *actions, ("wait", 61), ("sweep", None)]:
        try:
            simulation.act(action)
        except Crash:
            simulation.depth = 0
    simulation.finish()
    try:
        simulation.check()
    finally:  # the next example finds an empty ledger
        for document in [*list_all(ledger, HOLDS), *list_all(ledger, CLOSINGS)]:
            ledger.delete_document(document)
