"""`kickoff runs|show|logs|cancel|rerun|pause|resume|open`: what happened, and what people do about it."""

import getpass
import json
import secrets
import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from kickoff.errors import InvalidRequest
from kickoff.runs import Run, State
from rich.markup import escape
from rich.table import Table

from deploy.console import console
from deploy.target import Target, connect
from deploy.views import RunRow, list_rows, run_details

RunId = Annotated[str, typer.Argument(help="A run id, or its beginning.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs, one run a line.")]
_WATCH_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    for command in (runs, show, logs, cancel, rerun, pause, resume, open_page, export):
        app.command(name="open" if command is open_page else None)(command)


def runs(
    recipe: Annotated[str, typer.Option(help="Only this recipe's.")] = "",
    state: Annotated[list[State] | None, typer.Option(help="Only in this state; may be given several times.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """List run records, newest first, with what waits and why."""
    target = connect()
    while True:
        rows = list_rows(target.clients.ledger, recipe=recipe, states=state or (), limit=limit)
        if as_json:
            for row in rows:
                print(json.dumps(row.to_json()))
        else:
            if watch:
                console.clear()
            console.print(build_table(rows))
        if not watch:
            return
        time.sleep(_WATCH_SECONDS)


def build_table(rows: list[RunRow]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("run", "state", "created", "took", "epoch", "val acc"):
        table.add_column(name, no_wrap=True)
    table.add_column("waits for / note", overflow="fold", min_width=16)
    for row in rows:
        table.add_row(*map(escape, row.cells()))
    if not rows:
        table.add_row("no runs yet")
    return table


def show(run_id: RunId, as_json: AsJson = False) -> None:
    """One run: its history, what asked for it, its dataset, job, metrics, faults."""
    target = connect()
    run = find(target, run_id)
    if as_json:
        print(run.model_dump_json(exclude={"version"}))
        return
    table = Table(box=None, show_header=False)
    for name, value in run_details(run, target.clients.ledger):
        table.add_row(f"[bold]{name}[/bold]", escape(value))
    console.print(table)


def logs(
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until the run ends.")] = False,
    replica: Annotated[str, typer.Option(help="Only this one: workerpool0-0, workerpool1-1, service…")] = "",
) -> None:
    """What the replicas and the service wrote."""
    from kickoff.logs import list_lines

    target = connect()
    run = find(target, run_id)
    seen: set[str] = set()
    since = ""
    while True:
        ended = run.terminal
        if run.job:
            endpoint = target.settings.logging_endpoint
            for line in list_lines(endpoint, run.project, run.job.id, replica=replica, since=since):
                if (key := f"{line.replica} {line.id}") not in seen:
                    seen.add(key)
                    since = line.time
                    print(f"{line.time[11:23]} {line.replica:14} {line.text}", flush=True)
        if not follow or ended:
            return
        time.sleep(_WATCH_SECONDS)
        run = find(target, run.run_id)


def cancel(
    run_id: Annotated[str, typer.Argument(help="A run id or its beginning, or gs://BUCKET/ROOT/ of a held dataset.")],
) -> None:
    """End a run, also one that is held or queued; or stop waiting for a dataset."""
    from kickoff.steering import cancel as cancel_run

    target = connect()
    if run_id.startswith("gs://"):
        cancel_hold(target, run_id)
        return
    run = cancel_run(
        target.clients.ledger, target.clients.vertex, find(target, run_id).run_id, now=utc_now, by=getpass.getuser()
    )
    console.print(f"run {run.run_id} is {run.state}" + ("" if run.terminal else "; its job was asked to stop"))


def cancel_hold(target: Target, root: str) -> None:
    """What is uploaded later waits anew. Raises InvalidRequest where no dataset waits there."""
    from kickoff.settling import drop_hold, holds

    recipes = [hold.recipe for hold in holds(target.clients.ledger) if hold.root == root]
    if not recipes:
        raise InvalidRequest(f"no dataset is held at {root}; `kickoff runs --state HELD` lists those that are")
    for recipe in recipes:
        drop_hold(target.clients.ledger, recipe, root, utc_now())
        console.print(f"{recipe} no longer waits for {root}")


def rerun(
    run_id: RunId,
    reason: Annotated[str, typer.Option(help="Why; kept in the record.")],
    force: Annotated[bool, typer.Option("--force", help="Also while an earlier attempt is active.")] = False,
) -> None:
    """The same request again, as a new run that is linked to the old one."""
    from kickoff.start import try_to_submit
    from kickoff.steering import rerun as rerun_run

    target = connect()
    clients = target.clients
    made = rerun_run(
        clients.ledger,
        find(target, run_id).run_id,
        reason,
        secrets.token_hex(8),
        now=utc_now,
        by=getpass.getuser(),
        force=force,
    )
    run = try_to_submit(made.run, clients, utc_now)
    console.print(f"run {run.run_id} is {run.state}")


def pause() -> None:
    """Hold all new runs; nothing is lost."""
    from kickoff.switches import set_pause

    set_pause(connect().clients.ledger, True)
    console.print("new runs are held; `kickoff resume` lets them start")


def resume() -> None:
    """End a pause; the sweep queues what was held."""
    from kickoff.switches import set_pause

    set_pause(connect().clients.ledger, False)
    console.print("new runs start again; held ones within a minute")


def open_page(run_id: Annotated[str, typer.Argument(help="A run; none: the list.")] = "") -> None:
    """Open the page in a browser."""
    url = connect().settings.dashboard_url
    if not url:
        raise InvalidRequest("KICKOFF_DASHBOARD_URL is not set; `kickoff deploy` prints it")
    url = f"{url.rstrip('/')}/runs/{run_id}" if run_id else url
    console.print(url)
    typer.launch(url)


def export(
    format: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    recipe: Annotated[str, typer.Option(help="Only this recipe's.")] = "",
) -> None:
    """Every run record, oldest first, on standard output."""
    from deploy.views import export_runs

    if format not in ("jsonl", "csv"):
        raise InvalidRequest(f"format is {format!r}; it must be jsonl or csv")
    export_runs(connect().clients.ledger, format, recipe)


def find(target: Target, run_id: str) -> Run:
    """The run of that id or of a unique beginning of one. Raises InvalidRequest."""
    ledger = target.clients.ledger
    if run := ledger.get_run(run_id):
        return run
    matching = [run for run in ledger.find_runs(limit=1000) if run.run_id.startswith(run_id)]
    if len(matching) == 1:
        return matching[0]
    why = "no run has" if not matching else f"{len(matching)} runs have"
    raise InvalidRequest(f"{why} an id that begins with {run_id!r}; `kickoff runs` lists them")


def utc_now() -> datetime:
    return datetime.now(UTC)
