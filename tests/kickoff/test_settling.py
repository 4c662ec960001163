"""Settling against a real fake-gcs-server and a real ledger: one run for each version of a dataset."""

import itertools
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kickoff.datasets import Listing
from kickoff.errors import StorageUnavailable
from kickoff.event_types import Upload
from kickoff.holds import CLOSING_LEASE, CLOSINGS, HOLDS, drop_hold, holds
from kickoff.ledger import Document, Ledger, open_ledger
from kickoff.settings import Settings
from kickoff.settling import Held, NotCurrent, Settled, settle_due, write_snapshot
from kickoff.storage import Storage, split_uri

from deploy.local.storage_gateway import serve
from tests.kickoff.firestore_emulator import firestore_emulator
from tests.kickoff.uploading import BUCKET, World, build_manifest, make_world, storage_server, upload_in_parallel

FINAL = {"marker": "_SUCCESS", "manifest": "manifest.json"}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[str]:
    with storage_server() as url:
        yield url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A root of its own for each test."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name).lower()[:60]


def world_of(tmp_path: Path, name: str, *recipes: str) -> World:
    return make_world(tmp_path, name, *recipes)


# The scenario: many files, many clients -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["quiet", "marker", "manifest"])
def test_one_run_for_each_version_of_a_dataset(tmp_path: Path, name: str, mode: str) -> None:
    """Random order, duplicate events, 16 clients, two sweeps at once, the marker anywhere in between."""
    chance = random.Random(7)
    world = world_of(tmp_path, name, mode)
    root = f"{name}/{mode}/"
    files = {f"{chance.choice('abcde')}/{i}.jpg": b"%d" % i for i in range(60)}

    def put(files: dict[str, bytes], all_files: dict[str, bytes]) -> None:
        whole = {root + each: data for each, data in files.items()}
        if mode in FINAL:
            whole[root + FINAL[mode]] = build_manifest(all_files, pinned=False) if mode == "manifest" else b""
        assert upload_in_parallel(world, whole, chance) == []
        _skip_if_uploads_paused(world, root, set(whole), seconds=1 if mode == "quiet" else 2)
        world.skew = timedelta(minutes=1)  # holds are due; what is quiet, Cloud Storage's own clock says
        world.settle_all()

    def current() -> set[tuple[str, int]]:
        objects = world.storage.list(BUCKET, root).objects
        return {(o.name, o.generation) for o in objects if o.name.endswith(".jpg")}

    put(files, files)
    assert world.members(mode) == [current()], "one run, of everything, by the generations that are there"
    put(files, files)
    assert len(world.runs) == 1, "the same bytes again are the same version"
    changed = {"a/0.jpg": b"changed"}
    put(changed, files | changed)
    assert len(world.runs) == 2
    assert len(world.members(mode)[1]) == len(files | changed)
    assert world.members(mode)[1] == current()


def _skip_if_uploads_paused(world: World, root: str, names: set[str], seconds: float) -> None:
    """On a machine that stood still for the quiet period, half a dataset rightly counts as one."""
    created = sorted(o.created for o in world.storage.list(BUCKET, root).objects if o.name in names)
    pause = max((b - a for a, b in itertools.pairwise(created)), default=timedelta(0))
    if pause >= timedelta(seconds=seconds):
        pytest.skip(f"the uploads paused for {pause.total_seconds():.1f} s, longer than the recipe's quiet period")


