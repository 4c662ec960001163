"""Values as they come over the wire, and how an error names them. Pure."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Any

from kickoff.errors import Fault, MalformedEvent
from kickoff.faults import shown


def malformed(path: str, rest: str) -> MalformedEvent:
    return MalformedEvent.from_faults([Fault(path, f"{path} {rest}")])


def describe(value: Any) -> str:
    """A JSON value as an error message names it: its kind, and itself where that is short."""
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    kind = "a boolean" if isinstance(value, bool) else "a string" if isinstance(value, str) else "a number"
    return f"{kind} ({shown(value)})"


def decode_base64(text: str, where: str) -> bytes:
    """Standard, padded base64 and nothing else: a lax decoder drops what it does not know in silence."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise malformed(where, f"is {shown(text)}; it must be standard padded base64 ({error})") from None


def parse_time(value: object) -> datetime | None:
    """An RFC 3339 time, or a protobuf Timestamp as JSON dumps have it, as a UTC instant; None if it is neither."""
    try:
        if isinstance(value, dict):
            return datetime.fromtimestamp(int(value["seconds"]) + int(value.get("nanos") or 0) / 1e9, UTC)
        time = datetime.fromisoformat(str(value))
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError, OSError, KeyError, TypeError):
        return None
