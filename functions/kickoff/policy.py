"""What this deployment lets a job be, and what it may cost at worst. Pure.

``policy.yaml`` holds allow-lists: globs in which ``*`` stays within one path segment, and ``{project}``, ``{region}``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from kickoff.custom_job import BuiltJob
from kickoff.errors import ConfigurationError, Fault, Forbidden
from kickoff.faults import KeyPath, fault, schema_faults, shown
from kickoff.globs import glob_fault, match_glob
from kickoff.recipe_models import Recipe
from kickoff.recipe_types import Section
from kickoff.recipes import Recipes, overlap
from kickoff.request import TrainingRequest
from kickoff.settings import Settings
from kickoff.templates import fill, unknown_values
from kickoff.worst_case import Cost, PoolCost, worst_case_cost
from kickoff.yaml_strict import load_yaml

__all__ = ["Cost", "Policy", "PoolCost", "check_policy", "load_policy", "worst_case_cost"]


class Policy(Section):
    """The project's own limits. Recipes and raw requests pass them alike."""

    images: list[str] = Field(default=["{region}-docker.pkg.dev/{project}/**", "gcr.io/{project}/**"])
    """Image repositories, without tag; with ``@sha256:…`` that one image alone."""
    require_digest: bool = False
    """Images must be pinned: ``…@sha256:…``."""
    service_accounts: list[str] = Field(default=[])
    """Beside the deployment's own KICKOFF_SERVICE_ACCOUNT."""
    machine_types: list[str] = Field(default=["**"])
    accelerators: list[str] = Field(default=["**"])
    buckets: list[str] = Field(default=["{project}-*"])
    """Where jobs may write, and where their packages and datasets may lie."""
    regions: list[str] = Field(default=["{region}"])
    networks: list[str] = Field(default=[])
    persistent_resources: list[str] = Field(default=[])
    tensorboards: list[str] = Field(default=["**"])
    web_access: bool = False
    """Interactive shells and dashboards, which act as the job's service account."""
    raw_requests: bool = True
    """Messages that bring their own worker pool specs."""
    max_replicas: int = Field(default=32, ge=1)
    max_active: int = Field(default=0, ge=0)
    """Raw requests that run at once; 0: no limit. A recipe has its own."""
    max_active_total: int = Field(default=0, ge=0)
    """Runs of everything at once; 0: no limit."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    unknown_price: Literal["refuse", "allow"] = "refuse"
    """Where there is a budget and a price is not in the catalogue."""
    paused: bool = False
    """New runs are recorded and held."""


def load_policy(text: str, settings: Settings) -> Policy:
    """Read policy.yaml. Raises ConfigurationError with every fault, each with file and line."""
    document = load_yaml(text, "policy.yaml")
    value = document.value if document.value is not None else {}
    if not isinstance(value, dict):
        raise ConfigurationError.from_faults([Fault("policy.yaml", "policy.yaml:1: must be a mapping")])
    try:
        policy = Policy.model_validate(value)
    except ValidationError as error:
        raise ConfigurationError.from_faults(map(document.located, schema_faults(error, Policy))) from None
    faults = [document.located(each) for each in _list_faults(policy)]
    if faults:
        raise ConfigurationError.from_faults(faults)
    known = {"project": settings.project, "region": settings.region}
    lists = {name: [fill(each, known) for each in items] for name, items in _lists(policy)}
    return policy.model_copy(update=lists)


def _lists(policy: Policy) -> Iterator[tuple[str, list[str]]]:
    for name in Policy.model_fields:
        value = getattr(policy, name)
        if isinstance(value, list):
            yield name, value


def _list_faults(policy: Policy) -> Iterator[Fault]:
    for name, items in _lists(policy):
        for index, item in enumerate(items):
            for unknown in set(unknown_values(item)):
                yield fault(
                    (name, index), f"names the unknown value {{{unknown}}}; known are {{project}} and {{region}}"
                )
            if problem := glob_fault(fill(item, {"project": "p", "region": "r"})):
                yield fault((name, index), problem)


# The check -------------------------------------------------------------------------------------------------------


def check_policy(
    built: BuiltJob,
    recipe: Recipe | None,
    policy: Policy,
    settings: Settings,
    *,
    request: TrainingRequest | None = None,
    recipes: Recipes | None = None,
) -> None:
    """Raises Forbidden with everything that stands against the job.

    With `request`, its own region, project and dataset are checked as well; with `recipes`, that the output does not
    lie where a recipe watches for uploads.
    """
    faults = list(_policy_faults(built, recipe, policy, settings))
    if request:
        faults += _request_faults(request, policy, settings)
    for name, watched in recipes.watched() if recipes else []:
        if built.output and overlap(watched, built.output):
            faults.append(
                fault(_OUTPUT, f"is {built.output}, where recipe {name} watches for uploads: its jobs would start jobs")
            )
    if faults:
        raise Forbidden.from_faults(faults)


_SPEC: KeyPath = ("job_spec",)
_OUTPUT: KeyPath = (*_SPEC, "base_output_directory", "output_uri_prefix")


def _policy_faults(built: BuiltJob, recipe: Recipe | None, policy: Policy, settings: Settings) -> Iterator[Fault]:
    spec = built.custom_job["jobSpec"]
    if recipe is None and not policy.raw_requests:
        yield fault((), "policy allows no requests that bring their own job (raw_requests: false)")
    replicas = 0
    for index, pool in enumerate(spec.get("workerPoolSpecs", [])):
        replicas += pool.get("replicaCount", 0)
        yield from _pool_faults(pool, (*_SPEC, "worker_pool_specs", index), policy)
    if replicas > policy.max_replicas:
        yield fault((*_SPEC, "worker_pool_specs"), f"has {replicas} replicas; policy allows {policy.max_replicas}")
    account = spec.get("serviceAccount", "")
    if account and account != settings.service_account:
        yield from _listed((*_SPEC, "service_account"), account, policy.service_accounts, "service_accounts")
    for key, listed, name in (
        ("network", policy.networks, "networks"),
        ("persistentResourceId", policy.persistent_resources, "persistent_resources"),
        ("tensorboard", policy.tensorboards, "tensorboards"),
    ):
        if spec.get(key):
            yield from _listed((*_SPEC, key), spec[key], listed, name)
    for key in ("enableWebAccess", "enableDashboardAccess"):
        if spec.get(key) and not policy.web_access:
            yield fault((*_SPEC, key), "is true; policy does not allow it (web_access: false)")
    if built.output:
        yield from _bucket(_OUTPUT, built.output, policy)
    yield from _listed(("region",), settings.region, policy.regions, "regions")
    yield from _cost_faults(built, recipe, policy)


def _pool_faults(pool: Mapping[str, Any], path: KeyPath, policy: Policy) -> Iterator[Fault]:
    machine = pool.get("machineSpec", {})
    if kind := machine.get("machineType"):
        yield from _listed((*path, "machine_spec", "machine_type"), kind, policy.machine_types, "machine_types")
    if accelerator := machine.get("acceleratorType"):
        where = (*path, "machine_spec", "accelerator_type")
        yield from _listed(where, accelerator, policy.accelerators, "accelerators")
    for task, key in (("containerSpec", "imageUri"), ("pythonPackageSpec", "executorImageUri")):
        if image := pool.get(task, {}).get(key):
            yield from _image((*path, task, key), image, policy)
    for index, uri in enumerate(pool.get("pythonPackageSpec", {}).get("packageUris", [])):
        yield from _bucket((*path, "pythonPackageSpec", "packageUris", index), uri, policy)


def _image(path: KeyPath, image: str, policy: Policy) -> Iterator[Fault]:
    name, _, digest = image.partition("@")
    last = name.rpartition("/")[2]
    repository = name[: len(name) - len(last)] + last.partition(":")[0]
    if not any(match_glob(pattern, f"{repository}@{digest}") for pattern in policy.images if "@" in pattern):
        yield from _listed(path, repository, policy.images, "images")
    if policy.require_digest and not digest:
        yield fault(path, f"is {shown(image)}; policy wants it pinned by digest: …@sha256:…")


def _bucket(path: KeyPath, uri: str, policy: Policy) -> Iterator[Fault]:
    bucket = uri.removeprefix("gs://").partition("/")[0]
    yield from _listed(path, bucket, policy.buckets, "buckets")


def _listed(path: KeyPath, value: str, allowed: Sequence[str], name: str) -> Iterator[Fault]:
    if not any(match_glob(pattern, value) for pattern in allowed):
        listed = ", ".join(allowed) or "none"
        yield fault(path, f"is {shown(value)}; policy allows {listed} ({name})")


def _request_faults(request: TrainingRequest, policy: Policy, settings: Settings) -> Iterator[Fault]:
    if request.region and request.region != settings.region:
        yield fault(("region",), f"is {shown(request.region)}; this deployment starts jobs in {settings.region}")
    if request.project and request.project != settings.project:
        yield fault(("project",), f"is {shown(request.project)}; this deployment starts jobs in {settings.project}")
    if request.dataset:
        yield from _bucket(("dataset",), request.dataset, policy)


def _cost_faults(built: BuiltJob, recipe: Recipe | None, policy: Policy) -> Iterator[Fault]:
    budgets = [(policy.max_cost_usd, "policy.yaml: max_cost_usd")]
    if recipe:
        budgets.append((recipe.limits.max_cost_usd, f"recipe {recipe.name}: limits.max_cost_usd"))
    limits = [(limit, name) for limit, name in budgets if limit is not None]
    if not limits:
        return
    limit, name = min(limits)
    cost = worst_case_cost(built.custom_job)
    if cost.usd is None:
        if policy.unknown_price == "refuse":
            yield fault(_SPEC, f"cannot be priced: {cost.why}; the limit is {limit:.2f} USD ({name})")
    elif cost.usd > limit:
        worst = f"{cost.hourly_usd:.2f} USD an hour x {cost.hours:g} h = {cost.usd:.2f} USD"
        yield fault(
            _SPEC, f"may cost {worst} at worst; the limit is {limit:.2f} USD ({name}). A shorter timeout lowers it"
        )
