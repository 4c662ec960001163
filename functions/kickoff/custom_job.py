"""A TrainingRequest -> the CustomJob that is submitted. Pure."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kickoff.errors import Fault, InvalidRequest
from kickoff.faults import KeyPath, bounded, fault
from kickoff.labels import RECIPE_LABEL, RUN_LABEL, derive_label
from kickoff.overrides import build_job
from kickoff.recipe_models import Job, Recipe
from kickoff.recipes import folder, watched_prefix
from kickoff.request import TrainingRequest
from kickoff.runs import DatasetRecord
from kickoff.settings import Settings
from kickoff.spec_rules import Rules
from kickoff.spec_values import project_fault
from kickoff.templates import TemplateValues, fill, unknown_values
from kickoff.worker_pools import PRIMARY, SERVERS, WORKERS, build_worker_pool_specs

__all__ = ["BuiltJob", "build_custom_job", "build_worker_pool_specs"]

SYNCHRONOUS = frozenset({"auto", "multi-worker"})


@dataclass(frozen=True)
class BuiltJob:
    custom_job: dict[str, Any]
    """REST JSON: camelCase, enum names."""
    output: str
    """The base output directory, ending in ``/``; empty: none."""
    labels: dict[str, str]
    """The job's labels: the sender's own, and Kickoff's."""
    warnings: tuple[str, ...] = ()


def build_custom_job(
    request: TrainingRequest, *, recipe: Recipe | None, run_id: str, dataset: DatasetRecord | None, settings: Settings
) -> BuiltJob:
    """The job of one run. Raises InvalidRequest with every fault, each with its path.

    `recipe` is None for a raw request. Every replica gets KICKOFF_RUN_ID and, where the deployment has a topic for
    them, KICKOFF_EVENTS_TOPIC. A synchronous job of several replicas is restarted whole when one of its replicas
    is, unless it says otherwise.
    """
    faults: list[Fault] = []
    warnings = list(request.warnings)
    if problem := project_fault(settings.project):
        faults.append(fault(("project",), problem))
    if recipe:
        job = _filled_job(recipe, request, run_id, dataset, settings, faults, warnings)
        custom_job = _from_recipe(job)
    else:
        custom_job = copy.deepcopy(request.custom_job)
        warnings += _place_output(custom_job, run_id)
    spec = custom_job.setdefault("jobSpec", {})
    custom_job.setdefault("displayName", run_id)
    labels = {**custom_job.get("labels", {}), **request.labels, RUN_LABEL: run_id}
    labels[RECIPE_LABEL] = derive_label(request.recipe)
    custom_job["labels"] = labels
    _add_defaults(spec, settings)
    _add_env(spec, run_id, recipe.name if recipe else "", settings)
    _restart_whole(spec)
    faults += _checked(custom_job, request, recipe, warnings)
    if faults:
        raise InvalidRequest.from_faults(bounded(faults))
    warnings += _warnings(spec)
    output = spec.get("baseOutputDirectory", {}).get("outputUriPrefix", "")
    return BuiltJob(custom_job, folder(output) if output else "", labels, tuple(dict.fromkeys(warnings)))


def _filled_job(
    recipe: Recipe,
    request: TrainingRequest,
    run_id: str,
    dataset: DatasetRecord | None,
    settings: Settings,
    faults: list[Fault],
    warnings: list[str],
) -> Job:
    """The recipe's job with the request's overrides and every value in its place."""
    values = TemplateValues.from_settings(settings).mapping(recipe.name) | {"run_id": run_id}
    values |= _dataset_values(recipe, request, dataset, warnings)
    tree = _filled(build_job(recipe, request.overrides).model_dump(mode="python"), values, ("job",), faults)
    return Job.model_validate(tree)


def _dataset_values(
    recipe: Recipe, request: TrainingRequest, dataset: DatasetRecord | None, warnings: list[str]
) -> dict[str, str]:
    if dataset:
        snapshot = dataset.snapshot or dataset.uri
        return {"dataset.uri": dataset.uri, "dataset.snapshot": snapshot, "dataset.digest": dataset.digest}
    uri = request.dataset
    if not uri and recipe.when.upload and recipe.when.upload.complete:
        uri = watched_prefix(recipe.when.upload)
    if not uri:
        return {}
    warnings.append(f"no snapshot of {uri} was taken: the job trains on what lies there when it reads")
    return {"dataset.uri": uri, "dataset.snapshot": uri}


def _filled(value: Any, values: Mapping[str, str], path: KeyPath, faults: list[Fault]) -> Any:
    if isinstance(value, str):
        text = fill(value, values)
        faults.extend(_unfilled(value, values, path))
        return text
    if isinstance(value, dict):
        return {key: _filled(item, values, (*path, str(key)), faults) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values, (*path, index), faults) for index, item in enumerate(value)]
    return value


def _place_output(custom_job: dict[str, Any], run_id: str) -> Iterator[str]:
    """A raw request may give each run its own place, too."""
    place = custom_job.get("jobSpec", {}).get("baseOutputDirectory", {})
    output = place.get("outputUriPrefix", "")
    if "{run_id}" in output:
        place["outputUriPrefix"] = fill(output, {"run_id": run_id})
    elif output:
        yield (
            f"every run of this request writes to {output}, and Kickoff's trainer takes the second run for a duplicate "
            "of the first: write {run_id} into it"
        )


