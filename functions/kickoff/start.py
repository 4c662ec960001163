"""An event in, at most one run for each recipe that it concerns: gather, decide, apply."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC

from kickoff.answers import Outcome
from kickoff.clients import Clients
from kickoff.duplicates import storage_fence
from kickoff.errors import MalformedEvent, PermanentError, TransientError
from kickoff.events import Event, Ignored, Message, Tick, Upload
from kickoff.outbox import accept, submit
from kickoff.plan import Asked, build_refused, build_run
from kickoff.points import point
from kickoff.request import build_request, parse_request
from kickoff.runs import CUSTOM, Run, State, Trigger
from kickoff.settling import Held, NotCurrent, Settled, settle, write_snapshot
from kickoff.snapshots import dataset_uri, look_at, names_dataset
from kickoff.switches import pause_reason
from kickoff.updating import Clock

SCHEDULER_PREFIX = "kickoff-"
"""A recipe's Scheduler job is named ``kickoff-<recipe>``."""


def start(event: Event, clients: Clients, now: Clock) -> list[Outcome]:
    """What became of the event, one entry for each recipe concerned.

    Raises TransientError where nothing was accepted and delivering again can help.
    """
    if isinstance(event, Ignored) and event.empty is None:
        return [Outcome("ignored", reason=event.reason)]
    if isinstance(event, Upload | Ignored):
        return start_uploads(event, clients, now)
    if isinstance(event, Message):
        return [start_message(event, clients, now)]
    if isinstance(event, Tick):
        return [start_tick(event, clients, now)]
    return [Outcome("ignored", reason="tells of a job; record_completion takes those")]


def refuse(error: MalformedEvent, body: bytes, clients: Clients, now: Clock) -> list[Outcome]:
    """An envelope that cannot be read is recorded once for each fault, however often the same bytes come.

    The fault counts too: what is wrong may stand in a header, as with Cloud Scheduler's calls, which have no body.
    """
    digest = hashlib.sha256(f"{error}\0".encode(errors="backslashreplace") + body).hexdigest()
    trigger = Trigger(kind="message", event_id=f"sha256:{digest}")
    run = build_refused((CUSTOM, "malformed", digest), trigger, error, settings=clients.settings, now=now())
    return [accept_and_submit(run, clients, now)]


def start_uploads(event: Upload | Ignored, clients: Clients, now: Clock) -> list[Outcome]:
    """Every recipe that watches the object. An empty object counts only as a marker."""
    upload = event.empty if isinstance(event, Ignored) else event
    assert upload is not None
    matches = clients.recipes.match_upload(upload.bucket, upload.name)
    if isinstance(event, Ignored):
        matches = [match for match in matches if match.role == "marker"]
        if not matches:
            return [Outcome("ignored", reason=event.reason)]
    if not matches:
        return [Outcome("ignored", reason=f"no recipe watches {upload.uri}")]
    outcomes = []
    for match in matches:
        found = settle(match, upload, ledger=clients.ledger, storage=clients.storage, now=now())
        if isinstance(found, Held):
            outcomes.append(Outcome("held", reason=f"{found.recipe} waits for {found.waiting_for}"))
        elif isinstance(found, NotCurrent):
            outcomes.append(Outcome("ignored", reason=found.reason))
        else:
            trigger = Trigger(kind="upload", event_id=upload.event_id, source=_source(upload), time=upload.time)
            outcomes.append(start_settled(found, trigger, clients, now))
    return outcomes


def start_settled(found: Settled, trigger: Trigger, clients: Clients, now: Clock) -> Outcome:
    """A complete dataset: its snapshot first, then the run, then the hold may go."""
    recipe = clients.recipes.get(found.recipe)
    if recipe is None:
        return Outcome("ignored", reason=f"the recipe {found.recipe} is gone")
    snapshot = write_snapshot(clients.storage, clients.settings, found)
    dataset = found.dataset.model_copy(update={"snapshot": snapshot})
    run = plan(Asked(build_request(recipe), recipe, found.key, trigger, dataset), clients, now)
    outcome = accept_and_submit(run, clients, now, before_submit=found.done)
    point("start.answered")
    return outcome


