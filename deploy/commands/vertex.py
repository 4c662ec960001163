"""`kickoff fault` asks the Vertex AI emulator for a fault; `kickoff local --only vertex` runs it on its own."""

import os
from pathlib import Path
from typing import Annotated

import typer
from kickoff.errors import ConfigurationError, InvalidRequest

from deploy.local.stack import PROJECT, REGION, default_state, running_environ

_ENDPOINT = "KICKOFF_VERTEX_ENDPOINT"


def register(app: typer.Typer) -> None:
    app.command()(fault)


def fault(
    kind: Annotated[str, typer.Argument(help="status, lose_answer, delay, reset, timeout, lag, missing; list; release; "
                                             "kill, preempt, freeze, thaw, slow")],
    method: Annotated[str | None, typer.Option(help="create, get, list, cancel, delete, any")] = None,
    status: Annotated[int | None, typer.Option(help="HTTP status to answer")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long it delays, holds or lags")] = None,
    times: Annotated[int | None, typer.Option(help="How often; 0: until released")] = None,
    rate: Annotated[float | None, typer.Option(help="Share of the calls, from 0 to 1")] = None,
    label: Annotated[list[str] | None, typer.Option(help="KEY=VALUE: lag hides jobs with this label alone")] = None,
    job: Annotated[str | None, typer.Option(help="The job whose replica is disturbed")] = None,
    replica: Annotated[str | None, typer.Option(help="E.g. workerpool1-0; the primary by default")] = None,
    signal: Annotated[int, typer.Option(help="For kill")] = 9,
    url: Annotated[str | None, typer.Option(help="The emulator; the running local stack's by default")] = None,
) -> None:  # fmt: skip
    """Make the local Vertex AI fail on request: the next calls, or a replica that runs. See docs/vertex-emulator.md."""
    from deploy.local.job_service.fault import FaultRequest, Refused, run

    wanted = FaultRequest(kind, method, status, seconds, times, rate, tuple(label or ()), job, replica, signal)
    try:
        typer.echo(run(url or find_emulator(), wanted))
    except Refused as error:
        raise InvalidRequest(str(error)) from None


def find_emulator() -> str:
    """The URL of the emulator that runs here. Raises ConfigurationError."""
    environ = os.environ if _ENDPOINT in os.environ else running_environ(default_state()) or {}
    found = environ.get(_ENDPOINT, "")
    if not found.startswith("http://"):
        raise ConfigurationError(f"no local stack runs and {_ENDPOINT} names no emulator; start one, or give --url")
    return found


def serve(state: Path | None, port: int) -> int:
    """Run the emulator alone until SIGTERM or Ctrl-C; its exit status. Its folder may hold an images.json."""
    from deploy.local.job_service.__main__ import main

    folder = (state or default_state()) / "vertex"
    flags = ["--state", str(folder), "--port", str(port), "--project", PROJECT, "--region", REGION, "--hints"]
    images = folder / "images.json"
    return main([*flags, "--images", str(images)] if images.exists() else flags)
