"""Requests that bring their own job: worker pool specs in every spelling -> a CustomJob in REST JSON. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kickoff.errors import ConfigurationError, Fault
from kickoff.faults import KeyPath, fault, nearest, shown, unknown_key
from kickoff.gcloud_forms import build_pool, parse_argv
from kickoff.labels import label_faults
from kickoff.spec_rules import RESERVED_ENV, Rules, project_fault, strings
from kickoff.spec_schema import ENUMS, MESSAGES, OUTPUT_ONLY, Reader, snake
from kickoff.templates import left_over, left_over_name
from kickoff.yaml_strict import load_yaml

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

MAX_YAML = 32 * 1024
"""Characters. Anyone may send them, and reading YAML costs a second for each 60 kB."""

_SPELLINGS = {
    snake(name): name for name in ("workerPoolSpecs", "jobSpec", "customJob", "gcloudConfig", "workerPoolSpec")
}
_JOB_FIELDS = (frozenset(MESSAGES["CustomJob"]) | OUTPUT_ONLY) - {"jobSpec"}
_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash", "dash", "/usr/bin/env"})
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
    pools_key: str = "workerPoolSpecs"
    """Where faults place the pools."""
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


def read_raw(form: str, values: Mapping[str, Any], faults: list[Fault]) -> RawRequest:
    """Normalize one raw form and check it by Vertex AI's rules; what is wrong is added to `faults`."""
    raw = RawRequest()
    rest = dict(values)
    for name in ("region", "project", "parent"):
        if name in rest:
            _place(name, rest.pop(name), raw, faults)
    reader = Reader()
    path, spec_key = _read(form, rest, raw, reader, faults)
    raw.camel = raw.camel or len(reader.camel) > len(reader.snake)
    if reader.camel and reader.snake:
        raw.warnings.append(
            f"camelCase and snake_case are mixed ({reader.camel[0]}, {reader.snake[0]}); both were read"
        )
    faults += reader.faults
    if raw.complete:
        faults += _unrelated(_checked(raw, path, spec_key), faults)
    return raw


def _place(name: str, value: object, raw: RawRequest, faults: list[Fault]) -> None:
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


def _read(form: str, rest: dict[str, Any], raw: RawRequest, reader: Reader, faults: list[Fault]) -> tuple[KeyPath, str]:
    """Fill `raw.custom_job`; answer where in the payload the job is, and the key its spec has there."""
    if form == "custom_job":
        key = "custom_job" if "custom_job" in rest else "customJob"
        raw.custom_job = reader.message("CustomJob", rest.pop(key), (key,))
        faults += [unknown_key((each,), FORMS) for each in rest]
        return (key,), "jobSpec"
    if form == "job_spec":
        raw.custom_job = reader.message("CustomJob", rest, ())
        return (), "jobSpec"
    if form == "worker_pool_specs":
        raw.custom_job = _bare(rest, reader, ())
        return (), ""
    return _read_gcloud(form, rest, raw, reader, faults)


def _bare(rest: Mapping[str, Any], reader: Reader, path: KeyPath) -> dict[str, Any]:
    """Pools, or a spec's other fields, at the top, where display name, labels and key may stand too."""
    of_job = {key: item for key, item in rest.items() if key in _JOB_FIELDS | {snake(each) for each in _JOB_FIELDS}}
    spec = {key: item for key, item in rest.items() if key not in of_job}
    output = spec.pop("base_output_dir", None)
    if output is not None:
        spec["base_output_directory"] = {"output_uri_prefix": output}
    job = reader.message("CustomJob", of_job, path)
    return {**job, "jobSpec": reader.message("CustomJobSpec", spec, path)}


def _read_gcloud(
    form: str, rest: dict[str, Any], raw: RawRequest, reader: Reader, faults: list[Fault]
) -> tuple[KeyPath, str]:
    config = rest.pop("gcloud_config", rest.pop("gcloudConfig", None))
    flags = _flags(form, rest, raw, config, faults)
    if config is not None:
        reader.folding = True
        raw.custom_job = _config(config, reader, faults)
        reader.folding = False
    else:
        raw.custom_job = {"jobSpec": {}}
    spec = raw.custom_job.setdefault("jobSpec", {})
    of_flags = Reader()
    if pools := flags.get("worker_pool_spec"):
        raw.camel, raw.pools_key = True, "worker_pool_spec"
        uris = flags.get("python_package_uris") or []
        built = [build_pool(text, index, uris, faults) for index, text in enumerate(pools)]
        spec["workerPoolSpecs"] = [
            of_flags.message("WorkerPoolSpec", pool, (raw.pools_key, index)) for index, pool in enumerate(built)
        ]
    _apply(flags, raw.custom_job, of_flags)
    faults += of_flags.faults
    return (), ""


