"""Requests that bring their own job: worker pool specs in every spelling -> a CustomJob in REST JSON. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from kickoff.errors import Fault
from kickoff.faults import KeyPath, fault, shown, unknown_key
from kickoff.gcloud_request import read_gcloud
from kickoff.labels import label_faults
from kickoff.raw_forms import FORMS, RawRequest, read_flat_job, read_place
from kickoff.spec_fields import ENUMS, snake
from kickoff.spec_reader import Reader
from kickoff.spec_rules import RESERVED_ENV, Rules
from kickoff.spec_values import strings
from kickoff.templates import left_over, left_over_name

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash", "dash", "/usr/bin/env"})


def read_raw(form: str, values: Mapping[str, Any], faults: list[Fault]) -> RawRequest:
    """Normalize one raw form and check it by Vertex AI's rules; what is wrong is added to `faults`."""
    raw = RawRequest()
    rest = dict(values)
    for name in ("region", "project", "parent"):
        if name in rest:
            read_place(name, rest.pop(name), raw, faults)
    reader = Reader()
    _read(form, rest, raw, reader, faults)
    raw.camel = raw.camel or len(reader.camel) > len(reader.snake)
    if reader.camel and reader.snake:
        raw.warnings.append(
            f"camelCase and snake_case are mixed ({reader.camel[0]}, {reader.snake[0]}); both were read"
        )
    faults += reader.faults
    if raw.complete:
        faults += _unrelated(_checked(raw), faults)
    return raw


def _read(form: str, rest: dict[str, Any], raw: RawRequest, reader: Reader, faults: list[Fault]) -> None:
    if form == "custom_job":
        key = "custom_job" if "custom_job" in rest else "customJob"
        raw.path = (key,)
        raw.custom_job = reader.message("CustomJob", rest.pop(key), raw.path)
        faults += [unknown_key((each,), FORMS, before=number) for number, each in enumerate(rest)]
    elif form == "job_spec":
        raw.custom_job = reader.message("CustomJob", rest, ())
    elif form == "worker_pool_specs":
        raw.spec_key = ""
        raw.custom_job = read_flat_job(rest, reader, ())
    else:
        read_gcloud(form, rest, raw, reader, faults)


def _checked(raw: RawRequest) -> list[Fault]:
    """Vertex AI's rules, labels, reserved variables and forgotten placeholders."""
    job = raw.custom_job
    rules = Rules(camel=raw.camel, pools_key=raw.pools_key)
    rules.check({"displayName": "filled in later", **job}, raw.path, raw.spec_key)
    raw.warnings += rules.warnings
    texts = list(_text_faults(raw))
    return [*texts, *_unrelated([*rules.faults, *label_faults(job.get("labels", {}), (*raw.path, "labels"))], texts)]


def _text_faults(raw: RawRequest) -> Iterator[Fault]:
    for where, text in strings(raw.custom_job):
        shown_path = where if raw.camel else tuple(snake(part) if isinstance(part, str) else part for part in where)
        shown_path = shown_path if raw.spec_key or where[0] != "jobSpec" else shown_path[1:]
        if found := _placeholder(where, text, raw.custom_job):
            yield fault(
                (*raw.path, *shown_path), f"still holds the placeholder {shown(found)}; put the real value there"
            )
        elif where[-1] == "name" and "env" in where and text.startswith(RESERVED_ENV):
            yield fault(
                (*raw.path, *shown_path), f"is {shown(text)}; {RESERVED_ENV}* is kept for Kickoff's own variables"
            )


def _placeholder(where: KeyPath, text: str, job: Mapping[str, Any]) -> str:
    if any(text in names for names in ENUMS.values()):
        return ""
    if where[-1] == "outputUriPrefix":
        text = text.replace("{run_id}", "")
    if where[:2] != ("jobSpec", "workerPoolSpecs") or not {"args", "command", "env"} & set(where[4:5]):
        return left_over_name(text)
    # A shell's own ${VARIABLE} is no placeholder.
    pool = job["jobSpec"]["workerPoolSpecs"][where[2]]
    command = pool.get("containerSpec", {}).get("command", [])
    return "" if _SHELLS & set(command[:2]) else left_over(text)


def _unrelated(found: list[Fault], known: list[Fault]) -> Iterator[Fault]:
    """Less what only follows from a value that could not be read: faults above or below a known one."""
    paths = {each.path for each in known if each.path}
    above = {outer for path in paths for outer in _outer(path)}
    for each in found:
        if each.path not in above and not paths.intersection(_outer(each.path)):
            yield each


def _outer(path: str) -> list[str]:
    """The path and all that it lies in: ``a[0].b`` -> ``a``, ``a[0]``, ``a[0].b``."""
    ends = [index for index, character in enumerate(path) if character in ".["]
    return [path[:end] for end in (*ends, len(path))]
