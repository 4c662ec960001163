"""The envelopes of tests/cases/events.jsonl, and the table of docs/envelopes.md that is made of them.

``python -m tests.kickoff.event_cases > docs/envelopes.md`` (with functions/ on PYTHONPATH) writes it anew.
"""

import base64
import json
from pathlib import Path
from typing import Any

from kickoff.errors import MalformedEvent
from kickoff.event_types import Event, Ignored, JobHint, Message, Tick, Upload
from kickoff.events import parse_event
from kickoff.jobs import is_end, run_state

Case = dict[str, Any]
ROOT = Path(__file__).parents[2]

_HEAD = """\
# What each envelope becomes

Generated from `tests/cases/events.jsonl`, which the tests run whole; do not edit. Most envelopes are as people have
reported or captured them, the rest are edge cases. The entry point answers every one of them with 2xx: 5xx is kept for
the case that nothing was accepted and delivering again can help (ledger, bucket or Vertex AI out of reach).

What asks for a run goes on to recipes, request and policy; the last column says what comes of it there.
"""


def load_cases() -> list[Case]:
    text = (ROOT / "tests" / "cases" / "events.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def parse_case(case: Case) -> Event:
    """The case's request, parsed. Other inputs are sent as people would: a log entry as the data of a push."""
    given = case["input"]
    if "method" not in given:
        body = json.dumps(given["value"]).encode()
        if given["kind"] == "log-entry":
            data = base64.b64encode(body).decode()
            body = json.dumps({"message": {"messageId": "1", "data": data}}).encode()
        return parse_event("POST", "/", {"Content-Type": "application/json"}, body)
    return parse_event(given["method"], given["path"], given["headers"], read_body(given))


def outcome(case: Case) -> dict[str, Any]:
    """What the case becomes, in the words of its `expected`: all that can be expected of it."""
    if case["input"].get("kind") == "custom-job-state":
        value = case["input"]["value"]
        state = run_state(value)
        return {"becomes": "state", "run": state.value if state else None, "end": is_end(value)}
    try:
        return _describe(parse_case(case))
    except MalformedEvent as error:
        return {"becomes": "refused", "says": str(error), "faults": len(error.faults)}


def render_table(cases: list[Case]) -> str:
    rows = [f"{_HEAD}\n| case | envelope | becomes | then |\n| --- | --- | --- | --- |"]
    for case in cases:
        then = case["then"] + (f" ({case['why']})" if case["why"] else "")
        rows.append(" | ".join(["| " + case["id"], case["what"], _word(case["expected"]), then + " |"]))
    return "\n".join(rows) + "\n"


def _describe(event: Event) -> dict[str, Any]:
    if isinstance(event, Upload):
        return {"becomes": "upload", "uri": event.uri, "generation": event.generation, "size": event.size}
    if isinstance(event, Message):
        return {"becomes": "message", **vars(event)}
    if isinstance(event, Tick):
        return {"becomes": "tick", **vars(event), "schedule_time": event.schedule_time.isoformat()}
    if isinstance(event, JobHint):
        return {"becomes": "hint", **vars(event), "text": event.data.get("text")}
    assert isinstance(event, Ignored)
    return {"becomes": "ignored", "reason": event.reason, "empty": event.empty.uri if event.empty else None}


def _word(expected: dict[str, Any]) -> str:
    kind = expected["becomes"]
    if kind == "hint":
        return f"job hint ({expected['kind']})"
    if kind == "state":
        return "an end" if expected["end"] else "no end"
    return {"refused": "**refused**", "tick": "Scheduler tick"}.get(kind, str(kind))


def read_body(given: dict[str, Any]) -> bytes:
    if "body_b64" in given:
        return base64.b64decode(given["body_b64"])
    if "body_text" in given:
        return str(given["body_text"]).encode()
    return json.dumps(given["body_json"]).encode()


if __name__ == "__main__":
    print(render_table(load_cases()), end="")