def _flags(form: str, rest: dict[str, Any], raw: RawRequest, config: object, faults: list[Fault]) -> dict[str, Any]:
    if form == "argv":
        argv = rest.pop("argv")
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            faults.append(fault(("argv",), f"is {shown(argv)}; it must be a list of strings"))
            return {}
        command = parse_argv(argv)
        faults += command.faults
        raw.warnings += command.warnings
        raw.region = command.values.pop("region", raw.region)
        raw.project = command.values.pop("project", raw.project)
        if command.values.pop("config", None) and config is None:
            raw.complete = False
            faults.append(
                fault(("argv",), "names a --config file, which is not here; send its content as gcloud_config")
            )
        faults += [unknown_key((key,), FORMS) for key in rest]
        return command.values
    pools = rest.get("worker_pool_spec", rest.pop("workerPoolSpec", None))
    if pools is not None:
        rest["worker_pool_spec"] = [pools] if isinstance(pools, str) else pools
        if not isinstance(rest["worker_pool_spec"], list) or not all(
            isinstance(each, str) for each in rest["worker_pool_spec"]
        ):
            faults.append(
                fault(("worker_pool_spec",), f"is {shown(pools)}; it must be a list of --worker-pool-spec strings")
            )
            del rest["worker_pool_spec"]
    known = GCLOUD_KEYS | {"worker_pool_spec"}
    faults += [unknown_key((key,), known) for key in rest if key not in known]
    return {key: item for key, item in rest.items() if key in known}


def _config(config: object, reader: Reader, faults: list[Fault]) -> dict[str, Any]:
    """A gcloud config is a CustomJobSpec; people also pass a whole CustomJob there, which gcloud refuses."""
    if isinstance(config, str):
        if len(config) > MAX_YAML:
            faults.append(
                fault(
                    ("gcloud_config",),
                    f"has {len(config)} characters; as text it may have {MAX_YAML}, as an object more",
                )
            )
            return {}
        try:
            config = load_yaml(config, "gcloud_config").value
        except ConfigurationError as error:
            faults += error.faults
            return {}
    path = ("gcloud_config",)
    if not isinstance(config, Mapping):
        faults.append(fault(path, f"is {shown(config)}; it must be a CustomJobSpec as an object or YAML text"))
        return {}
    if "jobSpec" in config or "job_spec" in config:
        return reader.message("CustomJob", config, path)
    return _bare(config, reader, path)


def _apply(flags: Mapping[str, Any], job: dict[str, Any], reader: Reader) -> None:
    """Flags that hold for the job as a whole, and those that gcloud puts into every pool."""
    spec = job["jobSpec"]
    top = {key: flags[key] for key in ("display_name", "labels") if key in flags}
    if "kms_key" in flags:
        top["encryption_spec"] = {"kms_key_name": flags["kms_key"]}
    whole = ("network", "service_account", "persistent_resource_id", "enable_web_access", "enable_dashboard_access")
    job |= reader.message("CustomJob", top, ())
    spec |= reader.message("CustomJobSpec", {key: flags[key] for key in whole if key in flags}, ())
    for pool in spec.get("workerPoolSpecs") or []:
        for task in ("containerSpec", "pythonPackageSpec"):
            if task in pool and flags.get("args"):
                pool[task]["args"] = list(flags["args"])
        if "containerSpec" in pool and flags.get("command"):
            pool["containerSpec"]["command"] = list(flags["command"])


def _checked(raw: RawRequest, path: KeyPath, spec_key: str) -> list[Fault]:
    """Vertex AI's rules, labels, reserved variables and forgotten placeholders."""
    job = raw.custom_job
    rules = Rules(camel=raw.camel, pools_key=raw.pools_key)
    rules.check({"displayName": "filled in later", **job}, path, spec_key)
    raw.warnings += rules.warnings
    texts = list(_text_faults(raw, path, spec_key))
    return [*texts, *_unrelated([*rules.faults, *label_faults(job.get("labels", {}), (*path, "labels"))], texts)]


def _text_faults(raw: RawRequest, path: KeyPath, spec_key: str) -> Iterator[Fault]:
    for where, text in strings(raw.custom_job):
        shown_path = where if raw.camel else tuple(snake(part) if isinstance(part, str) else part for part in where)
        shown_path = shown_path if spec_key or where[0] != "jobSpec" else shown_path[1:]
        if found := _placeholder(where, text, raw.custom_job):
            yield fault((*path, *shown_path), f"still holds the placeholder {found!r}; put the real value there")
        elif where[-1] == "name" and "env" in where and text.startswith(RESERVED_ENV):
            yield fault((*path, *shown_path), f"is {text!r}; {RESERVED_ENV}* is kept for Kickoff's own variables")


def _placeholder(where: KeyPath, text: str, job: Mapping[str, Any]) -> str:
    if any(text in names for names in ENUMS.values()):
        return ""
    if where[-1] == "outputUriPrefix":
        text = text.replace("{run_id}", "")
    if not {"args", "command", "env"} & set(where):
        return left_over_name(text)
    # A shell's own ${VARIABLE} is no placeholder.
    pool: Any = job.get("jobSpec", {}).get("workerPoolSpecs", [])[where[2]] if isinstance(where[2], int) else {}
    command = pool.get("containerSpec", {}).get("command", [])
    return "" if _SHELLS & set(command[:2]) else left_over(text)


def _unrelated(found: list[Fault], known: list[Fault]) -> Iterator[Fault]:
    """Less what only follows from a value that could not be read."""
    paths = [each.path for each in known if each.path]
    for each in found:
        if not any(each.path.startswith(path) or path.startswith(each.path) for path in paths):
            yield each
