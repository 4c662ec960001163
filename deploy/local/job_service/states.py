"""The life of a job as data: the table of transitions, and what one replica's exit means for its job. Pure.

https://cloud.google.com/vertex-ai/docs/training/understanding-training-service
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

QUEUED = "JOB_STATE_QUEUED"
PENDING = "JOB_STATE_PENDING"
RUNNING = "JOB_STATE_RUNNING"
SUCCEEDED = "JOB_STATE_SUCCEEDED"
FAILED = "JOB_STATE_FAILED"
CANCELLING = "JOB_STATE_CANCELLING"
CANCELLED = "JOB_STATE_CANCELLED"
EXPIRED = "JOB_STATE_EXPIRED"

TRANSITIONS: Mapping[str, frozenset[str]] = {
    QUEUED: frozenset({PENDING, CANCELLING, EXPIRED, FAILED}),
    PENDING: frozenset({RUNNING, QUEUED, CANCELLING, EXPIRED, FAILED, SUCCEEDED}),
    RUNNING: frozenset({SUCCEEDED, FAILED, CANCELLING, PENDING, QUEUED}),
    CANCELLING: frozenset({CANCELLED}),
}
"""RUNNING goes back to PENDING when the whole job is retried, PENDING to QUEUED while resources are short; a
primary that exits 0 before the last replica is up takes PENDING straight to SUCCEEDED."""

TERMINAL = frozenset({SUCCEEDED, FAILED, CANCELLED, EXPIRED})
ENDED = TERMINAL | {state.replace("JOB", "PIPELINE") for state in TERMINAL}
"""Of jobs and of training pipelines, whose states are named alike."""

MAX_WORKER_RESTARTS = 5
MAX_JOB_RETRIES = 3

PERMANENT_EXITS = frozenset({*range(1, 74), 126, 127, 128, 139})
"""Exit statuses that end the job at once. The service has such a list ("common errors") and does not publish the
numbers. These are errors of the program itself: ordinary statuses below sysexits.h's EX_IOERR (74), from where on
trying again can help; what the shell says of a command that cannot run; a segmentation fault. What a signal from
outside ends (137, 143) is tried again, as in Kubeflow's training operator, which came out of Cloud ML Engine."""

PRIMARY = "workerpool0-0"


class Action(StrEnum):
    NOTHING = "nothing"
    SUCCEED = "succeed"
    FAIL = "fail"
    RESTART_REPLICA = "restart replica"
    RESTART_REPLICAS = "restart replicas"
    """`restart_job_on_worker_restart`: all of them, as one of the failed worker's restarts."""
    RETRY_JOB = "retry job"


@dataclass(frozen=True)
class Policy:
    """What a job's scheduling says about failures."""

    restart_all: bool = False
    disable_retries: bool = False
    permanent_exits: frozenset[int] = PERMANENT_EXITS


def decide_exit(
    replica: str, status: int, restarts: int, retries: int, policy: Policy, *, preempted: bool = False
) -> Action:
    """What to do after `replica` ended with `status` (128 + N for signal N).

    `restarts` is how often this replica was restarted in this try, `retries` how often the job was retried.
    A preempted replica's machine is gone: it is restarted whatever its status was, and never for exit 0.
    """
    if status == 0 and not preempted:
        return Action.SUCCEED if replica == PRIMARY else Action.NOTHING
    if policy.disable_retries or (status in policy.permanent_exits and not preempted):
        return Action.FAIL
    if restarts < MAX_WORKER_RESTARTS:
        return Action.RESTART_REPLICAS if policy.restart_all else Action.RESTART_REPLICA
    return Action.RETRY_JOB if retries < MAX_JOB_RETRIES else Action.FAIL
