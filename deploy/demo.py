"""`kickoff demo`: the whole story on one machine, told as it happens.

An upload with the stock client, and for some recipes a message, is all that it does; the job, its replicas and the
record follow from that alone.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kickoff.clients import Clients
from kickoff.logs import read_tails
from kickoff.progress import Epoch
from kickoff.runs import Change, Run, State
from kickoff.settings import Settings
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from deploy.console import console
from deploy.demo_data import SCENES, Scene, publish_request, upload
from deploy.follow import Overdue, follow, wait_for_run
from deploy.local.stack import Stack
from deploy.models import download_model

_APPEARS = 60.0
_ENDS = 600.0
_TOLERANCE = 1e-3
_EVALUATORS = 3
"""The worker pool of evaluators."""

_NATIVE_LOG = re.compile(r"[IWE]\d{4} \d\d:\d\d:|WARNING: All log messages before absl")
"""What TensorFlow's C++ writes of processors it looks for: no cause of a failure that Python could not name."""


class DemoFailed(Exception):
    """What went wrong, and where to look."""


def run_demo(stack: Stack, recipe: str, keep: Path) -> None:
    """Upload, ask where the upload alone does not start it, watch, verify, sum up. Raises DemoFailed, PartFailed."""
    began = time.monotonic()
    scene = SCENES[recipe]
    clients = Clients(Settings.from_environ(stack.environ))
    try:
        start(stack, recipe, scene)
        run = wait_for_run(clients.ledger, recipe, _APPEARS, stack.check)
        console.print(f"[bold]3.[/bold] Run [bold]{run.run_id}[/bold] · {stack.urls['dashboard']}")
        console.print(f"   replicas: {describe_replicas(run)}")
        run = watch(clients, run, stack)
        if run.state is not State.SUCCEEDED:
            raise DemoFailed(describe_failure(run, stack))
        console.print("[bold]4.[/bold] Loading the saved model and evaluating it on the held-out images")
        folder = keep / run.run_id
        download_model(stack.urls["storage"], run.model_uri, folder)
        again = evaluate(stack, run, folder)
    except Overdue as error:
        raise DemoFailed(str(error)) from None
    jobs = clients.vertex.find_by_run(run.project, run.region, run.run_id)
    measured = read_evaluations(stack.urls["storage"], run)
    print_summary(summary_rows(run, len(jobs), again, measured, folder), time.monotonic() - began)
    verify(run, len(jobs), again, measured, scene.least)


def start(stack: Stack, recipe: str, scene: Scene) -> None:
    """What a user would do, and no more."""
    console.print(f"\n[bold]1.[/bold] Uploading {scene.count} images: {scene.dataset}")
    with Progress(console=console) as progress:
        images = upload(stack.urls["storage"], scene)
        for _ in progress.track(images, total=scene.count, description="   images"):
            pass
    if scene.starts_by_upload:
        console.print("[bold]2.[/bold] The marker object completed the dataset: that upload is all this command does")
        return
    request = scene.request(recipe)
    console.print(
        "[bold]2.[/bold] Asking for the run by a message, with what this machine can train in a minute or two:"
    )
    console.print(f"   {escape(json.dumps(request))}", soft_wrap=True)
    publish_request(stack.environ["PUBSUB_EMULATOR_HOST"], request)


def watch(clients: Clients, run: Run, stack: Stack) -> Run:
    """Print states and epochs as they come; the record at its end."""
    columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("epochs", total=None)
        for news in follow(clients.ledger, run.run_id, _ENDS, stack.check):
            if isinstance(news, Epoch):
                progress.update(task, total=news.epochs, completed=news.epoch)
                console.print(f"   {describe_epoch(news)}")
            else:
                console.print(f"   {describe_change(news, run.created)}")
    ended = clients.ledger.get_run(run.run_id)
    assert ended is not None
    return ended


def describe_change(change: Change, first: Any) -> str:
    first_line = change.note.partition("\n")[0]
    note = f"  [dim]{escape(first_line)}[/dim]" if first_line else ""
    return f"{(change.time - first).total_seconds():6.1f} s  [bold]{change.state}[/bold]{note}"


def describe_epoch(epoch: Epoch) -> str:
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in epoch.metrics.items() if value is not None)
    return f"  epoch {epoch.epoch:2}/{epoch.epochs}  {numbers}  {epoch.images_per_second or 0:.0f} images/s"


