"""`kickoff runs` as a table that keeps up, without flicker: only what changed is drawn again."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from deploy.console import console
from deploy.views import RunRow

Look = Callable[[], list[RunRow]]

_BAR = 12
_STYLES = {"SUCCEEDED": "green", "FAILED": "red", "EXPIRED": "red", "REJECTED": "red", "RUNNING": "blue"}


def build_table(rows: list[RunRow], now: datetime) -> Table:
    """One row for each run; a bar of epochs where one trains."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("run", "state", "created", "took", "epoch", "val acc"):
        table.add_column(name, no_wrap=True)
    table.add_column("waits for / note", overflow="fold", min_width=16)
    for row in rows:
        run, state, created, took, epoch, accuracy, note = map(escape, row.cells(now))
        state = f"[{_STYLES[state]}]{state}[/]" if state in _STYLES else state
        table.add_row(run, state, created, took, _epoch(row, epoch), accuracy, note)
    if not rows:
        table.add_row("no runs yet")
    return table


def _epoch(row: RunRow, text: str) -> RenderableType:
    if not (row.going and row.epoch and row.epochs):
        return text
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=row.epochs, completed=row.epoch, width=_BAR), text)
    return grid


def watch_table(look: Look, seconds: float) -> None:
    """Until Ctrl-C. In a pipe, the table again whenever it has changed."""
    if not console.is_terminal:
        watch_pipe(look, seconds)
    screen = Console(highlight=False)
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            live.update(build_table(look(), datetime.now(UTC)), refresh=True)
            time.sleep(seconds)


def watch_pipe(look: Look, seconds: float) -> None:
    last: list[RunRow] | None = None
    while True:
        if (rows := look()) != last:
            console.print(build_table(rows, datetime.now(UTC)))
        last = rows
        time.sleep(seconds)


def watch_json(look: Look, seconds: float) -> None:
    """A line for every run that is new or has changed, oldest first, until Ctrl-C."""
    seen: dict[str, RunRow] = {}
    while True:
        for row in reversed(look()):
            if seen.get(row.run_id) != row:
                seen[row.run_id] = row
                print(json.dumps(row.to_json()), flush=True)
        time.sleep(seconds)
