"""What people type for ``gcloud ai custom-jobs create``: its flags, and its config document. Pure.

https://cloud.google.com/sdk/gcloud/reference/ai/custom-jobs/create
Here gcloud's own defaults hold: a replica count and an accelerator count that are not given are 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kickoff.errors import Fault
from kickoff.faults import KeyPath, fault, shown, unknown_key

_FIELDS: Mapping[str, tuple[str, str]] = {
    "machine-type": ("machineSpec", "machineType"),
    "accelerator-type": ("machineSpec", "acceleratorType"),
    "accelerator-count": ("machineSpec", "acceleratorCount"),
    "replica-count": ("", "replicaCount"),
    "container-image-uri": ("containerSpec", "imageUri"),
    "executor-image-uri": ("pythonPackageSpec", "executorImageUri"),
    "python-module": ("pythonPackageSpec", "pythonModule"),
}
_BUILT_LOCALLY = frozenset(
    {"local-package-path", "script", "requirements", "extra-packages", "extra-dirs", "output-image-uri"}
)

FLAGS: Mapping[str, str] = {
    "worker-pool-spec": "worker_pool_spec",
    "config": "config",
    "args": "args",
    "command": "command",
    "python-package-uris": "python_package_uris",
    "display-name": "display_name",
    "labels": "labels",
    "network": "network",
    "service-account": "service_account",
    "persistent-resource-id": "persistent_resource_id",
    "enable-web-access": "enable_web_access",
    "enable-dashboard-access": "enable_dashboard_access",
    "kms-key": "kms_key",
    "region": "region",
    "project": "project",
}
_SWITCHES = frozenset({"enable-web-access", "enable-dashboard-access"})
_IGNORED = frozenset({"quiet", "format", "verbosity", "account", "configuration", "impersonate-service-account"})


@dataclass
class GcloudRequest:
    """The flags of one command, and what was wrong with them."""

    values: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse_argv(argv: Sequence[str]) -> GcloudRequest:
    """``gcloud ai custom-jobs create …`` as a list of arguments."""
    request = GcloudRequest()
    words = [word for word in argv[1:] if word in ("beta", "alpha", "ai", "custom-jobs", "create")]
    if words[-3:] != ["ai", "custom-jobs", "create"]:
        request.faults.append(
            fault(("argv",), f"is {shown(' '.join(argv[:4]))}; it must be gcloud ai custom-jobs create …")
        )
    for flag, value in _flags([word for word in argv[1:] if word not in words]):
        _take(flag, value, request)
    return request


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """(name, value) of ``--name=value``, ``--name value`` and ``--switch``."""
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        index += 1
        if equals or name.lstrip("-") in _SWITCHES or index == len(words) or words[index].startswith("--"):
            yield name, value if equals else None
        else:
            yield name, words[index]
            index += 1


def _take(flag: str, value: str | None, request: GcloudRequest) -> None:
    name = flag.removeprefix("--")
    if name in _IGNORED:
        request.warnings.append(f"{flag} has no meaning here and was left out")
    elif name not in FLAGS or not flag.startswith("--"):
        known = unknown_key((flag,), [f"--{each}" for each in FLAGS], before=len(request.faults))
        request.faults.append(
            Fault(flag, known.message.replace("a known key", "a flag of gcloud ai custom-jobs create"))
        )
    elif name in _SWITCHES:
        request.values[FLAGS[name]] = value in (None, "true", "True")
    elif value is None:
        request.faults.append(fault((flag,), "has no value"))
    elif name == "worker-pool-spec":
        request.values.setdefault("worker_pool_spec", []).append(value)
    elif name in ("args", "command", "python-package-uris"):
        request.values[FLAGS[name]] = split_list(value)
    elif name == "labels":
        request.values["labels"] = dict(_pair(item) for item in split_list(value))
    else:
        request.values[FLAGS[name]] = value


def split_list(text: str) -> list[str]:
    """gcloud's lists: commas, or the delimiter named first as in ``^;^a,b;c``."""
    delimiter = ","
    if text.startswith("^") and (end := text.find("^", 1)) > 1:
        delimiter, text = text[1:end], text[end + 1 :]
    return text.split(delimiter) if text else []


def _pair(item: str) -> tuple[str, str]:
    key, _, value = item.partition("=")
    return key, value


def build_pool(text: str, index: int, package_uris: Sequence[str], faults: list[Fault]) -> dict[str, Any]:
    """One ``--worker-pool-spec`` as a WorkerPoolSpec; an empty one skips its pool."""
    given = {key: _unquoted(value) for key, value in map(_pair, split_list(text))}
    path = ("worker_pool_spec", index)
    if local := sorted(_BUILT_LOCALLY & given.keys()):
        does = "which need a local Docker build, and that is not available in a function; push the image and name it"
        faults.append(fault(path, f"has {', '.join(local)}, {does}"))
    unknown = [key for key in given if key not in _FIELDS and key not in _BUILT_LOCALLY]
    faults += [unknown_key((*path, key), _FIELDS, before=number) for number, key in enumerate(unknown)]
    _software_faults(given, path, faults)
    pool: dict[str, Any] = {}
    for key, value in given.items():
        section, name = _FIELDS.get(key, ("", ""))
        if name and not (section == "pythonPackageSpec" and "container-image-uri" in given):
            (pool.setdefault(section, {}) if section else pool)[name] = value
    if given:
        pool.setdefault("replicaCount", 1)
    if "accelerator-type" in given:
        pool["machineSpec"].setdefault("acceleratorCount", 1)
    if "pythonPackageSpec" in pool and package_uris:
        pool["pythonPackageSpec"]["packageUris"] = list(package_uris)
    return pool


def _unquoted(value: str) -> str:
    """Documentation quotes values for the shell, and people paste them."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _software_faults(given: Mapping[str, str], path: KeyPath, faults: list[Fault]) -> None:
    for other in ("python-module", "executor-image-uri"):
        if "container-image-uri" in given and other in given:
            faults.append(fault((*path, other), "is not allowed together with container-image-uri"))
    if "accelerator-count" in given and "accelerator-type" not in given:
        faults.append(fault((*path, "accelerator-count"), "needs accelerator-type, which is missing"))
