"""What every ledger does: one battery over SQLite and over Google's Firestore emulator."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kickoff.errors import InvalidRequest, LedgerUnavailable
from kickoff.ledger import SLOTS, AlreadyExists, Conflict, Ledger, open_ledger
from kickoff.runs import JobRecord, State

from tests.kickoff.firestore_emulator import firestore_emulator
from tests.kickoff.making import NOW, make_run


@pytest.fixture(scope="session")
def firestore_host() -> Iterator[str]:
    with firestore_emulator() as host:
        yield host


@pytest.fixture(params=["sqlite", pytest.param("firestore", marks=pytest.mark.java)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/runs.db"
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", request.getfixturevalue("firestore_host"))
    return f"firestore://test-{uuid.uuid4().hex[:12]}/(default)"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    ledger = open_ledger(url)
    yield ledger
    ledger.close()


def test_a_run_comes_back_as_it_was_written(ledger: Ledger) -> None:
    run = make_run("Ä/b c", labels={"team": "ö"}, request={"": [[1], {"__x__": None}]}, metrics={"loss": 0.25})
    created = ledger.create_run(run)
    assert created.version
    assert ledger.get_run(run.run_id) == created
    assert created.model_copy(update={"version": ""}) == run
    assert ledger.get_run("no-such-run") is None


def test_of_many_creators_one_succeeds(ledger: Ledger) -> None:
    winners = _race(8, lambda n: ledger.create_run(make_run(trigger={"kind": "message", "event_id": f"e{n}"})))
    assert len(winners) == 1
    stored = ledger.get_run(make_run().run_id)
    assert stored and stored == winners[0]


def test_of_many_writers_of_one_version_one_succeeds(ledger: Ledger) -> None:
    run = ledger.create_run(make_run())
    winners = _race(8, lambda n: ledger.replace_run(run.moved(State.SUBMITTING, NOW, nonce=str(n), lease_until=NOW)))
    assert len(winners) == 1
    assert ledger.get_run(run.run_id) == winners[0]


def test_identical_writes_are_still_a_race_with_one_winner(ledger: Ledger) -> None:
    run = ledger.create_run(make_run())
    ledger.replace_run(run)
    with pytest.raises(Conflict):
        ledger.replace_run(run)
    document = ledger.create_document("holds", "h", {"n": 1})
    ledger.replace_document(document)
    with pytest.raises(Conflict):
        ledger.replace_document(document)


def test_a_run_that_was_never_stored_cannot_be_replaced(ledger: Ledger) -> None:
    with pytest.raises(Conflict):
        ledger.replace_run(make_run())


def test_a_slot_belongs_to_one_run_and_goes_with_its_end(ledger: Ledger) -> None:
    first, second = ledger.create_run(make_run("1")), ledger.create_run(make_run("2"))
    first = ledger.replace_run(first.moved(State.SUBMITTING, NOW), claim=["flowers.0"])
    assert first.slots == ("flowers.0",)
    with pytest.raises(AlreadyExists):
        ledger.replace_run(second.moved(State.SUBMITTING, NOW), claim=["flowers.1", "flowers.0"])
    assert ledger.get_run(second.run_id) == second, "nothing is written when a slot is taken"
    assert [slot.id for slot in ledger.list_documents(SLOTS)] == ["flowers.0"]
    first = ledger.replace_run(first.moved(State.SUBMITTED, NOW))
    assert first.slots == ("flowers.0",)
    first = ledger.replace_run(first.moved(State.FAILED, NOW))
    assert first.slots == ()
    assert ledger.list_documents(SLOTS) == []
    second = ledger.replace_run(second.moved(State.SUBMITTING, NOW), claim=["flowers.0"])
    ledger.replace_run(first.model_copy(update={"notes": ("late",)}))
    assert [slot.data["run_id"] for slot in ledger.list_documents(SLOTS)] == [second.run_id]


def test_of_many_claimers_of_one_slot_one_succeeds(ledger: Ledger) -> None:
    runs = [ledger.create_run(make_run(str(n))) for n in range(6)]
    winners = _race(6, lambda n: ledger.replace_run(runs[n].moved(State.SUBMITTING, NOW), claim=["flowers.0"]))
    assert len(winners) == 1
    assert [slot.data["run_id"] for slot in ledger.list_documents(SLOTS)] == [winners[0].run_id]


def test_runs_are_found_by_state_recipe_and_job_in_pages(ledger: Ledger) -> None:
    made = [make_run(str(n), recipe="ab"[n % 2], created=NOW + timedelta(seconds=n // 3)) for n in range(10)]
    for run in made:
        ledger.create_run(run)
    newest = sorted(made, key=lambda run: (run.created, run.run_id), reverse=True)
    names = [run.run_id for run in newest]
    assert [run.run_id for run in ledger.find_runs()] == names
    assert [run.run_id for run in ledger.find_runs(oldest_first=True)] == names[::-1]
    pages, after = [], ""
    while page := ledger.find_runs(states=[State.QUEUED, State.HELD], limit=3, after=after):
        pages += [run.run_id for run in page]
        after = page[-1].run_id
    assert pages == names
    only_a = [run.run_id for run in newest if run.recipe == "a"]
    assert [run.run_id for run in ledger.find_runs(recipe="a", states=[State.QUEUED])] == only_a
    assert [run.run_id for run in ledger.find_runs(recipe="a", oldest_first=True, after=only_a[-1])] == only_a[-2::-1]
    assert ledger.find_runs(states=[State.FAILED]) == []
    assert ledger.count_runs() == 10
    assert ledger.count_runs(states=[State.QUEUED, State.FAILED], recipe="a") == 5

    last = ledger.get_run(names[0])
    assert last
    ledger.replace_run(last.moved(State.SUBMITTING, NOW).moved(State.SUBMITTED, NOW, job=JobRecord(name="a/b/77")))
    assert [run.run_id for run in ledger.find_runs(job_id="77")] == [names[0]]
    assert ledger.find_runs(job_id="77", states=[State.QUEUED]) == []
    assert ledger.find_runs(job_id="78") == []


def test_due_runs_come_longest_due_first(ledger: Ledger) -> None:
    def later(minutes: float) -> Any:
        return NOW + timedelta(minutes=minutes)

    ledger.create_run(make_run("later", next_attempt_at=later(9)))
    ledger.create_run(make_run("never", next_attempt_at=None))
    second = ledger.create_run(make_run("second", next_attempt_at=later(-1)))
    first = ledger.create_run(make_run("first", next_attempt_at=later(-2)))
    leased = ledger.create_run(make_run("leased"))
    ledger.replace_run(leased.moved(State.SUBMITTING, NOW, lease_until=later(5), next_attempt_at=None))

    assert [run.run_id for run in ledger.find_runs(due_before=NOW)] == [first.run_id, second.run_id]
    assert [run.run_id for run in ledger.find_runs(due_before=NOW, limit=1)] == [first.run_id]
    expired = ledger.find_runs(due_before=later(6), states=[State.SUBMITTING], recipe="flowers")
    assert [run.run_id for run in expired] == [leased.run_id]


def test_small_documents(ledger: Ledger) -> None:
    document = ledger.create_document("holds", "flowers/Ä b", {"since": "now", "n": [[1]]})
    with pytest.raises(AlreadyExists):
        ledger.create_document("holds", "flowers/Ä b", document.data)
    assert ledger.get_document("holds", "flowers/Ä b") == document
    assert ledger.get_document("other", "flowers/Ä b") is None
    changed = ledger.replace_document(document.__class__(**{**document.__dict__, "data": {"n": 2}}))
    with pytest.raises(Conflict):
        ledger.replace_document(document)
    with pytest.raises(Conflict):
        ledger.delete_document(document)
    assert ledger.get_document("holds", "flowers/Ä b") == changed
    ledger.delete_document(changed)
    ledger.delete_document(changed)
    assert ledger.get_document("holds", "flowers/Ä b") is None
    with pytest.raises(Conflict):
        ledger.replace_document(changed)


def test_small_documents_are_listed_by_prefix_in_pages(ledger: Ledger) -> None:
    ids = ["a/1", "a/2", "a/3", "a\U0010fffe", "a-1", "b", ".", "__x__", "Ä"]
    for id in ids:
        ledger.create_document("cursors", id, {"id": id})
    assert [found.id for found in ledger.list_documents("cursors")] == sorted(ids)
    assert [found.id for found in ledger.list_documents("cursors", prefix="a/", limit=2)] == ["a/1", "a/2"]
    assert [found.id for found in ledger.list_documents("cursors", prefix="a/", after="a/2")] == ["a/3"]
    assert ledger.list_documents("holds") == []


def test_a_record_beyond_the_limit_is_refused_and_nothing_is_stored(ledger: Ledger) -> None:
    with pytest.raises(InvalidRequest, match=r"makes a run record of \d+ bytes; it must be at most 1000000"):
        ledger.create_run(make_run(request={"args": "x" * 1_000_000}))
    with pytest.raises(InvalidRequest, match="UTF-8"):
        ledger.create_run(make_run(request={"args": "\ud800"}))
    assert ledger.get_run(make_run().run_id) is None
    assert ledger.create_run(make_run(request={"args": "x" * 990_000})).version


def test_a_second_opener_sees_what_the_first_one_wrote(ledger: Ledger, url: str) -> None:
    run = ledger.create_run(make_run())
    other = open_ledger(url)
    moved = other.replace_run(run.moved(State.CANCELLED, NOW))
    assert ledger.get_run(run.run_id) == moved
    other.close()


def _race(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What those returned who neither met AlreadyExists nor Conflict. All start together."""
    start = threading.Barrier(count)

    def one(n: int) -> Any:
        start.wait(timeout=10)
        try:
            return act(n)
        except (AlreadyExists, Conflict):
            return None

    with ThreadPoolExecutor(count) as pool:
        try:
            return [result for result in pool.map(one, range(count)) if result is not None]
        except LedgerUnavailable as error:  # contention may not show as an outage
            raise AssertionError(error) from error
