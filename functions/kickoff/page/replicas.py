"""A run's replicas, as its CustomJob asked for them and as Vertex AI told of their exits. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kickoff.runs import Run, State

SHOWN = 64
"""Replicas of one job that get a row; those that failed get one in any case."""

_ROLES = ("primary", "worker", "parameter server or reduction server", "evaluator")
_STATES = {
    State.SUBMITTED: "provisioning",
    State.RUNNING: "running",
    State.SUCCEEDED: "ended",
    State.FAILED: "ended",
    State.CANCELLED: "ended",
    State.EXPIRED: "ended",
}


@dataclass(frozen=True)
class Replica:
    name: str
    """``workerpool0-0``."""
    role: str
    machine: str
    state: str
    note: str


def build_replicas(run: Run) -> tuple[list[Replica], int]:
    """(those that the page shows, how many more there are)."""
    shown: list[Replica] = []
    more = 0
    for replica in _every_replica(run):
        if len(shown) < SHOWN or replica.note:
            shown.append(replica)
        else:
            more += 1
    return shown, more


def _every_replica(run: Run) -> Iterator[Replica]:
    exits: dict[str, list[int]] = {}
    for exit_ in run.replica_exits:
        exits.setdefault(exit_.replica, []).append(exit_.status)
    for index, pool in enumerate(run.custom_job.get("jobSpec", {}).get("workerPoolSpecs", [])):
        machine = _machine(pool.get("machineSpec", {}))
        for number in range(int(pool.get("replicaCount", 0))):
            name = f"workerpool{index}-{number}"
            statuses = exits.get(name, [])
            state = "failed" if statuses and run.state is State.FAILED else _STATES.get(run.state, "waiting")
            note = f"exit {', '.join(map(str, statuses))}" if statuses else ""
            yield Replica(name, _ROLES[min(index, 3)], machine, state, note)


def _machine(spec: Mapping[str, Any]) -> str:
    text = str(spec.get("machineType", ""))
    if count := spec.get("acceleratorCount"):
        text += f" with {count} {spec.get('acceleratorType', '')}"
    return text