_WHY = {
    "trainer_image": "KICKOFF_TRAINER_IMAGE is not set",
    "dataset.uri": "the request has no dataset",
    "dataset.snapshot": "the request has no dataset",
    "dataset.digest": "no snapshot of the dataset was taken",
}


def _unfilled(text: str, values: Mapping[str, str], path: KeyPath) -> Iterator[Fault]:
    for name, why in _WHY.items():
        if f"{{{name}}}" in text and not values.get(name):
            yield fault(path, f"uses {{{name}}}, and {why}")
    for name in unknown_values(text):
        yield fault(path, f"names the unknown value {{{name}}}")


def _from_recipe(job: Job) -> dict[str, Any]:
    spec: dict[str, Any] = {"workerPoolSpecs": build_worker_pool_specs(job)}
    scheduling = _scheduling(job)
    if scheduling:
        spec["scheduling"] = scheduling
    if job.output:
        spec["baseOutputDirectory"] = {"outputUriPrefix": job.output}
    for name, value in (
        ("serviceAccount", job.service_account),
        ("network", job.network),
        ("tensorboard", job.tensorboard),
        ("persistentResourceId", job.persistent_resource),
    ):
        if value:
            spec[name] = value
    return {"jobSpec": spec, "labels": dict(job.labels)}


def _scheduling(job: Job) -> dict[str, Any]:
    asked = job.scheduling
    fields = {
        "timeout": None if asked.timeout is None else f"{asked.timeout}s",
        "maxWaitDuration": None if asked.max_wait is None else f"{asked.max_wait}s",
        "strategy": asked.strategy,
        "restartJobOnWorkerRestart": asked.restart_on_worker_restart,
        "disableRetries": asked.disable_retries,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _add_defaults(spec: dict[str, Any], settings: Settings) -> None:
    if settings.service_account and not spec.get("serviceAccount"):
        spec["serviceAccount"] = settings.service_account


def _add_env(spec: dict[str, Any], run_id: str, recipe: str, settings: Settings) -> None:
    own = {
        "KICKOFF_RUN_ID": run_id,
        "KICKOFF_EVENTS_TOPIC": settings.events_topic,
        "KICKOFF_RECIPE": recipe,
    }
    added = [{"name": name, "value": value} for name, value in own.items() if value]
    for pool in spec.get("workerPoolSpecs", []):
        for task in ("containerSpec", "pythonPackageSpec"):
            if task in pool:
                pool[task]["env"] = [*pool[task].get("env", []), *added]


def _restart_whole(spec: dict[str, Any]) -> None:
    """TensorFlow's collectives cannot take a restarted replica back (FACTS: nothing is elastic)."""
    pools = spec.get("workerPoolSpecs", [])
    replicas = sum(pool.get("replicaCount", 0) for pool in pools[: WORKERS + 1])
    parameter_servers = len(pools) > SERVERS and pools[SERVERS] and not _reduction(pools[SERVERS])
    scheduling = spec.get("scheduling", {})
    if replicas < 2 or parameter_servers or {"restartJobOnWorkerRestart", "disableRetries"} & scheduling.keys():
        return
    spec["scheduling"] = {**scheduling, "restartJobOnWorkerRestart": True}


def _reduction(pool: Mapping[str, Any]) -> bool:
    return "reductionserver" in pool.get("containerSpec", {}).get("imageUri", "")


def _checked(
    custom_job: Mapping[str, Any], request: TrainingRequest, recipe: Recipe | None, warnings: list[str]
) -> list[Fault]:
    rules = Rules(camel=request.camel)
    rules.check(custom_job)
    warnings += rules.warnings
    faults = rules.faults
    pools = custom_job["jobSpec"].get("workerPoolSpecs", [])
    counts = [_accelerators(pool) for pool in pools[: WORKERS + 1] if pool]
    if len(set(counts)) > 1:
        words = f"has {counts[PRIMARY]} accelerators and pool 1 has {counts[WORKERS]} a machine"
        rule = "MultiWorkerMirroredStrategy needs the same number on every machine"
        path = ("job_spec", "worker_pool_specs", PRIMARY, "machine_spec")
        if _strategy(pools[PRIMARY], recipe) in SYNCHRONOUS:
            faults.append(fault(path, f"{words}; {rule}"))
        else:
            warnings.append(fault(path, f"{words}; {rule}").message)
    return faults


def _accelerators(pool: Mapping[str, Any]) -> int:
    return int(pool.get("machineSpec", {}).get("acceleratorCount", 0))


def _strategy(primary: Mapping[str, Any], recipe: Recipe | None) -> str:
    """What the arguments say of the strategy; ``auto`` where a recipe says nothing, as our trainer does."""
    task = primary.get("containerSpec") or primary.get("pythonPackageSpec") or {}
    words = [word for text in task.get("args", []) for word in text.split("=")]
    for name, value in pairwise(words):
        if name in ("--strategy", "--distribute"):
            return "multi-worker" if value in ("multiworker", "multi-worker", "multi_worker", "mwms") else value
    return "auto" if recipe else ""


def _warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    if not spec.get("baseOutputDirectory"):
        yield "no base output directory: AIP_MODEL_DIR is not set, and a model saved elsewhere is lost with the machine"
    if not spec.get("serviceAccount"):
        yield "no service account: the job runs as Vertex AI's default agent, which may read less than you expect"
    if "timeout" not in spec.get("scheduling", {}):
        yield "no timeout: Vertex AI stops the job after 7 days, and the worst-case price counts them"