@pytest.mark.gcloud
def test_a_folder_copied_by_gcloud_with_its_marker_inside_is_one_run(tmp_path: Path, name: str, server: str) -> None:
    """`gcloud storage cp -r` keeps no order: the events come as the objects were made."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        pytest.skip("the Google Cloud CLI is not installed")
    world = world_of(tmp_path, name, "marker")
    folder = tmp_path / "marker"
    (folder / "roses").mkdir(parents=True)
    for i in range(30):
        (folder / "roses" / f"{i} ü.jpg").write_bytes(b"%d" % i)
    (folder / "_SUCCESS").touch()
    gateway = serve(server)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    environ = {
        **os.environ,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"http://127.0.0.1:{gateway.server_port}/storage/v1/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "acme",
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
    }
    command = [gcloud, "storage", "cp", "-r", str(folder), f"gs://{BUCKET}/{name}/"]
    try:
        subprocess.run(command, env=environ, check=True, capture_output=True, timeout=120)
    finally:
        gateway.shutdown()
        gateway.server_close()
    found = world.storage.list(BUCKET, f"{name}/").objects
    for o in sorted(found, key=lambda o: o.created):
        world.deliver(Upload(BUCKET, o.name, o.generation, o.size, o.crc32c))
    world.skew = timedelta(minutes=1)
    world.settle_all()
    assert [len(members) for members in world.members("marker")] == [30]


@pytest.mark.java
def test_the_same_on_firestore(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds, closings and claims by Firestore's own preconditions."""
    with firestore_emulator() as host:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)
        world = world_of(tmp_path, name, "quiet", "marker")
        world.ledger = open_ledger("firestore://settling-test/(default)")
        files = {f"{name}/{mode}/{i}.jpg": b"%d" % i for mode in ("quiet", "marker") for i in range(8)}
        whole = {**files, f"{name}/marker/_SUCCESS": b""}
        assert upload_in_parallel(world, whole, random.Random(7), clients=4) == []
        world.skew = timedelta(minutes=1)
        world.settle_all()
        assert sorted(settled.recipe for settled in world.runs.values()) == ["marker", "quiet"]
        assert [settled.dataset.objects for settled in world.runs.values()] == [8, 8]
        world.ledger.close()


# Events -------------------------------------------------------------------------------------------------------------


