"""``kickoff check``: what a recipe or message would start, and everything that stands against it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kickoff.custom_job import BuiltJob, build_custom_job
from kickoff.errors import ConfigurationError, Fault, KickoffError
from kickoff.faults import fault
from kickoff.policy import Cost, Policy, check_policy, worst_case_cost
from kickoff.recipes import Recipe, Recipes, load_recipes, overlap, parse_recipe, watched_prefix
from kickoff.request import TrainingRequest, build_request, parse_request
from kickoff.runs import DatasetRecord
from kickoff.settings import Settings
from kickoff.spec_values import DEFAULT_TIMEOUT
from kickoff.templates import TemplateValues
from kickoff.worker_pools import POOL_NAMES
from kickoff.yaml_strict import load_yaml

HEADINGS = ("pool", "role", "replicas", "machine", "accelerators", "image", "USD/hour")


@dataclass(frozen=True)
class Report:
    """The answer to ``kickoff check``. `custom_job` is empty when no job could be built."""

    subject: str
    custom_job: dict[str, Any]
    rows: tuple[tuple[str, ...], ...] = ()
    """One row a pool, under HEADINGS."""
    cost: Cost | None = None
    output: str = ""
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults

    def table(self) -> str:
        """The report for a terminal."""
        lines = [self.subject]
        widths = [max(len(row[index]) for row in (HEADINGS, *self.rows)) for index in range(len(HEADINGS))]
        if self.rows:
            rows = (HEADINGS, *self.rows)
            lines += [
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
            ]
        if self.output:
            lines.append(f"output      {self.output}")
        if self.cost:
            lines.append(f"worst case  {price_text(self.cost)}")
        lines += [f"warning     {text}" for text in self.warnings]
        lines += [f"fault       {each}" for each in self.faults]
        return "\n".join([*lines, "would start" if self.ok else f"would be refused: {len(self.faults)} fault(s)"])

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "ok": self.ok,
            "custom_job": self.custom_job,
            "output": self.output,
            "worst_case_usd": self.cost.usd if self.cost else None,
            "price": price_text(self.cost) if self.cost else "",
            "warnings": list(self.warnings),
            "faults": [{"path": each.path, "message": each.message} for each in self.faults],
        }


def price_text(cost: Cost) -> str:
    if cost.usd is None:
        return f"unknown: {cost.why}"
    default = ", Vertex AI's default timeout" if cost.hours * 3600 == DEFAULT_TIMEOUT else ""
    return f"{cost.usd:.2f} USD ({cost.hourly_usd:.2f} USD an hour x {cost.hours:g} h{default})"


def check(text: str, file: str, *, recipes: Recipes, policy: Policy, settings: Settings) -> Report:
    """Check a file: a recipe (it has ``when:`` or ``job:``), or a message in JSON or YAML."""
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = load_yaml(text, file).value
        except ConfigurationError as error:
            return Report(file, {}, faults=error.faults)
    if isinstance(value, Mapping) and ({"when", "job", "on"} & value.keys()):
        return check_recipe(text, file, recipes=recipes, policy=policy, settings=settings)
    return check_message(value, recipes=recipes, policy=policy, settings=settings)


def check_recipe(text: str, file: str, *, recipes: Recipes, policy: Policy, settings: Settings) -> Report:
    """The job that the recipe's own trigger would start, with a sample dataset."""
    values = TemplateValues.from_settings(settings)
    try:
        _, recipe = parse_recipe(file, text, values)
        load_recipes({file: text}, values)
    except ConfigurationError as error:
        return Report(f"recipe {file}", {}, faults=error.faults)
    watched = watched_prefix(recipe.when.upload) if recipe.when.upload else ""
    if loop := next((own for own in recipes.own if watched and overlap(watched, own)), ""):
        found = fault(("when", "upload", "root"), f"watches {watched}, and jobs of the other recipes write to {loop}")
        return Report(f"recipe {recipe.name}", {}, faults=(found,))
    others = Recipes({**recipes.by_name, recipe.name: recipe}, recipes.own)
    return _report(f"recipe {recipe.name}", build_request(recipe), recipe, others, policy, settings)


def check_message(payload: object, *, recipes: Recipes, policy: Policy, settings: Settings) -> Report:
    """The job that a message with this payload would start."""
    try:
        request = parse_request(payload, recipes)
    except KickoffError as error:
        return Report("message", {}, faults=error.faults)
    subject = f"message ({request.form})" + (f" for recipe {request.recipe}" if request.kind == "recipe" else "")
    return _report(subject, request, recipes.get(request.recipe), recipes, policy, settings)


def _report(
    subject: str, request: TrainingRequest, recipe: Recipe | None, recipes: Recipes, policy: Policy, settings: Settings
) -> Report:
    run_id = f"{request.recipe}-{'0' * 20}"
    try:
        built = build_custom_job(
            request, recipe=recipe, run_id=run_id, dataset=_sample(recipe, request, settings), settings=settings
        )
    except KickoffError as error:
        return Report(subject, {}, faults=error.faults)
    cost = worst_case_cost(built.custom_job)
    faults: tuple[Fault, ...] = ()
    try:
        check_policy(built, recipe, policy, settings, request=request, recipes=recipes)
    except KickoffError as error:
        faults = error.faults
    return Report(subject, built.custom_job, _rows(built, cost), cost, built.output, built.warnings, faults)


def _sample(recipe: Recipe | None, request: TrainingRequest, settings: Settings) -> DatasetRecord | None:
    """A dataset as an upload, or a look into the bucket, would bring it, so that the recipe's values can be filled."""
    upload = recipe.when.upload if recipe else None
    uri = request.dataset
    if upload and not uri:
        uri = watched_prefix(upload) + ("" if upload.complete else "OBJECT")
    if not uri:
        return None
    snapshot = f"{settings.staging}/snapshots/DIGEST.json"
    return DatasetRecord(uri=uri, digest="0" * 64, objects=1, bytes=1, snapshot=snapshot)


def _rows(built: BuiltJob, cost: Cost) -> tuple[tuple[str, ...], ...]:
    rows = []
    pools = built.custom_job["jobSpec"]["workerPoolSpecs"]
    for priced in cost.pools:
        pool = pools[priced.pool]
        machine = pool.get("machineSpec", {})
        count = machine.get("acceleratorCount", 0)
        task = pool.get("containerSpec") or pool.get("pythonPackageSpec") or {}
        rows.append(
            (
                f"workerpool{priced.pool}",
                POOL_NAMES[priced.pool],
                str(priced.replicas),
                priced.machine,
                f"{count} x {machine['acceleratorType']}" if count else "none",
                task.get("imageUri") or task.get("executorImageUri", ""),
                "unknown" if priced.hourly_usd is None else f"{priced.hourly_usd:.2f}",
            )
        )
    return tuple(rows)
