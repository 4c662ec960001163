"""The forms of a message, and what is known of one that brings its own job. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kickoff.errors import Fault
from kickoff.faults import KeyPath, fault, nearest, shown
from kickoff.spec_fields import MESSAGES, OUTPUT_ONLY, snake
from kickoff.spec_reader import Reader
from kickoff.spec_values import project_fault

FORMS: Mapping[str, str] = {
    "recipe": "short form",
    "worker_pool_specs": "worker pool specs",
    "job_spec": "job spec",
    "custom_job": "CustomJob",
    "gcloud_config": "gcloud config document",
    "worker_pool_spec": "--worker-pool-spec strings",
    "argv": "gcloud command line",
}
"""The key that tells a form -> its name for people."""

_SPELLINGS = {
    snake(name): name for name in ("workerPoolSpecs", "jobSpec", "customJob", "gcloudConfig", "workerPoolSpec")
}
_JOB_FIELDS = (frozenset(MESSAGES["CustomJob"]) | OUTPUT_ONLY) - {"jobSpec"}
GCLOUD_KEYS = frozenset(
    {"args", "command", "python_package_uris", "display_name", "labels", "network", "service_account"}
    | {"persistent_resource_id", "enable_web_access", "enable_dashboard_access", "kms_key"}
)


@dataclass
class RawRequest:
    custom_job: dict[str, Any] = field(default_factory=dict)
    region: str = ""
    project: str = ""
    camel: bool = False
    path: KeyPath = ()
    """Where in the payload the job is, for faults."""
    spec_key: str = "jobSpec"
    """The key of its spec there; empty: the spec's fields stand beside the job's."""
    pools_key: str = "workerPoolSpecs"
    """The key of its pools there."""
    complete: bool = True
    """False: a part of the request was not sent, and what follows from that is no news."""
    warnings: list[str] = field(default_factory=list)


def find_form(values: Mapping[str, Any], faults: list[Fault]) -> str:
    """Which of FORMS a payload has; empty, with a fault, when it has none or several."""
    found = [form for form in FORMS if form in values or _SPELLINGS.get(form, form) in values]
    if found == ["gcloud_config", "argv"]:
        return "argv"
    if len(found) == 1:
        return found[0]
    if "parent" in values and not found:
        _parent(values["parent"], RawRequest(), faults)
    if faults:
        return ""
    if found:
        faults.append(fault((), f"the message has {' and '.join(found)}; exactly one of them is possible"))
    else:
        hint = nearest(next(iter(values), ""), FORMS)
        faults.append(fault((), f"the message has none of {', '.join(FORMS)}; exactly one of them is needed{hint}"))
    return ""


def read_place(name: str, value: object, raw: RawRequest, faults: list[Fault]) -> None:
    if name == "parent":
        _parent(value, raw, faults)
    elif isinstance(value, str):
        setattr(raw, name, value)
    else:
        faults.append(fault((name,), f"is {shown(value)}; it must be a string"))


def _parent(value: object, raw: RawRequest, faults: list[Fault]) -> None:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 4 or parts[0::2] != ["projects", "locations"]:
        faults.append(fault(("parent",), f"is {shown(value)}; it must be projects/PROJECT/locations/REGION"))
    elif problem := project_fault(parts[1]):
        faults.append(fault(("parent",), f"names a project that {problem}"))
    else:
        raw.project, raw.region = parts[1], parts[3]


def read_flat_job(rest: Mapping[str, Any], reader: Reader, path: KeyPath) -> dict[str, Any]:
    """Pools, or a spec's other fields, at the top, where display name, labels and key may stand too."""
    of_job = {key: item for key, item in rest.items() if key in _JOB_FIELDS | {snake(each) for each in _JOB_FIELDS}}
    spec = {key: item for key, item in rest.items() if key not in of_job}
    output = spec.pop("base_output_dir", None)
    if output is not None:
        spec["base_output_directory"] = {"output_uri_prefix": output}
    job = reader.message("CustomJob", of_job, path)
    return {**job, "jobSpec": reader.message("CustomJobSpec", spec, path)}
