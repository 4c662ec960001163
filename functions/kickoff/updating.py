"""Change a run by compare-and-set: read, decide, write, and again when someone else was faster."""

from collections.abc import Callable, Sequence
from datetime import datetime

from kickoff.errors import InvalidRequest, LedgerUnavailable
from kickoff.ledger.protocol import Conflict, Ledger
from kickoff.runs import Run

Clock = Callable[[], datetime]

_TRIES = 50


def find_run(ledger: Ledger, run_id: str) -> Run:
    """The run of that id. Raises InvalidRequest where there is none."""
    run = ledger.get_run(run_id)
    if run is None:
        raise InvalidRequest(f"run {run_id!r} does not exist; `kickoff runs` lists those that do")
    return run


def update_run(ledger: Ledger, run: Run, change: Callable[[Run], Run | None], claim: Sequence[str] = ()) -> Run:
    """Write ``change(run)``; after a lost race read the run again and decide again.

    `change` returns None where, as the run now stands, there is nothing to write. Returns the run as it is stored.
    """
    for _ in range(_TRIES):
        changed = change(run)
        if changed is None:
            return run
        try:
            return ledger.replace_run(changed, claim=claim)
        except Conflict:
            run = find_run(ledger, run.run_id)
    raise LedgerUnavailable(f"run {run.run_id} changed {_TRIES} times while it was written")
