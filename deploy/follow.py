"""Watches one run by its record, as any reader of the ledger can: states as they come, epochs as they end."""

import time
from collections.abc import Callable, Iterator

from kickoff.ledger.protocol import Ledger
from kickoff.progress import Epoch, list_epochs
from kickoff.runs import Change, Run

_INTERVAL = 0.25


class Overdue(Exception):
    """Nothing came in time; the text says what was waited for."""


def wait_for_run(ledger: Ledger, recipe: str, seconds: float, check: Callable[[], None]) -> Run:
    """The newest run of a recipe, once there is one. Raises Overdue."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ledger.find_runs(recipe=recipe, limit=1):
            return found[0]
        check()
        time.sleep(_INTERVAL)
    raise Overdue(f"no run of recipe {recipe} appeared within {seconds:.0f} s")


def follow(ledger: Ledger, run_id: str, seconds: float, check: Callable[[], None]) -> Iterator[Change | Epoch]:
    """Every change and epoch of a run, in order, until it has ended. Raises Overdue.

    `check` is called while waiting, and may raise to give up.
    """
    deadline = time.monotonic() + seconds
    seen_changes = seen_epochs = 0
    while time.monotonic() < deadline:
        run = ledger.get_run(run_id)
        if run is None:
            raise Overdue(f"run {run_id} is not in the ledger")
        epochs = list_epochs(ledger, run_id)
        changes = run.history[seen_changes:]
        ended = run.terminal
        yield from changes[:-1] if ended else changes
        yield from epochs[seen_epochs:]
        if ended:
            yield from changes[-1:]
            return
        seen_changes, seen_epochs = len(run.history), len(epochs)
        check()
        time.sleep(_INTERVAL)
    raise Overdue(f"run {run_id} did not end within {seconds:.0f} s")
