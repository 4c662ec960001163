"""`kickoff cancel|rerun|pause|resume`: what people do about runs."""

import getpass
import secrets
from datetime import UTC, datetime
from typing import Annotated

import typer
from kickoff.errors import InvalidRequest

from deploy.commands.runs import RunId, find
from deploy.console import console
from deploy.target import Target, connect


def register(app: typer.Typer) -> None:
    for command in (cancel, rerun, pause, resume):
        app.command()(command)


def cancel(
    run_id: Annotated[str, typer.Argument(help="A run id or its beginning, or gs://BUCKET/ROOT/ of a held dataset.")],
) -> None:
    """End a run, also one that is held or queued; or stop waiting for a dataset."""
    from kickoff.steering import cancel as cancel_run

    target = connect()
    if run_id.startswith("gs://"):
        cancel_hold(target, run_id)
        return
    run = find(target, run_id)
    if run.terminal:
        raise InvalidRequest(f"run {run.run_id} has ended {run.state}; there is nothing to cancel")
    run = cancel_run(target.clients.ledger, target.clients.vertex, run.run_id, now=utc_now, by=getpass.getuser())
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


def utc_now() -> datetime:
    return datetime.now(UTC)
