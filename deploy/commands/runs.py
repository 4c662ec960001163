"""`kickoff runs|show|logs|open|export|tensorboard`: what happened."""

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
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
_LOOKED_AT = 1000


def register(app: typer.Typer) -> None:
    for command in (runs, show, logs, export, tensorboard):
        app.command()(command)
    app.command(name="open")(open_page)


def runs(
    recipe: Annotated[str, typer.Option(help="Only this recipe's.")] = "",
    state: Annotated[list[State] | None, typer.Option(help="Only in this state; may be given several times.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep showing, until Ctrl-C; with --json, each change is a line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List run records, newest first, with what waits and why."""
    from deploy.watching import build_table, watch_json, watch_table

    ledger = connect().clients.ledger

    def look() -> list[RunRow]:
        return list_rows(ledger, recipe=recipe, states=state or (), limit=limit)

    if watch:
        (watch_json if as_json else watch_table)(look, _WATCH_SECONDS)
    elif as_json:
        for row in look():
            print(json.dumps(row.to_json()))
    else:
        console.print(build_table(look(), datetime.now(UTC)))


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
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Until the run ends; exit status 1 if it did not succeed.")
    ] = False,
    replica: Annotated[str, typer.Option(help="Only this one: workerpool0-0, workerpool1-1, service…")] = "",
) -> None:
    """What the replicas and the service wrote."""
    from kickoff.logs import list_lines

    target = connect()
    run = find(target, run_id)
    if run.terminal and run.job is None:
        raise InvalidRequest(
            f"run {run.run_id} is {run.state} and never had a job; `kickoff show {run.run_id}` says why"
        )
    endpoint = target.settings.logging_endpoint
    seen: set[str] = set()
    since = ""
    while True:
        ended = run.terminal
        if run.job:
            for line in list_lines(endpoint, run.project, run.job.id, replica=replica, since=since):
                if (key := f"{line.replica} {line.id}") not in seen:
                    seen.add(key)
                    since = line.time
                    print(f"{line.time[11:23]} {line.replica:14} {line.text}", flush=True)
        if not follow or ended:
            break
        time.sleep(_WATCH_SECONDS)
        run = find(target, run.run_id)
    if follow and run.state is not State.SUCCEEDED:
        print(f"kickoff: run {run.run_id} ended {run.state}", file=sys.stderr)
        raise typer.Exit(1)


def open_page(run_id: Annotated[str, typer.Argument(help="A run id, or its beginning; none: the list.")] = "") -> None:
    """Open the page in a browser."""
    target = connect()
    url = target.settings.dashboard_url.rstrip("/")
    if not url:
        raise InvalidRequest("KICKOFF_DASHBOARD_URL is not set; `kickoff deploy` prints it")
    if run_id:
        url = f"{url}/runs/{find(target, run_id).run_id}"
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


def tensorboard(
    run_ids: Annotated[list[str], typer.Argument(help="Run ids, or their beginnings; several are compared.")],
    folder: Annotated[Path, typer.Option(help="Where the event files are copied to.")] = Path(".kickoff/tensorboard"),
    port: Annotated[int, typer.Option(help="TensorBoard's port.")] = 6006,
) -> None:
    """Copy the TensorBoard logs of runs, and show them; while a run trains, they are copied again and again."""
    from deploy.tensorboard import open_board

    target = connect()
    sys.exit(open_board(target.clients, [find(target, run_id) for run_id in run_ids], folder, port))


def find(target: Target, run_id: str) -> Run:
    """The run of that id or of a unique beginning of one. Raises InvalidRequest."""
    ledger = target.clients.ledger
    if run := ledger.get_run(run_id):
        return run
    matching = [run for run in ledger.find_runs(limit=_LOOKED_AT) if run.run_id.startswith(run_id)]
    if len(matching) == 1:
        return matching[0]
    why = "none has" if not matching else f"{len(matching)} have"
    raise InvalidRequest(
        f"of the newest {_LOOKED_AT:,} runs, {why} an id that begins with {run_id!r}; `kickoff runs` lists them"
    )
