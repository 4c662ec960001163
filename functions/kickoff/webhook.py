"""Tells people that a run has ended, in the form that Slack's incoming webhooks take (Mattermost and others too).

https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and, for the escapes,
https://docs.slack.dev/messaging/formatting-message-text#escaping
"""

import json
import logging
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from http.client import HTTPException
from typing import Any

from kickoff.completion import build_console_url
from kickoff.points import around
from kickoff.runs import Run, State

log = logging.getLogger("kickoff")

_TIMEOUT = 5.0
_SECTION = 3000
"""Characters that Slack takes in one section."""
_MARKS = {State.SUCCEEDED: ":white_check_mark:", State.CANCELLED: ":no_entry_sign:"}


def build_slack_message(run: Run, last_lines: Sequence[str] = (), dashboard_url: str = "") -> dict[str, Any]:
    """Headline, reason, the replicas that failed with their exits, the last lines, links. Pure."""
    headline = f"{_MARKS.get(run.state, ':x:')} *{_escape(run.recipe)}* {run.state.value}: `{_escape(run.run_id)}`"
    if lasted := _lasted(run):
        headline += f" after {lasted}"
    sections = [headline, _facts(run)]
    if last_lines:
        body = _escape("\n".join(last_lines)).replace("```", "'''")
        sections.append(f"```{body[-(_SECTION - 6) :]}```")
    sections.append(_links(run, dashboard_url))
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text[:_SECTION], "verbatim": True}}
        for text in sections
        if text
    ]
    return {"text": headline, "blocks": blocks}


def post(url: str, message: dict[str, Any]) -> bool:
    """Send it once. A webhook that fails is logged, and holds nothing up. False: it was not taken."""
    body = json.dumps(message).encode()
    headers = {"Content-Type": "application/json; charset=utf-8"}
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        with around("webhook.post"), urllib.request.urlopen(request, timeout=_TIMEOUT):
            return True
    except (OSError, HTTPException, ValueError) as error:
        log.warning("the webhook did not take the message: %s", error)
        return False


def _facts(run: Run) -> str:
    lines = []
    if run.job and run.job.error:
        lines.append(_escape(run.job.error[:1000]))
    lines += [f"• `{_escape(exit.replica)}` exited with status {exit.status}" for exit in run.replica_exits[-5:]]
    lines += [_escape(fault.message[:300]) for fault in run.faults[:5]]
    if run.model_missing:
        lines.append("The job succeeded, but there is no model.")
    if run.metrics:
        lines.append(", ".join(f"{_escape(name)} {value:.4g}" for name, value in sorted(run.metrics.items())[:10]))
    if run.model_uri:
        lines.append(f"Model: `{_escape(run.model_uri)}`")
    if run.cost_usd is not None:
        lines.append(f"About {run.cost_usd:.2f} USD at list prices")
    return "\n".join(lines)


def _links(run: Run, dashboard_url: str) -> str:
    links = []
    if dashboard_url:
        links.append(f"<{dashboard_url.rstrip('/')}/runs/{run.run_id}|The run>")
    if console := build_console_url(run):
        links.append(f"<{console}|The job in the console>")
    return " · ".join(links)


def _lasted(run: Run) -> str:
    if not (run.job and run.job.start_time and run.job.end_time):
        return ""
    return str(timedelta(seconds=round((run.job.end_time - run.job.start_time).total_seconds())))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
