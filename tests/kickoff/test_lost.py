"""Datasets whose event never came, against a real fake-gcs-server and a real ledger."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kickoff.holds import holds
from kickoff.lost import PERIOD, activate
from kickoff.runs import build_run_id
from kickoff.storage import Storage

from tests.kickoff.uploading import World, make_world, storage_server


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with storage_server():
        yield


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """All four kinds of recipe under a root of the test's own; nothing is too young to be lost."""
    monkeypatch.setattr("kickoff.lost.GRACE", timedelta(seconds=-1))  # dates of answers are whole seconds
    world = make_world(tmp_path, request.node.name)
    world.recipes.get("object")
    return world


def root(world: World, recipe: str) -> str:
    found = world.recipes.get(recipe)
    assert found is not None
    assert found.when.upload is not None
    return found.when.upload.root


def later(world: World) -> None:
    """So much later that the next pass is due."""
    world.skew += PERIOD + timedelta(seconds=1)


def test_a_first_activation_starts_nothing_that_was_there(world: World) -> None:
    for recipe in ("quiet", "marker", "object"):
        world.upload(root(world, recipe) + "old.jpg")
    world.upload(root(world, "marker") + "_SUCCESS", b"")
    assert world.look_for_lost() == []
    assert holds(world.ledger) == []
    later(world)
    assert world.look_for_lost() == []
    assert holds(world.ledger) == []


def test_lost_datasets_are_found_by_the_sweep(world: World) -> None:
    activate(world.recipes, world.ledger, world.now())
    for recipe in ("quiet", "marker", "manifest", "object"):
        world.upload(root(world, recipe) + "a.jpg")
    world.upload(root(world, "marker") + "_SUCCESS", b"")
    world.upload(root(world, "manifest") + "manifest.json", b'["a.jpg"]')
    assert [settled.recipe for settled in world.look_for_lost()] == ["object"]
    assert sorted(view.recipe for view in holds(world.ledger)) == ["manifest", "marker", "quiet"]
    world.skew += timedelta(minutes=1)
    world.settle_all()
    assert sorted(settled.recipe for settled in world.runs.values()) == ["manifest", "marker", "object", "quiet"]
    later(world)
    assert world.look_for_lost() == []
    assert holds(world.ledger) == [], "all of it is settled"


def test_what_its_event_already_started_is_not_lost(world: World) -> None:
    activate(world.recipes, world.ledger, world.now())
    world.deliver(world.upload(root(world, "object") + "a.jpg"))
    world.deliver(world.upload(root(world, "marker") + "a.jpg"))
    world.deliver(world.upload(root(world, "marker") + "_SUCCESS", b""))
    world.skew = timedelta(minutes=1)
    world.settle_all()
    assert world.look_for_lost() == []
    assert holds(world.ledger) == []
    assert len(world.runs) == 2


def test_a_deletion_is_no_lost_upload(world: World) -> None:
    activate(world.recipes, world.ledger, world.now())
    for name in ("a.jpg", "b.jpg"):
        world.deliver(world.upload(root(world, "marker") + name))
    world.deliver(world.upload(root(world, "marker") + "_SUCCESS", b""))
    world.skew = timedelta(minutes=1)
    world.settle_all()
    world.client.bucket("acme-data").blob(root(world, "marker") + "b.jpg").delete()
    later(world)
    assert world.look_for_lost() == []
    assert holds(world.ledger) == []


def test_what_is_young_still_has_its_event_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kickoff.lost.GRACE", timedelta(minutes=1))
    activate(world.recipes, world.ledger, world.now())
    world.upload(root(world, "object") + "a.jpg")
    world.upload(root(world, "quiet") + "a.jpg")
    assert world.look_for_lost() == []
    assert holds(world.ledger) == []


def test_a_pass_is_bounded_and_goes_on_where_it_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kickoff.storage.PAGE", 2)
    activate(world.recipes, world.ledger, world.now())
    names = [f"{root(world, 'object')}{i}.jpg" for i in range(7)]
    for name in names:
        world.upload(name, name.encode())
    found = [[s.dataset.uri[-5:] for s in world.look_for_lost(limit=3)] for _ in range(4)]
    assert found == [["0.jpg", "1.jpg", "2.jpg", "3.jpg"], ["4.jpg", "5.jpg", "6.jpg"], [], []]
    assert len(world.ledger.find_runs(recipe="object")) == 7


def test_a_later_pass_asks_only_for_what_is_newer(world: World) -> None:
    activate(world.recipes, world.ledger, world.now())
    world.upload(root(world, "object") + "a.jpg")
    assert len(world.look_for_lost()) == 1
    asked = []
    get_run = world.ledger.get_run
    world.ledger.get_run = lambda run_id: (asked.append(run_id), get_run(run_id))[1]  # type: ignore[method-assign,func-returns-value]
    import time

    time.sleep(1.1)
    world.upload(root(world, "object") + "b.jpg", b"b")
    later(world)
    (settled,) = world.look_for_lost()
    assert settled.dataset.uri.endswith("b.jpg")
    assert build_run_id(settled.key) in asked
    assert len(asked) == 1


def test_a_caller_that_dies_finds_them_again(world: World) -> None:
    from kickoff.lost import find_lost

    activate(world.recipes, world.ledger, world.now())
    world.upload(root(world, "object") + "a.jpg")
    for settled in find_lost(world.recipes, ledger=world.ledger, storage=world.storage, now=world.now()):
        assert settled.recipe == "object"
        break
    assert len(world.look_for_lost()) == 1


def test_a_bucket_that_does_not_answer_does_not_stop_the_others(world: World) -> None:
    class Refusing(Storage):
        def list(self, bucket: str, prefix: str):  # type: ignore[no-untyped-def]
            from kickoff.errors import StorageUnavailable

            raise StorageUnavailable("503")

    activate(world.recipes, world.ledger, world.now())
    world.upload(root(world, "object") + "a.jpg")
    world.upload(root(world, "quiet") + "a.jpg")
    world.storage = Refusing("acme")
    assert len(world.look_for_lost()) == 1
    world.storage = Storage("acme")
    world.look_for_lost()
    assert [view.recipe for view in holds(world.ledger)] == ["quiet"]
