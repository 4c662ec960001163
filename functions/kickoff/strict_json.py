"""JSON from strangers: RFC 8259 to the letter, with limits, and every refusal a MalformedEvent. Pure.

The standard parser takes NaN, keeps the last of two equal keys, rounds nothing but guesses UTF-16, and
raises RecursionError on deep nesting: each of them has stopped somebody's function for days.
"""

import json
import re
from collections import Counter
from typing import Any

from kickoff.errors import Fault, MalformedEvent
from kickoff.faults import shown
from kickoff.wire_values import describe, malformed

MAX_DEPTH = 64
MAX_BYTES = 1_000_000
"""Nothing that Kickoff can act on is larger: a log entry has at most 256 KB, a request too, and base64 adds a third.
https://cloud.google.com/logging/quotas"""

_INT64 = range(-(2**63), 2**63)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes, where: str) -> Any:
    """The value of the JSON text `data`. `where` names it in errors, as in ``message.data``.

    Raises MalformedEvent for anything but one UTF-8 document of at most MAX_BYTES and MAX_DEPTH levels without
    NaN, numbers beyond int64 or double, lone surrogates, or a key twice in one object.
    """
    if len(data) > MAX_BYTES:
        raise malformed(where, f"has {len(data)} bytes; it must have at most {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(where, f"is not UTF-8 (byte {error.start} is {data[error.start]:#04x})") from None
    faults: list[Fault] = []
    value = _loads(text, where, faults)
    if _depth_exceeds(value, MAX_DEPTH):
        raise malformed(where, f"is nested deeper than {MAX_DEPTH} levels")
    if _SURROGATE.search(text) and not _encodable(value):
        faults.append(Fault(where, f"{where} holds half of a surrogate pair, which is not a character"))
    if faults:
        raise MalformedEvent.from_faults(faults)
    return value


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Like parse_json, and the value must be an object."""
    value = parse_json(data, where)
    if not isinstance(value, dict):
        raise malformed(where, f"is {describe(value)}; it must be a JSON object")
    return value


def _loads(text: str, where: str, faults: list[Fault]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice = [key for key, count in Counter(key for key, _ in items).items() if count > 1]
            faults.extend(Fault(where, f"{where} has the key {shown(key)} twice in one object") for key in twice[:10])
        return found

    def integer(digits: str) -> int:
        if len(digits) <= 20 and int(digits) in _INT64:
            return int(digits)
        faults.append(Fault(where, f"{where} holds the number {digits[:24]}…; integers must fit 64 bits"))
        return 0

    def double(digits: str) -> float:
        value = float(digits)
        if abs(value) == float("inf"):
            faults.append(Fault(where, f"{where} holds the number {digits[:24]}, which is beyond a double"))
        return value

    def constant(name: str) -> float:
        faults.append(Fault(where, f"{where} holds {name}, which is not JSON"))
        return 0.0

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=double, parse_constant=constant)
    except RecursionError:
        raise malformed(where, f"is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise malformed(where, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [item for box in level for item in (box.values() if isinstance(box, dict) else box)]
    return True


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
