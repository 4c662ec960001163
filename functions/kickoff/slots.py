"""`max_active`: a run takes a slot of its recipe, and one of the project's, in the write that starts it.

A slot is a small document that names its run, so no counter is shared and nobody waits for a lock. The ledger deletes
it in the same write that ends the run: a crash cannot leak one.
"""

import random

from kickoff.ledger.protocol import SLOTS, Ledger
from kickoff.runs import Run

TOTAL = "_total"
"""The scope of slots that all recipes share; no recipe can have this name."""


def choose_slots(ledger: Ledger, run: Run, max_total: int) -> list[str] | str:
    """Free slots for the run, possibly none needed; or, in words, what it has to wait for."""
    chosen = []
    for scope, cap, what in ((run.recipe, run.max_active, f"recipe {run.recipe}"), (TOTAL, max_total, "this project")):
        if not cap:
            continue
        taken = {slot.id for slot in ledger.list_documents(SLOTS, prefix=f"{scope}.", limit=10_000)}
        if len(taken) >= cap:  # also when the cap was lowered meanwhile
            return f"a free slot: {len(taken)} of {cap} runs of {what} are active"
        # Any free one: claimers that arrive together rarely meet.
        chosen.append(random.choice([name for n in range(cap) if (name := f"{scope}.{n}") not in taken]))
    return chosen
