"""From what was asked for to the run record that carries it on: born QUEUED, HELD or REJECTED. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kickoff.custom_job import build_custom_job
from kickoff.errors import Fault, Forbidden, InvalidRequest, KickoffError
from kickoff.policy import Policy, check_policy, worst_case_cost
from kickoff.recipes import Recipe, Recipes
from kickoff.request import TrainingRequest
from kickoff.runs import Change, DatasetRecord, FaultRecord, Run, State, Trigger, build_run_id
from kickoff.settings import Settings

REFUSED = "refused"
"""In the key of a refused run: it must not use up the key of the request as mended."""


@dataclass(frozen=True)
class Asked:
    """One request, whatever brought it."""

    request: TrainingRequest
    recipe: Recipe | None
    """None for a raw request."""
    key: tuple[str, ...]
    trigger: Trigger
    dataset: DatasetRecord | None = None


def build_run(
    asked: Asked, *, settings: Settings, policy: Policy, recipes: Recipes, now: datetime, paused: str = ""
) -> Run:
    """The run of a request; one that breaks a rule becomes a REJECTED run with every fault."""
    run_id = build_run_id(asked.key)
    recipe, request = asked.recipe, asked.request
    try:
        built = build_custom_job(request, recipe=recipe, run_id=run_id, dataset=asked.dataset, settings=settings)
        check_policy(built, recipe, policy, settings, request=request, recipes=recipes)
    except (InvalidRequest, Forbidden) as error:
        return build_refused(
            asked.key, asked.trigger, error, settings=settings, now=now, recipe=recipe, request=request
        )
    state = State.HELD if paused else State.QUEUED
    return Run(
        run_id=run_id,
        key=asked.key,
        recipe=asked.key[0],
        recipe_digest=recipe.digest if recipe else "",
        state=state,
        history=(Change(state=state, time=now, note=paused),),
        created=now,
        updated=now,
        trigger=asked.trigger,
        request=request.model_dump(mode="json"),
        request_digest=request.digest,
        labels=built.labels,
        dataset=asked.dataset,
        custom_job=built.custom_job,
        project=settings.project,
        region=request.region or settings.region,
        output=built.output,
        warnings=built.warnings,
        waiting_for=paused,
        next_attempt_at=None if paused else now,
        max_active=recipe.limits.max_active if recipe else policy.max_active,
        newest_only=bool(recipe and recipe.newest_only),
        worst_case_usd=worst_case_cost(built.custom_job).usd,
    )


def build_refused(
    key: Sequence[str],
    trigger: Trigger,
    error: KickoffError,
    *,
    settings: Settings,
    now: datetime,
    recipe: Recipe | None = None,
    request: TrainingRequest | None = None,
) -> Run:
    """The record of a request that was refused, with its reasons, under a key of its own.

    The key names the recipe's version, so that the same upload starts once the recipe is mended.
    """
    refused = (key[0], REFUSED, *key[1:], *([recipe.digest] if recipe else []))
    faults = error.faults or (Fault("", str(error)),)
    return Run(
        run_id=build_run_id(refused),
        key=refused,
        recipe=key[0],
        recipe_digest=recipe.digest if recipe else "",
        state=State.REJECTED,
        history=(Change(state=State.REJECTED, time=now, note=type(error).__name__),),
        created=now,
        updated=now,
        trigger=trigger,
        request=request.model_dump(mode="json") if request else {},
        request_digest=request.digest if request else "",
        faults=tuple(FaultRecord(path=fault.path, message=fault.message) for fault in faults),
        project=settings.project,
        region=settings.region,
    )
