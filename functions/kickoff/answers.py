"""From an HTTP request to an HTTP answer: the thin shell around every function.

2xx: done, or delivering again cannot help. 503: nothing was accepted, deliver again.
https://cloud.google.com/pubsub/docs/push#receive_push
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from kickoff.errors import PermanentError, TransientError

log = logging.getLogger("kickoff")


@dataclass(frozen=True)
class Outcome:
    """What became of one event."""

    outcome: str
    """accepted · duplicate · held · rejected · ignored · recorded."""
    run_id: str = ""
    reason: str = ""


Answer = tuple[str, int, dict[str, str]]


def answer(act: Callable[[], Any]) -> Answer:
    """Run `act` and tell its result as JSON. Nothing escapes into the framework."""
    try:
        return _json(act(), 200)
    except PermanentError as error:
        log.warning("refused: %s", error)
        return _json(Outcome("rejected", reason=str(error)), 200)
    except TransientError as error:
        log.warning("try again: %s", error)
        return _json(Outcome("unavailable", reason=str(error)), 503)
    except Exception:
        log.exception("unexpected")
        return _json(Outcome("failed", reason="an unexpected error; see the function's log"), 500)


def _json(body: Any, status: int) -> Answer:
    return json.dumps(body, default=_plain), status, {"Content-Type": "application/json"}


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
