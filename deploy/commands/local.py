"""`kickoff local`, `kickoff env` and `kickoff demo`: the laptop as a deployment target."""

import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from kickoff.errors import ConfigurationError

from deploy.commands import vertex
from deploy.console import console
from deploy.demo_data import SCENES
from deploy.local.processes import PartFailed
from deploy.local.stack import PROJECT, Stack, default_state, running_environ

StateOption = Annotated[
    Path | None, typer.Option("--state", help="Folder of the stack's files.", show_default="per user")
]


class Only(StrEnum):
    """Parts that are of use without the rest."""

    VERTEX = "vertex"


def register(app: typer.Typer) -> None:
    app.command()(local)
    app.command()(env)
    app.command()(demo)


def local(
    state: StateOption = None,
    port: Annotated[int, typer.Option(help="The page's port; with --only the part's own.")] = 8080,
    only: Annotated[Only | None, typer.Option(help="Run this part alone.")] = None,
) -> None:
    """Keep the whole stack running on this machine: no account, no Docker, no Java. Ctrl-C ends it."""
    if only:
        sys.exit(vertex.serve(state, port))
    end_on_sigterm()
    try:
        with Stack(state or default_state(), say=say, port=port) as stack:
            print_endpoints(stack)
            while True:
                time.sleep(1)
                stack.check()
    except PartFailed as error:
        fail(error)


def env(state: StateOption = None) -> None:
    """The variables with which stock clients and gcloud reach the running stack: eval "$(kickoff env)"."""
    found = running_environ(state or default_state())
    if found is None:
        raise ConfigurationError("no local stack is running; start one with `kickoff local`")
    print_exports(found)


def demo(
    recipe: Annotated[str, typer.Option(help=f"What to train: {', '.join(SCENES)}.")] = "digits",
    keep: Annotated[Path, typer.Option(help="Folder that the trained model is copied to.")] = Path(".kickoff/demo"),
) -> None:
    """Upload a small dataset and watch one job train on it, from the upload to the record and the loaded model."""
    from deploy.demo import DemoFailed, run_demo

    if recipe not in SCENES:
        raise ConfigurationError(f"--recipe is {recipe}; it must be one of {', '.join(SCENES)}")
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="kickoff-demo-") as state:
        try:
            with Stack(Path(state), say=say, sweep_seconds=2) as stack:
                run_demo(stack, recipe, keep)
        except (PartFailed, DemoFailed) as error:
            print(f"kickoff: {error}\nEvery part's log: {keep_logs(Path(state), keep)}", file=sys.stderr)
            sys.exit(1)


def keep_logs(state: Path, keep: Path) -> Path:
    """Copy the logs of a stack that has ended out of its folder, which goes away."""
    kept = keep / "logs"
    shutil.rmtree(kept, ignore_errors=True)
    for folder in ("logs", "vertex"):
        if (state / folder).exists():
            shutil.copytree(state / folder, kept / folder, ignore=shutil.ignore_patterns("*.db*"))
    return kept


def print_endpoints(stack: Stack) -> None:
    """What runs where, and the variables with which the user's own clients reach it."""
    console.print("\n[bold]Kickoff runs on this machine.[/bold] Ctrl-C ends it.\n")
    for name in ("dashboard", "storage", "vertex", "start_training"):
        console.print(f"  {name:15} {stack.urls[name]}")
    console.print(f"  {'pubsub':15} {stack.environ['PUBSUB_EMULATOR_HOST']}")
    console.print(f"  {'logs':15} {stack.processes.logs}\n")
    console.print("Buckets and messages live in memory and end with it; run records stay in the folder of the logs.")
    console.print('In another terminal, for the stock clients and gcloud: eval "$(kickoff env)", or\n', markup=False)
    print_exports(stack.client_environ())
    console.print("\nTo train on an upload, write out some images and put them in the bucket, the marker last:\n")
    console.print(f"  python -m deploy.digits digits\n  gcloud storage cp -r digits gs://{PROJECT}-data/datasets/")
    console.print(
        f"  gcloud storage cp /dev/null gs://{PROJECT}-data/datasets/digits/_SUCCESS\n  kickoff runs --watch\n"
    )


def print_exports(environ: Mapping[str, str]) -> None:
    for name, value in environ.items():
        print(f"export {name}={shlex.quote(value)}")
    sys.stdout.flush()


def say(line: str) -> None:
    console.print(f"[dim]{line}[/dim]")


def fail(error: Exception) -> None:
    print(f"kickoff: {error}", file=sys.stderr)
    sys.exit(1)


def end_on_sigterm() -> None:
    """SIGTERM ends the command as Ctrl-C does, so that what it started is stopped."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)  # also where a shell started this with SIGINT ignored