def start_message(message: Message, clients: Clients, now: Clock) -> Outcome:
    trigger = Trigger(
        kind="message",
        event_id=message.message_id,
        source=message.subscription or message.topic,
        time=message.publish_time,
    )
    key = (_named_recipe(message, clients), "message", message.message_id)
    try:
        payload = None if message.from_attributes else message.payload
        request = parse_request(payload, clients.recipes, message.attributes)
        key = (request.recipe, *(("key", request.idempotency_key) if request.idempotency_key else key[1:]))
        run = plan_looking(Asked(request, clients.recipes.get(request.recipe), key, trigger), clients, now)
    except PermanentError as error:
        run = build_refused(key, trigger, error, settings=clients.settings, now=now())
    return accept_and_submit(run, clients, now)


def start_tick(tick: Tick, clients: Clients, now: Clock) -> Outcome:
    recipe = clients.recipes.get(tick.job.removeprefix(SCHEDULER_PREFIX))
    if recipe is None or recipe.when.schedule is None:
        return Outcome("ignored", reason=f"no recipe has the schedule {tick.job}")
    key = (recipe.name, "tick", tick.schedule_time.astimezone(UTC).isoformat())
    trigger = Trigger(kind="tick", source=tick.job, time=tick.schedule_time)
    try:
        request = build_request(recipe, tick.payload)
        run = plan_looking(Asked(request, recipe, key, trigger), clients, now)
    except PermanentError as error:
        run = build_refused(key, trigger, error, settings=clients.settings, now=now(), recipe=recipe)
    return accept_and_submit(run, clients, now)


def plan_looking(asked: Asked, clients: Clients, now: Clock) -> Run:
    """The run of a request that no upload brought: its dataset, where it needs one, is what lies in the bucket now.

    Policy comes first, so that a request cannot make us list a bucket that it may not use. Raises InvalidRequest.
    """
    run = plan(asked, clients, now)
    if run.state is State.REJECTED or asked.recipe is None or not names_dataset(asked.recipe):
        return run
    if stored := clients.ledger.get_run(run.run_id):
        return run.model_copy(update={"dataset": stored.dataset})
    found = look_at(asked.recipe, dataset_uri(asked.request, asked.recipe), clients.storage)
    snapshot = write_snapshot(clients.storage, clients.settings, found)
    dataset = found.dataset.model_copy(update={"snapshot": snapshot})
    return plan(replace(asked, dataset=dataset), clients, now)


def plan(asked: Asked, clients: Clients, now: Clock) -> Run:
    return build_run(
        asked,
        settings=clients.settings,
        policy=clients.policy,
        recipes=clients.recipes,
        now=now(),
        paused=pause_reason(clients, asked.recipe),
    )


def accept_and_submit(
    run: Run, clients: Clients, now: Clock, before_submit: Callable[[], None] = lambda: None
) -> Outcome:
    """Once the run is stored the delivery is acknowledged, whatever Vertex AI does."""
    try:
        accepted = accept(clients.ledger, run)
    except PermanentError as error:
        refused = build_refused(
            (*run.key, run.trigger.event_id), run.trigger, error, settings=clients.settings, now=now()
        )
        accepted = accept(clients.ledger, refused)
    before_submit()
    stored = accepted.run
    if stored.state is State.QUEUED:
        stored = try_to_submit(stored, clients, now)
    return _outcome(stored, accepted.created)


def try_to_submit(run: Run, clients: Clients, now: Clock) -> Run:
    """The sweep goes on where this fails: the run is safe."""
    try:
        return submit(
            clients.ledger,
            clients.vertex,
            run.run_id,
            settings=clients.settings,
            now=now,
            max_total=clients.policy.max_active_total,
            fence=storage_fence(clients.storage),
        )
    except TransientError as error:
        return run.model_copy(update={"waiting_for": str(error)})  # for the answer only


def _outcome(run: Run, created: bool) -> Outcome:
    if run.state is State.REJECTED:
        reason = "; ".join(fault.message for fault in run.faults)
        return Outcome("rejected" if created else "duplicate", run.run_id, reason)
    if not created:
        return Outcome("duplicate", run.run_id, f"the request of run {run.run_id}, which is {run.state}")
    return Outcome("held" if run.state is State.HELD else "accepted", run.run_id, run.waiting_for)


def _named_recipe(message: Message, clients: Clients) -> str:
    """The recipe that a message names, where it exists: a refused request is filed under it."""
    name = message.payload.get("recipe")
    return name if isinstance(name, str) and clients.recipes.get(name) else CUSTOM


def _source(upload: Upload) -> str:
    return upload.uri if upload.generation is None else f"{upload.uri}#{upload.generation}"
