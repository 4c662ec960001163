"""Faults on request: what the next calls do instead of answering. The chaos tests' tool.

`parse_fault` is pure; `Faults` holds what stands.
"""

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.local.job_service.clock import timestamp
from deploy.local.job_service.errors import ApiError, Violation, invalid_argument
from deploy.local.job_service.filters import Where

METHODS = ("create", "get", "list", "cancel", "delete", "any")
KINDS = ("status", "lose_answer", "delay", "reset", "timeout", "lag", "missing")
_MAX_SECONDS = 3600.0


@dataclass
class Fault:
    """One standing fault.

    kind: ``status`` answers `status` and does nothing; ``lose_answer`` does the call and then drops the
    connection (or answers `status`, if one is given); ``delay`` waits `seconds` and then does it; ``reset``
    drops the connection and does nothing; ``timeout`` holds it for `seconds`, drops it and does nothing; ``lag``
    hides new jobs, those with `labels` if any are given, from lists for `seconds` (null: until released);
    ``missing`` keeps `replica` from starting.
    """

    method: str
    kind: str
    times: int | None = 1
    """How often it happens; None: until it is removed."""
    status: int = 0
    seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    rate: float = 1.0
    replica: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def parse_fault(value: object) -> Fault:
    """Raises ApiError (400) with everything that is wrong."""
    if not isinstance(value, dict):
        raise ApiError(400, "a fault is a JSON object")
    kind = value.get("kind")
    defaults = {"lag": "list", "missing": "any"}
    row = {
        "method": defaults.get(str(kind), ""),
        "times": None if kind in defaults and kind != "missing" else 1,
        **value,
    }
    checks = {
        "kind": (kind in KINDS, f"one of {', '.join(KINDS)}"),
        "method": (row["method"] in METHODS, f"one of {', '.join(METHODS)}"),
        "times": (
            row["times"] is None or _is_number(row["times"], 1, 1e9, int),
            "a whole number of at least 1, or null",
        ),
        "status": (_is_number(row.get("status", 500), 400, 599, int), "an HTTP status from 400 to 599"),
        "seconds": (
            row.get("seconds") is None or _is_number(row["seconds"], 0, _MAX_SECONDS),
            f"from 0 to {_MAX_SECONDS:g}",
        ),
        "labels": (_is_labels(row.get("labels", {})), "an object of strings"),
        "rate": (_is_number(row.get("rate", 1), 0, 1), "from 0 to 1"),
        "replica": (isinstance(row.get("replica", ""), str), "a replica's name"),
    }
    wrong = [
        Violation(name, f"{name} is {value.get(name)!r}; it must be {rule}")
        for name, (fine, rule) in checks.items()
        if not fine
    ]
    wrong += [Violation(name, f"{name} is not a field of a fault") for name in sorted(set(value) - set(checks))]
    if kind == "status" and "status" not in value:
        wrong.append(Violation("status", "status is missing; a fault of kind status needs one"))
    if kind in ("delay", "timeout") and value.get("seconds") is None:
        wrong.append(Violation("seconds", f"seconds is missing; a fault of kind {kind} needs it"))
    if wrong:
        raise invalid_argument(wrong)
    return Fault(**row)


class Faults:
    """The standing faults. Thread-safe."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._random = random.Random(seed)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def standing(self) -> list[Fault]:
        with self._lock:
            return list(self._faults)

    def take(self, method: str) -> Fault | None:
        """The fault that this call meets, if any; one of its times is used up."""
        with self._lock:
            for fault in self._faults:
                fits = fault.method in (method, "any") and fault.kind not in ("lag", "missing")
                if fits and self._random.random() < fault.rate:
                    self._use(fault)
                    return fault
        return None

    def take_missing(self, replica: str) -> bool:
        """Whether this replica must not start."""
        with self._lock:
            for fault in self._faults:
                if fault.kind == "missing" and fault.replica == replica:
                    self._use(fault)
                    return True
        return False

    def hidden(self, now: float) -> list[Where]:
        """Conditions that leave out of a list what it does not know yet."""
        return [_build_lag(fault, now) for fault in self.standing() if fault.kind == "lag"]

    def _use(self, fault: Fault) -> None:
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)


def wait(seconds: float | None) -> None:
    time.sleep(min(seconds or 0.0, _MAX_SECONDS))


def _build_lag(fault: Fault, now: float) -> Where:
    terms, parameters = ["1"], []
    for key, value in fault.labels.items():
        terms.append("(SELECT value FROM json_each(labels) WHERE key = ?) = ?")
        parameters += [key, value]
    if fault.seconds is not None:
        terms.append("create_time > ?")
        parameters.append(timestamp(now - fault.seconds))
    return Where(f"ifnull(NOT ({' AND '.join(terms)}), 1)", tuple(parameters))


def _is_number(value: object, least: float, most: float, kind: type = float) -> bool:
    fits = isinstance(value, int) if kind is int else isinstance(value, int | float)
    return fits and not isinstance(value, bool) and least <= value <= most  # type: ignore[operator]


def _is_labels(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair)
