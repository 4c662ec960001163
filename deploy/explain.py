"""`kickoff explain`: why an object or a message did, or did not, start a job."""

import json
from collections.abc import Iterator

from kickoff.clients import Clients
from kickoff.datasets import Complete as Ready
from kickoff.datasets import Mode, build_key, build_rule
from kickoff.errors import KickoffError
from kickoff.recipes import UploadMatch
from kickoff.request import parse_request
from kickoff.runs import Run, State, build_run_id
from kickoff.settling import holds, look, settle_object
from kickoff.storage import split_uri


def explain_upload(uri: str, clients: Clients) -> Iterator[str]:
    """One sentence after the other about ``gs://bucket/name``."""
    bucket, name = split_uri(uri)
    matches = clients.recipes.match_upload(bucket, name)
    found = clients.storage.stat(bucket, name)
    if found is None:
        yield f"{uri} is not in the bucket now."
    elif found.run:
        yield f"{uri} was written by run {found.run}; what our own jobs write starts nothing."
    if not matches:
        yield "No recipe watches it. What the recipes watch:"
        for recipe, watched in clients.recipes.watched():
            yield f"  {recipe}: {watched}"
    for match in matches:
        yield from explain_match(match, clients)


def explain_match(match: UploadMatch, clients: Clients) -> Iterator[str]:
    recipe = match.recipe.name
    yield f"Recipe {recipe} takes it as {match.role} of the dataset {match.root}."
    rule = build_rule(match.recipe, match.root)
    for hold in holds(clients.ledger):
        if (hold.recipe, hold.root) == (recipe, match.root):
            yield f"The dataset is held since {hold.since:%Y-%m-%d %H:%M:%S} UTC and waits for {hold.waiting_for}."
    if rule.mode is Mode.OBJECT:
        found = clients.storage.stat(match.bucket, match.name)
        settled = settle_object(rule, found) if found else None
        key = getattr(settled, "key", None)
        yield from explain_key(key, clients) if key else [getattr(settled, "reason", "There is nothing to start.")]
        return
    decision = look(rule, clients.storage)
    if isinstance(decision, Ready):
        yield f"It is complete: {len(decision.members)} objects."
        yield from explain_key(build_key(rule, decision.digest), clients)
    else:
        yield f"It is not complete: it waits for {getattr(decision, 'waiting_for', 'files')}."


def explain_message(text: str, clients: Clients) -> Iterator[str]:
    """About a training request as it would be published."""
    try:
        request = parse_request(json.loads(text), clients.recipes)
    except ValueError as error:
        yield f"It is not JSON: {error}."
        return
    except KickoffError as error:
        yield f"It would be refused:\n{error}"
        return
    yield f"It is a request for {request.recipe}, written as {request.form}."
    if not request.idempotency_key:
        yield "It has no idempotency_key: each message with it is a request of its own, under its message id."
        return
    yield from explain_key((request.recipe, "key", request.idempotency_key), clients)


def explain_key(key: tuple[str, ...], clients: Clients) -> Iterator[str]:
    """The run of a key, and what would start another one."""
    run = clients.ledger.get_run(build_run_id(key))
    if run is None:
        yield from explain_refused(key, clients)
        return
    yield f"That is run {run.run_id}, {describe(run)}."
    yield f"The same request again is a duplicate. To train on it once more: kickoff rerun {run.run_id} --reason …"


def explain_refused(key: tuple[str, ...], clients: Clients) -> Iterator[str]:
    refused = clients.ledger.find_runs(states=[State.REJECTED], recipe=key[0], limit=200)
    run = next((run for run in refused if run.key[2 : len(key) + 1] == key[1:]), None)
    if run is None:
        yield "No run was made of it yet."
        return
    yield f"It was refused as run {run.run_id}:"
    for fault in run.faults:
        yield f"  {fault.message}"


def describe(run: Run) -> str:
    waits = f", which waits for {run.waiting_for}" if run.waiting_for else ""
    return f"{run.state}{waits}"
