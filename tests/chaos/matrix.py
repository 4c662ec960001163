"""The crash matrix: what is under way when the process dies, and after which effect it dies."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kickoff.jobs import RUN_LABEL
from kickoff.ledger import SLOTS
from kickoff.runs import build_run_id

from tests.chaos.world import World

Delivery = tuple[str, bytes]
SWEEP: Delivery = ("sweep", b"")


@dataclass(frozen=True)
class Scenario:
    name: str
    prepare: Callable[[World], Delivery]
    """Everything up to the request in which the process is killed; returns that one."""
    runs: int = 1
    state: str = "SUCCEEDED"


def _ask(world: World, recipe: str = "plain", key: str = "k") -> Delivery:
    delivery = world.message({"recipe": recipe, "idempotency_key": key})
    world.deliveries.append(world.message({"recipe": recipe, "idempotency_key": key}))  # again, under another id
    return delivery


def _answered(kind: str, **fields: object) -> Callable[[World], Delivery]:
    def prepare(world: World) -> Delivery:
        world.fault("create", kind, **fields)
        return _ask(world)

    return prepare


def _after_an_uncertain_answer(kind: str, looks: int) -> Callable[[World], Delivery]:
    def prepare(world: World) -> Delivery:
        world.deliver(_answered(kind, **({"status": 503} if kind == "status" else {}))(world))
        for _ in range(looks):
            world.later()
            world.sweep()
        world.later()
        return SWEEP

    return prepare


def _two_jobs(world: World) -> Delivery:
    """The list shows the first job only after a second one was made."""
    run_id = build_run_id(("long", "key", "k"))
    world.fault("list", "lag", labels={RUN_LABEL: run_id})
    world.fault("create", "lose_answer")
    world.deliver(_ask(world, "long"))
    for _ in range(2):
        world.later()
        world.sweep()
    world.services.vertex.services.faults.clear()
    return SWEEP


def _ended(world: World) -> Delivery:
    world.deliver(_ask(world))
    [run] = world.runs()
    return world.completion(run)


def _ended_and_one_waits(world: World) -> Delivery:
    hint = _ended(world)
    world.deliver(_ask(world, key="second"))
    return hint


def _no_slot(world: World) -> Delivery:
    world.deliver(_ask(world))
    return _ask(world, key="second")


def _upload(world: World) -> Delivery:
    delivery = world.upload("flowers/a.jpg")
    world.deliveries.append(delivery)
    return delivery


def _quiet_dataset(world: World) -> Delivery:
    world.deliver(_upload(world))
    world.later(5)
    world.await_quiet(2.2)  # the date of a listing is in whole seconds
    return SWEEP


SCENARIOS = [
    Scenario("accept, submit", _ask),
    Scenario("submit, the answer is lost", _answered("lose_answer")),
    Scenario("submit, answered 429", _answered("status", status=429)),
    Scenario("submit, answered 500", _answered("status", status=500)),
    Scenario("submit, answered 503 after the job was made", _answered("lose_answer", status=503)),
    Scenario("submit, the connection is reset", _answered("reset")),
    Scenario("adopt", _after_an_uncertain_answer("lose_answer", 0)),
    Scenario("look and find no job", _after_an_uncertain_answer("status", 0)),
    Scenario("submit anew", _after_an_uncertain_answer("status", 1)),
    Scenario("drop a second job", _two_jobs, state="CANCELLED"),
    Scenario("queue", _no_slot, runs=2),
    Scenario("record", _ended),
    Scenario("record, start the next", _ended_and_one_waits, runs=2),
    Scenario("hold", _upload),
    Scenario("settle, accept, submit", _quiet_dataset),
]


def kill_points(trace: list[str]) -> list[str]:
    """``name#n`` of the first innermost effect's beginning, and of every innermost effect's end.

    Between two effects nothing leaves the process, so a death anywhere there is the same as at the first one's end.
    """
    passed: Counter[str] = Counter()
    points: list[str] = []
    for place, name in enumerate(trace):
        passed[name] += 1
        effect, _, side = name.rpartition(":")
        innermost = place > 0 and trace[place - 1] == f"{effect}:before"
        begins = side == "before" and not points and trace[place + 1 : place + 2] == [f"{effect}:after"]
        if (side == "after" and innermost) or begins:
            points.append(f"{name}#{passed[name]}")
    return points


def check(world: World, scenario: Scenario) -> str:
    """One run each, one job each that was not dropped, the right end. Returns the outcome in words."""
    runs = world.runs()
    assert len(runs) == scenario.runs, [run.run_id for run in runs]
    assert {run.state.value for run in runs} == {scenario.state}
    made = dropped = 0
    for run in runs:
        jobs = world.jobs(run)
        assert run.job and run.job.id in {job.id for job in jobs}
        others = {job.name for job in jobs if job.id != run.job.id}
        assert others == set(run.duplicate_jobs), "a job that is not noted"
        assert all(job.ended for job in jobs)
        made += len(jobs)
        dropped += len(others)
    assert world.ledger.list_documents(SLOTS) == []
    words = f"{len(runs)} run{'s' * (len(runs) > 1)} {scenario.state}, {made} job{'s' * (made > 1)}"
    return words + (f", {dropped} of them dropped and noted" if dropped else "")
