"""SQLite under pressure: a locked file, a full disk, processes that die, files of other versions."""

import json
import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from kickoff.errors import ConfigurationError, LedgerUnavailable
from kickoff.ledger import AlreadyExists, Conflict, open_ledger
from kickoff.ledger.records import decode_run, encode_run
from kickoff.ledger.sqlite import SqliteLedger
from kickoff.runs import SCHEMA_VERSION, State

from tests.kickoff.making import NOW, make_run


def test_a_file_locked_for_longer_than_the_timeout_is_a_transient_error(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "runs.db"), timeout=0.2)
    run = ledger.create_run(make_run())
    holder = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked"):
        ledger.replace_run(run.moved(State.CANCELLED, NOW))
    assert ledger.get_run(run.run_id) == run, "a reader does not wait for a writer"
    holder.execute("COMMIT")
    assert ledger.replace_run(run.moved(State.CANCELLED, NOW)).state is State.CANCELLED


def test_a_full_disk_is_a_transient_error_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "runs.db"))
    run = ledger.create_run(make_run("first"))
    pages = ledger._connection().execute("PRAGMA page_count").fetchone()[0]
    ledger._connection().execute(f"PRAGMA max_page_count = {pages + 3}")
    large = run.moved(State.SUBMITTING, NOW, request={"pad": "x" * 100_000})
    with pytest.raises(LedgerUnavailable, match="full"):
        ledger.replace_run(large, claim=["flowers.0"])
    with pytest.raises(LedgerUnavailable, match="full"):
        ledger.create_run(make_run("second", request={"pad": "x" * 100_000}))
    assert [found for found in ledger.find_runs()] == [run]
    assert ledger.list_documents("slots") == []
    ledger._connection().execute("PRAGMA max_page_count = 1000000")
    assert ledger.replace_run(large, claim=["flowers.0"]).slots == ("flowers.0",)


def test_a_path_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailable, match="cannot be opened"):
        open_ledger(f"sqlite://{tmp_path}/file/runs.db")
    (tmp_path / "not-a-database.db").write_text("hello " * 1000)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        open_ledger(f"sqlite://{tmp_path}/not-a-database.db")
    with pytest.raises(ConfigurationError, match="must be sqlite:///PATH or firestore://PROJECT/DATABASE"):
        open_ledger("postgres://host/db")


def test_processes_share_one_file_and_one_of_them_wins_each_run(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/runs.db"
    open_ledger(url).close()
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        won = pool.starmap_async(_create_many, [(url, 25)] * 4).get(timeout=60)
    assert sum(won) == 25
    ledger = open_ledger(url)
    assert len(ledger.find_runs()) == 25
    assert all(run.state is State.CANCELLED for run in ledger.find_runs())


def _create_many(url: str, count: int) -> int:
    ledger = open_ledger(url)
    won = 0
    for n in range(count):
        try:
            run = ledger.create_run(make_run(str(n)))
            ledger.replace_run(run.moved(State.CANCELLED, NOW))
            won += 1
        except (AlreadyExists, Conflict):
            continue
    return won


def test_a_writer_killed_in_the_middle_leaves_whole_records_and_no_lock(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/runs.db"
    open_ledger(url).close()
    writer = multiprocessing.get_context("fork").Process(target=_write_for_ever, args=(url,))
    writer.start()
    deadline = time.monotonic() + 30
    while open_ledger(url).count_runs() < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join(10)
    ledger = open_ledger(url)
    runs = ledger.find_runs(limit=100_000)
    assert len(runs) >= 20
    owners = {slot.data["run_id"] for slot in ledger.list_documents("slots", limit=100_000)}
    assert owners == {run.run_id for run in runs if run.slots}
    assert ledger.create_run(make_run("after")).version


def _write_for_ever(url: str) -> None:
    ledger = open_ledger(url)
    for n in range(1_000_000):
        run = ledger.create_run(make_run(str(n)))
        ledger.replace_run(run.moved(State.SUBMITTING, NOW), claim=[f"flowers.{n}"])


def test_a_connection_does_not_cross_a_fork(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "runs.db"))
    ledger.create_run(make_run("parent"))
    before = ledger._connection()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: os._exit(0 if ledger._connection() is not before and ledger.count_runs() == 1 else 1)
    )
    child.start()
    child.join(10)
    assert child.exitcode == 0


def test_a_record_of_an_older_schema_is_migrated_when_it_is_read() -> None:
    old = json.loads(encode_run(make_run()))
    old["schema_version"] = SCHEMA_VERSION - 1
    old["event"] = old.pop("trigger")
    migrations = {
        SCHEMA_VERSION - 1: lambda data: {**{k: v for k, v in data.items() if k != "event"}, "trigger": data["event"]}
    }
    run = decode_run(json.dumps(old), "7", migrations)
    assert run == make_run().model_copy(update={"version": "7"})


def test_a_record_of_a_newer_or_unknown_schema_is_not_guessed_at(tmp_path: Path) -> None:
    data = json.loads(encode_run(make_run()))
    with pytest.raises(LedgerUnavailable, match=f"has schema version {SCHEMA_VERSION + 1}; this code reads up to"):
        decode_run(json.dumps({**data, "schema_version": SCHEMA_VERSION + 1}), "1")
    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        decode_run(json.dumps({**data, "schema_version": 0}), "1")
    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        decode_run(json.dumps({**data, "surprise": 1}), "1")
    open_ledger(f"sqlite://{tmp_path}/runs.db").close()
    sqlite3.connect(tmp_path / "runs.db").execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerUnavailable, match="tables of version 99"):
        open_ledger(f"sqlite://{tmp_path}/runs.db")


@pytest.mark.parametrize(
    "where",
    [
        "1 ORDER BY created DESC, run_id DESC",
        "state = 'X' AND (created, run_id) < ('a', 'b') ORDER BY created DESC, run_id DESC",
        "recipe = 'X' ORDER BY created DESC, run_id DESC",
        "recipe = 'X' AND state = 'Y' ORDER BY created, run_id",
        "due <= 'X' ORDER BY due, created, run_id",
        "job_id = 'X' AND job_id != '' ORDER BY created DESC, run_id DESC",
    ],
)
def test_no_query_of_runs_scans_the_table(tmp_path: Path, where: str) -> None:
    ledger = SqliteLedger(str(tmp_path / "runs.db"))
    plan = [row[3] for row in ledger._read(f"EXPLAIN QUERY PLAN SELECT record FROM runs WHERE {where} LIMIT 5", ())]
    assert any("INDEX" in step for step in plan), plan
    if "due" not in where and "job_id" not in where:
        assert not any("TEMP B-TREE" in step for step in plan), plan