def evaluate(stack: Stack, run: Run, folder: Path) -> dict[str, float]:
    """What a fresh process gets from the saved model on the same held-out images."""
    assert run.dataset is not None
    argv = [sys.executable, "-m", "trainer.evaluate", "--model", str(folder), "--data", run.dataset.snapshot]
    try:
        done = subprocess.run(argv, env=stack.environ, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        raise DemoFailed(f"the saved model in {folder} was not evaluated within 300 s") from None
    if done.returncode:
        raise DemoFailed("the saved model could not be evaluated:\n" + "\n".join(done.stderr.splitlines()[-15:]))
    return dict(json.loads(done.stdout.splitlines()[-1]))


def read_evaluations(endpoint: str, run: Run) -> list[dict[str, Any]]:
    """What the evaluator of a job with parameter servers measured, by step; empty for any other job."""
    with tempfile.TemporaryDirectory(prefix="kickoff-evaluation-") as name:
        download_model(endpoint, run.model_uri.removesuffix("model/") + "evaluation/", Path(name))
        return [json.loads(path.read_bytes()) for path in sorted(Path(name).glob("step-*.json"))]


def verify(run: Run, jobs: int, again: dict[str, float], evaluations: Sequence[dict[str, Any]], least: float) -> None:
    """One job, a saved model that does what the record says, and what an evaluator was there for. Raises DemoFailed."""
    recorded = run.metrics.get("val_accuracy", math.nan)
    if jobs != 1:
        raise DemoFailed(f"run {run.run_id} has {jobs} jobs; there must be exactly one")
    if not math.isfinite(recorded):
        raise DemoFailed(f"the record of run {run.run_id} holds no validation accuracy")
    if not abs(recorded - again["accuracy"]) <= _TOLERANCE:
        raise DemoFailed(f"the saved model reaches {again['accuracy']:.4f}, the record says {recorded:.4f}")
    if recorded < least:
        raise DemoFailed(f"the model reaches {recorded:.4f} on held-out images; {least} is the least it should")
    if len(list(count_replicas(run))) > _EVALUATORS and not evaluations:
        raise DemoFailed(f"the evaluator of run {run.run_id} measured nothing")


def describe_failure(run: Run, stack: Stack) -> str:
    """The state, Vertex's first words, and the replicas' last lines."""
    return "\n".join(failure_lines(run, read_tails(stack.urls["vertex"], run)))


def failure_lines(run: Run, tails: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Vertex's message goes on with lines of the replica, which follow anyway; so do the service's own lines."""
    yield f"run {run.run_id} ended {run.state}"
    if run.job and run.job.error:
        yield run.job.error.partition("\n")[0]
    yield from (fault.message for fault in run.faults)
    for replica, tail in tails:
        if replica != "service":
            yield f"--- {replica}"
            yield from (line for line in tail if not _NATIVE_LOG.match(line))


def print_summary(rows: Iterable[tuple[str, str]], seconds: float) -> None:
    table = Table(title="One request, one job", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    table.add_row("took", f"{seconds:.0f} s")
    console.print(table)
    console.print("What it started has ended with it. To keep the stack, the page and your own runs:", style="dim")
    console.print("  . .venv/bin/activate && kickoff local", style="dim")


def summary_rows(
    run: Run, jobs: int, again: dict[str, float], evaluations: Sequence[dict[str, Any]], folder: Path
) -> Iterator[tuple[str, str]]:
    yield "run", run.run_id
    yield "jobs of this run", str(jobs)
    yield "job", run.job.name if run.job else ""
    yield "replicas", describe_replicas(run)
    for change in run.history:
        yield str(change.state), f"{change.time:%H:%M:%S.%f}"[:-4]
    yield "validation accuracy", f"{run.metrics.get('val_accuracy', 0):.4f}"
    yield "the saved model, loaded again", f"{again['accuracy']:.4f} on {again['examples']:.0f} images"
    if evaluations:
        last = evaluations[-1]
        yield "the evaluator, last", f"{last['val_accuracy']:.4f} after step {last['step']}"
    yield "model", run.model_uri
    yield "a copy that stays", str(folder)


def describe_replicas(run: Run) -> str:
    names = ("primary", "worker", "parameter server", "evaluator")
    counted = [(count, name) for name, count in zip(names, count_replicas(run), strict=False) if count]
    return " + ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counted)


def count_replicas(run: Run) -> Iterable[int]:
    pools = run.custom_job.get("jobSpec", {}).get("workerPoolSpecs", [])
    return (int(pool.get("replicaCount", 0)) for pool in pools)