class Counting:
    """A ledger or storage that notes which methods were called, and does them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            return method(*args, **kwargs)

        return call


@pytest.mark.parametrize("mode", ["quiet", "marker", "manifest"])
def test_an_event_reads_the_hold_and_nothing_else(tmp_path: Path, name: str, mode: str) -> None:
    world = world_of(tmp_path, name, mode)
    world.ledger = ledger = Counting(world.ledger)
    world.storage = storage = Counting(world.storage)  # type: ignore[assignment]
    for i in range(5):
        assert isinstance(world.deliver(Upload(BUCKET, f"{name}/{mode}/{i}.jpg", i + 1, 1))[0], Held)
    assert [call for call, _ in ledger.calls] == ["get_document", "create_document", *["get_document"] * 4]
    assert storage.calls == []


def test_a_marker_s_event_lists_twice_and_its_duplicates_never(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "marker")
    world.deliver(world.upload(f"{name}/marker/a.jpg"))
    marker = world.upload(f"{name}/marker/_SUCCESS", b"")
    world.storage = storage = Counting(world.storage)  # type: ignore[assignment]
    assert isinstance(world.deliver(marker)[0], Settled)
    assert [call for call, _ in storage.calls] == ["list", "list"]
    (again,) = world.deliver(marker)
    assert isinstance(again, NotCurrent)
    assert again.reason.endswith("was looked at before")
    assert len(storage.calls) == 2
    assert holds(world.ledger) == []


def test_an_early_marker_shows_what_is_newer_and_a_newer_one_releases_it(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "marker")
    marker = world.upload(f"{name}/marker/_SUCCESS", b"")
    files = [world.upload(f"{name}/marker/{i}.jpg", b"%d" % i) for i in range(3)]
    world.deliver(files[0])
    (held,) = world.deliver(marker)
    assert isinstance(held, Held)
    assert held.waiting_for == (
        "a newer marker, or 2s without a new file: 3 of 3 files are newer than _SUCCESS: 0.jpg, 1.jpg, 2.jpg"
    )
    (view,) = holds(world.ledger)
    assert (view.recipe, view.root) == ("marker", f"gs://{BUCKET}/{name}/marker/")
    assert (view.waiting_for, view.since, view.closing) == (held.waiting_for, held.since, False)
    (settled,) = world.deliver(world.upload(f"{name}/marker/_SUCCESS", b""))
    assert isinstance(settled, Settled)
    assert settled.dataset.objects == 3
    assert holds(world.ledger) == []


def test_a_manifest_names_what_is_missing_and_changed(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "manifest")
    root = f"{name}/manifest/"
    files = {f"{i}.jpg": b"%d" % i for i in range(4)}
    world.upload(root + "0.jpg", b"0")
    world.upload(root + "1.jpg", b"?")
    (held,) = world.deliver(world.upload(root + "manifest.json", build_manifest(files, pinned=True)))
    assert isinstance(held, Held)
    assert held.waiting_for.startswith("3 of the 4 files in manifest.json: 1.jpg has crc32c ")
    assert held.waiting_for.endswith("2.jpg is missing, 3.jpg is missing")
    for each in ("1", "2", "3"):
        world.deliver(world.upload(f"{root}{each}.jpg", each.encode()))
    assert not world.runs, "a file's own event lists nothing"
    world.skew = timedelta(minutes=10)
    world.settle_all()
    assert [len(members) for members in world.members("manifest")] == [4]


def test_a_manifest_that_is_wrong_holds_and_says_why(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "manifest")
    (held,) = world.deliver(world.upload(f"{name}/manifest/manifest.json", b'{"files": [3]}'))
    assert isinstance(held, Held)
    assert "files[0] is 3; it must be a name" in held.waiting_for


def test_no_complete_makes_each_object_a_dataset(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "object")
    path = f"{name}/object/a.jpg"
    event = world.upload(path, b"hello")
    (settled,) = world.deliver(event)
    assert isinstance(settled, Settled)
    assert settled.key == ("object", "upload", f"gs://{BUCKET}/{path}", settled.dataset.digest)
    assert (settled.dataset.uri, settled.dataset.objects, settled.dataset.bytes) == (f"gs://{BUCKET}/{path}", 1, 5)
    world.deliver(replace(event, generation=None, event_id="other"))
    world.deliver(world.upload(path, b"hello"))
    assert len(world.runs) == 1, "pinned by what is there; the same bytes again"
    world.deliver(world.upload(path, b"other"))
    assert len(world.runs) == 2


@pytest.mark.parametrize("mode", ["object", "marker"])
def test_an_event_whose_object_is_not_current_starts_nothing(tmp_path: Path, name: str, mode: str) -> None:
    world = world_of(tmp_path, name, mode)
    root = f"{name}/{mode}/"
    old = world.upload(root + "a.jpg", b"1")
    new = world.upload(root + "a.jpg", b"2")
    empty = world.upload(root + "e.jpg", b"")
    own = world.upload(root + "o.jpg", b"1", **{"kickoff-run": "flowers-0123"})
    gone = replace(new, name=root + "gone.jpg")
    if mode == "object":
        reasons = [outcome.reason for event in (old, gone, own, empty) for outcome in world.deliver(event)]  # type: ignore[union-attr]
        assert reasons[0] == f"gs://{BUCKET}/{root}a.jpg#{old.generation} was replaced by generation {new.generation}"
        assert reasons[1].endswith("is no longer there")
        assert reasons[2].endswith("was written by run flowers-0123")
        assert reasons[3].endswith("is empty or no file of a dataset")
    else:
        assert isinstance(world.deliver(empty)[0], NotCurrent)
        world.deliver(world.upload(root + "_SUCCESS", b""))
        assert world.members("marker") == [{(new.name, new.generation)}]


# Closing, and what happens meanwhile --------------------------------------------------------------------------------


class Meddling(Storage):
    """Cloud Storage where something happens right before the n-th listing from now."""

    def __init__(self) -> None:
        super().__init__("acme")
        self.before: dict[int, Any] = {}
        self.listings = 0

    def list(self, bucket: str, prefix: str) -> Listing:
        self.listings += 1
        if action := self.before.get(self.listings):
            action()
        return super().list(bucket, prefix)


@pytest.mark.parametrize("mode", ["quiet", "marker"])
@pytest.mark.parametrize("when", [1, 2])
def test_a_file_that_comes_while_closing_is_in_the_run(tmp_path: Path, name: str, mode: str, when: int) -> None:
    """Before the first look, or between it and the second one; with its event at once."""
    world = world_of(tmp_path, name, mode)
    world.storage = storage = Meddling()
    root = f"{name}/{mode}/"
    late: list[Upload] = []

    def meddle() -> None:
        late.append(world.upload(root + "late.jpg", b"late"))
        world.deliver(late[0])

    world.deliver(world.upload(root + "a.jpg"))
    if mode == "quiet":
        time.sleep(2.1)
        storage.before = {when: meddle}
    else:
        storage.before = {when: meddle}
        world.deliver(world.upload(root + "_SUCCESS", b""))
    world.sweep()
    assert late
    assert not world.runs
    world.skew = timedelta(minutes=1)
    world.settle_all()
    (members,) = world.members(mode)
    assert (late[0].name, late[0].generation) in members
    assert len(members) == 2


def test_a_file_that_comes_after_the_last_look_makes_one_more_run(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet")
    world.deliver(world.upload(f"{name}/quiet/a.jpg"))
    time.sleep(2.1)
    services: dict[str, Any] = {"ledger": world.ledger, "storage": world.storage, "now": world.now()}
    for settled in settle_due(world.recipes, **services):
        world.deliver(world.upload(f"{name}/quiet/late.jpg", b"late"))
        world.accept(settled)
    assert [len(members) for members in world.members("quiet")] == [1]
    world.settle_all()
    assert [len(members) for members in world.members("quiet")] == [1, 2]


def test_a_run_that_was_never_accepted_is_settled_again(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet")
    world.deliver(world.upload(f"{name}/quiet/a.jpg"))
    time.sleep(2.1)
    services: dict[str, Any] = {"ledger": world.ledger, "storage": world.storage}
    assert len(list(settle_due(world.recipes, **services, now=world.now()))) == 1, "and its caller dies"
    (view,) = holds(world.ledger)
    assert (view.closing, view.waiting_for) == (True, "its run is being made")
    assert list(settle_due(world.recipes, **services, now=world.now())) == []
    world.skew = CLOSING_LEASE + timedelta(seconds=1)
    world.settle_all()
    assert len(world.runs) == 1


class Crash(BaseException):
    """The process dies: nothing catches it."""


class Crashing:
    """A ledger or storage whose n-th call, counted over all of them, dies before or after it was done."""

    def __init__(self, inner: Any, countdown: list[int], after: bool) -> None:
        self.inner, self.countdown, self.after = inner, countdown, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.countdown[0] -= 1
            if self.countdown[0] == 0 and not self.after:
                raise Crash
            result = method(*args, **kwargs)
            if self.countdown[0] == 0:
                raise Crash
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("mode", ["quiet", "marker"])
def test_a_crash_at_any_call_loses_and_doubles_nothing(tmp_path: Path, name: str, mode: str, after: bool) -> None:
    """The process dies at its n-th call to ledger or bucket, for every n; then deliveries and sweeps go on."""
    worlds = {n: make_world(tmp_path, f"{name}{n}", mode) for n in range(1, 21)}
    events: dict[int, list[Upload]] = {}
    for n, world in worlds.items():
        world.ledger = open_ledger(f"sqlite://{tmp_path}/{n}.db")
        files = {"a.jpg": b"1"} | ({"_SUCCESS": b""} if mode == "marker" else {})
        events[n] = [world.upload(f"{name}{n}/{mode}/{file}", data) for file, data in files.items()]
    _wait_until_quiet(Storage("acme"), name)
    crashed = [_crash(world, n, after, events[n]) for n, world in worlds.items()]
    assert crashed.count(True) > 10
    assert not crashed[-1], "the last call was reached"
    for n, world in worlds.items():
        for event in events[n]:  # not acknowledged, or delivered again anyway
            world.deliver(event)
        world.skew = CLOSING_LEASE + timedelta(minutes=6)
        world.settle_all()
        assert len(world.ledger.find_runs()) == 1, f"call {n}"
        assert world.ledger.list_documents(HOLDS) == world.ledger.list_documents(CLOSINGS) == [], f"call {n}"


def _crash(world: World, n: int, after: bool, events: list[Upload]) -> bool:
    """Deliver and sweep, dying at the n-th call. False: there were fewer calls."""
    countdown = [n]
    ledger, storage = world.ledger, world.storage
    world.ledger = Crashing(ledger, countdown, after)
    world.storage = Crashing(storage, countdown, after)  # type: ignore[assignment]
    try:
        for event in events:
            world.deliver(event)
        world.skew = timedelta(minutes=1)
        world.sweep()
    except Crash:
        return True
    finally:
        world.ledger, world.storage = ledger, storage
    return False


def _wait_until_quiet(storage: Storage, root: str) -> None:
    """Until the recipe's second has passed by Cloud Storage's own clock, whose dates are whole seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        listing = storage.list(BUCKET, root)
        if listing.date - max(o.created for o in listing.objects) >= timedelta(seconds=1):
            return
        time.sleep(0.1)


