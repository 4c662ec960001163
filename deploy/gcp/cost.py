"""What the system itself costs a month, idle and at 1,000 events a day: docs/cost.md holds the table that this makes.

Training is not in it: `kickoff check` prices each job. Prices are list prices for us-central1 in US dollars.
"""

from collections.abc import Iterator
from dataclasses import dataclass

PRICES_DATE = "2025-06"
DAYS = 30.4
BEGIN, END = "<!-- cost: begin -->", "<!-- cost: end -->"

EVENTS_A_DAY = 1_000
RUNS_A_DAY = 50
"""Of the events; the others are members of datasets, duplicates, and uploads that no recipe watches."""
HINTS_A_RUN = 20
"""Ten epochs, the trainer's end, nine lines of the service."""

_SWEEPS = 24 * 60 * DAYS
_EVENTS = EVENTS_A_DAY * DAYS
_RUNS = RUNS_A_DAY * DAYS
_CALLS = _EVENTS + _RUNS * HINTS_A_RUN
_SECONDS = _EVENTS * 0.3 + _RUNS * 2.0 + _RUNS * HINTS_A_RUN * 0.3
_RECIPES = 4
_LISTINGS = _RECIPES * 6 * 24 * DAYS


@dataclass(frozen=True)
class Item:
    """One line of the bill: units a month, and the part of them that Google gives free."""

    name: str
    unit: str
    price: float
    """US dollars for one unit."""
    idle: float
    busy: float
    free: float
    note: str

    def cost(self, units: float, free: bool) -> float:
        return self.price * max(0.0, units - (self.free if free else 0.0))


def items() -> Iterator[Item]:
    """Every part of the system that is paid by use or by the month."""
    sweep_seconds = _SWEEPS * 0.7
    yield Item(
        "Cloud Run, processor",
        "vCPU-s",
        24e-6,
        sweep_seconds,
        sweep_seconds + _SECONDS,
        180_000,
        "sweep 0.7 s, event 0.3 s, new run 2 s",
    )
    yield Item(
        "Cloud Run, memory", "GiB-s", 2.5e-6, sweep_seconds / 2, (sweep_seconds + _SECONDS) / 2, 360_000, "512 MiB each"
    )
    yield Item("Cloud Run, requests", "request", 0.4e-6, _SWEEPS, _SWEEPS + _CALLS, 2e6, "one sweep a minute")
    yield Item(
        "Firestore, reads",
        "read",
        0.03e-5,
        _SWEEPS * 12,
        _SWEEPS * 12 + _CALLS * 4,
        50_000 * DAYS,
        "12 a sweep, 4 an event",
    )
    yield Item(
        "Firestore, writes",
        "write",
        0.09e-5,
        0,
        _EVENTS + _RUNS * (HINTS_A_RUN + 10),
        20_000 * DAYS,
        "1 an event, 30 a run",
    )
    yield Item("Firestore, storage", "GiB", 0.15, 0.01, 0.5, 1, "20 KiB a run; its epochs go after 400 days")
    yield Item("Pub/Sub", "GiB", 40 / 1024, 0, _CALLS * 2 * 2e3 / 2**30, 10, "2 kB, in and out")
    yield Item("Cloud Scheduler", "job", 0.1, 2, 2, 3, "the sweep and one recipe")
    yield Item(
        "Cloud Storage, class A",
        "operation",
        5e-6,
        _LISTINGS,
        _LISTINGS * 10 + _RUNS * 100,
        5_000,
        "each recipe listed every 10 min; busy: 10,000 objects a recipe",
    )
    yield Item("Artifact Registry", "GB", 0.1, 6, 6, 0.5, "trainer 2 GB, functions 4 x 0.4 GB, some old ones")
    yield Item(
        "Cloud Logging", "GiB", 0.5, _SWEEPS * 1e3 / 2**30, (_SWEEPS + _CALLS * 2) * 1e3 / 2**30, 50, "1 kB a line"
    )
    yield Item("Alert conditions", "condition", 0.1, 5, 5, 0, "priced since 2026 as announced; 0 before")


def render_table() -> str:
    """Markdown: one row an item, then the sums with and without what Google gives free."""
    rows = list(items())
    lines = [
        "| part | price | idle, units | idle, USD | busy, units | busy, USD | counted as |",
        "| --- | --- | --: | --: | --: | --: | --- |",
    ]
    lines += [_row(each) for each in rows]
    for title, free in (("**list price**", False), ("**after the free allowances**", True)):
        idle, busy = (sum(each.cost(units, free) for each, units in _units(rows, which)) for which in ("idle", "busy"))
        lines.append(f"| {title} | | | **{idle:.2f}** | | **{busy:.2f}** | |")
    return "\n".join(lines) + "\n"


def _units(rows: list[Item], which: str) -> Iterator[tuple[Item, float]]:
    for each in rows:
        yield each, each.idle if which == "idle" else each.busy


def _row(each: Item) -> str:
    idle, busy = each.cost(each.idle, free=False), each.cost(each.busy, free=False)
    price = f"{each.price:.8f}".rstrip("0").rstrip(".")
    cells = [each.name, f"{price} / {each.unit}", _number(each.idle), f"{idle:.2f}", _number(each.busy), f"{busy:.2f}"]
    return f"| {' | '.join([*cells, each.note])} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2f}"
