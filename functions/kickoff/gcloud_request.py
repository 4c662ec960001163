"""Requests in gcloud's own terms: a config document, ``--worker-pool-spec`` strings, a command line. Pure."""

from collections.abc import Mapping
from typing import Any

from kickoff.errors import ConfigurationError, Fault
from kickoff.faults import fault, shown, unknown_key
from kickoff.gcloud_forms import build_pool, parse_argv
from kickoff.raw_forms import FORMS, GCLOUD_KEYS, RawRequest, read_flat_job
from kickoff.spec_reader import Reader
from kickoff.yaml_strict import load_yaml

MAX_YAML = 32 * 1024
"""Characters. Anyone may send them, and reading YAML costs a second for each 60 kB."""


def read_gcloud(form: str, rest: dict[str, Any], raw: RawRequest, reader: Reader, faults: list[Fault]) -> None:
    """Fill `raw` from a config document, flags, or both; flags win, as with gcloud."""
    config = rest.pop("gcloud_config", rest.pop("gcloudConfig", None))
    flags = _flags(form, rest, raw, config, faults)
    raw.spec_key = ""
    if config is not None:
        reader.folding = True
        _config(config, raw, reader, faults)
        reader.folding = False
    spec = raw.custom_job.setdefault("jobSpec", {})
    of_flags = Reader()
    if pools := flags.get("worker_pool_spec"):
        raw.camel, raw.path, raw.spec_key, raw.pools_key = True, (), "", "worker_pool_spec"
        uris = flags.get("python_package_uris") or []
        built = [build_pool(text, index, uris, faults) for index, text in enumerate(pools)]
        spec["workerPoolSpecs"] = [
            of_flags.message("WorkerPoolSpec", pool, (raw.pools_key, index)) for index, pool in enumerate(built)
        ]
    _apply(flags, raw.custom_job, of_flags)
    faults += of_flags.faults


def _flags(form: str, rest: dict[str, Any], raw: RawRequest, config: object, faults: list[Fault]) -> dict[str, Any]:
    if form == "argv":
        return _argv_flags(rest, raw, config, faults)
    pools = rest.pop("workerPoolSpec", None)
    if pools is not None:
        rest["worker_pool_spec"] = pools
    if isinstance(rest.get("worker_pool_spec"), str):
        rest["worker_pool_spec"] = [rest["worker_pool_spec"]]
    for name in ("worker_pool_spec", "args", "command", "python_package_uris"):
        if not _texts(rest.get(name, [])):
            faults.append(fault((name,), f"is {shown(rest.pop(name))}; it must be a list of strings"))
    known = GCLOUD_KEYS | {"worker_pool_spec"}
    unknown = [key for key in rest if key not in known]
    faults += [unknown_key((key,), known, before=number) for number, key in enumerate(unknown)]
    return {key: item for key, item in rest.items() if key in known}


def _argv_flags(rest: dict[str, Any], raw: RawRequest, config: object, faults: list[Fault]) -> dict[str, Any]:
    argv = rest.pop("argv")
    faults += [unknown_key((key,), FORMS, before=number) for number, key in enumerate(rest)]
    if not _texts(argv):
        faults.append(fault(("argv",), f"is {shown(argv)}; it must be a list of strings"))
        return {}
    command = parse_argv(argv)
    faults += command.faults
    raw.warnings += command.warnings
    raw.region = command.values.pop("region", raw.region)
    raw.project = command.values.pop("project", raw.project)
    if command.values.pop("config", None) and config is None:
        raw.complete = False
        faults.append(fault(("argv",), "names a --config file, which is not here; send its content as gcloud_config"))
    return command.values


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _config(config: object, raw: RawRequest, reader: Reader, faults: list[Fault]) -> None:
    """A gcloud config is a CustomJobSpec; people also pass a whole CustomJob there, which gcloud refuses."""
    raw.path = ("gcloud_config",)
    if isinstance(config, str):
        config = _yaml(config, raw, faults)
        if config is None:
            return
    if not isinstance(config, Mapping):
        faults.append(fault(raw.path, f"is {shown(config)}; it must be a CustomJobSpec as an object or YAML text"))
    elif "jobSpec" in config or "job_spec" in config:
        raw.spec_key = "jobSpec"
        raw.custom_job = reader.message("CustomJob", config, raw.path)
    else:
        raw.custom_job = read_flat_job(config, reader, raw.path)


def _yaml(text: str, raw: RawRequest, faults: list[Fault]) -> object:
    """None, with faults, when it cannot be read."""
    try:
        if len(text) <= MAX_YAML:
            return load_yaml(text, "gcloud_config").value or {}
        limit = f"has {len(text)} characters; as text it may have {MAX_YAML}, as an object more"
        faults.append(fault(raw.path, limit))
    except ConfigurationError as error:
        faults += error.faults
    raw.complete = False
    return None


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
