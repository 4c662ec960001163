"""Method and path to the call that answers it, with the faults that were asked for on the way."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from deploy.local.job_service.errors import ApiError, not_found
from deploy.local.job_service.faults import Fault, Faults, wait
from deploy.local.job_service.parsing import parse_body

Json = dict[str, Any]


class DropConnection(Exception):
    """Send no answer: close the connection (`reset`: with RST)."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


@dataclass(frozen=True)
class Request:
    """One call, read and split."""

    match: re.Match[str]
    query: Mapping[str, str]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return self.match[name]

    @property
    def json(self) -> object:
        return parse_body(self.body)


Handler = Callable[[Request], Json | str]


@dataclass
class Routes:
    """A table of routes. Every path is matched whole, after percent-decoding."""

    faults: Faults
    _table: list[tuple[str, re.Pattern[str], str, Handler]] = field(default_factory=list)

    def add(self, verb: str, pattern: str, handler: Handler, method: str = "") -> None:
        """`pattern` is a regular expression; `method` is the name that faults know the call by."""
        self._table.append((verb, re.compile(pattern), method, handler))

    def answer(self, verb: str, target: str, body: bytes) -> Json | str:
        """Raises ApiError or DropConnection."""
        parts = urlsplit(target)
        path = unquote(parts.path)
        query = {
            name: values[-1]
            for name, values in parse_qs(parts.query, keep_blank_values=True, max_num_fields=100).items()
        }
        other_verbs = False
        for known, pattern, method, handler in self._table:
            match = pattern.fullmatch(path)
            if match and known == verb:
                return self._call(method, lambda: handler(Request(match, query, body)))  # noqa: B023
            other_verbs |= match is not None
        if other_verbs:
            raise ApiError(405, f"{verb} is not a method of {path[:200]}", "UNIMPLEMENTED")
        raise not_found(f"{verb} {path[:200]}")

    def _call(self, method: str, call: Callable[[], Json | str]) -> Json | str:
        fault = self.faults.take(method) if method else None
        if fault is None:
            return call()
        return _with_fault(fault, call)


def _with_fault(fault: Fault, call: Callable[[], Json | str]) -> Json | str:
    if fault.kind == "delay":
        wait(fault.seconds)
        return call()
    if fault.kind == "lose_answer":
        call()
        wait(fault.seconds)
        if fault.status:
            raise ApiError(fault.status, "The answer was lost, on request.")
        raise DropConnection
    if fault.kind == "status":
        raise ApiError(fault.status, f"The emulator was asked to answer {fault.status}.")
    wait(fault.seconds)
    raise DropConnection(reset=fault.kind == "reset")
