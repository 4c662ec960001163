"""What the recipes of a checkout need of a project: machines, accelerators, quota. Read by the functions' own code."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kickoff.check import check_recipe
from kickoff.errors import ConfigurationError, KickoffError
from kickoff.policy import load_policy
from kickoff.recipes import Recipes, load_recipes, parse_recipe
from kickoff.settings import Settings
from kickoff.templates import TemplateValues


@dataclass(frozen=True)
class Need:
    """One worker pool."""

    machine_type: str
    replicas: int
    accelerator: str = ""
    count: int = 0


@dataclass(frozen=True)
class Recipe:
    """A recipe file as the preflight sees it."""

    name: str
    file: str
    needs: tuple[Need, ...] = ()
    spot: bool = False
    at_once: int = 1
    bucket: str = ""
    """The bucket that it watches; empty: none."""
    scheduled: bool = False
    faults: tuple[str, ...] = ()

    def quota(self) -> dict[str, int]:
        """Metric of aiplatform.googleapis.com: units for as many runs at once as the recipe allows.

        https://cloud.google.com/vertex-ai/docs/quotas#training
        """
        wanted: Counter[str] = Counter()
        kind = "preemptible_" if self.spot else ""
        for need in self.needs:
            if cores := re.fullmatch(r"(?:n1|e2)-\w+-(\d+)", need.machine_type):
                wanted[f"custom_model_training_{kind}cpus"] += int(cores[1]) * need.replicas * self.at_once
            if need.accelerator.startswith("NVIDIA"):
                name = need.accelerator.lower().replace("tesla_", "")
                wanted[f"custom_model_training_{kind}{name}_gpus"] += need.count * need.replicas * self.at_once
        return dict(wanted)


def read_recipes(settings: Settings) -> list[Recipe]:
    """Every recipe file under `settings.recipes`; a faulty one has its faults instead of needs."""
    files = {path.name: path.read_text() for path in sorted(settings.recipes.glob("*.yaml"))}
    values = TemplateValues.from_settings(settings)
    try:
        known = load_recipes(files, values)
    except ConfigurationError as error:
        known = Recipes({})
        together = tuple(str(fault) for fault in error.faults)
    else:
        together = ()
    single = [_read(name, text, known, settings) for name, text in files.items()]
    said = {fault for recipe in single for fault in recipe.faults}
    between = tuple(fault for fault in together if fault not in said)
    return [*single, *([Recipe("files", str(settings.recipes), faults=between)] if between else [])]


def _read(name: str, text: str, known: Recipes, settings: Settings) -> Recipe:
    path = str(settings.recipes / name)
    try:
        _, recipe = parse_recipe(name, text, TemplateValues.from_settings(settings))
        policy = load_policy(settings.policy.read_text(), settings)
    except KickoffError as error:
        faults = error.faults or (error,)
        return Recipe(name.removesuffix(".yaml"), path, faults=tuple(map(str, faults)))
    report = check_recipe(text, name, recipes=known, policy=policy, settings=settings)
    spec = report.custom_job.get("jobSpec", {})
    return Recipe(
        name=recipe.name,
        file=path,
        needs=tuple(_needs(spec)),
        spot=spec.get("scheduling", {}).get("strategy") == "SPOT",
        at_once=max(1, recipe.limits.max_active),
        bucket=recipe.when.upload.bucket if recipe.when.upload else "",
        scheduled=recipe.when.schedule is not None,
        faults=tuple(map(str, report.faults)),
    )


def _needs(spec: Mapping[str, Any]) -> Iterator[Need]:
    for pool in spec.get("workerPoolSpecs", []):
        machine = pool.get("machineSpec")
        if machine:
            accelerator, count = machine.get("acceleratorType", ""), int(machine.get("acceleratorCount", 0))
            yield Need(machine["machineType"], int(pool.get("replicaCount", 1)), accelerator, count)
