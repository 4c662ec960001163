"""``python -m deploy.local.job_service.fault URL KIND``: ask a running emulator for a fault from a shell.

`request` is what other command lines call; it needs the standard library alone.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from deploy.local.job_service.admin import DISTURBANCES
from deploy.local.job_service.faults import KINDS, METHODS

_RELEASE = "release"
_LIST = "list"


class Refused(Exception):
    """The emulator did not do it; the text is its own."""


def request(url: str, verb: str, path: str, body: object = None) -> Any:
    """Call the admin API. Raises Refused, also where nothing answers."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"{url.rstrip('/')}/admin/{path}", data, method=verb)
    try:
        with urllib.request.urlopen(call, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(json.load(error)["error"]["message"]) from None
    except (urllib.error.URLError, OSError) as error:
        raise Refused(f"no emulator answers at {url}: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        print(json.dumps(_run(arguments), indent=2))
    except Refused as error:
        print(f"kickoff: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> Any:
    if arguments.kind == _LIST:
        return request(arguments.url, "GET", "faults")
    if arguments.kind == _RELEASE:
        return request(arguments.url, "DELETE", "faults")
    if arguments.kind in DISTURBANCES:
        if not arguments.job:
            raise Refused(f"{arguments.kind} needs --job ID")
        fields = {"replica": arguments.replica or "workerpool0-0", "signal": arguments.signal}
        return request(arguments.url, "POST", f"jobs/{arguments.job}:{arguments.kind}", fields)
    return request(arguments.url, "POST", "faults", build_fault(arguments))


def build_fault(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fault that the flags describe; what was not said is left to the emulator. Pure."""
    names = ("kind", "method", "status", "seconds", "rate", "replica")
    fault = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.label:
        fault["labels"] = dict(label.split("=", 1) for label in arguments.label)
    if arguments.times is not None:
        fault["times"] = arguments.times or None
    return fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.job_service.fault", description=__doc__)
    add = parser.add_argument
    add("url", help="the emulator's URL")
    add("kind", choices=[*KINDS, *DISTURBANCES, _LIST, _RELEASE])
    add("--method", choices=METHODS, help="the call that it happens to")
    add("--status", type=int, help="HTTP status to answer")
    add("--seconds", type=float)
    add("--times", type=int, help="how often; 0: until released")
    add("--rate", type=float, help="share of the calls, from 0 to 1")
    add("--label", action="append", metavar="KEY=VALUE", help="lag: jobs with this label alone")
    add("--job", help="kill, preempt, freeze, thaw, slow: the job's id")
    add("--replica", help="e.g. workerpool1-0")
    add("--signal", type=int, default=9)
    return parser


if __name__ == "__main__":
    sys.exit(main())
