"""``python -m deploy.local.job_service.fault URL KIND``: ask a running emulator for a fault from a shell."""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.local.job_service.admin import DISTURBANCES
from deploy.local.job_service.faults import KINDS, METHODS

LIST, RELEASE = "list", "release"


class Refused(Exception):
    """The emulator did not do it; the text is its own."""


@dataclass(frozen=True)
class FaultRequest:
    """What was asked for; None: not said, which is left to the emulator."""

    kind: str
    method: str | None = None
    status: int | None = None
    seconds: float | None = None
    times: int | None = None
    """0: until released."""
    rate: float | None = None
    label: Sequence[str] = ()
    """``KEY=VALUE``."""
    job: str | None = None
    replica: str | None = None
    signal: int = 9


def run(url: str, wanted: FaultRequest) -> str:
    """Carry it out; the emulator's answer as text. Raises Refused."""
    verb, path, body = build_call(wanted)
    return json.dumps(call(url, verb, path, body), indent=2)


def build_call(wanted: FaultRequest) -> tuple[str, str, Any]:
    """(verb, path below ``/admin/``, body). Raises Refused for what cannot be asked. Pure."""
    if wanted.kind in (LIST, RELEASE):
        return ("GET" if wanted.kind == LIST else "DELETE"), "faults", None
    if wanted.kind in DISTURBANCES:
        if not wanted.job:
            raise Refused(f"{wanted.kind} needs the job's id (--job)")
        fields = {"replica": wanted.replica or "workerpool0-0", "signal": wanted.signal}
        return "POST", f"jobs/{wanted.job}:{wanted.kind}", fields
    names = ("kind", "method", "status", "seconds", "rate", "replica")
    fault = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    wrong = [label for label in wanted.label if "=" not in label]
    if wrong:
        raise Refused(f"--label is {wrong[0]!r}; it must have the form KEY=VALUE")
    if wanted.label:
        fault["labels"] = dict(label.split("=", 1) for label in wanted.label)
    if wanted.times is not None:
        fault["times"] = wanted.times or None
    return "POST", "faults", fault


def call(url: str, verb: str, path: str, body: object = None) -> Any:
    """Call the admin API. Raises Refused, also where nothing answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}/admin/{path}", data, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(json.load(error)["error"]["message"]) from None
    except (urllib.error.URLError, OSError) as error:
        raise Refused(f"no emulator answers at {url}: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    arguments = vars(_parser().parse_args(argv))
    try:
        print(run(arguments.pop("url"), FaultRequest(**arguments)))
    except Refused as error:
        print(f"kickoff: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.job_service.fault", description=__doc__)
    add = parser.add_argument
    add("url", help="the emulator's URL")
    add("kind", choices=[*KINDS, *DISTURBANCES, LIST, RELEASE])
    add("--method", choices=METHODS, help="the call that it happens to")
    add("--status", type=int, help="HTTP status to answer")
    add("--seconds", type=float)
    add("--times", type=int, help="how often; 0: until released")
    add("--rate", type=float, help="share of the calls, from 0 to 1")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="lag: jobs with this label alone")
    add("--job", help="kill, preempt, freeze, thaw, slow: the job's id")
    add("--replica", help="e.g. workerpool1-0")
    add("--signal", type=int, default=9)
    return parser


if __name__ == "__main__":
    sys.exit(main())
