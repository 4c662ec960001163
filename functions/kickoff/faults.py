"""How faults are worded: paths, the nearest right key, and pydantic's errors in the house's tone. Pure.

``worker_pool_specs[1].replica_count is 0; it must be at least 1``.
"""

import re
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from kickoff.errors import Fault

KeyPath = tuple[str | int, ...]

_SHOWN = 80

MAX_FAULTS = 100
"""A record holds them, and nobody reads more; a hostile payload has 80,000."""


def dotted(path: KeyPath) -> str:
    """``("pools", 1, "count")`` -> ``pools[1].count``."""
    text = ""
    for part in path:
        name = part if isinstance(part, int) or len(part) <= _SHOWN else part[:_SHOWN] + "…"
        text += f"[{name}]" if isinstance(name, int) else (f".{name}" if text else name)
    return text


def bounded(faults: Iterable[Fault]) -> list[Fault]:
    """The first MAX_FAULTS, and how many there are beside them."""
    found = list(faults)
    more = len(found) - MAX_FAULTS
    return found if more <= 0 else [*found[:MAX_FAULTS], Fault("", f"… and {more} more faults")]


class _Short(reprlib.Repr):
    """Payloads are untrusted: a value of 10 MB or 10,000 levels is quoted as briefly as any other."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _SHOWN
        self.maxlevel, self.maxdict, self.maxlist = 3, 4, 4


def shown(value: object) -> str:
    """A value as a message quotes it: short, and on one line."""
    try:
        text = _Short().repr(value)
    except ValueError:  # an int with more digits than Python will print
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def fault(path: KeyPath, rest: str) -> Fault:
    where = dotted(path)
    return Fault(where, f"{where} {rest}" if where else rest[:1].upper() + rest[1:])


def nearest(word: object, choices: Iterable[str]) -> str:
    """`` (did you mean X?)`` with the likeliest choice, or nothing.

    Rare parts count: in NVIDIA_TESLA_L4_24TH the L4 says more than the TESLA.
    """
    from difflib import SequenceMatcher  # only where there is a fault to word

    by_parts = {choice: _parts(choice) for choice in choices}
    parts, shape = _parts(str(word)), "".join(_parts(str(word)))
    best, best_score = "", 0.0
    for choice, own in by_parts.items():
        shared = sum(1 / sum(part in other for other in by_parts.values()) for part in set(parts) & set(own))
        ratio = SequenceMatcher(None, shape, "".join(own)).ratio()
        if (ratio >= 0.6 or shared >= 0.5) and shared + ratio > best_score:
            best, best_score = choice, shared + ratio
    return f" (did you mean {best}?)" if best else ""


def _parts(word: str) -> list[str]:
    """``acceleratorType``, ``accelerator-type`` and ``ACCELERATOR_TYPE`` -> ``["accelerator", "type"]``."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", word[:_SHOWN])
    return re.findall(r"[a-z0-9]+", spaced.lower())


def unknown_key(path: KeyPath, choices: Iterable[str], *, before: int = 0) -> Fault:
    """`before` is how many faults there are already: with many of them there is no more looking for the nearest."""
    known = sorted(choices)
    hint = (before < MAX_FAULTS and nearest(path[-1], known)) or f"; it must be one of {', '.join(known)}"
    return fault(path, f"is not a known key{hint}")


def schema_faults(error: ValidationError, model: type[BaseModel], prefix: KeyPath = ()) -> list[Fault]:
    """Every fault that pydantic found, each with its path below `prefix`."""
    return [_schema_fault(detail, model, prefix) for detail in error.errors(include_url=False)]


def _schema_fault(detail: Any, model: type[BaseModel], prefix: KeyPath) -> Fault:
    location: KeyPath = detail["loc"]
    path = (*prefix, *location)
    if detail["type"] == "extra_forbidden":
        return unknown_key(path, _keys_at(model, location[:-1]))
    if detail["type"] == "missing":
        return fault(path, "is missing")
    if detail["type"] in ("value_error", "assertion_error"):
        return fault(path, str(detail["ctx"]["error"]))
    limit = re.sub(r"^(Input|String|List|Dictionary) should", "it must", detail["msg"])
    return fault(path, f"is {shown(detail['input'])}; {limit}")


def _keys_at(model: type[BaseModel], location: KeyPath) -> Iterator[str]:
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            inner = next(_models(model.model_fields[part].annotation), None)
            if inner is None:
                return
            model = inner
    yield from model.model_fields


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
