"""The `kickoff` command. Each group of commands lives in a module of its own; heavy imports wait for their command."""

import sys
from typing import Annotated

import typer
from kickoff.errors import KickoffError, TransientError

from deploy.commands import ask, cloud, local, runs, steer, vertex

app = typer.Typer(
    name="kickoff",
    no_args_is_help=True,
    help="One upload, message or schedule becomes exactly one training job on Vertex AI, or on this laptop.",
    epilog="Exit status: 0 done, 1 it failed or was refused, 2 wrong usage, 75 try again later, 130 Ctrl-C.",
    pretty_exceptions_enable=False,
)
for group in (local, runs, steer, ask, cloud, vertex):
    group.register(app)


@app.callback()
def options(
    trace: Annotated[bool, typer.Option(help="Show the traceback of an error.", envvar="KICKOFF_TRACE")] = False,
) -> None:
    if trace:
        sys.excepthook = sys.__excepthook__
        _settings["trace"] = True


_settings = {"trace": False}

EXIT_FAILED = 1
"""The thing asked for did not succeed: a run failed, a check found faults."""
EXIT_UNAVAILABLE = 75
"""Trying again later can help (EX_TEMPFAIL of sysexits.h)."""


def main() -> None:
    """Run a command; a KickoffError becomes its words on standard error and an exit status."""
    try:
        app()
    except KickoffError as error:
        if _settings["trace"]:
            raise
        print(f"kickoff: {error}", file=sys.stderr)
        sys.exit(EXIT_UNAVAILABLE if isinstance(error, TransientError) else EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
