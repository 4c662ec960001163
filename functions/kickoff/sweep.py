"""The sweep, as an entry point calls it: a pass over everything that a deployment has. Effect."""

from typing import Any

from kickoff.clients import Clients
from kickoff.duplicates import storage_fence
from kickoff.sweep_pass import run_pass
from kickoff.updating import Clock


def sweep(clients: Clients, now: Clock) -> dict[str, Any]:
    """One pass; returns what it did, as JSON. Safe to call at any time and twice at once."""
    from kickoff.record import record_run

    report = run_pass(
        clients.ledger,
        clients.vertex,
        settings=clients.settings,
        now=now,
        record=lambda run: record_run(run, clients, now),
        fence=storage_fence(clients.storage),
    )
    return report.to_json()