# No news ------------------------------------------------------------------------------------------------------------


def test_late_duplicates_and_deletions_start_nothing(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "marker")
    root = f"{name}/marker/"
    events = [world.upload(f"{root}{i}.jpg", b"%d" % i) for i in range(3)]
    world.deliver(world.upload(root + "_SUCCESS", b""))
    assert len(world.runs) == 1
    world.client.bucket(BUCKET).blob(f"{root}0.jpg").delete()
    for event in events:
        world.deliver(event)
    assert len(holds(world.ledger)) == 1
    world.skew = timedelta(minutes=1)
    world.settle_all()
    assert len(world.runs) == 1, "the deletion was nobody's request"
    world.deliver(world.upload(root + "_SUCCESS", b""))
    assert [len(members) for members in world.members("marker")] == [3, 2], "a new marker is one"


def test_a_straggler_with_an_older_date_is_news(tmp_path: Path, name: str) -> None:
    """As if an object had shown up in listings only after a newer one."""
    world = world_of(tmp_path, name, "marker")
    root = f"{name}/marker/"
    straggler = world.upload(root + "0.jpg", b"0")
    world.upload(root + "1.jpg", b"1")
    blind = Meddling()
    real = blind.list
    blind.list = lambda bucket, prefix: _without(real(bucket, prefix), straggler.name)  # type: ignore[method-assign]
    world.storage = blind
    world.deliver(world.upload(root + "_SUCCESS", b""))
    world.storage = Storage("acme")
    world.deliver(straggler)
    world.skew = timedelta(minutes=1)
    world.settle_all()
    assert [len(members) for members in world.members("marker")] == [1, 2]


