"""Pages, due runs and writes of a SQLite ledger that holds many runs.

    python -m bench.ledger [--runs 100000]

Milliseconds, median and worst of 50 calls, on this machine.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta

from kickoff.ledger.records import encode_run, index_fields
from kickoff.ledger.sqlite import SqliteLedger
from kickoff.runs import State

from tests.kickoff.making import NOW, make_run


def fill(ledger: SqliteLedger, count: int) -> None:
    """Many runs in one transaction: most have ended, a few are active, queued and due."""
    dice = random.Random(7)
    rows = []
    for n in range(count):
        state = dice.choices([State.SUCCEEDED, State.FAILED, State.RUNNING, State.QUEUED], [970, 27, 1, 2])[0]
        recipe = f"recipe-{dice.randrange(20)}"
        due = NOW if state is State.QUEUED else None
        run = make_run(f"m-{n}", recipe=recipe, state=state, created=NOW + timedelta(seconds=n), next_attempt_at=due)
        rows.append((run.run_id, 1, encode_run(run), *index_fields(run).values()))
    db = ledger._connection()
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")


def measure(name: str, act: Callable[[], object]) -> None:
    times = []
    for _ in range(50):
        began = time.perf_counter()
        act()
        times.append((time.perf_counter() - began) * 1000)
    print(f"{name:<44} {statistics.median(times):8.2f} {max(times):8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger")
    parser.add_argument("--runs", type=int, default=100_000)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(f"{folder}/runs.db")
        fill(ledger, count)
        middle = ledger.find_runs(limit=1, oldest_first=True)[0].run_id
        new = iter(range(10**9))
        active = (State.SUBMITTING, State.SUBMITTED, State.RUNNING)
        print(f"{count} runs, ms: median, worst")
        measure("newest 50", lambda: ledger.find_runs(limit=50))
        measure("newest 50 of one recipe", lambda: ledger.find_runs(recipe="recipe-3", limit=50))
        measure("newest 50 that failed", lambda: ledger.find_runs(states=[State.FAILED], limit=50))
        measure("50 after any run", lambda: ledger.find_runs(oldest_first=True, after=middle, limit=50))
        measure("active runs", lambda: ledger.find_runs(states=active, limit=50))
        measure("50 due", lambda: ledger.find_runs(due_before=NOW, states=[State.QUEUED], limit=50))
        measure("one run", lambda: ledger.get_run(middle))
        measure("create one", lambda: ledger.create_run(make_run(f"new-{next(new)}")))
        measure("count all", lambda: ledger.count_runs())


if __name__ == "__main__":
    main()
