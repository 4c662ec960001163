"""Firestore that does not answer: every call ends within its deadline, as the one transient error."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kickoff.errors import LedgerUnavailable
from kickoff.ledger import open_ledger
from kickoff.runs import State

from tests.kickoff.making import NOW, make_run

RUN = make_run().model_copy(update={"version": "2026-12-01T12:00:00.000000Z"})
CALLS: dict[str, Callable[[Any], object]] = {
    "create_run": lambda ledger: ledger.create_run(RUN),
    "replace_run": lambda ledger: ledger.replace_run(RUN.moved(State.SUBMITTING, NOW), claim=["flowers.0"]),
    "get_run": lambda ledger: ledger.get_run("flowers-1"),
    "find_runs": lambda ledger: ledger.find_runs(states=[State.QUEUED]),
    "find_runs-by-job": lambda ledger: ledger.find_runs(job_id="1"),
    "count_runs": lambda ledger: ledger.count_runs(),
    "create_document": lambda ledger: ledger.create_document("holds", "h", {}),
    "list_documents": lambda ledger: ledger.list_documents("holds"),
}


@pytest.fixture(params=["nobody-listens", "nobody-answers"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if request.param == "nobody-answers":
            server.listen(50)
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("name", CALLS)
def test_no_call_outlives_its_deadline(address: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", address)
    ledger = open_ledger("firestore://p/(default)?timeout=0.5")
    began = time.monotonic()
    with pytest.raises(LedgerUnavailable, match="did not answer"):
        CALLS[name](ledger)
    assert time.monotonic() - began < 20, "far below the client's own 300 seconds"
    ledger.close()
