"""The entry points, and nothing else. Each is an HTTP function that reads every envelope itself."""

import os
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import functions_framework
from kickoff.answers import Answer, answer
from kickoff.clients import Clients
from kickoff.settings import Settings

if TYPE_CHECKING:
    import flask


@cache
def clients() -> Clients:
    """One set of clients a process; made at the first event, so that a wrong setting is an answer, not a crash loop."""
    return Clients(Settings.from_environ(os.environ))


def utc_now() -> datetime:
    return datetime.now(UTC)


@functions_framework.http
def start_training(request: "flask.Request") -> Answer:
    """An upload, a message or a schedule: at most one run each."""
    from kickoff.errors import MalformedEvent
    from kickoff.start import refuse, start

    def act() -> Any:
        try:
            event = read(request)
        except MalformedEvent as error:
            if request.method != "POST":
                raise  # a look at the URL asks for nothing: no record
            return refuse(error, request.get_data(), clients(), utc_now)
        return start(event, clients(), utc_now)

    return answer(act)


@functions_framework.http
def record_completion(request: "flask.Request") -> Answer:
    """A hint that something happened to a job: the record follows Vertex AI's own word."""
    from kickoff.wiring import record_event

    return answer(lambda: record_event(read(request), clients(), utc_now))


@functions_framework.http
def sweep(request: "flask.Request") -> Answer:
    """What no event told: called every minute by Cloud Scheduler."""
    from kickoff.wiring import sweep_all

    return answer(lambda: sweep_all(clients(), utc_now).to_json())


@functions_framework.http
def dashboard(request: "flask.Request") -> Any:
    """The page that shows what happened."""
    from kickoff.dashboard import respond

    return respond(request, clients(), utc_now)


def read(request: "flask.Request") -> Any:
    """The event in the envelope. Raises MalformedEvent."""
    from kickoff.events import parse_event

    return parse_event(request.method, request.full_path.rstrip("?"), dict(request.headers), request.get_data())