def _without(listing: Listing, name: str) -> Listing:
    return Listing(listing.date, [o for o in listing.objects if o.name != name])


def test_a_dropped_hold_waits_for_a_newer_upload(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet")
    event = world.upload(f"{name}/quiet/a.jpg")
    world.deliver(event)
    (view,) = holds(world.ledger)
    assert not drop_hold(world.ledger, "flowers", view.root, world.now())
    assert drop_hold(world.ledger, view.recipe, view.root, world.now())
    assert holds(world.ledger) == []
    world.deliver(event)
    world.settle_all()
    assert not world.runs
    world.deliver(world.upload(f"{name}/quiet/b.jpg"))
    world.settle_all()
    assert [len(members) for members in world.members("quiet")] == [2]


# Trouble ------------------------------------------------------------------------------------------------------------


class Refusing(Storage):
    """Cloud Storage that does not answer for one prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__("acme")
        self.prefix = prefix

    def list(self, bucket: str, prefix: str) -> Listing:
        if prefix.startswith(self.prefix):
            raise StorageUnavailable(f"gs://{bucket}/{prefix} could not be reached: 503")
        return super().list(bucket, prefix)


def test_a_bucket_that_does_not_answer_holds_only_its_own_dataset(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet", "marker")
    world.deliver(world.upload(f"{name}/quiet/a.jpg"))
    world.deliver(world.upload(f"{name}/marker/a.jpg"))
    world.storage = Refusing(f"{name}/quiet/")
    marker = world.upload(f"{name}/marker/_SUCCESS", b"")
    assert marker.generation
    world.skew = timedelta(minutes=1)
    world.sweep()
    assert [settled.recipe for settled in world.runs.values()] == ["marker"], "found without its marker's event"
    (view,) = holds(world.ledger)
    assert view.waiting_for == (
        f"another try, after StorageUnavailable: gs://{BUCKET}/{name}/quiet/ could not be reached: 503"
    )
    world.storage = Storage("acme")
    world.skew = timedelta(minutes=5)
    world.settle_all()
    assert len(world.runs) == 2


def test_a_listing_goes_through_all_pages(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kickoff.storage.PAGE", 2)
    world = world_of(tmp_path, name, "quiet")
    names = [f"{name}/quiet/{each}" for each in ("Z", "a", "a/c", "sp ace%2F+", "ä", "\uffee", "\U0001f33b")]
    for each in reversed(names):
        world.upload(each)
    listing = world.storage.list(BUCKET, f"{name}/quiet/")
    assert [o.name for o in listing.objects] == names, "byte for byte, in the order of their bytes"
    assert abs(listing.date - world.now()) < timedelta(seconds=5)
    monkeypatch.setattr("kickoff.storage.MAX_MEMBERS", 3)
    assert len(world.storage.list(BUCKET, f"{name}/quiet/").objects) == 4, "what is too much is not read to its end"


def test_no_bucket_and_no_server_are_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("acme")
    with pytest.raises(StorageUnavailable, match="gs://no-such-bucket/d/ could not be reached: 404"):
        storage.list("no-such-bucket", "d/")
    monkeypatch.setattr("kickoff.storage.PATIENCE", 0.1)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable, match="gs://acme-data/a could not be reached"):
        Storage("acme").stat(BUCKET, "a")


def test_a_recipe_that_is_gone_leaves_its_hold_saying_so(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet")
    world.deliver(world.upload(f"{name}/quiet/a.jpg"))
    world.recipes = make_world(tmp_path, name, "marker").recipes
    world.skew = timedelta(minutes=1)
    world.sweep()
    (view,) = holds(world.ledger)
    assert view.waiting_for == "the recipe quiet, which no longer watches it"


# Snapshots ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_written_once_for_each_set_of_generations(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "marker")
    settings = Settings.from_environ({"KICKOFF_PROJECT": "acme", "KICKOFF_STAGING": f"gs://{BUCKET}/{name}/staging"})
    root = f"{name}/marker/"

    def put() -> Settled:
        world.upload(root + "a.jpg", b"same")
        (settled,) = world.deliver(world.upload(root + "_SUCCESS", b""))
        assert isinstance(settled, Settled)
        return settled

    first, second = put(), put()
    uri = write_snapshot(world.storage, settings, first)
    assert write_snapshot(world.storage, settings, first) == uri
    assert uri.startswith(f"gs://{BUCKET}/{name}/staging/datasets/marker/")
    assert write_snapshot(world.storage, settings, second) != uri, "same digest, other generations to read by"
    assert first.key == second.key
    found = world.storage.stat(*split_uri(uri))
    assert found is not None
    assert found.run, "a run's own object starts nothing"
    document = json.loads(world.storage.read(*split_uri(uri), found.generation) or b"")
    assert document == json.loads(first.snapshot)
    assert document["digest"] == first.dataset.digest
    (member,) = document["members"]
    assert (member["name"], member["size"]) == (root + "a.jpg", 4)


def test_documents_are_json_for_any_ledger(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, "quiet")
    world.deliver(world.upload(f"{name}/quiet/ä\U0001f33b.jpg"))
    ledger: Ledger = world.ledger
    (document,) = ledger.list_documents(HOLDS)
    assert isinstance(document, Document)
    assert json.loads(json.dumps(document.data)) == document.data
