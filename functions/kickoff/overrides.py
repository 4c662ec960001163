"""What a request changes of a recipe's job: spellings, types, and whether the recipe allows it. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from kickoff.errors import Fault, InvalidRequest
from kickoff.faults import MAX_FAULTS, KeyPath, bounded, dotted, fault, nearest, schema_faults, shown, unknown_key
from kickoff.recipe_models import Job, Recipe, output_fault
from kickoff.templates import VALUES, left_over_name, unknown_values

ALIASES: Mapping[str, str] = {
    "replica_count": "replicas",
    "replicaCount": "replicas",
    "machineType": "machine_type",
    "accelerator_type": "accelerator.type",
    "acceleratorType": "accelerator.type",
    "accelerator_count": "accelerator.count",
    "acceleratorCount": "accelerator.count",
    "image_uri": "image",
    "imageUri": "image",
    "container_uri": "image",
    "timeout": "scheduling.timeout",
    "strategy": "scheduling.strategy",
    "serviceAccount": "service_account",
    "service_account_name": "service_account",
    "environment_variables": "env",
    "base_output_dir": "output",
    "baseOutputDirectory": "output",
    "parameter_servers": "ps",
    "reduction_server_count": "reduction_servers",
    "boot_disk_type": "disk.type",
    "boot_disk_size_gb": "disk.size_gb",
}
"""Other spellings that people use, in the SDK's keyword arguments and in message attributes."""

_NESTED = ("accelerator", "scheduling", "disk", "args", "env")
_FREE = ("args", "env")
_COUNTS = frozenset({"replicas", "ps", "evaluators", "reduction_servers", "accelerator.count", "disk.size_gb"})
_SWITCHES = frozenset({"scheduling.restart_on_worker_restart", "scheduling.disable_retries"})
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)

Overrides = dict[str, Any]
"""Dotted path in the job -> value: ``{"replicas": 3, "args.epochs": "5"}``; ``dataset`` is a URI."""


def parse_overrides(values: Mapping[str, object], faults: list[Fault]) -> Overrides:
    """Flat overrides in the recipe's own spelling; what is wrong is added to `faults`."""
    found: Overrides = {}
    for path, value in _flat(values, faults):
        name = dotted(path)
        if name in found:
            faults.append(fault(path, "is given twice, in two spellings"))
        found[name] = _cast(name, path, value, faults)
    for name, value in found.items():
        if isinstance(value, str):
            _placeholder(name, value, faults)
    return found


def _flat(values: Mapping[str, object], faults: list[Fault]) -> Iterator[tuple[KeyPath, object]]:
    for key, value in values.items():
        name = ALIASES.get(key, key)
        head, _, tail = name.partition(".")
        if head not in Job.model_fields:
            faults.append(unknown_key((key,), [*Job.model_fields, "idempotency_key"], before=len(faults)))
        elif tail:
            yield (head, tail), value
        elif name in _NESTED and isinstance(value, Mapping):
            for inner, item in value.items():
                yield (name, str(inner)), item
        elif name in _FREE:
            faults.append(fault((key,), f"is {shown(value)}; it must be an object, such as {{epochs: 3}}"))
        else:
            yield (name,), value


def _cast(name: str, path: KeyPath, value: object, faults: list[Fault]) -> Any:
    """Attributes are strings, and senders quote numbers: decimal strings are read where a whole number belongs."""
    head = name.partition(".")[0]
    if head in _FREE:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            faults.append(fault(path, f'is {shown(value)}; it must be text or a number (write true as "true")'))
            return ""
        return str(value)
    if name in _COUNTS and isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            faults.append(fault(path, f"is {shown(value)}; it must be a whole number"))
            return 1
        return int(value)
    if name in _SWITCHES and value in ("true", "false"):
        return value == "true"
    if name == "dataset" and not (isinstance(value, str) and re.fullmatch(r"gs://[^/]{3,}/.+", value, re.DOTALL)):
        faults.append(fault(path, f"is {shown(value)}; it must be gs://bucket/root/ or gs://bucket/object"))
    return value


def _placeholder(name: str, value: str, faults: list[Fault]) -> None:
    if unknown := unknown_values(value):
        faults.append(fault((name,), f"still holds the placeholder {shown('{' + unknown[0] + '}')}"))
    elif (found := left_over_name(value)) and found.strip("{}") not in VALUES:
        faults.append(fault((name,), f"still holds the placeholder {shown(found)}; put the real value there"))


def build_job(recipe: Recipe, overrides: Overrides) -> Job:
    """The recipe's job with the overrides in it. Raises InvalidRequest with every fault."""
    tree = recipe.job.model_dump(mode="python")
    for name, value in overrides.items():
        head, _, tail = name.partition(".")
        if tail:
            tree[head] = {**(tree[head] or {}), tail: value}
        else:
            tree[head] = value
    try:
        job = Job.model_validate(tree)
    except ValidationError as error:
        raise InvalidRequest.from_faults(bounded(schema_faults(error, Job))) from None
    if problem := output_fault(job.output):
        raise InvalidRequest.from_faults([fault(("output",), problem)])
    return job


def forbidden_overrides(recipe: Recipe, overrides: Overrides) -> Iterator[Fault]:
    """What the recipe's `allow` does not let a message change."""
    allow = recipe.allow
    for number, (name, value) in enumerate(overrides.items()):
        if not _allowed(name, allow.override):
            listed = ", ".join(allow.override) or "nothing"
            close = nearest(name, allow.override) if name.partition(".")[0] in _FREE and number < MAX_FAULTS else ""
            yield fault((name,), f"may not be overridden; recipe {recipe.name} allows {listed}{close}")
        elif name == "machine_type" and allow.machine_type and value not in allow.machine_type:
            yield fault((name,), f"is {shown(value)}; recipe {recipe.name} allows {', '.join(allow.machine_type)}")
        elif name == "accelerator.type" and allow.accelerator and value not in allow.accelerator:
            yield fault((name,), f"is {shown(value)}; recipe {recipe.name} allows {', '.join(allow.accelerator)}")


def _allowed(name: str, listed: list[str]) -> bool:
    head = name.partition(".")[0]
    return name in listed or f"{head}.*" in listed or (head in ("accelerator", "disk") and head in listed)
